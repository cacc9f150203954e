//! Recorded exchanges, matched by tiers: exactly in the same process, without what changes from call to call in
//! the same process, then both in any process. Each is used once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Blobs;
use super::closest::{closest, in_bodies};
use super::durations;
use super::entry::Entry;
use super::normal;
use super::shelf::{Shelf, Taker};
use crate::trace::hex;
use crate::trace::redact::Redactor;

/// So much of a body is read to compare it without what changes from call to call.
pub(super) const MOST: usize = 1 << 20;

/// So many exchanges are looked at to find what is the most like a request that none answers.
const MOST_NEAR: usize = 256;

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

    /// The same without what changes from call to call, and, where its body tells some, without durations; `body` as
    /// far as it could be read.
    fn normal(&self, body: Option<&[u8]>) -> [String; 2] {
        let mut lines = vec![self.method.clone(), normal::url(&self.url)];
        lines.extend(normal::headers(&self.headers));
        lines.extend(normal::headers(&self.trailers));
        let normal = body.map(|body| normal::body(&self.headers, body));
        let timeless = normal.as_deref().and_then(|normal| std::str::from_utf8(normal).ok());
        let timeless = timeless.map(durations::without);
        let whole = |line: Option<&[u8]>| {
            let body = line.map(|line| hex(&Sha256::digest(line)));
            let body = body.or_else(|| self.body.clone()).unwrap_or_default();
            digest(lines.iter().chain([&body]))
        };
        let exact = whole(normal.as_deref());
        let timeless = timeless.map_or_else(|| exact.clone(), |text| whole(Some(text.as_bytes())));
        [exact, timeless]
    }

    /// What requests have in common that may be the same.
    fn place(&self) -> String {
        let path = self.url.split(['?', '#']).next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

fn digest<'a>(lines: impl IntoIterator<Item = &'a String>) -> String {
    let lines: Vec<&str> = lines.into_iter().map(String::as_str).collect();
    // No part holds a newline: it would be another request.
    hex(&Sha256::digest(lines.join("\n")))
}

/// The list of an entry's headers.
pub(super) fn pairs(list: Option<&Value>) -> Vec<(String, String)> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let pair = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.as_str()?.to_owned()));
    list.iter().filter_map(pair).collect()
}

/// One recorded exchange.
pub(crate) struct RecordedExchange {
    pub(super) entry: u64,
    pub(super) asked: Asked,
    /// The request's body, and what came of it, as the entry has them.
    pub(super) body: Value,
    pub(super) result: Value,
}

impl RecordedExchange {
    /// Of an `http.exchange`. None when it is none.
    pub(super) fn of(entry: &Entry<'_>) -> Option<Self> {
        entry.result.as_object()?;
        Some(Self {
            entry: entry.number,
            asked: Asked::of(entry)?,
            body: entry.args.get("body").cloned().unwrap_or_default(),
            result: entry.result.clone(),
        })
    }

    /// When the request came, in seconds since the epoch.
    pub(super) fn begun(entry: &Entry<'_>) -> f64 {
        let start = entry.result.get("timing").and_then(|timing| timing.get("start"));
        start.and_then(Value::as_f64).unwrap_or(entry.time)
    }

    /// Bytes of its request, where not all of it was taken.
    pub(super) fn cut(&self) -> Option<u64> {
        let is_cut = self.body.get("whole").is_some_and(|whole| whole == false);
        self.body.get("size").and_then(Value::as_u64).filter(|_| is_cut)
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

/// How well an exchange fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    Exact,
    Normal,
    /// The same but for durations as well.
    Timeless,
}

impl Fit {
    /// The key under which such exchanges stand.
    fn key(self, digest: &str) -> String {
        match self {
            Self::Exact => format!("exact {digest}"),
            Self::Normal => format!("normal {digest}"),
            Self::Timeless => format!("timeless {digest}"),
        }
    }
}

/// A recorded exchange that answers a request.
pub(crate) struct Matched {
    pub(super) exchange: Arc<RecordedExchange>,
    tier: u8,
    fit: Fit,
    /// What differs, where durations do.
    differs: Option<Vec<Value>>,
}

impl Matched {
    /// As the record of the replay says it.
    pub(crate) fn value(&self) -> Value {
        let mut said =
            json!({"entry": self.exchange.entry, "tier": self.tier, "exact": self.fit == Fit::Exact});
        if let Some(differs) = &self.differs {
            said["durations"] = differs.as_slice().into();
        }
        said
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
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    shelf: Shelf<RecordedExchange>,
    places: HashMap<String, Place>,
}

/// The exchanges of one method and path, by their places on the shelf.
#[derive(Default)]
struct Place {
    all: Vec<usize>,
    /// Those that have not been brought into their normal form yet.
    unread: VecDeque<usize>,
}

/// Exchanges that were answered before all of the request had come, and those that did not reach their origin.
const EARLY: &str = "early ";
const UNSENT: &str = "unsent ";
/// All of one method and path.
const PLACE: &str = "place ";

impl Held {
    /// Takes the first that is the same in its normal form, which each gets only when it is asked for.
    fn take_normal(
        &mut self,
        asked: [&str; 2],
        place: &str,
        taker: Taker<'_>,
        blobs: &Blobs,
    ) -> Option<(Arc<RecordedExchange>, Fit)> {
        let [normal, timeless] =
            [(Fit::Normal, asked[0]), (Fit::Timeless, asked[1])].map(|(fit, digest)| (fit, fit.key(digest)));
        loop {
            if let Some(found) = self.shelf.take(&normal.1, taker, |_| true) {
                return Some((found, normal.0));
            }
            if !self.read_next(place, blobs) {
                return Some((self.shelf.take(&timeless.1, taker, |_| true)?, timeless.0));
            }
        }
    }

