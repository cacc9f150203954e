//! Waits until a time of CLOCK_REALTIME, in a replay.
//!
//! The time is one that the program has made of what it saw of its clock: one of the recorded run. To the kernel
//! it is long over, and there is no namespace for this clock as there is for the others. So the call waits on
//! CLOCK_MONOTONIC instead, as long as it would have from the program's own now.
//!
//! The task stops before such a call (SECCOMP_RET_TRACE), gets other registers for it, and stops again at its
//! end to get its own back: programs rely on them, and a call that is started again is translated anew.

use std::fs;
use std::io;

use super::super::Supervisor;
use super::super::call::low_half;
use super::Clock;
use super::raw::kind_of;
use crate::sys::tracee::{self, Registers};
use crate::sys::{clock, memory, ptrace};
use crate::trace::TraceError;

const SECOND: u64 = 1_000_000_000;
/// Below the stack pointer, beyond what a function may use there without saying so (the ABI's red zone).
const BELOW: u64 = 512;
const FUTEX_CLOCK_REALTIME: u64 = 256;
const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_LOCK_PI2: u64 = 13;
/// TIMER_ABSTIME, or TFD_TIMER_ABSTIME and TFD_TIMER_CANCEL_ON_SET.
const TIMER_FLAGS: u64 = 3;
const REAL_CLOCKS: [i32; 3] = [libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_ALARM, libc::CLOCK_TAI];

/// The registers of a call that were changed for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
    r8: u64,
}

impl Own {
    fn of(registers: &Registers) -> Self {
        let Registers { rdi, rsi, rdx, r10, r8, .. } = *registers;
        Self { rdi, rsi, rdx, r10, r8 }
    }
}

impl Supervisor {
    /// Task `task` is about to wait until a time.
    pub(in crate::supervisor) fn translate_wait(
        &mut self,
        task: i32,
        registers: Registers,
    ) -> Result<(), TraceError> {
        let process = self.tasks.kin().and_then(|kin| kin.process_of(task)).unwrap_or(task);
        // Else they are set forward.
        let of_all = self.skip.as_ref().is_some_and(|skip| !skip.leaves_out());
        let translated =
            self.clock.as_mut().and_then(|clock| clock.translate((task, process), registers, of_all).ok());
        let number = registers.orig_rax;
        if number.cast_signed() == libc::SYS_timer_settime {
            if translated != Some(true) {
                self.note_absolute_timer(process, registers.rdi);
            }
            // The recorded run asked about it.
            self.mark_call(task, number)?;
        }
        // Killed meanwhile: ESRCH.
        let _ =
            if translated == Some(true) { ptrace::resume_to_return(task) } else { ptrace::resume(task, 0) };
        Ok(())
    }

    /// The wait is over.
    pub(in crate::supervisor) fn wait_returned(&mut self, task: i32) -> io::Result<()> {
        if let Some(own) = self.clock.as_mut().and_then(|clock| clock.waits.remove(&task)) {
            let registers = tracee::registers(task)?;
            let Own { rdi, rsi, rdx, r10, r8 } = own;
            tracee::set_registers(task, Registers { rdi, rsi, rdx, r10, r8, ..registers })?;
        }
        if self.has_errand(task) {
            // This stop took the place of the one that was asked for.
            ptrace::interrupt(task)?;
        }
        ptrace::resume(task, 0)
    }
}

impl Clock {
    /// Whether the call was changed, so that it waits as long as it should.
    fn translate(&mut self, who: (i32, i32), registers: Registers, of_all: bool) -> io::Result<bool> {
        let changed = match registers.orig_rax.cast_signed() {
            libc::SYS_timer_settime | libc::SYS_timerfd_settime => {
                self.translate_timer(who, registers, of_all)?
            }
            libc::SYS_mq_timedsend | libc::SYS_mq_timedreceive => self.translate_queue(who, registers)?,
            _ => self.translate_sleep(who, registers)?,
        };
        let Some(changed) = changed else { return Ok(false) };
        tracee::set_registers(who.0, changed)?;
        self.waits.insert(who.0, Own::of(&registers));
        Ok(true)
    }

    /// clock_nanosleep(2) and futex(2) wait on another clock.
    fn translate_sleep(&self, who: (i32, i32), registers: Registers) -> io::Result<Option<Registers>> {
        let Registers { rdi, rsi, rdx, r10, .. } = registers;
        let sleeps = registers.orig_rax.cast_signed() == libc::SYS_clock_nanosleep;
        let command = rsi & FUTEX_COMMAND;
        let (clock, address) =
            if sleeps { (low_half(rdi).cast_signed(), rdx) } else { (libc::CLOCK_REALTIME, r10) };
        let Some(left) = self.left(who, clock, address)? else { return Ok(None) };
        let place = put(who.0, &registers, timespec(self.kernel_now().saturating_add(left)))?;
        if sleeps {
            let rdi = libc::CLOCK_MONOTONIC.cast_unsigned().into();
            return Ok(Some(Registers { rdi, rdx: place, ..registers }));
        }
        let own = if command == FUTEX_LOCK_PI { FUTEX_LOCK_PI2 } else { command };
        let operation = rsi & !(FUTEX_COMMAND | FUTEX_CLOCK_REALTIME) | own;
        Ok(Some(Registers { rsi: operation, r10: place, ..registers }))
    }

