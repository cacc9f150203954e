//! The record of one HTTP exchange: heads in the entry, bodies as blobs, streaming.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, request, response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use super::client::HeadTap;
use super::egress::Egress;
use super::error::{Blame, NetproxyError};
use super::failure::Failure;
use super::flow::round_micros;
use super::idle::IdleClock;
use super::relay::End;
use super::scribe::{Desk, Reel};
use super::segments::{Segments, Way};
use super::tls::Facts;
use super::transcript::Transcript;
use crate::trace::{Event, Kind, TraceError};

/// One request and its response. The last holder's drop records it, whole or broken off.
pub(crate) struct Exchange {
    egress: Arc<Egress>,
    idle: IdleClock,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    args: Map<String, Value>,
    result: Map<String, Value>,
    rule: String,
    proc: Option<String>,
    start: f64,
    first_byte: Option<f64>,
    request: Copy,
    response: Copy,
    segments: Segments,
    error: Option<(String, Option<Failure>)>,
    upgraded: Option<Upgraded>,
}

/// The copy of one body.
#[derive(Default)]
struct Copy {
    reel: Option<Reel>,
    size: u64,
    trailers: Option<Value>,
    whole: bool,
}

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
        url: &str,
        rule: &str,
        proc: Option<&str>,
        idle: IdleClock,
    ) -> Arc<Self> {
        let mut args = Map::new();
        args.insert("method".to_owned(), head.method.as_str().into());
        args.insert("url".to_owned(), egress.redactor.url(url).into());
        args.insert("version".to_owned(), format!("{:?}", head.version).into());
        args.insert("headers".to_owned(), fields(egress, &head.headers));
        let progress = Progress {
            args,
            rule: rule.to_owned(),
            proc: proc.map(str::to_owned),
            start: now(),
            ..Progress::default()
        };
        Arc::new(Self { egress: Arc::clone(egress), idle, progress: Mutex::new(progress) })
    }

    /// The origin that answers.
    pub(crate) fn set_origin(&self, destination: SocketAddr, names: Vec<String>) {
        let mut progress = self.progress();
        progress.result.insert("address".to_owned(), destination.to_string().into());
        progress.result.insert("names".to_owned(), names.into());
    }

    /// What the origin proved, over TLS.
    pub(crate) fn set_tls(&self, facts: Option<&Facts>) {
        if let Some(facts) = facts {
            self.progress().result.insert("tls".to_owned(), facts.record.clone());
        }
    }

    /// A field of the response that the client does not get.
    pub(crate) fn set_withheld(&self, field: &str) {
        self.progress().result.insert("withheld".to_owned(), vec![field.to_owned()].into());
    }

    /// The response's head has come.
    pub(crate) fn set_response(&self, head: &response::Parts) {
        let headers = fields(&self.egress, &head.headers);
        let mut progress = self.progress();
        progress.first_byte = Some(now());
        progress.result.insert("status".to_owned(), head.status.as_u16().into());
        progress.result.insert("headers".to_owned(), headers);
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

    /// From here on the connection carries something else, and all of it is recorded.
    pub(crate) fn transcribe(&self) -> Arc<Transcript> {
        let transcript = Transcript::begin(&self.egress.scribe, Instant::now());
        self.progress().upgraded = Some(Upgraded { transcript: Arc::clone(&transcript), end: None });
        transcript
    }

    /// How what came after the upgrade has ended.
    pub(crate) fn set_relayed(&self, end: &End) {
        if let Some(upgraded) = &mut self.progress().upgraded {
            upgraded.end = Some((end.reason(), end.failure()));
        }
    }

    fn copy(&self, side: Side, data: &Bytes) {
        let scribe = &self.egress.scribe;
        let mut progress = self.progress();
        progress.segments.add(scribe, side.way(), data.len());
        let copy = progress.side(side);
        copy.size += data.len() as u64;
        copy.reel.get_or_insert_with(|| scribe.reel()).write(data.clone());
    }

    fn set_trailers(&self, side: Side, trailers: &HeaderMap) {
        let trailers = fields(&self.egress, trailers);
        self.progress().side(side).trailers = Some(trailers);
    }

    fn finish(&self, side: Side) {
        self.progress().side(side).whole = true;
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
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
                // It broke off what is known of the bodies.
                None if !self.response.whole => self.error = Some((reason, Some(failure))),
                None => {}
            }
        }
        if self.error.is_none() && !self.response.whole {
            self.error = Some(if ends {
                ("the run ended".to_owned(), Some(Failure::new("ended", Blame::Agent)))
            } else {
                ("the client went away".to_owned(), Some(Failure::new("abandoned", Blame::Agent)))
            });
        }
        let mut timing = json!({"start": self.start, "end": now()});
        if let Some(first_byte) = self.first_byte {
            timing["first_byte"] = first_byte.into();
        }
        self.result.insert("timing".to_owned(), timing);
        let received = self.response.size;
        if let Some((error, failure)) = self.error.take() {
            self.result.insert("error".to_owned(), error.into());
            let failure = failure.map(|failure| failure.value(received));
            self.result.extend(failure.map(|failure| ("failure".to_owned(), failure)));
        }
        if let Some(trailers) = self.request.trailers.take() {
            self.args.insert("trailers".to_owned(), trailers);
        }
        if let Some(trailers) = self.response.trailers.take() {
            self.result.insert("trailers".to_owned(), trailers);
        }
    }

    /// The entry, made by the thread that stores the bodies.
    fn event(mut self, ends: bool, desk: &mut Desk) -> Result<Event, TraceError> {
        if let Some(body) = self.request.describe(desk)? {
            self.args.insert("body".to_owned(), body);
        }
        if let Some(body) = self.response.describe(desk)? {
            self.result.insert("body".to_owned(), body);
        }
        if let Some(segments) = self.segments.describe(desk)? {
            self.result.insert("segments".to_owned(), segments);
        }
        if let Some(upgraded) = self.upgraded {
            self.result.insert("upgraded".to_owned(), upgraded.describe(ends, desk)?);
        }
        let mut event = Event::new(Kind::Effect, "http.exchange").rule(self.rule);
        event.args = self.args;
        event.result = Some(Value::Object(self.result));
        event.proc = self.proc;
        Ok(event)
    }
}

