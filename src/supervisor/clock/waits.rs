//! Waits until a time of CLOCK_REALTIME, in a replay.
//!
//! The time is one that the program has made of what it saw of its clock: one of the recorded run. To the kernel
//! it is long over, and there is no namespace for this clock as there is for the others. So the call waits on
//! CLOCK_MONOTONIC instead, as long as it would have from the program's own now.
//!
//! The task stops before such a call (SECCOMP_RET_TRACE), gets other registers for it, and stops again at its
//! end to get its own back: programs rely on them, and a call that is started again is translated anew.

use std::io;

use super::super::Supervisor;
use super::super::call::low_half;
use super::Clock;
use super::raw::kind_of;
use crate::sys::tracee::{self, Registers};
use crate::sys::{memory, ptrace};

const SECOND: u64 = 1_000_000_000;
/// Below the stack pointer, beyond what a function may use there without saying so (the ABI's red zone).
const BELOW: u64 = 512;
const FUTEX_CLOCK_REALTIME: u64 = 256;
const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_LOCK_PI2: u64 = 13;

/// The registers of a call that were changed for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
}

impl Supervisor {
    /// Task `task` is about to wait until a time.
    pub(in crate::supervisor) fn translate_wait(&mut self, task: i32, registers: Registers) -> io::Result<()> {
        let process = self.tasks.kin().and_then(|kin| kin.process_of(task)).unwrap_or(task);
        let translated = self.clock.as_mut().and_then(|clock| clock.translate((task, process), registers).ok());
        if translated == Some(true) { ptrace::resume_to_return(task) } else { ptrace::resume(task, 0) }
    }

    /// The wait is over.
    pub(in crate::supervisor) fn wait_returned(&mut self, task: i32) -> io::Result<()> {
        if let Some(own) = self.clock.as_mut().and_then(|clock| clock.waits.remove(&task)) {
            let registers = tracee::registers(task)?;
            let Own { rdi, rsi, rdx, r10 } = own;
            tracee::set_registers(task, Registers { rdi, rsi, rdx, r10, ..registers })?;
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
    fn translate(&mut self, (task, process): (i32, i32), registers: Registers) -> io::Result<bool> {
        let Registers { rdi, rsi, rdx, r10, .. } = registers;
        let is = |number: i64| registers.orig_rax == number.cast_unsigned();
        let command = rsi & FUTEX_COMMAND;
        let (clock, address) = if is(libc::SYS_clock_nanosleep) {
            (low_half(rdi).cast_signed(), rdx)
        } else {
            (libc::CLOCK_REALTIME, r10)
        };
        let Some(kind) = kind_of(clock) else { return Ok(false) };
        let mut time = [0; 16];
        memory::read_exact(task, address, &mut time)?;
        // No time at all: the kernel says so.
        let Some(until) = nanoseconds(time) else { return Ok(false) };
        let point = until.wrapping_sub(self.offsets.of_kind(kind));
        let left = point.wrapping_sub(self.now(task, process)).cast_signed().max(0);
        let until = self.kernel_now().saturating_add_signed(left);
        let place = registers.rsp.wrapping_sub(BELOW) & !15;
        let words = [until / SECOND, until % SECOND].map(u64::to_le_bytes);
        memory::write(task, place, words.as_flattened())?;
        let changed = if is(libc::SYS_clock_nanosleep) {
            Registers { rdi: libc::CLOCK_MONOTONIC.cast_unsigned().into(), rdx: place, ..registers }
        } else {
            let own = if command == FUTEX_LOCK_PI { FUTEX_LOCK_PI2 } else { command };
            let operation = rsi & !(FUTEX_COMMAND | FUTEX_CLOCK_REALTIME) | own;
            Registers { rsi: operation, r10: place, ..registers }
        };
        tracee::set_registers(task, changed)?;
        self.waits.insert(task, Own { rdi, rsi, rdx, r10 });
        Ok(true)
    }

    /// The first four arguments with which `task` has made the call in which it waits, if they were changed.
    pub(in crate::supervisor) fn original(&self, task: i32) -> Option<[u64; 4]> {
        self.waits.get(&task).map(|own| [own.rdi, own.rsi, own.rdx, own.r10])
    }

    /// Where the timeline stands for a task of `process`.
    fn now(&self, task: i32, process: i32) -> u64 {
        match self.programs.get(&process) {
            Some(program) if !self.threads.contains_key(&task) => {
                self.kernel_now().wrapping_add(program.control.shift)
            }
            _ => self.now_of(task),
        }
    }
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
    use super::nanoseconds;

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
}
