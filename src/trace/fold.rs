//! Folding: identical events that follow each other become one entry with a count.
//!
//! The first of them is stored at once; what repeats it is counted here and stored later as one entry whose `count`
//! says how many there were. So the sum of all counts (one where there is none) is the number of events.

use std::collections::HashMap;
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

#[derive(Default)]
pub(super) struct Folds {
    open: HashMap<String, Open>,
}

struct Open {
    body: Arc<Body>,
    repeats: u64,
    since: Instant,
}

impl Folds {
    pub(super) fn offer(&mut self, key: String, body: &Arc<Body>, now: Instant) -> Fold {
        if let Some(open) = self.open.get_mut(&key) {
            open.repeats += 1;
            let first_repeat = (open.repeats == 1).then(|| body.line_bound());
            if first_repeat.is_some() {
                open.since = now;
            }
            return Fold::Counted { first_repeat };
        }
        let evicted = if self.open.len() >= MOST_OPEN {
            self.evict_oldest()
        } else {
            None
        };
        self.open.insert(
            key,
            Open {
                body: Arc::clone(body),
                repeats: 0,
                since: now,
            },
        );
        Fold::Store { evicted }
    }

    /// Takes the runs that have been open long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Repeats> {
        self.take(|open| {
            now.saturating_duration_since(open.since) >= LONGEST_OPEN
                || open.repeats >= MOST_REPEATS
        })
    }

    /// Takes all of them.
    pub(super) fn take_all(&mut self) -> Vec<Repeats> {
        self.take(|_| true)
    }

    /// Returns when a run is next due; `None` while there is no repeat.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open
            .values()
            .filter(|open| open.repeats > 0)
            .map(|open| open.since + LONGEST_OPEN)
            .min()
    }

    fn take(&mut self, is_due: impl Fn(&Open) -> bool) -> Vec<Repeats> {
        let mut due: Vec<(Instant, Repeats)> = self
            .open
            .extract_if(|_, open| is_due(open))
            .filter(|(_, open)| open.repeats > 0)
            .map(|(_, open)| {
                (
                    open.since,
                    Repeats {
                        body: open.body,
                        count: open.repeats,
                    },
                )
            })
            .collect();
        due.sort_by_key(|(since, _)| *since);
        due.into_iter().map(|(_, repeats)| repeats).collect()
    }

    fn evict_oldest(&mut self) -> Option<Repeats> {
        let oldest = self
            .open
            .iter()
            .min_by_key(|(_, open)| open.since)
            .map(|(key, _)| key.clone())?;
        let open = self.open.remove(&oldest)?;
        (open.repeats > 0).then_some(Repeats {
            body: open.body,
            count: open.repeats,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Event, Kind};
    use super::*;

    fn body(target: &str) -> (String, Arc<Body>) {
        let body = Arc::new(Body::new(
            &Event::new(Kind::Deny, "read").arg("target", target),
        ));
        (body.key(), body)
    }

    #[test]
    fn every_event_is_stored_or_counted() {
        let mut folds = Folds::default();
        let start = Instant::now();
        let mut stored = 0;
        for round in 0..10 {
            for name in 0..100 {
                let (key, body) = body(&name.to_string());
                if let Fold::Store { evicted } =
                    folds.offer(key, &body, start + Duration::from_millis(round))
                {
                    stored += 1 + evicted.map_or(0, |repeats| repeats.count);
                }
            }
        }
        stored += folds
            .take_all()
            .iter()
            .map(|repeats| repeats.count)
            .sum::<u64>();
        assert_eq!(stored, 1000);
    }

    #[test]
    fn a_run_is_due_after_a_second() {
        let mut folds = Folds::default();
        let start = Instant::now();
        let (key, body) = body("x");
        folds.offer(key.clone(), &body, start);
        assert_eq!(folds.due(), None);
        folds.offer(key, &body, start + Duration::from_millis(500));
        assert_eq!(folds.due(), Some(start + Duration::from_millis(1500)));
        assert!(
            folds
                .take_due(start + Duration::from_millis(1400))
                .is_empty()
        );
        assert_eq!(folds.take_due(start + Duration::from_millis(1500)).len(), 1);
        assert_eq!(folds.due(), None);
    }
}
