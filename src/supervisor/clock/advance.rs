//! Time that a replay leaves out: clocks at real rate take it in at once.
//!
//! Tapes hold the time that had passed when they were recorded; nothing is to be done to them.

use std::time::Duration;

use super::reel::{Reel, Replay};
use super::space::{Head, Lane};
use super::{Clock, Thread};
use crate::sys::clock;

/// What a replay may wait longer than the recorded run, and more.
const GRACE: Duration = Duration::from_secs(60);

/// Times of files are those of the last tick, in nanoseconds.
const TICK: i64 = 20_000_000;

/// Time that a replay has left out.
#[derive(Debug, Default, Clone, Copy)]
pub struct LeftOut {
    /// All of it: an answer comes at once, and what ran longer when it was recorded is done sooner.
    pub all: Duration,
    /// What waits for a time were to last.
    pub waits: Duration,
}

impl Clock {
    /// CLOCK_MONOTONIC as the run's kernel has it, and what CLOCK_REALTIME and CLOCK_BOOTTIME are ahead of the
    /// timeline.
    pub(in crate::supervisor) fn kernel(&self) -> (u64, u64, u64) {
        (self.kernel_now(), self.offsets.of_kind(0), self.offsets.of_kind(7))
    }

    /// Where the timeline stands.
    pub(in crate::supervisor) fn timeline(&self) -> u64 {
        self.kernel_now().wrapping_add(self.skipped)
    }

    /// How long a task sees the machine to have been up.
    pub(in crate::supervisor) fn since_boot(&self, task: i32, process: i32) -> Duration {
        Duration::from_nanos(self.now(task, process).wrapping_add(self.offsets.of_kind(7)))
    }

    /// The time of day for a task: what it read last, or what is.
    pub(in crate::supervisor) fn time_of_day(&self, task: i32, process: i32) -> i64 {
        self.now(task, process).wrapping_add(self.offsets.of_kind(0)).cast_signed()
    }

    /// Where it began.
    pub(in crate::supervisor) fn beginning(&self) -> u64 {
        self.base.monotonic_ns
    }

    /// What the kernel is behind the beginning of the run, which is now.
    pub(in crate::supervisor) fn catch_up(&mut self) -> u64 {
        self.skipped = self.base.monotonic_ns.saturating_sub(self.kernel_now());
        self.skips.push((0, self.skipped));
        self.passed = self.skipped;
        self.skipped
    }

    /// The time of day of the run when the machine's was `time`; `None` for what was before it, and where it goes on
    /// for real. Nanoseconds since 1970.
    pub(in crate::supervisor) fn time_of_run(&self, time: i64) -> Option<i64> {
        let now = clock::read(libc::CLOCK_REALTIME).ok()?.cast_signed();
        let ago = now.checked_sub(time).filter(|_| !self.is_live && self.tapes.is_some())?;
        if ago < -TICK {
            return None;
        }
        let then = self.kernel_now().checked_add_signed(ago.checked_neg()?)?;
        let left_out = self.skips.iter().rfind(|(from, _)| *from <= then).map_or(0, |(_, skipped)| *skipped);
        let point = then.wrapping_add(left_out);
        let has_begun = point.saturating_add(TICK.cast_unsigned()) >= self.base.monotonic_ns;
        has_begun.then(|| point.wrapping_add(self.offsets.of_kind(0)).cast_signed())
    }

    /// Whether the clock of a program goes at real rate.
    pub(in crate::supervisor) fn is_any_at_real_rate(&self) -> bool {
        self.programs.values().any(|program| program.control.mode.is_at_real_rate())
    }

    /// The time that was left out since, and what of it something waited for.
    pub(in crate::supervisor) fn left_out(&self) -> LeftOut {
        let all = Duration::from_nanos(self.skipped.wrapping_sub(self.passed));
        LeftOut { all, waits: Duration::from_nanos(self.waited) }
    }

    /// The point of the timeline beyond which nothing is left out: the recorded run had ended, or was ended
    /// from outside, well before.
    pub(in crate::supervisor) fn horizon(&self) -> u64 {
        let lasted = self.lasted();
        let far = lasted.saturating_add(lasted / 8).saturating_add(GRACE).as_nanos();
        self.base.monotonic_ns.saturating_add(u64::try_from(far).unwrap_or(u64::MAX))
    }

    /// How long the recorded run lasted.
    pub(in crate::supervisor) fn lasted(&self) -> Duration {
        self.tapes.as_ref().map_or(Duration::ZERO, |tapes| tapes.lasted)
    }

    /// How many steps it had.
    pub(in crate::supervisor) fn steps(&self) -> u64 {
        self.tapes.as_ref().map_or(0, |tapes| tapes.steps)
    }

    /// Nanoseconds pass at once.
    pub(in crate::supervisor) fn advance(&mut self, by: u64) {
        self.waited = self.waited.saturating_add(by);
        self.pass(by, |_| 0);
    }

    /// The same where the timeline, which stands at `now`, was behind: for a clock that was ahead of it they have
    /// passed already, as for that of a program which has begun sooner than it did.
    pub(in crate::supervisor) fn draw_level(&mut self, now: u64, by: u64) {
        self.pass(by, |own| own.saturating_sub(now).min(by));
    }

