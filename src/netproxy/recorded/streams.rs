//! Recorded streams: how each was dialled, what its origin proved, how it ended.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::error::{Blame, NetproxyError};
use super::super::failure::Failure;
use super::super::tls::Facts;
use super::entry::Entry;
use super::playback::Ending;
use super::shelf::Shelf;

/// How the end of an attempt reads that was given up.
const GIVEN_UP: &str = "another address answered first";

/// What stands before the reason of a dial that failed.
const CANNOT_CONNECT: &str = "cannot connect: ";

/// The end of TLS may be missing at the end of a stream: it is no longer than this.
const CLOSING: u64 = 64;

/// One of them.
pub(crate) struct RecordedStream {
    entry: u64,
    up: u64,
    down: u64,
    end: String,
    failure: Option<Failure>,
    failure_value: Value,
    /// How long it took to be accepted, or not.
    waited: Duration,
    requests: u64,
    tls: Value,
    transcript: Option<String>,
}

/// How a recorded dial went.
pub(super) enum Dialled {
    Accepted,
    Failed(io::Error),
    GivenUp,
}

impl RecordedStream {
    /// Of a `net.stream`. None when it is none.
    pub(super) fn of(entry: &Entry<'_>) -> Option<Self> {
        let result = entry.result;
        let number = |key: &str| result.get(key).and_then(Value::as_u64);
        let seconds = |key: &str| result.get(key).and_then(Value::as_f64).filter(|seconds| *seconds >= 0.0);
        let end = result.get("end")?.as_str()?.to_owned();
        // A dial that failed was all that there was of its stream.
        let waited = if end.starts_with(CANNOT_CONNECT) { seconds("seconds") } else { seconds("waited") };
        Some(Self {
            entry: entry.number,
            up: number("up")?,
            down: number("down")?,
            end,
            failure: Failure::recorded(result),
            failure_value: result.get("failure").cloned().unwrap_or_default(),
            waited: Duration::try_from_secs_f64(waited.unwrap_or_default()).unwrap_or_default(),
            requests: number("requests").unwrap_or_default(),
            tls: result.get("tls").cloned().unwrap_or_default(),
            transcript: entry.blob(result.get("transcript")),
        })
    }

    /// When it was opened, in seconds since the epoch.
    pub(super) fn opened(entry: &Entry<'_>) -> f64 {
        let opened = entry.result.get("opened").and_then(Value::as_f64);
        let seconds = entry.result.get("seconds").and_then(Value::as_f64).unwrap_or_default();
        opened.unwrap_or(entry.time - seconds)
    }

    pub(super) fn dialled(&self) -> Dialled {
        if self.end == GIVEN_UP {
            return Dialled::GivenUp;
        }
        match self.end.strip_prefix(CANNOT_CONNECT) {
            Some(reason) => Dialled::Failed(told(reason, self.failure)),
            None => Dialled::Accepted,
        }
    }

    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    pub(super) fn ending(&self) -> Ending {
        Ending { reason: self.end.clone(), failure: self.failure }
    }

    pub(super) fn transcripts(&self) -> Vec<String> {
        self.transcript.iter().cloned().collect()
    }
}

/// An error of a socket that reads as it was recorded.
pub(super) fn told(reason: &str, failure: Option<Failure>) -> io::Error {
    let code = reason.rsplit_once("(os error ").and_then(|(_, rest)| rest.strip_suffix(')'));
    if let Some(code) = code.and_then(|code| code.parse().ok()) {
        let error = io::Error::from_raw_os_error(code);
        if error.to_string() == reason {
            return error;
        }
    }
    let kind = match failure.map(Failure::kind) {
        Some("refused") => io::ErrorKind::ConnectionRefused,
        Some("reset") => io::ErrorKind::ConnectionReset,
        Some("timeout") => io::ErrorKind::TimedOut,
        Some("unreachable") => io::ErrorKind::HostUnreachable,
        Some("truncated") => io::ErrorKind::UnexpectedEof,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, reason)
}

/// All of a recording.
#[derive(Default)]
pub(super) struct Streams(Mutex<Shelf<RecordedStream>>);

impl Streams {
    pub(super) fn put(&self, key: String, proc: Option<String>, stream: RecordedStream) {
        self.lock().put([key], proc, Arc::new(stream));
    }

