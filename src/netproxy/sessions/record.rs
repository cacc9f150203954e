//! The record of a session of datagrams: entries that each hold some of them, in the form of a
//! stream's transcript, one record for each datagram.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::netproxy::decide::Grant;
use crate::netproxy::egress::Egress;
use crate::netproxy::error::{Blame, NetproxyError};
use crate::netproxy::failure::Failure;
use crate::netproxy::flow::text_bound;
use crate::netproxy::recorded::Diverged;
use crate::netproxy::segments::Way;
use crate::netproxy::transcript::Transcript;
use crate::trace::{Event, Kind, Promise};

/// An entry is written so long after its first datagram at the latest.
const DELAY: Duration = Duration::from_secs(1);

/// Datagrams in one entry.
const MOST: u64 = 256;

/// Bytes in one entry.
const MOST_BYTES: u64 = 1 << 20;

/// How long to wait where nothing is to be written.
const NEVER: Duration = Duration::from_secs(3600);

/// The record of one session. What it holds is written when it is dropped.
pub(crate) struct Record {
    egress: Arc<Egress>,
    args: Map<String, Value>,
    rule: String,
    proc: Option<String>,
    opened: Clock,
    entry: Option<Entry>,
}

/// Room for one entry, besides the names that it says.
const ROOM: u64 = 2 << 10;

/// What the next entry will say.
struct Entry {
    begun: Instant,
    transcript: Arc<Transcript>,
    /// Datagrams of each way.
    up: u64,
    down: u64,
    failure: Option<Value>,
    promise: Promise,
}

impl Record {
    /// Records that the session begins. Nothing may be sent before this has returned.
    pub(crate) fn begin(
        egress: &Arc<Egress>,
        grant: &Grant,
        session: u64,
        proc: Option<String>,
    ) -> Result<Self, NetproxyError> {
        let mut args = Map::new();
        args.insert("names".to_owned(), grant.name_list().into());
        args.insert("address".to_owned(), grant.destination.ip().to_string().into());
        args.insert("port".to_owned(), grant.destination.port().into());
        args.insert("session".to_owned(), session.into());
        args.insert("via".to_owned(), "datagram".into());
        let rule = grant.rule().to_owned();
        let mut event = Event::new(Kind::Observe, "net.connect").rule(&*rule);
        event.args = args.clone();
        event.proc.clone_from(&proc);
        egress.record(event)?;
        Ok(Self { egress: Arc::clone(egress), args, rule, proc, opened: Clock::now(), entry: None })
    }

    /// Waits until one more can be kept.
    pub(crate) async fn ready(&self) -> Result<(), NetproxyError> {
        self.egress.scribe.ready().await
    }

    /// Keeps one datagram, which may go on then; not after an error.
    pub(crate) fn add(&mut self, way: Way, bytes: &[u8]) -> Result<(), NetproxyError> {
        let entry = self.entry()?;
        entry.transcript.add(way, bytes)?;
        match way {
            Way::Up => entry.up += 1,
            Way::Down => entry.down += 1,
        }
        let all = entry.transcript.bytes(Way::Up) + entry.transcript.bytes(Way::Down);
        if entry.up + entry.down >= MOST || all >= MOST_BYTES {
            self.flush();
        }
        Ok(())
    }

    /// Keeps that the outside refused.
    pub(crate) fn fail(&mut self, error: &io::Error) {
        // Without room for it the run stops.
        let Ok(entry) = self.entry() else { return };
        let received = entry.transcript.bytes(Way::Down);
        entry.failure.get_or_insert_with(|| {
            let mut failure = Failure::io(error, Blame::Upstream).value(received);
            if let Some(diverged) = Diverged::of(error) {
                diverged.describe(&mut failure);
            }
            failure
        });
    }

    /// When the entry must be written.
    pub(crate) fn due(&self) -> Instant {
        match &self.entry {
            Some(entry) => entry.begun + DELAY,
            None => Instant::now() + NEVER,
        }
    }

    /// Writes the entry.
    pub(crate) fn flush(&mut self) {
        let Some(Entry { transcript, up, down, failure, promise, .. }) = self.entry.take() else { return };
        let bytes = |way| transcript.bytes(way);
        let mut result = json!({
            "datagrams": {"up": up, "down": down},
            "up": bytes(Way::Up),
            "down": bytes(Way::Down),
        });
        if let Some(mut failure) = failure {
            failure["received"] = bytes(Way::Down).into();
            result["failure"] = failure;
        }
        let mut event = Event::new(Kind::Effect, "net.datagram").rule(&*self.rule);
        event.args = self.args.clone();
        event.proc.clone_from(&self.proc);
        let transcript = transcript.finish();
        // A failure stays with the recorder, and the run stops for it.
        self.egress.scribe.record(promise, move |desk| {
            result["transcript"] = transcript(desk)?;
            Ok(event.result(result))
        });
    }

    fn entry(&mut self) -> Result<&mut Entry, NetproxyError> {
        let entry = match self.entry.take() {
            Some(entry) => entry,
            None => Entry {
                begun: Instant::now(),
                transcript: Transcript::begin(&self.egress.scribe, self.opened),
                up: 0,
                down: 0,
                failure: None,
                promise: self.egress.promise(ROOM + text_bound(&self.args))?,
            },
        };
        Ok(self.entry.insert(entry))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.flush();
    }
}
