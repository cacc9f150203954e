//! The record of one HTTP exchange: heads in the entry, bodies as blobs, streaming.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version, request, response};
use serde_json::{Map, Value};

use super::decide::{Grant, Names};
use super::egress::Egress;
use super::error::{Blame, NetproxyError};
use super::failure::Failure;
use super::fields::Fields;
use super::flow::now;
use super::head_tap::HeadTap;
use super::idle::IdleClock;
use super::informational::Informational;
use super::places::Place;
use super::recorded::{Asked, Matched};
use super::relay::End;
use super::scribe::Entry;
use super::segments::{Segments, Way};
use super::sighted::Sighted;
use super::tls::Facts;
use super::transcript::Transcript;
use crate::trace::Promise;
use crate::trace::redact::Redactor;

mod copy;
mod entry;

use self::copy::Copy;

/// One request and its response. The last holder's drop records it, whole or broken off.
pub(crate) struct Exchange {
    pub(super) egress: Arc<Egress>,
    idle: IdleClock,
    kept: Arc<Kept>,
}

/// What its entry is made of.
struct Kept {
    redactor: Redactor,
    /// What a replay needs besides is kept.
    replayable: bool,
    progress: Mutex<Progress>,
}

/// What is known so far. The entry is made of it by the thread that stores it.
#[derive(Default)]
struct Progress {
    method: Method,
    url: String,
    version: Version,
    fields: Fields,
    /// Its address, and the names under which it is allowed.
    origin: Option<(SocketAddr, Names)>,
    tls: Option<Arc<Facts>>,
    withheld: Option<&'static str>,
    secrets: Vec<String>,
    /// Answers that came before it.
    informational: Vec<(StatusCode, Fields)>,
    answer: Option<(StatusCode, Fields)>,
    rule: String,
    proc: Option<String>,
    start: f64,
    /// When the connection was opened whose first request it is.
    opened: Option<f64>,
    first_byte: Option<f64>,
    end: f64,
    request: Copy,
    response: Copy,
    segments: Segments,
    error: Option<(String, Option<Failure>)>,
    /// What the client hears of its own body.
    refused: Option<Box<NetproxyError>>,
    upgraded: Option<Box<Upgraded>>,
    /// Room for the entry.
    promise: Promise,
    /// It was over when the run was.
    ends: bool,
    /// Among those that may be under way.
    place: Place,
    /// How the answer's head is written: names that are spelled as few are, and a reason of its own.
    spelled: Vec<String>,
    reason: Option<Box<str>>,
    /// What the result of a replay says besides: what it was answered from, and what is taken from there.
    beside: Map<String, Value>,
}

/// What takes so long to come may come too late for a client that has a limit.
const LATE: Duration = Duration::from_millis(20);

/// Room for an entry besides its heads: small bodies, segments, what an origin proved.
const ROOM: u64 = 32 << 10;

/// What became of the connection after 101.
struct Upgraded {
    transcript: Arc<Transcript>,
    end: Option<(String, Option<Failure>)>,
}

/// Which of the two bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Request,
    Response,
}

impl Exchange {
    /// Begins the record of a request to `url`.
    pub(crate) fn begin(
        egress: &Arc<Egress>,
        head: &request::Parts,
        url: String,
        rule: &str,
        proc: Option<&str>,
        idle: IdleClock,
        place: Place,
    ) -> Result<Arc<Self>, NetproxyError> {
        let fields = Fields::of(&head.headers);
        let promise = egress.promise(ROOM + fields.bound() + 3 * (url.len() + rule.len()) as u64)?;
        let mut progress = Progress {
            method: head.method.clone(),
            url,
            version: head.version,
            fields,
            rule: rule.to_owned(),
            proc: proc.map(str::to_owned),
            start: now(),
            promise,
            place,
            ..Progress::default()
        };
        progress.request.watch(Sighted::of(&head.headers));
        let (redactor, replayable) = (egress.redactor.clone(), egress.replayable);
        let kept = Arc::new(Kept { redactor, replayable, progress: Mutex::new(progress) });
        Ok(Arc::new(Self { egress: Arc::clone(egress), idle, kept }))
    }