impl Copy {
    /// The body as the entry says it; none for no body at all.
    fn describe(&mut self, desk: &mut Desk) -> Result<Option<Value>, TraceError> {
        let Some(reel) = self.reel.take() else { return Ok(None) };
        let mut body = desk.finish_body(reel)?;
        if !self.whole {
            body["whole"] = false.into();
        }
        Ok(Some(body))
    }
}

impl Upgraded {
    fn describe(self, ends: bool, desk: &mut Desk) -> Result<Value, TraceError> {
        let (up, down) = (self.transcript.bytes(Way::Up), self.transcript.bytes(Way::Down));
        let unnamed = || (if ends { "the run ended" } else { "closed" }.to_owned(), None);
        let (end, failure) = self.end.unwrap_or_else(unnamed);
        let transcript = self.transcript.finish()(desk)?;
        let mut value = json!({"up": up, "down": down, "end": end, "transcript": transcript});
        if let Some(failure) = failure {
            value["failure"] = failure.value(down);
        }
        Ok(value)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let ends = self.egress.ends();
        let progress = self.progress.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut progress = std::mem::take(progress);
        progress.end(ends, &self.idle);
        // A failure stays with the recorder, and the run stops for it.
        self.egress.scribe.record(move |desk| progress.event(ends, desk));
    }
}

/// Header fields in order, with the values of credentials redacted.
fn fields(egress: &Egress, headers: &HeaderMap) -> Value {
    let list = headers.iter().map(|(name, value)| {
        let value = egress.redactor.header(name.as_str(), value.as_bytes());
        Value::from(vec![name.as_str().to_owned(), value])
    });
    Value::Array(list.collect())
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    round_micros(since.as_secs_f64())
}

/// A body on its way through, copied into the record as it passes.
pub(crate) struct Tapped {
    body: Incoming,
    exchange: Arc<Exchange>,
    side: Side,
    heads: Arc<HeadTap>,
    finished: bool,
    ends_by_close: bool,
    /// Why it broke off: told when what came before is on its way.
    broken: Option<NetproxyError>,
}

impl Tapped {
    pub(crate) fn new(body: Incoming, exchange: &Arc<Exchange>, side: Side, heads: &Arc<HeadTap>) -> Self {
        let mut tapped = Self {
            body,
            exchange: Arc::clone(exchange),
            side,
            heads: Arc::clone(heads),
            finished: false,
            ends_by_close: false,
            broken: None,
        };
        tapped.finish_at_end();
        tapped
    }

    /// The client takes the connection's end for the body's: when the body breaks off it must be a reset.
    pub(crate) fn ending_by_close(self) -> Self {
        Self { ends_by_close: true, ..self }
    }

    /// Notes that the body broke off. It is told with the next poll, for the library drops what it has
    /// not sent when it hears of it.
    fn break_off(&mut self, source: hyper::Error, cx: &Context<'_>) {
        let blame = match self.side {
            Side::Request => Blame::Agent,
            Side::Response => Blame::Upstream,
        };
        let error = NetproxyError::Body { blame, source };
        self.exchange.fail(&error);
        if self.ends_by_close {
            self.heads.break_off();
        }
        self.broken = Some(error);
        cx.waker().wake_by_ref();
    }

    fn finish_at_end(&mut self) {
        if !self.finished && self.body.is_end_stream() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.finished = true;
        self.exchange.finish(self.side);
        if self.side == Side::Request {
            self.heads.resume();
        }
    }
}

impl Body for Tapped {
    type Data = Bytes;
    type Error = NetproxyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NetproxyError>>> {
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        ready!(self.exchange.egress.scribe.poll_ready(cx))?;
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => {
                self.finish();
                return Poll::Ready(None);
            }
            Some(Ok(frame)) => frame,
            Some(Err(source)) => {
                self.break_off(source, cx);
                return Poll::Pending;
            }
        };
        if let Some(data) = frame.data_ref() {
            self.exchange.copy(self.side, data);
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.exchange.set_trailers(self.side, trailers);
        }
        self.finish_at_end();
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
