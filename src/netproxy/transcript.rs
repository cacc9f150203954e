//! The record of a session of datagrams: entries that each hold some of them, in order, with their
//! times; the payloads lie one after the other in a blob.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::decide::Grant;
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::round_micros;
use crate::trace::{BlobWriter, Event, Kind};

/// An entry is written so long after its first datagram at the latest.
const DELAY: Duration = Duration::from_secs(1);

/// Datagrams in one entry.
const MOST: usize = 256;

/// Bytes in one entry's blob.
const MOST_BYTES: u64 = 1 << 20;

/// How long to wait where nothing is to be written.
const NEVER: Duration = Duration::from_secs(3600);

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the program to the outside.
    Up,
    /// The other way.
    Down,
}

/// The record of one session. What it holds is written when it is dropped.
pub(crate) struct Transcript {
    egress: Arc<Egress>,
    args: Map<String, Value>,
    rule: String,
    proc: Option<String>,
    opened: Instant,
    entry: Option<Entry>,
}

/// What the next entry will say.
struct Entry {
    begun: Instant,
    payloads: BlobWriter,
    datagrams: Vec<Value>,
}

impl Transcript {
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
        Ok(Self { egress: Arc::clone(egress), args, rule, proc, opened: Instant::now(), entry: None })
    }

    /// Keeps one datagram, which may go on once this has returned.
    pub(crate) fn add(&mut self, direction: Direction, bytes: &[u8]) -> Result<(), NetproxyError> {
        self.egress.check_trace()?;
        let way = if direction == Direction::Up { "up" } else { "down" };
        let at = self.seconds();
        let entry = self.entry()?;
        let failed = |source: io::Error| NetproxyError::Trace { reason: source.to_string() };
        entry.payloads.write_all(bytes).map_err(failed)?;
        entry.datagrams.push(json!([way, at, bytes.len()]));
        if entry.datagrams.len() >= MOST || entry.payloads.size() >= MOST_BYTES {
            self.flush();
        }
        self.egress.check_trace()
    }

    /// Keeps that the outside refused.
    pub(crate) fn fail(&mut self, error: &io::Error) {
        let at = self.seconds();
        // A trace that has failed stops the run by itself.
        if let Ok(entry) = self.entry() {
            entry.datagrams.push(json!(["failed", at, error.to_string()]));
        }
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
        let Some(entry) = self.entry.take() else { return };
        let Ok(payloads) = entry.payloads.finish() else { return };
        let result = json!({"datagrams": entry.datagrams, "payloads": Value::from(payloads)});
        let mut event = Event::new(Kind::Effect, "net.datagram").result(result).rule(&*self.rule);
        event.args = self.args.clone();
        event.proc.clone_from(&self.proc);
        // A failure stays with the recorder, and the run stops for it.
        let _ = self.egress.record(event);
    }

    fn entry(&mut self) -> Result<&mut Entry, NetproxyError> {
        let entry = match self.entry.take() {
            Some(entry) => entry,
            None => {
                let blob = self.egress.recorder.blob();
                let payloads = blob.map_err(|error| NetproxyError::Trace { reason: error.to_string() })?;
                Entry { begun: Instant::now(), payloads, datagrams: Vec::new() }
            }
        };
        Ok(self.entry.insert(entry))
    }

    fn seconds(&self) -> f64 {
        round_micros(self.opened.elapsed().as_secs_f64())
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        self.flush();
    }
}