    /// `passed` says how many of them have, for a clock at real rate that stands there.
    fn pass(&mut self, by: u64, passed: impl Fn(u64) -> u64) {
        self.skipped = self.skipped.wrapping_add(by);
        self.skips.push((self.kernel_now(), self.skipped));
        let kernel = self.kernel_now();
        let at_real_rate = self.programs.iter().filter(|(_, program)| program.control.mode.is_at_real_rate());
        let left: Vec<(i32, u64)> = at_real_rate
            .map(|(process, program)| {
                let ahead = self.ahead(program);
                let own = kernel.wrapping_add(program.control.shift).wrapping_add(ahead);
                // What its times of day have moved it on passes below.
                (*process, by - passed(own).saturating_sub(ahead.min(by)))
            })
            .collect();
        for (process, left) in left {
            if let Some(program) = self.programs.get_mut(&process) {
                program.advance(process, (kernel, left));
            }
        }
        for thread in self.threads.values_mut().chain(self.readers.values_mut()) {
            if let Reel::Replay(replay) = &mut thread.reel {
                replay.advance(thread.lane.as_ref(), by, kernel);
            }
        }
    }

    /// A wait of `task` in the call `number` has ended, which was to last until `at` on its own clock.
    pub(in crate::supervisor) fn reach(&mut self, task: i32, number: i64, at: u64) {
        let kernel = self.kernel_now();
        if let Some(thread) = self.threads.get_mut(&task)
            && let (Reel::Replay(replay), Some(lane)) = (&mut thread.reel, &thread.lane)
        {
            // Threads wait for locks, as for that of an interpreter, as it happens: what a program reads itself is the
            // next of its own all the same.
            let at_own = if number == libc::SYS_futex { 0 } else { at };
            // Its memory is a file of ours: it can be read and written.
            let _ = replay.reach(lane, at, at_own, kernel);
        }
    }

    /// The furthest point of the timeline that any thread has taken from its tape, or come to by one.
    pub(in crate::supervisor) fn furthest(&self) -> u64 {
        let taken = self.threads.keys().filter_map(|task| self.taken(*task));
        let taken = taken.chain(self.readers.values().filter_map(Thread::taken));
        let moved = self.programs.iter().filter(|(_, program)| self.ahead(program) > 0);
        taken.chain(moved.filter_map(|(process, _)| self.at_real_rate(*process, *process))).max().unwrap_or(0)
    }

    /// The last point that a task has taken from its tape.
    pub(in crate::supervisor) fn taken(&self, task: i32) -> Option<u64> {
        self.threads.get(&task)?.taken()
    }

    /// Whether a task has read its tape itself.
    pub(in crate::supervisor) fn has_read(&self, task: i32) -> bool {
        self.threads.get(&task).is_some_and(|thread| match &thread.reel {
            Reel::Replay(replay) => replay.followed(thread.lane.as_ref()).read > 0,
            Reel::Record(_) | Reel::Full => false,
        })
    }

    /// What a task reads from its clock now, if that goes at real rate.
    pub(in crate::supervisor) fn at_real_rate(&self, task: i32, process: i32) -> Option<u64> {
        match self.threads.get(&task) {
            Some(thread) => match &thread.reel {
                Reel::Replay(replay) => replay.drifts_at(thread.lane.as_ref(), self.kernel_now()),
                Reel::Record(_) | Reel::Full => None,
            },
            None => {
                let program = self.programs.get(&process)?;
                let shift = program.control.shift.wrapping_add(self.ahead(program));
                program.control.mode.is_at_real_rate().then(|| self.kernel_now().wrapping_add(shift))
            }
        }
    }
}

impl Thread {
    /// The last point that it has taken from its tape.
    fn taken(&self) -> Option<u64> {
        match &self.reel {
            Reel::Replay(replay) => Some(replay.taken(self.lane.as_ref())),
            Reel::Record(_) | Reel::Full => None,
        }
    }
}

impl Replay {
    /// Where the timeline stands for this thread.
    pub(super) fn now(&self, lane: Option<&Lane>) -> u64 {
        match lane.and_then(|lane| lane.head().ok()) {
            Some(head) if head.drifts() => head.last,
            _ => self.taken(lane),
        }
    }

    /// The last point that the thread has taken from its tape.
    pub(super) fn taken(&self, lane: Option<&Lane>) -> u64 {
        let given = lane.filter(|_| self.is_interpreter).and_then(|lane| lane.floor().ok());
        if let Some(given) = given.filter(|given| *given > 0) {
            // A program can write there what it likes.
            return given.min(self.window.last().map_or(self.last, |point| point.at));
        }
        let head = lane.and_then(|lane| lane.head().ok()).unwrap_or_default();
        let given = usize::try_from(head.cursor).unwrap_or(usize::MAX).min(self.window.len());
        given.checked_sub(1).and_then(|at| self.window.get(at)).map_or(self.last, |point| point.at)
    }

    /// Beyond the end of the tape time goes on at real rate, and takes in what is left out.
    fn advance(&mut self, lane: Option<&Lane>, by: u64, kernel: u64) {
        if let Some(skew) = &mut self.skew {
            *skew = skew.wrapping_add(by);
        }
        let Some((lane, mut head)) = lane.and_then(|lane| Some((lane, lane.head().ok()?))) else { return };
        if !head.adrift {
            if head.more || head.cursor < head.count {
                return;
            }
            head.last = self.taken(Some(lane));
            head.skew = head.last.wrapping_sub(kernel);
            head.adrift = true;
        }
        head.skew = head.skew.wrapping_add(by);
        // It is a file of ours: it can be written.
        let _ = lane.set_head(head);
    }

    /// What the thread reads now, if it has left the end of its tape.
    fn drifts_at(&self, lane: Option<&Lane>, kernel: u64) -> Option<u64> {
        let head = lane.and_then(|lane| lane.head().ok()).filter(Head::drifts);
        let skew = head.map(|head| head.skew).or(self.skew)?;
        Some(kernel.wrapping_add(skew))
    }
}