    /// Of many exchanges of one place those before and behind the first that is left.
    fn near(&self, all: &[usize]) -> Vec<usize> {
        let Some(first) = all.first() else { return Vec::new() };
        let place = PLACE.to_owned() + &self.shelf.at(*first).0.asked.place();
        let next = self.shelf.first(&place).unwrap_or(usize::MAX);
        let next = all.partition_point(|at| *at < next);
        all[next.saturating_sub(MOST_NEAR)..all.len().min(next + MOST_NEAR)].to_vec()
    }

    /// Brings one more into its normal form.
    fn read_next(&mut self, place: &str, blobs: &Blobs) -> bool {
        let next = self.places.get_mut(place).and_then(|place| place.unread.pop_front());
        let Some(next) = next else { return false };
        let (exchange, _, is_taken) = self.shelf.at(next);
        if !is_taken {
            let [normal, timeless] = exchange.asked.normal(content(&exchange.body, blobs).as_deref());
            self.shelf.add_key(next, Fit::Normal.key(&normal));
            self.shelf.add_key(next, Fit::Timeless.key(&timeless));
        }
        true
    }
}

impl Exchanges {
    pub(super) fn new(blobs: &Blobs) -> Self {
        Self { blobs: Arc::clone(blobs), held: Mutex::default() }
    }

    pub(super) fn put(&mut self, proc: Option<String>, exchange: RecordedExchange) {
        let place = exchange.asked.place();
        let mut keys = vec![Fit::Exact.key(&exchange.asked.exact()), format!("{PLACE}{place}")];
        keys.extend(exchange.is_early().then(|| format!("{EARLY}{place}")));
        keys.extend(exchange.result.get("status").is_none().then(|| format!("{UNSENT}{place}")));
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        let number = held.shelf.put(keys, proc, Arc::new(exchange));
        let place = held.places.entry(place).or_default();
        place.all.push(number);
        place.unread.push_back(number);
    }

    /// Takes the one that answers a request of `proc`. `body` is the request's, where it is small enough.
    pub(super) fn take(
        &self,
        asked: &Asked,
        body: Option<&[u8]>,
        proc: Option<&str>,
        redactor: &Redactor,
    ) -> Option<Matched> {
        let (exact, place) = (Fit::Exact.key(&asked.exact()), asked.place());
        let mut normal = None;
        let mut held = self.lock();
        for (taker, exact_tier, normal_tier) in [(Taker::Same(proc), 0, 1), (Taker::Any, 2, 2)] {
            if let Some(exchange) = held.shelf.take(&exact, taker, |_| true) {
                return Some(Matched { exchange, tier: exact_tier, fit: Fit::Exact, differs: None });
            }
            let [normal, timeless] = normal.get_or_insert_with(|| asked.normal(body));
            if let Some((exchange, fit)) = held.take_normal([normal, timeless], &place, taker, &self.blobs) {
                let differs = (fit == Fit::Timeless).then(|| {
                    let recorded = content(&exchange.body, &self.blobs);
                    in_bodies((recorded.as_deref(), body), (&exchange.asked, asked), redactor)
                });
                return Some(Matched { exchange, tier: normal_tier, fit, differs });
            }
        }
        None
    }

    /// Takes one that is answered before all of its body has come: by its head alone.
    pub(super) fn take_early(&self, asked: &Asked, proc: Option<&str>) -> Option<Matched> {
        let key = format!("{EARLY}{}", asked.place());
        let shelf = &mut self.lock().shelf;
        for (taker, tier) in [(Taker::Same(proc), 0), (Taker::Any, 2)] {
            let same = |other: &RecordedExchange| {
                other.asked.url == asked.url && other.asked.headers == asked.headers
            };
            if let Some(exchange) = shelf.take(&key, taker, same) {
                return Some(Matched { exchange, tier, fit: Fit::Exact, differs: None });
            }
            let headers = normal::headers(&asked.headers);
            let alike = |other: &RecordedExchange| {
                other.asked.url == asked.url && normal::headers(&other.asked.headers) == headers
            };
            if let Some(exchange) = shelf.take(&key, taker, alike) {
                return Some(Matched { exchange, tier: tier.max(1), fit: Fit::Normal, differs: None });
            }
        }
        None
    }

    /// Takes one whose origin could not be reached, so that nothing of its body was read.
    pub(super) fn take_unsent(&self, asked: &Asked, proc: Option<&str>) -> Option<Matched> {
        let key = format!("{UNSENT}{}", asked.place());
        let (exchange, is_own) = self.lock().shelf.take_by(&key, proc)?;
        let is_exact = exchange.asked.headers == asked.headers && exchange.asked.url == asked.url;
        let tier = if is_own { 0 } else { 2 };
        let (tier, fit) = if is_exact { (tier, Fit::Exact) } else { (tier.max(1), Fit::Normal) };
        Some(Matched { exchange, tier, fit, differs: None })
    }

    /// The one that is the most like a request that none answers, with what differs.
    pub(super) fn closest(
        &self,
        asked: &Asked,
        body: Option<&[u8]>,
        proc: Option<&str>,
        redactor: &Redactor,
    ) -> Option<Value> {
        let held = self.lock();
        let near = held.places.get(&asked.place()).map(|place| held.near(&place.all)).unwrap_or_default();
        let find =
            |near: &mut dyn Iterator<Item = _>| closest(near, asked, body, proc, (&self.blobs, redactor));
        find(&mut near.into_iter().map(|at| held.shelf.at(at)))
            .or_else(|| find(&mut held.shelf.iter().take(MOST_NEAR)))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
