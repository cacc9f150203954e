//! Recorded exchanges, matched by tiers: exactly in the same process, without what changes from call to call in
//! the same process, then both in any process. Each is used once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::super::error::Blame;
use super::super::failure::Failure;
use super::Blobs;
use super::asked::Asked;
use super::closest::{closest, in_bodies};
use super::entry::Entry;
use super::normal;
use super::shelf::{Shelf, Taker};
use crate::trace::redact::Redactor;

/// So much of a body is read to compare it without what changes from call to call.
pub(super) const MOST: usize = 1 << 20;

/// So many exchanges are looked at to find what is the most like a request that none answers.
const MOST_NEAR: usize = 256;

/// One recorded exchange.
pub(crate) struct RecordedExchange {
    pub(super) entry: u64,
    pub(super) asked: Asked,
    /// The client's version of HTTP.
    pub(super) version: Option<String>,
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
            version: entry.text("version").map(str::to_owned),
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
        keys.extend((!exchange.is_answered()).then(|| format!("{UNSENT}{place}")));
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
        let (key, place) = (format!("{EARLY}{}", asked.place()), format!("{PLACE}{}", asked.place()));
        let shelf = &mut self.lock().shelf;
        // As a rule there is none.
        shelf.first(&key)?;
        for (taker, tier) in [(Taker::Same(proc), 0), (Taker::Any, 2)] {
            // A failure stands for the one that came next, and not for one that its origin answered before.
            let mut has_other = false;
            let same = |other: &RecordedExchange| {
                let is_same = other.asked.url == asked.url && other.asked.headers == asked.headers;
                let is_next = !has_other;
                has_other |= is_same;
                is_same && other.is_early() && (other.is_answered() || is_next)
            };
            if let Some(exchange) = shelf.take(&place, taker, same) {
                return Some(Matched { exchange, tier, fit: Fit::Exact, differs: None });
            }
            let headers = normal::headers(&asked.headers);
            let alike = |other: &RecordedExchange| {
                other.is_answered()
                    && other.asked.url == asked.url
                    && normal::headers(&other.asked.headers) == headers
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
