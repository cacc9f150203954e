//! The record of one HTTP exchange: heads in the entry, bodies as blobs, streaming.

use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, request, response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use super::client::HeadTap;
use super::egress::Egress;
use super::error::{Blame, NetproxyError};
use super::flow::round_micros;
use super::tls::Facts;
use crate::trace::{BlobWriter, Event, Kind, TraceError};

/// One request and its response. The last holder's drop records it, whole or broken off.
pub(crate) struct Exchange {
    egress: Arc<Egress>,
    progress: Mutex<Progress>,
}

struct Progress {
    args: Map<String, Value>,
    result: Map<String, Value>,
    rule: String,
    proc: Option<String>,
    start: f64,
    first_byte: Option<f64>,
    request: Copy,
    response: Copy,
    error: Option<String>,
}

/// The copy of one body.
#[derive(Default)]
struct Copy {
    blob: Option<BlobWriter>,
    whole: bool,
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
    ) -> Arc<Self> {
        let mut args = Map::new();
        args.insert("method".to_owned(), head.method.as_str().into());
        args.insert("url".to_owned(), egress.redactor.url(url).into());
        args.insert("version".to_owned(), format!("{:?}", head.version).into());
        args.insert("headers".to_owned(), fields(egress, &head.headers));
        let progress = Progress {
            args,
            result: Map::new(),
            rule: rule.to_owned(),
            proc: proc.map(str::to_owned),
            start: now(),
            first_byte: None,
            request: Copy::default(),
            response: Copy::default(),
            error: None,
        };
        Arc::new(Self { egress: Arc::clone(egress), progress: Mutex::new(progress) })
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
        self.progress().error.get_or_insert_with(|| reason.to_owned());
    }

    fn copy(&self, side: Side, data: &[u8]) -> Result<(), NetproxyError> {
        let mut progress = self.progress();
        let copy = progress.side(side);
        if copy.blob.is_none() {
            let failed = |error: TraceError| NetproxyError::Trace { reason: error.to_string() };
            copy.blob = Some(self.egress.recorder.blob().map_err(failed)?);
        }
        match &mut copy.blob {
            Some(blob) => {
                blob.write_all(data).map_err(|error| NetproxyError::Trace { reason: error.to_string() })
            }
            None => Ok(()),
        }
    }

    fn finish(&self, side: Side) {
        self.progress().side(side).whole = true;
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn side(&mut self, side: Side) -> &mut Copy {
        match side {
            Side::Request => &mut self.request,
            Side::Response => &mut self.response,
        }
    }

    fn event(&mut self, ends: bool) -> Event {
        if let Some(body) = self.request.describe() {
            self.args.insert("body".to_owned(), body);
        }
        if let Some(body) = self.response.describe() {
            self.result.insert("body".to_owned(), body);
        }
        if self.error.is_none() && !self.response.whole {
            let reason = if ends { "the run ended" } else { "the client went away" };
            self.error = Some(reason.to_owned());
        }
        let mut timing = json!({"start": self.start, "end": now()});
        if let Some(first_byte) = self.first_byte {
            timing["first_byte"] = first_byte.into();
        }
        self.result.insert("timing".to_owned(), timing);
        if let Some(error) = self.error.take() {
            self.result.insert("error".to_owned(), error.into());
        }
        let mut event = Event::new(Kind::Effect, "http.exchange").rule(&*self.rule);
        event.args = std::mem::take(&mut self.args);
        event.result = Some(Value::Object(std::mem::take(&mut self.result)));
        event.proc = self.proc.take();
        event
    }
}

impl Copy {
    /// The body as the entry says it; none for no body at all.
    fn describe(&mut self) -> Option<Value> {
        let blob = self.blob.take()?;
        let mut body = match blob.finish() {
            Ok(blob) => Value::from(blob),
            Err(error) => json!({"error": error.to_string()}),
        };
        if !self.whole {
            body["whole"] = false.into();
        }
        Some(body)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let ends = self.egress.ends();
        let event = self.progress().event(ends);
        // A failure stays with the recorder, and the run stops for it.
        let _ = self.egress.record(event);
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
}

impl Tapped {
    pub(crate) fn new(body: Incoming, exchange: &Arc<Exchange>, side: Side, heads: &Arc<HeadTap>) -> Self {
        let mut tapped =
            Self { body, exchange: Arc::clone(exchange), side, heads: Arc::clone(heads), finished: false };
        tapped.finish_at_end();
        tapped
    }

    fn finish_at_end(&mut self) {
        if !self.finished && self.body.is_end_stream() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.finished = true;
        self.exchange.finish(self.side);
        self.heads.resume();
    }
}

impl Body for Tapped {
    type Data = Bytes;
    type Error = NetproxyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NetproxyError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => {
                self.finish();
                return Poll::Ready(None);
            }
            Some(Ok(frame)) => frame,
            Some(Err(source)) => {
                let blame = match self.side {
                    Side::Request => Blame::Agent,
                    Side::Response => Blame::Upstream,
                };
                let error = NetproxyError::Body { blame, source };
                self.exchange.set_error(&error.to_string());
                return Poll::Ready(Some(Err(error)));
            }
        };
        if let Some(data) = frame.data_ref() {
            self.exchange.copy(self.side, data)?;
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
