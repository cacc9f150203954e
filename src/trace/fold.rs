//! Folding: identical events that follow each other become one entry with a count.
//!
//! The first of them is stored at once; what repeats it is counted here and stored later as one entry whose `count`
//! says how many there were. So the sum of all counts (one where there is none) is the number of events.

use std::collections::VecDeque;
use std::hash::{Hash as _, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chain::Body;

/// A run of repeats is stored after this long.
const LONGEST_OPEN: Duration = Duration::from_secs(1);
/// A run of repeats is stored when it has this many.
const MOST_REPEATS: u64 = 100_000;
/// Different events that are compared with at a time.
const MOST_OPEN: usize = 64;

/// What to do with an event.
pub(super) enum Fold {
    /// It repeats one that is stored: counted, nothing to store now. The bound of the entry to come is given
    /// when this is the first repeat.
    Counted { first_repeat: Option<u64> },
    /// It is new here: store it now. A run of repeats that had to make room for it is given, to be stored first.
    Store { evicted: Option<Repeats> },
}

/// A run of repeats to be stored as one entry.
pub(super) struct Repeats {
    pub(super) body: Arc<Body>,
    pub(super) count: u64,
}

/// The events of which repeats are counted: few, so that looking through all of them costs less than to keep them
/// sorted.
#[derive(Default)]
pub(super) struct Folds {
    /// The oldest first.
    open: VecDeque<Open>,
    /// The hash of each of them: most events are none of these, and these alone are looked through for that.
    hashes: VecDeque<u64>,
}

struct Open {
    body: Arc<Body>,
    repeats: u64,
    since: Instant,
}

impl Folds {
    /// Offers an event with its [`hash_of`], which is best made before anything is locked.
    pub(super) fn offer(&mut self, hash: u64, body: &Arc<Body>, now: Instant) -> Fold {
        let known = self.find(hash, body);
        if let Some(open) = known.and_then(|at| self.open.get_mut(at)) {
            open.repeats += 1;
            if open.repeats > 1 {
                return Fold::Counted { first_repeat: None };
            }
            open.since = now;
            // It is the youngest now.
            if let Some((open, hash)) = known.and_then(|at| self.open.remove(at).zip(self.hashes.remove(at)))
            {
                self.open.push_back(open);
                self.hashes.push_back(hash);
            }
            return Fold::Counted { first_repeat: Some(body.line_bound()) };
        }
        let evicted = if self.open.len() >= MOST_OPEN { self.evict_oldest() } else { None };
        self.open.push_back(Open { body: Arc::clone(body), repeats: 0, since: now });
        self.hashes.push_back(hash);
        Fold::Store { evicted }
    }

    fn find(&self, hash: u64, body: &Body) -> Option<usize> {
        let (first, second) = self.hashes.as_slices();
        if !first.contains(&hash) && !second.contains(&hash) {
            return None;
        }
        let mut open = self.hashes.iter().zip(&self.open);
        open.position(|(known, open)| *known == hash && open.body.says_the_same(body))
    }

    /// Takes the runs that have been open long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Repeats> {
        self.take(|open| {
            now.saturating_duration_since(open.since) >= LONGEST_OPEN || open.repeats >= MOST_REPEATS
        })
    }

    /// Takes all of them.
    pub(super) fn take_all(&mut self) -> Vec<Repeats> {
        self.take(|_| true)
    }

    /// Returns when a run is next due; `None` while there is no repeat.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.iter().filter(|open| open.repeats > 0).map(|open| open.since + LONGEST_OPEN).min()
    }

    fn take(&mut self, is_due: impl Fn(&Open) -> bool) -> Vec<Repeats> {
        let mut due = Vec::new();
        for (open, hash) in std::mem::take(&mut self.open).into_iter().zip(std::mem::take(&mut self.hashes)) {
            if !is_due(&open) {
                self.open.push_back(open);
                self.hashes.push_back(hash);
            } else if open.repeats > 0 {
                due.push(Repeats { body: open.body, count: open.repeats });
            }
        }
        due
    }

    fn evict_oldest(&mut self) -> Option<Repeats> {
        let (open, _) = self.open.pop_front().zip(self.hashes.pop_front())?;
        (open.repeats > 0).then_some(Repeats { body: open.body, count: open.repeats })
    }
}

/// Bodies that say the same have the same hash; it need not resist anybody, for they are compared as well.
pub(super) fn hash_of(body: &Body) -> u64 {
    let mut hasher = Words::default();
    body.hash(&mut hasher);
    hasher.finish()
}

/// Hashes words of eight bytes.
#[derive(Default)]
struct Words(u64);

impl Words {
    fn add(&mut self, word: u64) {
        // 2^64 by the golden ratio.
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Event, Kind};
    use super::*;

    fn body(target: &str) -> (u64, Arc<Body>) {
        let body = Arc::new(Body::new(&Event::new(Kind::Deny, "read").arg("target", target)));
        (hash_of(&body), body)
    }

    #[test]
    fn every_event_is_stored_or_counted() {
        let mut folds = Folds::default();
        let start = Instant::now();
        let mut stored = 0;
        for round in 0..10 {
            for name in 0..100 {
                let (hash, body) = body(&name.to_string());
                if let Fold::Store { evicted } =
                    folds.offer(hash, &body, start + Duration::from_millis(round))
                {
                    stored += 1 + evicted.map_or(0, |repeats| repeats.count);
                }
            }
        }
        stored += folds.take_all().iter().map(|repeats| repeats.count).sum::<u64>();
        assert_eq!(stored, 1000);
    }

    #[test]
    fn a_run_is_due_after_a_second() {
        let mut folds = Folds::default();
        let start = Instant::now();
        let (hash, body) = body("x");
        folds.offer(hash, &body, start);
        assert_eq!(folds.due(), None);
        folds.offer(hash, &body, start + Duration::from_millis(500));
        assert_eq!(folds.due(), Some(start + Duration::from_millis(1500)));
        assert!(folds.take_due(start + Duration::from_millis(1400)).is_empty());
        assert_eq!(folds.take_due(start + Duration::from_millis(1500)).len(), 1);
        assert_eq!(folds.due(), None);
    }
}
