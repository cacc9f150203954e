//! Times of day of programs whose clock goes at real rate: one tape for all threads of a program.
//!
//! Their runtimes read CLOCK_MONOTONIC for themselves; CLOCK_REALTIME is what the program itself asks for. Where
//! its threads ask in the order in which they did, each read is as recorded (`shifted` in `image.c`).

use std::io;

use super::arrivals::WaitsBeside;
use super::control::Control;
use super::points::Point;
use super::reel::{Reel, Replay};
use super::space::{Head, Lane};
use super::{Clock, Program};
use crate::sys::process;
use crate::sys::vdso::POINTS;
use crate::trace::TraceError;

/// As in `image.c`.
const APART: i64 = 100_000_000;
/// What is as long over was not asked for this time.
const LONG_OVER: i64 = 1_000_000_000;
/// The kind of CLOCK_REALTIME.
const REALTIME: u8 = 0;

impl Clock {
    /// A program is gone, or becomes another.
    pub(super) fn end_program(&mut self, process: i32) -> Result<(), TraceError> {
        let Some(mut days) = self.programs.remove(&process).and_then(|program| program.days) else {
            return Ok(());
        };
        if let Reel::Record(record) = &mut days.reel {
            record.drain(days.lane.as_ref());
        }
        self.keep(&mut days, true)
    }

    /// A program whose clock goes at real rate has forked: the tape is not its child's.
    pub(super) fn forked_at_real_rate(&mut self, maker: i32, child: i32, control: Control) {
        let mut control = control;
        // Where that cannot be told, nothing of the maker is to be changed.
        if !process::share_memory(maker, child).unwrap_or(true) {
            control = control.alone(None);
            // Killed meanwhile: nobody reads it.
            let _ = control.write(child);
        }
        self.programs.insert(
            child,
            Program { control, days: None, has_readers: false, methods: Box::default(), skips: Vec::new() },
        );
    }

    /// Where the timeline stands for a read of `kind` that the supervisor answers, of a program whose clock goes
    /// at real rate; `left` is how long its present waits last.
    pub(super) fn at_real_rate_now(
        &mut self,
        process: i32,
        kind: u8,
        left: &[u64],
    ) -> Result<u64, TraceError> {
        let kernel = self.kernel_now();
        let Some(mut program) = self.programs.remove(&process) else { return Ok(kernel) };
        let mut now = kernel.wrapping_add(program.control.shift).wrapping_add(self.ahead(&program));
        if let Some(days) = &mut program.days
            && kind == REALTIME
        {
            match &mut days.reel {
                // Its memory is a file of ours: it can be read and written.
                Reel::Replay(replay) => {
                    let arrivals = self.tapes.as_ref().map(|tapes| &tapes.arrivals);
                    let waits = WaitsBeside { kernel, skips: &program.skips, arrivals, left };
                    now = replay.time_of_day(days.lane.as_ref(), now, &waits).unwrap_or(now);
                }
                Reel::Record(record) => {
                    record.drain(days.lane.as_ref());
                    record.push(Point::new(kind, now));
                    self.keep(days, false)?;
                    if self.is_full() {
                        self.keep(days, true)?;
                        days.reel = Reel::full(days.lane.as_ref());
                    }
                }
                Reel::Full => {}
            }
        }
        self.programs.insert(process, program);
        Ok(now)
    }

    /// When a program whose clock goes at real rate has read it last.
    pub(in crate::supervisor) fn last_read(&self, process: i32) -> Option<u64> {
        let lane = self.programs.get(&process)?.days.as_ref()?.lane.as_ref()?;
        lane.head().ok().map(|head| head.last)
    }

    /// What the times of day of a program have moved its clock on. A program can write there what it likes.
    pub(super) fn ahead(&self, program: &Program) -> u64 {
        let days = program.days.as_ref().filter(|days| matches!(days.reel, Reel::Replay(_)));
        let lane = days.and_then(|days| days.lane.as_ref());
        let skew = lane.and_then(|lane| lane.head().ok()).map_or(0, |head| head.skew);
        let far = self.horizon().saturating_sub(self.kernel_now());
        if skew < far { skew } else { 0 }
    }
}

impl Program {
    /// Nanoseconds pass at once, at this time of the kernel: those that the clock was ahead have passed already.
    pub(super) fn advance(&mut self, process: i32, (kernel, by): (u64, u64)) {
        self.control.shift = self.control.shift.wrapping_add(by);
        // Killed meanwhile: nobody reads it.
        let _ = self.control.write(process);
        let days = self.days.as_ref().filter(|days| matches!(days.reel, Reel::Replay(_)));
        let Some(lane) = days.and_then(|days| days.lane.as_ref()) else { return };
        let mut passed = 0;
        // It is a file of ours: it can be read and written.
        if let Some(head) = lane.head().ok().filter(|head| head.skew > 0) {
            passed = by.min(head.skew);
            let _ = lane.set_head(Head { skew: head.skew - passed, ..head });
        }
        self.skips.push((kernel, by - passed));
    }
}

impl Replay {
    /// As in `image.c`: the next point of the tape for a clock that stands at `now`.
    fn time_of_day(&mut self, lane: Option<&Lane>, now: u64, waits: &WaitsBeside<'_>) -> io::Result<u64> {
        let Some(lane) = lane else { return Ok(now) };
        // The program can write there meanwhile: what is taken from the tape is counted here.
        let mut head = lane.head()?;
        let late = head.mismatches;
        let own = now.wrapping_sub(late);
        let mut told = None;
        loop {
            let cursor = usize::try_from(head.cursor).unwrap_or(usize::MAX);
            let Some(point) = self.window.get(cursor) else {
                if self.window.len() < POINTS {
                    lane.set_cursor(head.cursor)?;
                    return Ok(own);
                }
                self.last = self.window.last().map_or(self.last, |point| point.at);
                self.fill(Some(lane))?;
                let Head { last, skew, .. } = head;
                head = Head { last, skew, mismatches: late, ..lane.head()? };
                lane.set_head(head)?;
                continue;
            };
            let before = cursor.checked_sub(1).and_then(|before| self.window.get(before));
            let told = *told.get_or_insert_with(|| before.map_or(self.last, |before| before.at));
            let over = own.wrapping_sub(point.at).cast_signed();
            if over < -APART && waits.are_to_come(told, own, point.at) {
                lane.set_cursor(head.cursor)?;
                return Ok(own);
            }
            head.cursor += 1;
            if over > LONG_OVER || (over > APART && waits.are_over(told, own, point.at)) {
                continue;
            }
            let (ahead, late) = (point.at.saturating_sub(now), now.saturating_sub(point.at));
            lane.move_on(head.cursor, ahead, late)?;
            return Ok(point.at);
        }
    }
}