    /// It is the first request of a connection that was opened then.
    pub(crate) fn set_opened(&self, at: Option<f64>) {
        self.progress().opened = at;
    }

    /// The origin that answers.
    pub(crate) fn set_origin(&self, grant: &Grant) {
        self.progress().origin = Some((grant.destination, Arc::clone(&grant.names)));
    }

    /// What the origin proved, over TLS.
    pub(crate) fn set_tls(&self, facts: Option<&Arc<Facts>>) {
        self.progress().tls = facts.map(Arc::clone);
    }

    /// The variables whose values the origin got where placeholders stood.
    pub(crate) fn set_secrets(&self, names: Vec<String>) {
        self.progress().secrets = names;
    }

    /// A field of the response that the client does not get.
    pub(crate) fn set_withheld(&self, field: &'static str) {
        self.progress().withheld = Some(field);
    }

    /// An answer that precedes the response has come. After an error it must not go on.
    pub(crate) fn add_informational(&self, one: &Informational) -> Result<(), NetproxyError> {
        let fields = Fields::of(&one.headers);
        let mut progress = self.progress();
        let grown = progress.promise.grow(fields.bound());
        grown.map_err(|error| NetproxyError::Trace { reason: error.to_string() })?;
        progress.informational.push((one.status, fields));
        Ok(())
    }

    /// The response's head has come. After an error it must not go on.
    pub(crate) fn set_response(&self, head: &response::Parts) -> Result<(), NetproxyError> {
        let answer = (head.status, Fields::of(&head.headers));
        let mut progress = self.progress();
        let grown = progress.promise.grow(answer.1.bound());
        grown.map_err(|error| NetproxyError::Trace { reason: error.to_string() })?;
        progress.first_byte = Some(now());
        progress.response.watch(Sighted::of(&head.headers));
        progress.answer = Some(answer);
        Ok(())
    }

    /// The request as a recording has it; `body` is the digest of its body.
    pub(crate) fn asked(&self, body: Option<String>) -> Asked {
        let redactor = &self.egress.redactor;
        let progress = self.progress();
        Asked {
            method: progress.method.to_string(),
            url: redactor.url(&progress.url),
            headers: progress.fields.pairs(redactor),
            trailers: progress
                .request
                .trailers
                .as_ref()
                .map(|fields| fields.pairs(redactor))
                .unwrap_or_default(),
            body,
        }
    }

    /// The recorded exchange that answers it. Who answered then is who answers now.
    pub(crate) fn set_matched(&self, matched: &Matched) {
        let beside = &mut self.progress().beside;
        beside.insert("replayed".to_owned(), matched.value());
        beside.extend(matched.origin());
    }

    /// None answers it; the one that is the most like it.
    pub(crate) fn set_closest(&self, closest: Value) {
        self.progress().beside.insert("closest".to_owned(), closest);
    }

    /// How the head of the answer is written, where that is not usual.
    pub(crate) fn set_spelled(&self, names: Vec<String>, reason: Option<&[u8]>) {
        let mut progress = self.progress();
        progress.spelled = names;
        progress.reason = reason.and_then(|reason| std::str::from_utf8(reason).ok()).map(Box::from);
    }

    /// Why it failed; the first reason stays.
    pub(crate) fn set_error(&self, reason: &str) {
        self.progress().error.get_or_insert_with(|| (reason.to_owned(), None));
    }

    /// The same, in words that a replay can act on.
    pub(crate) fn fail(&self, error: &NetproxyError) {
        let failure = Some(Failure::of(error));
        self.progress().error.get_or_insert_with(|| (error.to_string(), failure));
    }

    /// Why the rest of the request's body does not go on, as the client is to hear it.
    pub(super) fn set_refused(&self, error: Option<NetproxyError>) {
        self.progress().refused = error.map(Box::new);
    }

    /// The same, once.
    pub(crate) fn refusal(&self) -> Option<NetproxyError> {
        self.progress().refused.take().map(|error| *error)
    }

