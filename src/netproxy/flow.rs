//! One stream to the outside: recorded when it is opened, and again when it ends.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::decide::Grant;
pub(crate) use super::door::Door;
use super::egress::Egress;
use super::error::{Blame, NetproxyError};
use super::failure::Failure;
use super::idle::IdleClock;
use super::metered::Metered;
use super::origin::OriginStream;
use super::recorded::{Carries, Diverged, Playback, Played};
use super::relay::End;
use super::resolve::Wanted;
use super::tls::Facts;
use super::transcript::Transcript;
use crate::trace::{Event, Kind, Promise};

/// An origin that takes so long to accept was not the only one that was tried.
const SLOW: Duration = Duration::from_millis(200);

/// Room for the entry of a stream's end, besides the texts that it repeats.
const ROOM: u64 = 3 << 10;

/// The record of one stream. When the last holder drops it, the stream's end is recorded.
pub(crate) struct Flow {
    egress: Arc<Egress>,
    args: Map<String, Value>,
    rule: String,
    proc: Option<String>,
    idle: IdleClock,
    opened: Instant,
    /// Seconds since the epoch.
    opened_at: f64,
    up: AtomicU64,
    down: AtomicU64,
    learned: Mutex<Learned>,
    promise: Promise,
}

/// What is learned of a stream while it lives.
#[derive(Default)]
struct Learned {
    protocol: Option<&'static str>,
    server_name: Option<String>,
    end: Option<String>,
    /// Why it failed, and how many bytes had come for the client until then.
    failure: Option<(Failure, u64)>,
    transcript: Option<Arc<Transcript>>,
    /// How long the origin took to accept, where that was long.
    waited: Option<Duration>,
    /// Requests that were sent on it.
    requests: u64,
    /// What the origin proved.
    tls: Option<Value>,
    /// In a replay: what it is played from.
    played: Option<Arc<Played>>,
    /// In a replay: why nothing is played.
    missed: Option<Diverged>,
}

impl Flow {
    /// Records the connect. Nothing may be dialled before this has returned.
    pub(crate) fn open(
        egress: &Arc<Egress>,
        grant: &Grant,
        door: Door,
        proc: Option<&str>,
        idle: &IdleClock,
    ) -> Result<Arc<Self>, NetproxyError> {
        let mut args = Map::new();
        args.insert("names".to_owned(), grant.name_list().into());
        args.insert("address".to_owned(), grant.destination.ip().to_string().into());
        args.insert("port".to_owned(), grant.destination.port().into());
        Self::begin(egress, args, grant.rule(), door, proc, idle)
    }

