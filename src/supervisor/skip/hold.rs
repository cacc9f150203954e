//! Waits for a time of day, as of pthread_cond_timedwait(3). The kernel has one time of day alone, to which
//! a recorded one is over: such a wait is made one without an end, and ended by us.
//!
//! The call comes to us first. The task is interrupted, the register with the time put aside, and the task led
//! to the end of its call; there it has its register again, before it runs any instruction of its own.

use std::io;

use nix::unistd::Pid;

use super::super::Supervisor;
use super::super::call::{Call, Reply, low_half};
use super::super::waiting::RESTART;
use super::errand::{self, Errand};
use super::sight::WaitingCall;
use super::wait::{Caller, Ending, Wait};
use crate::sys::ptrace;
use crate::sys::tracee::{self, Registers};

/// FUTEX_WAIT_BITSET, without its flags.
const WAIT_BITSET: u32 = 9;
const OPERATION: u32 = 127;

/// A wait without the time that its caller gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// Where that stands, in the memory of the task.
    time: u64,
    deadline: Option<u64>,
    /// The task is in its call.
    entered: bool,
}

impl Held {
    /// The wait as its caller means it.
    pub(super) fn wait(&self) -> Wait {
        let ending = Ending { result: -i64::from(libc::ETIMEDOUT), zeroes: Vec::new() };
        Wait { deadline: self.deadline, ending, is_absolute: true, is_touchy: false }
    }

    /// Puts the time aside: `task` stands still, interrupted in the call. False where it is elsewhere by now.
    pub(super) fn begin(&self, task: i32) -> io::Result<bool> {
        let registers = tracee::registers(task)?;
        let is_there = registers.orig_rax.cast_signed() == libc::SYS_futex
            && registers.rax.cast_signed() == -i64::from(RESTART)
            && registers.r10 == self.time;
        if is_there {
            errand::set(task, Registers { r10: 0, ..registers })?;
            nix::sys::ptrace::syscall(Pid::from_raw(task), None)?;
        }
        Ok(is_there)
    }
}

impl Supervisor {
    /// futex(2) with a time of day.
    pub(in crate::supervisor) fn wait_for_time_of_day(&mut self, call: &Call) -> Reply {
        let (Some(skip), Some(clock)) = (&mut self.skip, &self.clock) else { return Reply::Continue };
        let [_, operation, _, time, ..] = call.arguments;
        if low_half(operation) & OPERATION != WAIT_BITSET {
            return Reply::Continue;
        }
        let (task, process) = (call.task.tid, call.task.tgid);
        let clocks = skip.clocks(clock, task, process);
        let caller = Caller { task, process, is_represented: false, clocks };
        let made = WaitingCall { number: libc::SYS_futex, arguments: call.arguments };
        let Some(wait) = caller.understand(&made) else { return Reply::Continue };
        if ptrace::interrupt(task).is_err() {
            return Reply::Continue;
        }
        let held = Held { time, deadline: wait.deadline, entered: false };
        skip.errands.insert(task, Errand { holds: Some(held), ..Errand::new(process, None) });
        Reply::Interrupted(RESTART)
    }

    /// A task that is held stands at the beginning of its call, or at its end.
    pub(in crate::supervisor) fn stood_in_call(&mut self, task: i32) -> io::Result<()> {
        let held = self.skip.as_mut().and_then(|skip| {
            let expires = skip.errands.remove(&task).and_then(|errand| errand.expires);
            Some((skip.held.remove(&task)?, expires, skip))
        });
        let Some((held, expires, skip)) = held else { return ptrace::resume(task, 0) };
        if !held.entered {
            skip.held.insert(task, Held { entered: true, ..held });
            return Ok(nix::sys::ptrace::syscall(Pid::from_raw(task), None)?);
        }
        let registers = tracee::registers(task)?;
        // A wait with a time is not started again behind a handler (ERESTARTNOHAND).
        let rax = if registers.rax.cast_signed() == -i64::from(RESTART) {
            (-514_i64).cast_unsigned()
        } else {
            registers.rax
        };
        let own = Registers { r10: held.time, rax, ..registers };
        match expires {
            Some((blocked, ending)) if errand::is_in(&registers, &blocked.call) => {
                errand::expire(task, own, &ending)?;
            }
            _ => {
                errand::set(task, own)?;
                errand::starts_again(task, own)?;
            }
        }
        ptrace::resume(task, 0)
    }
}