    /// A timer on such a clock, or on any, is set to what is left.
    fn translate_timer(
        &self,
        who: (i32, i32),
        registers: Registers,
        of_all: bool,
    ) -> io::Result<Option<Registers>> {
        let Registers { rdi, rsi, rdx, .. } = registers;
        let number = low_half(rdi).cast_signed();
        let by_descriptor = registers.orig_rax.cast_signed() == libc::SYS_timerfd_settime;
        let clock = if by_descriptor { clock_of_file(who.0, number) } else { clock_of_timer(who.1, number) };
        let Some(clock) = clock.filter(|clock| of_all || REAL_CLOCKS.contains(clock)) else {
            return Ok(None);
        };
        let mut time = [[0; 8]; 4];
        memory::read_exact(who.0, rdx, time.as_flattened_mut())?;
        let [every, every_rest, seconds, rest] = time.map(u64::from_le_bytes);
        if (seconds, rest) == (0, 0) {
            // It is stopped.
            return Ok(None);
        }
        let Some(left) = self.left(who, clock, rdx + 16)? else { return Ok(None) };
        let [seconds, rest] = timespec(left.max(1));
        let place = put(who.0, &registers, [every, every_rest, seconds, rest])?;
        Ok(Some(Registers { rsi: rsi & !TIMER_FLAGS, rdx: place, ..registers }))
    }

    /// Message queues know no other clock: they wait until a time of the machine's.
    fn translate_queue(&self, who: (i32, i32), registers: Registers) -> io::Result<Option<Registers>> {
        let Some(left) = self.left(who, libc::CLOCK_REALTIME, registers.r8)? else { return Ok(None) };
        let until = clock::read(libc::CLOCK_REALTIME)?.saturating_add(left);
        let place = put(who.0, &registers, timespec(until))?;
        Ok(Some(Registers { r8: place, ..registers }))
    }

    /// What is left for a task until the time at `address`, on its own clock; `None` where that is no time at all:
    /// the kernel says so.
    fn left(&self, (task, process): (i32, i32), clock: i32, address: u64) -> io::Result<Option<u64>> {
        let Some(kind) = kind_of(clock) else { return Ok(None) };
        let mut time = [0; 16];
        memory::read_exact(task, address, &mut time)?;
        let Some(until) = nanoseconds(time) else { return Ok(None) };
        let point = until.wrapping_sub(self.offsets.of_kind(kind));
        let left = point.wrapping_sub(self.now(task, process)).cast_signed().max(0);
        Ok(Some(left.cast_unsigned()))
    }

    /// The first five arguments with which `task` has made the call in which it waits, if they were changed.
    pub(in crate::supervisor) fn original(&self, task: i32) -> Option<[u64; 5]> {
        self.waits.get(&task).map(|own| [own.rdi, own.rsi, own.rdx, own.r10, own.r8])
    }

    /// Where the timeline stands for a task of `process`.
    pub(super) fn now(&self, task: i32, process: i32) -> u64 {
        match self.programs.get(&process) {
            Some(program) if !self.threads.contains_key(&task) => {
                self.kernel_now().wrapping_add(program.control.shift)
            }
            _ => self.now_of(task),
        }
    }
}

/// Puts words where nothing of the program is.
fn put<const COUNT: usize>(task: i32, registers: &Registers, words: [u64; COUNT]) -> io::Result<u64> {
    let place = registers.rsp.wrapping_sub(BELOW) & !15;
    memory::write(task, place, words.map(u64::to_le_bytes).as_flattened())?;
    Ok(place)
}

fn timespec(time: u64) -> [u64; 2] {
    [time / SECOND, time % SECOND]
}

/// The clock of a timer of timerfd_create(2), as its file in fdinfo says.
fn clock_of_file(task: i32, number: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{task}/fdinfo/{number}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("clockid: "))?.trim().parse().ok()
}

/// The clock of a timer of timer_create(2) (proc_pid_timers(5)).
fn clock_of_timer(process: i32, number: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{process}/timers")).ok()?;
    clock_in(&text, number)
}

fn clock_in(text: &str, number: i32) -> Option<i32> {
    let id = format!("ID: {number}");
    let mut lines = text.lines().skip_while(|line| line.trim() != id);
    lines.find_map(|line| line.strip_prefix("ClockID: "))?.trim().parse().ok()
}

/// A `struct timespec` that the kernel takes.
fn nanoseconds(time: [u8; 16]) -> Option<u64> {
    let [seconds, rest] =
        [time.first_chunk::<8>()?, time.last_chunk::<8>()?].map(|word| u64::from_le_bytes(*word));
    if rest >= SECOND {
        return None;
    }
    seconds.checked_mul(SECOND)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::{clock_in, nanoseconds};

    fn time(seconds: i64, rest: i64) -> [u8; 16] {
        let words = [seconds, rest].map(i64::to_le_bytes);
        words.as_flattened().try_into().expect("two words")
    }

    #[test]
    fn what_the_kernel_refuses_is_left_to_it() {
        assert_eq!(nanoseconds(time(3, 5)), Some(3_000_000_005));
        let wrong = [time(3, 1_000_000_000), time(3, -1), time(-1, 0), time(i64::MAX, 0)];
        assert!(wrong.into_iter().all(|time| nanoseconds(time).is_none()));
    }

    #[test]
    fn the_clock_of_a_timer_stands_below_its_number() {
        let text = "ID: 1\nsignal: 14/0\nnotify: signal/pid.7\nClockID: 1\nID: 11\nsignal: 27/0\n\
                    notify: signal/pid.7\nClockID: 0\n";
        assert_eq!([1, 11, 2].map(|number| clock_in(text, number)), [Some(1), Some(0), None]);
    }
}