    /// The same for what has no address: a Unix socket.
    pub(crate) fn begin(
        egress: &Arc<Egress>,
        mut args: Map<String, Value>,
        rule: &str,
        door: Door,
        proc: Option<&str>,
        idle: &IdleClock,
    ) -> Result<Arc<Self>, NetproxyError> {
        args.insert("via".to_owned(), door.as_str().into());
        let op = if door == Door::Listen { "net.accept" } else { "net.connect" };
        let mut event = Event::new(Kind::Observe, op).rule(rule);
        event.args = args.clone();
        event.proc = proc.map(str::to_owned);
        let promise = egress.promise(ROOM + text_bound(&args))?;
        egress.record(event)?;
        egress.open.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Self {
            egress: Arc::clone(egress),
            args,
            rule: rule.to_owned(),
            proc: proc.map(str::to_owned),
            idle: idle.clone(),
            opened: Instant::now(),
            opened_at: now(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            learned: Mutex::default(),
            promise,
        }))
    }

    /// Dials the destination of the flow; a failure is the flow's end.
    pub(crate) async fn dial(
        self: &Arc<Self>,
        destination: SocketAddr,
    ) -> Result<Metered<OriginStream>, NetproxyError> {
        let begun = Instant::now();
        let wanted = Wanted { destination, proc: self.proc.as_deref() };
        let connected = self.egress.outside().await.connect(wanted).await;
        // Small writes must not wait for acknowledgements on either leg (40 ms stalls).
        let connected = connected.and_then(|stream| stream.set_nodelay().map(|()| stream));
        let waited = begun.elapsed();
        match connected {
            Ok(stream) => {
                self.learn(|learned| learned.waited = (waited > SLOW).then_some(waited));
                if let Some(played) = stream.played() {
                    self.set_played(played);
                }
                Ok(self.meter(stream))
            }
            Err(source) => {
                self.fail_to_connect(&source);
                Err(NetproxyError::Dial { address: destination, source })
            }
        }
    }

    /// Counts what goes through `stream`, which is the outer leg.
    pub(crate) fn meter<S>(self: &Arc<Self>, stream: S) -> Metered<S> {
        Metered { stream, flow: Arc::clone(self) }
    }

    /// Counts bytes of the client's.
    pub(crate) fn count_up(&self, bytes: usize) {
        self.count(&self.up, bytes);
    }

    /// Counts bytes for the client.
    pub(crate) fn count_down(&self, bytes: usize) {
        self.count(&self.down, bytes);
    }

    fn count(&self, counter: &AtomicU64, bytes: usize) {
        let bytes = bytes as u64;
        counter.fetch_add(bytes, Ordering::Relaxed);
        self.egress.moved.fetch_add(bytes, Ordering::Relaxed);
        if bytes > 0 {
            self.idle.note_bytes();
        }
    }

    pub(crate) fn set_protocol(&self, protocol: &'static str) {
        self.learn(|learned| learned.protocol = Some(protocol));
    }

    pub(crate) fn set_server_name(&self, name: Option<&str>) {
        self.learn(|learned| learned.server_name = name.map(str::to_owned));
    }

    /// One more request goes out on it.
    pub(crate) fn count_request(&self) {
        self.learn(|learned| learned.requests += 1);
    }

    /// Requests that went out on it.
    pub(crate) fn requests(&self) -> u64 {
        self.learn(|learned| learned.requests)
    }

    /// It did not, after all: where it was the first, how the connection ended is not how the stream does.
    pub(crate) fn uncount_request(&self) {
        self.learn(|learned| {
            learned.requests = learned.requests.saturating_sub(1);
            if learned.requests == 0 {
                (learned.end, learned.failure) = (None, None);
            }
        });
    }

    /// What the origin proved; the names of its certificate where clients are shown them too.
    pub(crate) fn set_tls(&self, facts: &Facts, is_fresh: bool) {
        if self.egress.replayable {
            self.learn(|learned| learned.tls = Some(facts.stored(is_fresh)));
        }
    }

    /// In a replay: it is played from this.
    pub(crate) fn set_played(&self, played: &Arc<Played>) {
        self.learn(|learned| learned.played = Some(Arc::clone(played)));
    }

    /// In a replay: it is known what is said on it. An error means that nothing of the kind was recorded; whoever
    /// reads or writes it gets that as well.
    pub(crate) fn settle(&self, stream: &mut Playback, carries: Carries) -> std::io::Result<()> {
        let name = self.learn(|learned| learned.server_name.clone());
        stream.settle(carries, name.as_deref())
    }

    /// The same of bytes that are passed on unread, or of a client that `is_silent` so far.
    pub(crate) fn settle_unread(&self, stream: &mut OriginStream, is_silent: bool) {
        if let OriginStream::Recorded(playback) = stream {
            let is_tls = self.learn(|learned| learned.protocol.is_some());
            // Its first reader is told.
            let carries = match (is_tls, is_silent) {
                (true, _) => Carries::Tls,
                (false, true) => Carries::Nothing,
                (false, false) => Carries::Bytes,
            };
            let _ = self.settle(playback, carries);
        }
    }

    /// Nobody has accepted.
    pub(crate) fn fail_to_connect(&self, error: &std::io::Error) {
        self.note_missed(error);
        self.fail(&format!("cannot connect: {error}"), Failure::io(error, Blame::Upstream));
    }

    fn note_missed(&self, error: &std::io::Error) {
        self.learn(|learned| learned.missed = learned.missed.take().or_else(|| Diverged::of(error)));
    }

    /// Why it ended; the first reason stays.
    pub(crate) fn set_end(&self, reason: &str) {
        self.learn(|learned| {
            learned.end.get_or_insert_with(|| reason.to_owned());
        });
    }

    /// Why it failed; the first reason stays.
    pub(crate) fn fail(&self, reason: &str, failure: Failure) {
        self.learn(|learned| {
            if learned.end.is_none() {
                let received = self.down.load(Ordering::Relaxed);
                learned.failure.get_or_insert((failure, received));
            }
        });
        self.set_end(reason);
    }

    /// The end of a relay.
    pub(crate) fn set_relayed(&self, end: &End) {
        if let End::Upstream(error) = end {
            self.note_missed(error);
        }
        match end.failure() {
            Some(failure) => self.fail(&end.reason(), failure),
            None => self.set_end(&end.reason()),
        }
    }

    /// From here on the bytes are opaque, and all of them are recorded.
    pub(crate) fn transcribe(&self) -> Arc<Transcript> {
        let transcript = Transcript::begin(&self.egress.scribe, self.opened);
        self.learn(|learned| learned.transcript = Some(Arc::clone(&transcript)));
        transcript
    }

    fn learn<T>(&self, change: impl FnOnce(&mut Learned) -> T) -> T {
        change(&mut self.learned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Learned {
    /// What a replay needs besides.
    fn describe(&self, result: &mut Value) {
        if self.requests > 0 {
            result["requests"] = self.requests.into();
        }
        if let Some(waited) = self.waited {
            result["waited"] = round_micros(waited.as_secs_f64()).into();
        }
        if let Some(tls) = &self.tls {
            result["tls"] = tls.clone();
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.egress.open.fetch_sub(1, Ordering::Relaxed);
        if let Some((reason, failure)) = self.idle.failure() {
            self.fail(&reason, failure);
        }
        let learned = std::mem::take(&mut *self.learned.lock().unwrap_or_else(PoisonError::into_inner));
        let unnamed = if self.egress.ends() { "the run ended" } else { "closed" };
        let seconds = round_micros(self.opened.elapsed().as_secs_f64());
        let mut result = json!({
            "up": self.up.load(Ordering::Relaxed),
            "down": self.down.load(Ordering::Relaxed),
            "seconds": seconds,
            "end": learned.end.as_deref().unwrap_or(unnamed),
        });
        if let Some(protocol) = learned.protocol {
            result["protocol"] = protocol.into();
        }
        if let Some(name) = &learned.server_name {
            result["sni"] = name.as_str().into();
        }
        if let Some((failure, received)) = learned.failure {
            result["failure"] = failure.value(received);
            if let Some(missed) = &learned.missed {
                missed.describe(&mut result["failure"]);
            }
        }
        if self.egress.replayable {
            result["opened"] = self.opened_at.into();
            learned.describe(&mut result);
        }
        if let Some(played) = &learned.played {
            played.describe(&mut result, learned.transcript.is_some());
        }
        let mut event = Event::new(Kind::Effect, "net.stream").rule(&*self.rule);
        event.args = std::mem::take(&mut self.args);
        event.proc = self.proc.take();
        let transcript = learned.transcript.map(|transcript| transcript.finish());
        // A failure stays with the recorder, and the run stops for it.
        let promise = std::mem::take(&mut self.promise);
        self.egress.scribe.record(promise, move |desk| {
            if let Some(transcript) = transcript {
                result["transcript"] = transcript(desk)?;
            }
            Ok(event.result(result))
        });
    }
}

/// The most bytes that arguments take in an entry.
pub(crate) fn text_bound(args: &Map<String, Value>) -> u64 {
    args.iter().map(|(name, value)| (name.len() + value.to_string().len() + 4) as u64).sum()
}

/// Seconds since the epoch.
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    round_micros(since.as_secs_f64())
}

/// Seconds with the precision of the trace's times.
pub(crate) fn round_micros(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
