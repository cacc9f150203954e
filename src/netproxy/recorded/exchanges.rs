//! Recorded exchanges, matched by tiers: exactly in the same process, without what changes from call to call in
//! the same process, then both in any process. Each is used once.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::error::Blame;
use super::super::failure::Failure;
use super::Blobs;
use super::closest::closest;
use super::entry::Entry;
use super::normal;
use super::shelf::{Shelf, Taker};
use crate::trace::redact::Redactor;
use crate::trace::{hex, unhex};

/// So much of a body is read to compare it without what changes from call to call.
pub(super) const MOST: usize = 1 << 20;

/// A request as both a recording and a replay have it: credentials are hidden in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) url: String,
    /// Names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) trailers: Vec<(String, String)>,
    /// SHA-256 of the body; none where there is none.
    pub(crate) body: Option<String>,
}

impl Asked {
    /// That of an entry.
    fn of(entry: &Entry<'_>) -> Option<Self> {
        let body = entry.args.get("body");
        let digest = body.and_then(|body| body.get("sha256").or_else(|| body.get("blob")));
        Some(Self {
            method: entry.text("method")?.to_owned(),
            url: entry.text("url")?.to_owned(),
            headers: pairs(entry.args.get("headers")),
            trailers: pairs(entry.args.get("trailers")),
            body: digest.and_then(Value::as_str).map(str::to_owned),
        })
    }

    /// What all of it comes to.
    fn exact(&self) -> String {
        let mut lines = vec![self.method.clone(), self.url.clone()];
        let headers = self.headers.iter().chain(&self.trailers);
        let headers = headers.filter(|(name, _)| !normal::is_hop_by_hop(name));
        lines.extend(headers.map(|(name, value)| format!("{name}:{value}")));
        lines.push(self.body.clone().unwrap_or_default());
        digest(&lines)
    }

    /// The same without what changes from call to call; `body` as far as it could be read.
    fn normal(&self, body: Option<&[u8]>) -> String {
        let mut lines = vec![self.method.clone(), normal::url(&self.url)];
        lines.extend(normal::headers(&self.headers));
        lines.extend(normal::headers(&self.trailers));
        lines.push(match body {
            Some(body) => hex(&Sha256::digest(normal::body(&self.headers, body))),
            None => self.body.clone().unwrap_or_default(),
        });
        digest(&lines)
    }

    /// What requests have in common that may be the same.
    fn place(&self) -> String {
        let path = self.url.split(['?', '#']).next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

fn digest(lines: &[String]) -> String {
    // No part holds a newline: it would be another request.
    hex(&Sha256::digest(lines.join("\n")))
}

/// The list of an entry's headers.
pub(super) fn pairs(list: Option<&Value>) -> Vec<(String, String)> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let pair = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.as_str()?.to_owned()));
    list.iter().filter_map(pair).collect()
}

/// The same as fields.
pub(super) fn fields(list: Option<&Value>) -> HeaderMap {
    let mut fields = HeaderMap::new();
    let exact = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter().map(|pair| {
        let bytes = pair.get(1).and_then(|value| value.get("hex")).and_then(Value::as_str).and_then(unhex);
        Some((pair.get(0)?.as_str()?.to_owned(), bytes?))
    });
    let plain = pairs(list).into_iter().map(|(name, value)| (name, value.into_bytes()));
    for (name, value) in plain.chain(exact.flatten()) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(&value)) {
            fields.append(name, value);
        }
    }
    fields
}

/// One recorded exchange.
pub(crate) struct RecordedExchange {
    pub(super) entry: u64,
    pub(super) asked: Asked,
    /// The client's version of HTTP.
    pub(super) version: Option<String>,
    /// The request's body, and what came of it, as the entry has them.
    pub(super) body: Value,
    pub(super) result: Value,
    normal: OnceLock<String>,
}

impl RecordedExchange {
    /// Of an `http.exchange`. None when it is none.
    pub(super) fn of(entry: &Entry<'_>) -> Option<Self> {
        entry.result.as_object()?;
        Some(Self {
            entry: entry.number,
            asked: Asked::of(entry)?,
            version: entry.text("version").map(str::to_owned),
            body: entry.args.get("body").cloned().unwrap_or_default(),
            result: entry.result.clone(),
            normal: OnceLock::new(),
        })
    }

    /// When the request came, in seconds since the epoch.
    pub(super) fn begun(entry: &Entry<'_>) -> f64 {
        let start = entry.result.get("timing").and_then(|timing| timing.get("start"));
        start.and_then(Value::as_f64).unwrap_or(entry.time)
    }

    /// Bytes of its request, where not all of it was taken.
    fn cut(&self) -> Option<u64> {
        let is_cut = self.body.get("whole").is_some_and(|whole| whole == false);
        self.body.get("size").and_then(Value::as_u64).filter(|_| is_cut)
    }

    /// Whether what came of it came before all of the request.
    fn is_early(&self) -> bool {
        let segments =
            self.result.get("segments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is = |segment: &&Value, way: &str| segment.get(0).is_some_and(|one| one == way);
        // A head alone may be that of an answer to all of it.
        let bodies = segments.iter().filter(|segment| segment.get(1).is_some_and(|bytes| bytes != 0));
        let has_turned = bodies.skip_while(|segment| is(segment, "up")).any(|segment| is(&segment, "up"));
        self.cut().is_some() || (self.is_answered() && has_turned)
    }

    /// So much of its request is taken, where its end is not waited for.
    pub(super) fn most(&self) -> Option<u64> {
        self.cut().filter(|_| !self.is_broken_off())
    }

    /// Whether the client broke its request off: that happens again by itself.
    pub(super) fn is_broken_off(&self) -> bool {
        Failure::recorded(&self.result).is_some_and(|failure| failure.blame() == Blame::Agent)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.result.get("status").is_some()
    }

    fn normal(&self, blobs: &Blobs) -> &str {
        self.normal.get_or_init(|| self.asked.normal(content(&self.body, blobs).as_deref()))
    }
}

/// A body that an entry refers to, where it is small enough.
pub(super) fn content(body: &Value, blobs: &Blobs) -> Option<Vec<u8>> {
    if let Some(text) = body.get("text").and_then(Value::as_str) {
        return Some(text.as_bytes().to_vec());
    }
    let Some(name) = body.get("blob").and_then(Value::as_str) else {
        return body.is_null().then(Vec::new);
    };
    if body.get("size").and_then(Value::as_u64).is_none_or(|size| size > MOST as u64) {
        return None;
    }
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut blobs(name).ok()?, &mut content).ok()?;
    Some(content)
}

