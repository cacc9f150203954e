//! Recorded sessions of datagrams, played: each answer when the program has sent what it had sent before it came.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::Recording;
use super::diverged::Diverged;
use super::entry::Entry;
use super::records::{Records, What};
use super::shelf::Shelf;
use super::streams::told;
use crate::netproxy::delays;
use crate::netproxy::failure::Failure;
use crate::netproxy::segments::Way;
use crate::netproxy::standstill;

/// The largest datagram of IP (RFC 768).
const LARGEST: u64 = 65_535;

/// One session: its entries in order.
#[derive(Default)]
pub(super) struct RecordedSession {
    /// The first of its entries.
    entry: u64,
    proc: Option<String>,
    key: String,
    parts: Vec<Part>,
}

/// What one entry says.
struct Part {
    transcript: Option<String>,
    /// Datagrams of both ways.
    count: u64,
    failure: Option<Failure>,
}

/// Those of a recording while it is read, by their numbers.
#[derive(Default)]
pub(super) struct Opened(BTreeMap<u64, RecordedSession>);

/// Those of a recording.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Shelf<RecordedSession>>);

impl Opened {
    /// Of a `net.datagram`. None when it is none.
    pub(super) fn put(&mut self, entry: &Entry<'_>, key: String) -> Option<()> {
        let number = entry.args.get("session")?.as_u64()?;
        let counts = entry.result.get("datagrams")?;
        let count = |way: &str| counts.get(way).and_then(Value::as_u64).unwrap_or_default();
        let session = self
            .0
            .entry(number)
            .or_insert_with(|| RecordedSession { entry: entry.number, ..Default::default() });
        session.proc = entry.proc.map(str::to_owned);
        session.key = key;
        session.parts.push(Part {
            transcript: entry.blob(entry.result.get("transcript")),
            count: count("up").saturating_add(count("down")),
            failure: Failure::recorded(entry.result),
        });
        Some(())
    }

    pub(super) fn close(self) -> Sessions {
        let mut shelf = Shelf::default();
        for session in self.0.into_values() {
            shelf.put([session.key.clone()], session.proc.clone(), Arc::new(session));
        }
        Sessions(Mutex::new(shelf))
    }
}

impl Recording {
    /// The next session to `key`.
    pub(super) fn session(&self, key: &str, proc: Option<&str>) -> io::Result<PlayedDatagrams> {
        let mut shelf = self.sessions.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((session, _)) = shelf.take_by(key, proc) else {
            return Err(Diverged::NotRecorded(miss(&shelf, key)).into());
        };
        let names = || session.parts.iter().filter_map(|part| part.transcript.clone());
        let mut ends = HashSet::new();
        let mut passed = 0;
        let mut failures = VecDeque::new();
        for part in &session.parts {
            passed += part.count;
            ends.insert(passed);
            failures.extend(part.failure.map(|failure| (passed, failure)));
        }
        let mut played = PlayedDatagrams {
            said: Records::new(self.blobs(), names()),
            heard: Records::new(self.blobs(), names()),
            due: Due::default(),
            is_paced: self.is_paced(),
            up: 0,
            passed: 0,
            ends,
            failures,
            has_diverged: false,
            sent: Notify::new(),
        };
        played.advance()?;
        Ok(played)
    }
}

/// A recorded session that is played.
pub struct PlayedDatagrams {
    said: Records,
    heard: Records,
    due: Due,
    /// Datagrams that the program has sent.
    up: u64,
    /// Those of both ways.
    passed: u64,
    /// After how many an entry ended.
    ends: HashSet<u64>,
    is_paced: bool,
    /// After how many the outside refused.
    failures: VecDeque<(u64, Failure)>,
    has_diverged: bool,
    sent: Notify,
}

/// The next answer, and how many datagrams the program had sent before it.
#[derive(Default)]
struct Due {
    up: u64,
    next: Option<u64>,
    /// When it came, on the clock of its transcript, and how long after what was before it.
    micros: u64,
    gap: Duration,
    /// The time of the run at which it comes, where it does not come at once, since that is known.
    at: Option<Option<Duration>>,
}

impl PlayedDatagrams {
    /// Compares what the program sends.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.has_diverged {
            return Err(self.diverged());
        }
        let recorded = loop {
            match self.said.next()? {
                Some(record) if record.way == Way::Up => break Some(read(&mut self.said, record.what)?),
                Some(_) => {}
                None => break None,
            }
        };
        if recorded.as_deref() != Some(bytes) {
            self.has_diverged = true;
            return Err(self.diverged());
        }
        self.up += 1;
        self.passed += 1;
        self.sent.notify_one();
        Ok(())
    }

    /// The next answer, or refusal, once it is due.
    pub(crate) async fn receive(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some((after, failure)) = self.failures.front().copied()
                && self.passed >= after
                && !self.has_diverged
            {
                self.failures.pop_front();
                return Err(told(failure.kind(), Some(failure)));
            }
            if let Some(length) = self.due.next.filter(|_| self.up >= self.due.up && !self.has_diverged) {
                // This future may be dropped for the next datagram of the program.
                let Due { gap, .. } = self.due;
                let in_time = || delays::due(gap).or_else(|| self.is_paced.then(|| delays::now() + gap));
                if let Some(at) = *self.due.at.get_or_insert_with(in_time) {
                    delays::wait(at).await;
                }
                let bytes = read(&mut self.heard, What::Piece(length))?;
                self.passed += 1;
                self.advance()?;
                return Ok(bytes);
            }
            tokio::select! {
                () = self.sent.notified() => {}
                // It waits for an answer that came after more had been sent, and nothing else of the run goes on.
                () = standstill::comes() => {
                    self.has_diverged = true;
                    return Err(self.diverged());
                }
            }
        }
    }

    fn diverged(&self) -> io::Error {
        Diverged::At { byte: 0, record: Some(format!("datagram {}", self.up + 1)) }.into()
    }

    /// Whether the entry ended here: it does so again.
    pub(crate) fn ends_entry(&self) -> bool {
        self.ends.contains(&self.passed)
    }

    fn advance(&mut self) -> io::Result<()> {
        (self.due.next, self.due.at) = (None, None);
        while let Some(record) = self.heard.next()? {
            // Each transcript has a clock of its own, which begins at 0.
            self.due.gap = Duration::from_micros(record.micros.saturating_sub(self.due.micros));
            self.due.micros = record.micros;
            match (record.way, record.what) {
                (Way::Up, _) => self.due.up += 1,
                (Way::Down, What::Piece(length)) => {
                    self.due.next = Some(length);
                    return Ok(());
                }
                (Way::Down, What::Stop(_)) => {}
            }
        }
        Ok(())
    }
}

/// The first session to `key`, where all have been played.
fn miss(shelf: &Shelf<RecordedSession>, key: &str) -> Option<Box<Value>> {
    let entry = shelf.of(key).next()?.entry;
    let differs = json!([{"field": "count", "recorded": shelf.of(key).count(), "live": "one more"}]);
    Some(Box::new(json!({"entry": entry, "differs": differs})))
}

fn read(records: &mut Records, what: What) -> io::Result<Vec<u8>> {
    let What::Piece(length) = what else { return Ok(Vec::new()) };
    let length = usize::try_from(length.min(LARGEST)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match records.read(&mut bytes[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(bytes)
}