    /// The next one to `key`.
    pub(super) fn take(self: &Arc<Self>, key: &str, proc: Option<&str>) -> Option<Arc<Played>> {
        let (stream, is_same) = self.lock().take_by(key, proc)?;
        Some(Arc::new(Played {
            stream,
            streams: Arc::clone(self),
            key: key.to_owned(),
            proc: proc.map(str::to_owned),
            tier: if is_same { 0 } else { 2 },
            requests: AtomicU64::new(0),
            diverged: OnceLock::new(),
            is_tls: AtomicBool::new(false),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Shelf<RecordedStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A recorded stream that a client has.
pub(crate) struct Played {
    stream: Arc<RecordedStream>,
    streams: Arc<Streams>,
    key: String,
    proc: Option<String>,
    tier: u8,
    requests: AtomicU64,
    diverged: OnceLock<String>,
    is_tls: AtomicBool,
}

impl Played {
    pub(super) fn stream(&self) -> &RecordedStream {
        &self.stream
    }

    /// What the origin had proved, or why it had not.
    pub(super) fn facts(&self) -> Result<Facts, NetproxyError> {
        match (Facts::restored(&self.stream.tls), self.stream.failure) {
            (Some(facts), _) => Ok(facts),
            (None, Some(failure)) if failure.blame() != Blame::Agent => {
                Err(NetproxyError::Replayed { reason: self.stream.end.clone(), failure })
            }
            _ => Err(NetproxyError::NotRecorded { what: format!("TLS with {}", self.key) }),
        }
    }

    /// Whether the connection takes one more request: one that the origin had ended does not, where there is
    /// another that came after it.
    pub(crate) fn takes_more(&self) -> bool {
        self.requests.load(Ordering::Relaxed) < self.stream.requests
            || !self.streams.lock().has(&self.key, self.proc.as_deref())
    }

    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Where the client said something else.
    pub(super) fn set_diverged(&self, place: String) {
        // It is told once: the stream breaks off then.
        let _ = self.diverged.set(place);
    }

    pub(super) fn set_tls(&self) {
        self.is_tls.store(true, Ordering::Relaxed);
    }

    /// Adds to the record of the stream what it was played from. Where its bytes were not compared one by one,
    /// requests were: then its numbers and its end are those that were recorded.
    pub(crate) fn describe(&self, result: &mut Value, is_transcribed: bool) {
        let stream = &self.stream;
        result["replayed"] = json!({"entry": stream.entry, "tier": self.tier});
        let diverged = self.diverged.get();
        if let (Some(place), Some(failure)) = (diverged, result.get_mut("failure")) {
            failure["at"] = place.as_str().into();
        }
        let (up, down) = (result["up"].as_u64().unwrap_or(0), result["down"].as_u64().unwrap_or(0));
        let is_closed_otherwise = self.is_tls.load(Ordering::Relaxed) && up.abs_diff(stream.up) <= CLOSING;
        let is_same = diverged.is_none() && down == stream.down && (up == stream.up || is_closed_otherwise);
        let is_ours = |result: &Value| {
            let side = result.get("failure").and_then(|failure| failure.get("side"));
            side.is_none_or(|side| side == "agent")
        };
        if is_transcribed && !(is_same && is_ours(result)) {
            return;
        }
        let kind = |failure: Option<&Value>| failure.and_then(|failure| failure.get("kind")).cloned();
        let failed = kind(result.get("failure"));
        if !is_transcribed && failed.is_some() && failed != kind(Some(&stream.failure_value)) {
            return;
        }
        // Who closed first, and how, is a race.
        result["up"] = stream.up.into();
        result["down"] = stream.down.into();
        result["end"] = stream.end.as_str().into();
        match (&stream.failure_value, result.as_object_mut()) {
            (Value::Null, Some(result)) => _ = result.remove("failure"),
            (failure, Some(result)) => _ = result.insert("failure".to_owned(), failure.clone()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_they_were_recorded() {
        let refused = io::Error::from_raw_os_error(111);
        let again = told(&refused.to_string(), None);
        assert_eq!((again.raw_os_error(), again.to_string()), (Some(111), refused.to_string()));
        let timeout = Some(Failure::new("timeout", Blame::Upstream));
        let again = told("timed out", timeout);
        assert_eq!((again.kind(), again.to_string()), (io::ErrorKind::TimedOut, "timed out".to_owned()));
        assert_eq!(Failure::io(&again, Blame::Upstream), Failure::new("timeout", Blame::Upstream));
    }
}