/// A recorded exchange that answers a request.
pub(crate) struct Matched {
    pub(super) exchange: Arc<RecordedExchange>,
    tier: u8,
    is_exact: bool,
}

impl Matched {
    /// As the record of the replay says it.
    pub(crate) fn value(&self) -> Value {
        json!({"entry": self.exchange.entry, "tier": self.tier, "exact": self.is_exact})
    }

    /// Who had answered, and what it had proved.
    pub(crate) fn origin(&self) -> impl Iterator<Item = (String, Value)> {
        let member = |key: &str| Some((key.to_owned(), self.exchange.result.get(key)?.clone()));
        ["address", "names", "tls", "spelled", "reason"].into_iter().filter_map(member)
    }
}

/// All of a recording.
pub(super) struct Exchanges {
    blobs: Blobs,
    shelf: Mutex<Shelf<RecordedExchange>>,
}

impl Exchanges {
    pub(super) fn new(blobs: &Blobs) -> Self {
        Self { blobs: Arc::clone(blobs), shelf: Mutex::default() }
    }

    pub(super) fn put(&mut self, proc: Option<String>, exchange: RecordedExchange) {
        let keys = [exchange.asked.exact(), exchange.asked.place()];
        let shelf = self.shelf.get_mut().unwrap_or_else(PoisonError::into_inner);
        shelf.put(keys, proc, Arc::new(exchange));
    }

    /// Takes the one that answers a request of `proc`. `body` is the request's, where it is small enough.
    pub(super) fn take(&self, asked: &Asked, body: Option<&[u8]>, proc: Option<&str>) -> Option<Matched> {
        let (exact, place) = (asked.exact(), asked.place());
        let normal: OnceLock<String> = OnceLock::new();
        let mut shelf = self.lock();
        for (taker, exact_tier, normal_tier) in [(Taker::Same(proc), 0, 1), (Taker::Any, 2, 2)] {
            if let Some(exchange) = shelf.take(&exact, taker, |_| true) {
                return Some(Matched { exchange, tier: exact_tier, is_exact: true });
            }
            let alike = |other: &RecordedExchange| {
                other.normal(&self.blobs) == normal.get_or_init(|| asked.normal(body))
            };
            if let Some(exchange) = shelf.take(&place, taker, alike) {
                return Some(Matched { exchange, tier: normal_tier, is_exact: false });
            }
        }
        None
    }

    /// Takes one that is answered before all of its body has come: by its head alone.
    pub(super) fn take_early(&self, asked: &Asked, proc: Option<&str>) -> Option<Matched> {
        let place = asked.place();
        let mut shelf = self.lock();
        for (taker, tier) in [(Taker::Same(proc), 0), (Taker::Any, 2)] {
            let early = |other: &RecordedExchange| other.is_early() && other.asked.url == asked.url;
            // A failure stands for the one that came next, and not for one that its origin answered before.
            let mut has_other = false;
            let same = |other: &RecordedExchange| {
                let is_same = other.asked.url == asked.url && other.asked.headers == asked.headers;
                let is_next = !has_other;
                has_other |= is_same;
                is_same && other.is_early() && (other.is_answered() || is_next)
            };
            if let Some(exchange) = shelf.take(&place, taker, same) {
                return Some(Matched { exchange, tier, is_exact: true });
            }
            let headers = normal::headers(&asked.headers);
            let alike = |other: &RecordedExchange| {
                early(other) && other.is_answered() && normal::headers(&other.asked.headers) == headers
            };
            if let Some(exchange) = shelf.take(&place, taker, alike) {
                return Some(Matched { exchange, tier: tier.max(1), is_exact: false });
            }
        }
        None
    }

    /// Takes one whose origin could not be reached, so that nothing of its body was read.
    pub(super) fn take_unsent(&self, asked: &Asked, proc: Option<&str>) -> Option<Matched> {
        let place = asked.place();
        let unsent = |other: &RecordedExchange| !other.is_answered();
        let mut shelf = self.lock();
        let same = shelf.take(&place, Taker::Same(proc), unsent).map(|exchange| (exchange, 0));
        let (exchange, tier) = same.or_else(|| Some((shelf.take(&place, Taker::Any, unsent)?, 2)))?;
        let is_exact = exchange.asked.headers == asked.headers && exchange.asked.url == asked.url;
        Some(Matched { exchange, tier: if is_exact { tier } else { tier.max(1) }, is_exact })
    }

    /// The one that is the most like a request that none answers, with what differs.
    pub(super) fn closest(
        &self,
        asked: &Asked,
        body: Option<&[u8]>,
        proc: Option<&str>,
        redactor: &Redactor,
    ) -> Option<Value> {
        let shelf = self.lock();
        closest(shelf.iter(), asked, body, proc, (&self.blobs, redactor))
    }

    fn lock(&self) -> MutexGuard<'_, Shelf<RecordedExchange>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
