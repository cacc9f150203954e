//! When a replay is ended that does not end by itself, for it parts from the recorded run: it waits for what never
//! comes, or does something without end.
//!
//! How long is too long is told by the recorded run. A thread cannot have run for longer than that has lasted, nor can
//! anything have waited for longer; on a slow machine a replay takes more, but not many times as much. Nor does it have
//! many times as many steps.

use std::time::{Duration, Instant};

use super::super::ending::Ended;
use super::sight;

/// How often it is looked.
const OFTEN: Duration = Duration::from_secs(1);
/// So long nothing must be able to go on.
const AT_REST: Duration = Duration::from_secs(4);
/// What a short run may take longer.
const GRACE: Duration = Duration::from_secs(10);
/// How much slower a machine may be.
const SLOWER: u32 = 4;
/// How many times as many steps it may have, and what a short run may have more.
const MORE: u64 = 4;
const FEW: u64 = 1000;

/// What is known of the replay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    /// How long the recorded run lasted.
    pub(super) lasted: Duration,
    /// How much of that was left out.
    pub(super) left_out: Duration,
    /// It waits for a time at which the recorded run had ended.
    pub(super) is_beyond: bool,
    /// Nothing of it can go on by itself.
    pub(super) rests: bool,
    /// How many steps the recorded run had, and how many this one has had.
    pub(super) steps: [u64; 2],
}

/// For how long it was so.
#[derive(Debug)]
pub(super) struct Patience {
    looked: Instant,
    /// How often each task was taken from its CPU.
    switches: Vec<(i32, u64)>,
    unmoved: Duration,
    rested: Duration,
    beyond: Duration,
}

impl Patience {
    pub(super) fn new() -> Self {
        let none = Duration::ZERO;
        Self { looked: Instant::now(), switches: Vec::new(), unmoved: none, rested: none, beyond: none }
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self) -> bool {
        self.looked.elapsed() >= OFTEN
    }

    /// Looks at these tasks. Why the replay ends now, if it does.
    pub(super) fn look(&mut self, tasks: &[i32], course: Course) -> Option<Ended> {
        // We may have been stopped, and the run with us.
        let passed = self.looked.elapsed().min(OFTEN * 2);
        self.looked = Instant::now();
        let mut switches: Vec<_> =
            tasks.iter().filter_map(|task| Some((*task, sight::switches(*task)?))).collect();
        switches.sort_unstable();
        let moves = switches != self.switches || tasks.iter().any(|task| sight::runs(*task));
        self.switches = switches;
        let count = |time: &mut Duration, goes_on: bool| {
            *time = if goes_on { *time + passed } else { Duration::ZERO };
            *time
        };
        let rested = count(&mut self.rested, course.rests && !moves);
        let unmoved = count(&mut self.unmoved, !moves);
        let slow = course.lasted.saturating_add(course.lasted / 8).saturating_add(GRACE);
        // More was left out than there was: it is not the machine that is slow.
        let is_other = course.left_out > slow;
        // What moves in between begins to wait once more.
        self.beyond += if course.is_beyond || is_other { passed } else { Duration::ZERO };
        if rested >= AT_REST || unmoved >= slow {
            return Some(Ended::AtRest);
        }
        let may_wait = if is_other { AT_REST } else { slow };
        let may_run = course.lasted.saturating_mul(SLOWER).saturating_add(GRACE);
        let [recorded, live] = course.steps;
        let is_endless = self.beyond >= may_wait
            || live > recorded.saturating_mul(MORE).saturating_add(FEW)
            || tasks.iter().any(|task| sight::has_run(*task) >= may_run);
        is_endless.then_some(Ended::Endless)
    }

    /// Something was done about it.
    pub(super) fn begin_anew(&mut self) {
        (self.unmoved, self.rested, self.beyond) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const AT_WORK: Course = Course {
        lasted: Duration::ZERO,
        left_out: Duration::ZERO,
        is_beyond: false,
        rests: false,
        steps: [10, 10],
    };

    fn ended_after(course: Course, seconds: u64) -> Option<Ended> {
        let mut child = Command::new("sleep").arg("60").spawn().expect("starts");
        let task = i32::try_from(child.id()).expect("a pid");
        while !matches!(sight::of(task), sight::Sight::Blocked(one) if one.call.number == libc::SYS_clock_nanosleep)
        {
            std::thread::yield_now();
        }
        let mut patience = Patience::new();
        let mut ended = patience.look(&[task], course);
        for _ in 0..seconds {
            assert_eq!(ended, None);
            patience.looked = Instant::now().checked_sub(OFTEN).expect("the machine is up for longer");
            ended = patience.look(&[task], course);
        }
        child.kill().expect("kill");
        child.wait().expect("ends");
        ended
    }

    #[test]
    fn what_can_go_on_is_waited_for_for_longer() {
        assert_eq!(ended_after(Course { rests: true, ..AT_WORK }, 4), Some(Ended::AtRest));
        assert_eq!(ended_after(AT_WORK, 9), None);
        assert_eq!(ended_after(AT_WORK, 10), Some(Ended::AtRest));
        let longer = Course { lasted: GRACE, ..AT_WORK };
        assert_eq!(ended_after(longer, 19), None);
    }

    #[test]
    fn what_waits_beyond_the_end_is_not_waited_for() {
        let beyond = Course { is_beyond: true, left_out: GRACE * 2, ..AT_WORK };
        assert_eq!(ended_after(beyond, 4), Some(Ended::Endless));
        assert_eq!(ended_after(Course { left_out: GRACE, ..beyond }, 9), None);
        assert_eq!(ended_after(Course { steps: [10, 1041], ..AT_WORK }, 0), Some(Ended::Endless));
    }

    #[test]
    fn what_runs_is_ended_when_it_has_run_for_much_longer() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("starts");
        let task = i32::try_from(child.id()).expect("a pid");
        let mut patience = Patience::new();
        assert_eq!(patience.look(&[task], Course { is_beyond: true, ..AT_WORK }), None);
        while sight::has_run(task) < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        assert!(patience.look(&[task], AT_WORK).is_none() && patience.unmoved.is_zero());
        child.kill().expect("kill");
        child.wait().expect("ends");
    }
}
