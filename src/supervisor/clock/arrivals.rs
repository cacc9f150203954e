//! What came from outside while a run was recorded, and since when it was waited for.
//!
//! The tape that all threads of a program share has their times of day in a row. A thread that asks once more than it
//! did would take a time from behind a wait that is still to come, and the program's clock would leap over it; where
//! they ask less often, a time from before the wait is left. Waits tell both.

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
}

/// What tells a read that was recorded from one that was not, by the waits around them.
pub(super) struct WaitsBeside<'a> {
    /// The program's kernel now.
    pub(super) kernel: u64,
    /// At which time of it how much was left out.
    pub(super) skips: &'a [(u64, u64)],
    pub(super) arrivals: Option<&'a Arrivals>,
    /// How long the program's present waits last.
    pub(super) left: &'a [u64],
}

impl WaitsBeside<'_> {
    /// Whether a read cannot be the one that was told `next`, on a clock at `own` where `told` was told before: that
    /// one had waited, and this one has not. Half of it counts: what a program does beside takes another time than
    /// it took.
    pub(super) fn are_to_come(&self, told: u64, own: u64, next: u64) -> bool {
        let left = next.saturating_sub(own);
        let awaited = self.arrivals.map_or(0, |arrivals| arrivals.awaited(told, next));
        let has_not = own.saturating_sub(told) < awaited / 2 && awaited >= left / 4;
        has_not || self.left.iter().any(|wait| (left / 4..=left).contains(wait))
    }

    /// The same for a read that has waited, where that one had not.
    pub(super) fn are_over(&self, told: u64, own: u64, next: u64) -> bool {
        let mut left_out = 0_u64;
        for (from, by) in self.skips.iter().rev() {
            let since = self.kernel.saturating_sub(*from).saturating_add(left_out);
            if own.saturating_sub(since) <= told {
                break;
            }
            left_out = left_out.saturating_add(*by);
        }
        next.saturating_sub(told) < left_out / 2
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
        let waits = WaitsBeside { kernel: 0, skips: &[], arrivals: Some(&arrivals), left: &[] };
        // At once, while it is awaited, and behind it.
        assert!(waits.are_to_come(1000, 1005, 2010) && !waits.are_to_come(1000, 1995, 2010));
        assert!(!waits.are_to_come(2000, 2005, 3010));
        // What came took a small part of that time.
        assert!(!waits.are_to_come(1000, 1005, 9000));
        // One that sleeps, and others.
        let waits = WaitsBeside { left: &[10, 900, 1001], ..waits };
        assert!(waits.are_to_come(2000, 2005, 3005) && !waits.are_to_come(2000, 2005, 2500));
    }

    #[test]
    fn who_has_waited_is_not_told_what_came_before() {
        // At 100 and 150 of the kernel 1000 each were left out; it is 160 now, and 2160 for the program.
        let skips = [(100, 1000), (150, 1000)];
        let waits = WaitsBeside { kernel: 160, skips: &skips, arrivals: None, left: &[] };
        assert!(waits.are_over(90, 2160, 95) && waits.are_over(90, 2160, 1080));
        assert!(!waits.are_over(90, 2160, 1100));
        // Between the two.
        assert!(waits.are_over(1120, 2160, 1200) && !waits.are_over(1120, 2160, 1700));
        assert!(!waits.are_over(2155, 2160, 2156));
    }
}
