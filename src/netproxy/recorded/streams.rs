//! Recorded streams: how each was dialled, what its origin proved, how it ended.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::error::{Blame, NetproxyError};
use super::super::failure::Failure;
use super::super::tls::Facts;
use super::carries::{Carried, Carries};
use super::diverged::Diverged;
use super::entry::Entry;
use super::playback::Ending;
use super::shelf::{Shelf, Taker};

/// How the end of an attempt reads that was given up.
pub(super) const GIVEN_UP: &str = "another address answered first";

/// What stands before the reason of a dial that failed.
const CANNOT_CONNECT: &str = "cannot connect: ";

/// The end of TLS may be missing at the end of a stream: it is no longer than this.
const CLOSING: u64 = 64;

/// One of them.
pub(crate) struct RecordedStream {
    entry: u64,
    proc: Option<String>,
    carried: Carried,
    /// Whom the client asked for, in TLS.
    name: Option<String>,
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
        let transcript = entry.blob(result.get("transcript"));
        Some(Self {
            entry: entry.number,
            proc: entry.proc.map(str::to_owned),
            carried: Carried::of(result, transcript.is_some()),
            name: result.get("sni").and_then(Value::as_str).map(str::to_owned),
            up: number("up")?,
            down: number("down")?,
            end,
            failure: Failure::recorded(result),
            failure_value: result.get("failure").cloned().unwrap_or_default(),
            waited: Duration::try_from_secs_f64(waited.unwrap_or_default()).unwrap_or_default(),
            requests: number("requests").unwrap_or_default(),
            tls: result.get("tls").cloned().unwrap_or_default(),
            transcript,
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

    fn is_accepted(&self) -> bool {
        matches!(self.dialled(), Dialled::Accepted)
    }

    /// Whether it can be played to a client that speaks this, and asks for `name`.
    fn fits(&self, carries: Carries, name: Option<&str>) -> bool {
        let is_named = !carries.is_named() || self.name.as_deref() == name;
        self.is_accepted() && self.carried.is(carries) && is_named
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
pub(super) struct Streams(Mutex<Held>);

/// Those that nobody has, and who has the others.
#[derive(Default)]
struct Held {
    shelf: Shelf<RecordedStream>,
    by: Vec<Weak<Played>>,
    /// By places.
    kinds: HashMap<String, Kinds>,
}

/// What the accepted connections to a place carried.
#[derive(Default)]
struct Kinds {
    first: Option<Carried>,
    is_mixed: bool,
    may_be_requests: bool,
}

impl Streams {
    pub(super) fn put(&self, key: String, proc: Option<String>, stream: RecordedStream) {
        let mut held = self.lock();
        // Clients keep some open for what may come: of one that carried nothing nobody knows what it was for.
        if stream.is_accepted() && (stream.up, stream.down) != (0, 0) {
            let kinds = held.kinds.entry(key.clone()).or_default();
            kinds.is_mixed |= *kinds.first.get_or_insert(stream.carried) != stream.carried;
            kinds.may_be_requests |= stream.carried.may_be_requests();
        }
        held.shelf.put([key], proc, Arc::new(stream));
    }

    /// The next one to `key`, until it is known what its client speaks. Where none is left, a client that makes
    /// requests needs none: each is answered by itself.
    pub(super) fn take(self: &Arc<Self>, key: &str, proc: Option<&str>) -> Result<Arc<Played>, Diverged> {
        let mut held = self.lock();
        let stream = held.shelf.take_by(key, proc).map(|(stream, _)| stream);
        if stream.is_none() && held.kinds.get(key).is_none_or(|kinds| !kinds.may_be_requests) {
            return Err(held.miss(key, None, None));
        }
        let played = Arc::new(Played {
            holds: Mutex::new(Holds { stream, is_settled: false }),
            streams: Arc::clone(self),
            key: key.to_owned(),
            proc: proc.map(str::to_owned),
            requests: AtomicU64::new(0),
            diverged: OnceLock::new(),
            is_tls: AtomicBool::new(false),
        });
        held.by.retain(|one| one.strong_count() > 0);
        held.by.push(Arc::downgrade(&played));
        Ok(played)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// One that fits a client, for the one that it has: first one of its own process, of those that are left or that
    /// a client has of which it is not known yet what it speaks.
    fn find(&mut self, played: &Played, own: &mut Holds, fits: impl Fn(&RecordedStream) -> bool) -> bool {
        let proc = played.proc.as_deref();
        for taker in [Taker::Same(proc), Taker::Any] {
            if let Some(found) = self.shelf.take(&played.key, taker, &fits) {
                if let Some(former) = own.stream.replace(found) {
                    self.shelf.give_back(&former);
                }
                return true;
            }
            for other in self.by.iter().filter_map(Weak::upgrade) {
                // The lock of a client's own is held.
                if std::ptr::eq(Arc::as_ptr(&other), played) || other.key != played.key {
                    continue;
                }
                let mut others = other.lock();
                let is_its = |stream: &RecordedStream| taker == Taker::Any || stream.proc.as_deref() == proc;
                if !others.is_settled && others.stream.as_deref().is_some_and(|one| is_its(one) && fits(one))
                {
                    std::mem::swap(&mut others.stream, &mut own.stream);
                    return true;
                }
            }
        }
        false
    }

    /// That there is none for a client to `key`, with the one that comes closest.
    fn miss(&self, key: &str, carries: Option<Carries>, name: Option<&str>) -> Diverged {
        let to_key: Vec<_> = self.shelf.of(key).filter(|stream| stream.is_accepted()).collect();
        let alike = carries.and_then(|carries| to_key.iter().find(|stream| stream.carried.is(carries)));
        let Some(closest) = alike.or_else(|| to_key.first()) else { return Diverged::NotRecorded(None) };
        let mut differs = Vec::new();
        let carried = closest.carried.as_str();
        match carries {
            Some(carries) if !closest.carried.is(carries) => {
                differs.push(json!({"field": "carries", "recorded": carried, "live": carries.as_str()}));
            }
            Some(carries) if !closest.fits(carries, name) => {
                differs.push(json!({"field": "sni", "recorded": closest.name, "live": name}));
            }
            _ => {
                let is_alike =
                    |stream: &&&RecordedStream| carries.is_none() || stream.carried == closest.carried;
                let count = to_key.iter().filter(is_alike).count();
                differs.push(json!({"field": "count", "recorded": count, "live": "one more"}));
            }
        }
        Diverged::NotRecorded(Some(Box::new(json!({"entry": closest.entry, "differs": differs}))))
    }
}

/// A recorded stream that a client has.
pub(crate) struct Played {
    holds: Mutex<Holds>,
    streams: Arc<Streams>,
    key: String,
    proc: Option<String>,
    requests: AtomicU64,
    diverged: OnceLock<String>,
    is_tls: AtomicBool,
}

/// What such a client has.
struct Holds {
    /// None where no more was recorded.
    stream: Option<Arc<RecordedStream>>,
    /// It is known what the client speaks, and this is played.
    is_settled: bool,
}

impl Played {
    /// The entry of what is played.
    pub(super) fn entry(&self) -> Option<u64> {
        self.stream().map(|stream| stream.entry)
    }

    /// How it was dialled, and how long that took.
    pub(super) fn dialled(&self) -> (Dialled, Duration) {
        self.stream().map_or((Dialled::Accepted, Duration::ZERO), |stream| (stream.dialled(), stream.waited))
    }

    pub(super) fn ending(&self) -> Ending {
        let ending =
            |stream: Arc<RecordedStream>| Ending { reason: stream.end.clone(), failure: stream.failure };
        self.stream().map(ending).unwrap_or_default()
    }

    pub(super) fn transcripts(&self) -> Vec<String> {
        self.stream().and_then(|stream| stream.transcript.clone()).into_iter().collect()
    }

    /// The client speaks this, and asks for `name`: it gets what was said to one that did the same.
    pub(super) fn settle(&self, carries: Carries, name: Option<&str>) -> Result<(), Diverged> {
        let mut held = self.streams.lock();
        let mut own = self.lock();
        own.is_settled = true;
        let fits = |stream: &RecordedStream| stream.fits(carries, name);
        if own.stream.as_deref().is_some_and(fits) || held.find(self, &mut own, fits) {
            return Ok(());
        }
        if let Some(former) = own.stream.take() {
            held.shelf.give_back(&former);
        }
        if carries.needs_none() { Ok(()) } else { Err(held.miss(&self.key, Some(carries), name)) }
    }

    /// Whether the recorded connections to its place did not all carry the same.
    pub(super) fn is_mixed(&self) -> bool {
        self.streams.lock().kinds.get(&self.key).is_some_and(|kinds| kinds.is_mixed)
    }

    fn stream(&self) -> Option<Arc<RecordedStream>> {
        self.lock().stream.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the origin had proved, or why it had not.
    pub(super) fn facts(&self) -> Result<Facts, NetproxyError> {
        let not_recorded = || NetproxyError::NotRecorded { what: format!("TLS with {}", self.key) };
        let stream = self.stream().ok_or_else(not_recorded)?;
        match (Facts::restored(&stream.tls), stream.failure) {
            (Some(facts), _) => Ok(facts),
            (None, Some(failure)) if failure.blame() != Blame::Agent => {
                Err(NetproxyError::Replayed { reason: stream.end.clone(), failure })
            }
            _ => Err(not_recorded()),
        }
    }

    /// Whether the connection takes one more request: one that the origin had ended does not, where there is
    /// another that came after it.
    pub(crate) fn takes_more(&self) -> bool {
        let recorded = self.stream().map(|stream| stream.requests);
        recorded.is_none_or(|recorded| self.requests.load(Ordering::Relaxed) < recorded)
            || !self.streams.lock().shelf.has(&self.key, self.proc.as_deref())
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
        let Some(stream) = self.stream() else { return };
        let tier = if stream.proc == self.proc { 0 } else { 2 };
        result["replayed"] = json!({"entry": stream.entry, "tier": tier});
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