    /// Whether the client has left before what comes now, after so long; asked where it may have waited in vain. In a
    /// replay the recording says whether it had.
    pub(super) fn is_abandoned(&self, waited: Duration, client: &HeadTap) -> bool {
        waited >= LATE && self.egress.played().is_none() && client.has_left()
    }

    /// How long it is under way.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::try_from_secs_f64(now() - self.progress().start).unwrap_or_default()
    }

    /// From here on the connection carries something else, and all of it is recorded.
    pub(crate) fn transcribe(&self) -> Arc<Transcript> {
        let transcript = Transcript::begin(&self.egress.scribe, Instant::now());
        self.progress().upgraded =
            Some(Box::new(Upgraded { transcript: Arc::clone(&transcript), end: None }));
        transcript
    }

    /// How what came after the upgrade has ended.
    pub(crate) fn set_relayed(&self, end: &End) {
        if let Some(upgraded) = &mut self.progress().upgraded {
            upgraded.end = Some((end.reason(), end.failure()));
        }
    }

    /// Keeps what is about to pass; it must not after an error.
    pub(super) fn copy(&self, side: Side, data: &Bytes, client: &HeadTap) -> Result<(), NetproxyError> {
        let scribe = &self.egress.scribe;
        let mut progress = self.progress();
        progress.side(side).add(scribe, data)?;
        // The program itself says when it writes apart.
        let is_read = || side == Side::Response && self.egress.replayable && client.has_read();
        progress.segments.add(scribe, side.way(), data.len(), is_read);
        Ok(())
    }

    /// What has come of the answer is sent, for nothing more is there; of its `head` alone where that is all.
    pub(super) fn pause(&self, is_head: bool) {
        let mut progress = self.progress();
        if is_head {
            progress.segments.add(&self.egress.scribe, Way::Down, 0, || false);
        }
        progress.segments.pause();
    }

    pub(super) fn set_trailers(&self, side: Side, trailers: &HeaderMap) {
        self.progress().side(side).trailers = Some(Fields::of(trailers));
    }

    pub(super) fn finish(&self, side: Side, client: &HeadTap) {
        let mut progress = self.progress();
        progress.side(side).whole = true;
        if side == Side::Response && progress.segments.has_paused() {
            let is_read = || self.egress.replayable && client.has_read();
            progress.segments.add(&self.egress.scribe, Way::Down, 0, is_read);
        }
    }

    /// What has passed of the request's body, where that is known.
    pub(super) fn passed(&self) -> Option<Bytes> {
        self.progress().request.passed()
    }

    /// Whether all of the request is on its way.
    pub(super) fn has_sent(&self) -> bool {
        self.progress().request.whole
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.kept.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Side {
    fn way(self) -> Way {
        match self {
            Self::Request => Way::Up,
            Self::Response => Way::Down,
        }
    }
}

impl Progress {
    fn side(&mut self, side: Side) -> &mut Copy {
        match side {
            Side::Request => &mut self.request,
            Side::Response => &mut self.response,
        }
    }

    /// What is known when it ends; the bodies' names are not yet.
    fn end(&mut self, ends: bool, idle: &IdleClock) {
        if let Some((reason, failure)) = idle.failure() {
            match &mut self.upgraded {
                Some(upgraded) => _ = upgraded.end.get_or_insert((reason, Some(failure))),
                // Whatever broke off then, did so for that.
                None if !self.response.whole => self.error = Some((reason, Some(failure))),
                None => {}
            }
        }
        if self.error.is_none() && !self.response.whole {
            self.error = Some(if ends {
                ("the run ended".to_owned(), Some(Failure::new("ended", Blame::Agent)))
            } else {
                let error = NetproxyError::Abandoned;
                (error.to_string(), Some(Failure::of(&error)))
            });
        }
        self.ends = ends;
        self.end = now();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let ends = self.egress.ends();
        let mut progress = self.progress();
        progress.end(ends, &self.idle);
        drop(progress.place.take());
        let bytes = progress.request.waiting() + progress.response.waiting();
        drop(progress);
        // A failure stays with the recorder, and the run stops for it.
        self.egress.scribe.make(Arc::clone(&self.kept) as Arc<dyn Entry>, bytes);
    }
}
