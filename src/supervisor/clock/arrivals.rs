//! What came from outside while a run was recorded, and since when it was waited for.
//!
//! The tape that all threads of a program share has their times of day in a row. A thread that asks once more than it
//! did would take a time from behind a wait which is still to come: the arrival at its end tells that.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

/// When something came, and since when it was under way; on the timeline.
#[derive(Debug, Default)]
pub(super) struct Arrivals(BTreeMap<u64, u64>);

impl Arrivals {
    pub(super) fn add(&mut self, since: u64, came: u64) {
        let known = self.0.entry(came).or_insert(since);
        *known = since.min(*known);
    }

    /// How much of the time between two points was spent on what came in it.
    fn awaited(&self, from: u64, until: u64) -> u64 {
        let (mut awaited, mut open) = (0_u64, until);
        for (came, since) in self.0.range((Excluded(from), Included(until.max(from)))).rev() {
            let since = (*since).max(from);
            awaited = awaited.saturating_add((*came).min(open).saturating_sub(since));
            open = open.min(since);
        }
        awaited
    }

    /// Whether a read that comes `since` after the time `last` was told cannot be the one which was told `next`: that
    /// had waited for something, and this has not.
    pub(super) fn lie_before(&self, last: u64, since: u64, next: u64) -> bool {
        let left = next.saturating_sub(last).saturating_sub(since);
        let awaited = self.awaited(last, next);
        // Half of it: what the program itself does in between takes another time than it took.
        since < awaited / 2 && awaited >= left / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_counts_once() {
        let mut arrivals = Arrivals::default();
        for (since, came) in [(10, 30), (20, 40), (15, 40), (70, 80), (75, 78), (90, 200)] {
            arrivals.add(since, came);
        }
        let cases = [(0, 100, 40), (0, 35, 20), (25, 100, 25), (40, 69, 0), (0, 200, 150), (50, 10, 0)];
        for (from, until, awaited) in cases {
            assert_eq!(arrivals.awaited(from, until), awaited, "{from} to {until}");
        }
    }

    #[test]
    fn who_has_not_waited_is_not_told_what_came_later() {
        let mut arrivals = Arrivals::default();
        arrivals.add(1000, 2000);
        // At once, while it is awaited, and behind it.
        assert!(arrivals.lie_before(1000, 5, 2010) && !arrivals.lie_before(1000, 995, 2010));
        assert!(!arrivals.lie_before(2000, 5, 3010));
        // What came took a small part of that time.
        assert!(!arrivals.lie_before(1000, 5, 9000));
    }
}
