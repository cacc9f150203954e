//! Reads of a clock that reach the kernel as calls: of programs without a vDSO, and of the image where a lane
//! is full, or at its end.

use super::super::call::{Call, Reply, low_half};
use super::super::syscall_table::is_for_replays;
use super::super::{Stop, Supervisor};
use super::points::Point;
use super::reel::Reel;
use super::{Clock, Thread};
use crate::sys::clock;
use crate::sys::vdso::{KIND_IS, METHOD_IS};
use crate::trace::TraceError;

const SECOND: u64 = 1_000_000_000;

/// The kind of a clock that is on the timeline (`image.c` numbers them); `None` for those of CPU time and of
/// devices.
pub(super) fn kind_of(clock: i32) -> Option<u8> {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM => Some(0),
        libc::CLOCK_MONOTONIC => Some(1),
        libc::CLOCK_TAI => Some(2),
        libc::CLOCK_MONOTONIC_RAW => Some(4),
        libc::CLOCK_REALTIME_COARSE => Some(5),
        libc::CLOCK_MONOTONIC_COARSE => Some(6),
        libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM => Some(7),
        _ => None,
    }
}

impl Supervisor {
    /// Marks how far the task has read its tape, or puts it back to where it was.
    pub(in crate::supervisor) fn mark_clock(&mut self, call: &Call) -> Result<(), TraceError> {
        let reads_clock = [libc::SYS_clock_gettime, libc::SYS_gettimeofday, libc::SYS_time];
        let number = call.number.unsigned_abs();
        if reads_clock.contains(&i64::from(call.number)) || is_for_replays(number) {
            return Ok(());
        }
        self.mark_call(call.task.tid, number.into())
    }

    /// The same for a call that the supervisor sees of `task`.
    pub(in crate::supervisor) fn mark_call(&mut self, task: i32, number: u64) -> Result<(), TraceError> {
        if let Some(clock) = &mut self.clock {
            clock.called(task, number);
        }
        self.count_call(task)
    }

    /// A call that reads a clock.
    pub(in crate::supervisor) fn read_clock(&mut self, call: &Call) -> Result<Reply, Stop> {
        let [first, second, third, fourth, ..] = call.arguments;
        let number = i64::from(call.number);
        if let Some(clocks) = &mut self.clock
            && third >> 32 == METHOD_IS
            && number == libc::SYS_clock_gettime
        {
            return Ok(Reply::Value(clocks.class_of(call.task.tgid, fourth)));
        }
        let (clock, place) = match number {
            libc::SYS_clock_gettime => (call.int(first), second),
            libc::SYS_time => (libc::CLOCK_REALTIME_COARSE, first),
            _ => (libc::CLOCK_REALTIME, first),
        };
        let is_of_day = clock == libc::CLOCK_REALTIME;
        let left = if is_of_day { self.waits_left(call.task.tid, call.task.tgid) } else { Vec::new() };
        let (Some(clocks), Some(kind)) = (&mut self.clock, kind_of(clock)) else {
            return Ok(Reply::Continue);
        };
        // What is wrong there deceives nobody but the program.
        let is_of_tape = third >> 32 == KIND_IS && number == libc::SYS_clock_gettime;
        let kind = if is_of_tape { low_half(third).try_into().unwrap_or(kind) } else { kind };
        let read = Read { kind, clock, is_of_tape, left };
        let Some(now) = clocks.read(call.task.tid, call.task.tgid, read)? else {
            return Ok(Reply::Continue);
        };
        let (seconds, rest) = (now / SECOND, now % SECOND);
        let words: &[u64] = match number {
            libc::SYS_clock_gettime => &[seconds, rest],
            libc::SYS_time => &[seconds],
            _ => &[seconds, rest / 1000],
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let wanted = place != 0 || number == libc::SYS_clock_gettime;
        if wanted && let Err(errno) = self.give(call, place, &bytes) {
            return Ok(Reply::Errno(errno));
        }
        // struct timezone, which Linux leaves at 0.
        let zone = number == libc::SYS_gettimeofday && second != 0;
        if zone && let Err(errno) = self.give(call, second, &[0; 8]) {
            return Ok(Reply::Errno(errno));
        }
        Ok(Reply::Value(if number == libc::SYS_time { seconds.cast_signed() } else { 0 }))
    }
}

/// A read of a clock by its number.
struct Read {
    kind: u8,
    clock: i32,
    /// The image asks, for the thread's own tape.
    is_of_tape: bool,
    /// How long the present waits of its process last, where its clock goes at real rate.
    left: Vec<u64>,
}

impl Clock {
    /// What `task` of `process` is to see of a clock, in nanoseconds; `None` when it is to read the machine's
    /// clock itself.
    fn read(&mut self, task: i32, process: i32, read: Read) -> Result<Option<u64>, TraceError> {
        let Read { kind, clock, is_of_tape, left } = read;
        let kernel = self.kernel_now();
        if is_of_tape && let Some(mut thread) = self.readers.remove(&task) {
            let point = self.next_point(&mut thread, (kind, clock), kernel);
            self.readers.insert(task, thread);
            return Ok(point?.map(|point| point.wrapping_add(self.offsets.of_kind(kind))));
        }
        let offset = self.offsets.of_kind(kind);
        // At real rate, or unknown: the shift is that of the program's image.
        let Some(mut thread) = self.threads.remove(&task) else {
            return Ok(Some(self.at_real_rate_now(process, kind, &left)?.wrapping_add(offset)));
        };
        let point = self.next_point(&mut thread, (kind, clock), kernel);
        self.threads.insert(task, thread);
        Ok(point?.map(|point| point.wrapping_add(offset)))
    }

    fn next_point(
        &mut self,
        thread: &mut Thread,
        (kind, clock): (u8, i32),
        kernel: u64,
    ) -> Result<Option<u64>, TraceError> {
        let lane = thread.lane.as_ref();
        match &mut thread.reel {
            Reel::Full => return Ok(None),
            Reel::Replay(replay) => return Ok(replay.next(lane, kind, kernel).ok()),
            Reel::Record(record) => record.drain(lane),
        }
        if self.is_full() {
            self.keep(thread, true)?;
            thread.reel = Reel::full(thread.lane.as_ref());
            return Ok(None);
        }
        let Ok(now) = clock::read(clock) else { return Ok(None) };
        let point = Point::new(kind, now.wrapping_sub(self.offsets.of_kind(kind)));
        if let Reel::Record(record) = &mut thread.reel {
            record.push(point);
        }
        self.keep(thread, false)?;
        Ok(Some(point.at))
    }
}
