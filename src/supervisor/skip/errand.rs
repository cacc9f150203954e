//! What is done to a task that was interrupted: its wait ends, or the timers of its process are asked for.

use std::io;
use std::time::Instant;

use super::sight::{Blocked, WaitingCall, has_signal, switches};
use super::timers::{self, Which};
use super::wait::Ending;
use crate::sys::injection::Injection;
use crate::sys::tracee::{self, Registers};
use crate::sys::{memory, ptrace};

/// Why a task was interrupted.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) since: Instant,
    pub(super) process: i32,
    /// Timers, and what each is to be ahead.
    pub(super) timers: Vec<(Which, u64)>,
    /// What is left of them is to be told.
    pub(super) asks: bool,
    /// The wait that ends.
    pub(super) expires: Option<(Blocked, Ending)>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// What is left of the timers, where that was asked.
    pub(super) left: Option<Vec<(Which, u64)>>,
    /// The task waits on, as it did.
    pub(super) waits_on: bool,
}

/// What a call gives that was interrupted, before the kernel decides whether it starts again (ERESTARTSYS,
/// ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK in its sources).
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
const INTERRUPTED: i64 = -(libc::EINTR as i64);

impl Errand {
    pub(super) fn new(process: i32, expires: Option<(Blocked, Ending)>) -> Self {
        Self { since: Instant::now(), process, timers: Vec::new(), asks: false, expires }
    }

    /// Runs it: `task` stands still, interrupted by us. It goes on afterwards. `expired` is called where its wait
    /// has ended.
    pub(super) fn run(mut self, task: i32, expired: impl FnOnce()) -> io::Result<Done> {
        let mut done = Done::default();
        // Taken from its CPU once more, for this stop: else it has made the same call again since.
        let is_later = |(blocked, _): &(Blocked, Ending)| switches(task) > Some(blocked.switches + 1);
        if self.expires.as_ref().is_some_and(is_later) {
            self.expires = None;
        }
        let mut ends = false;
        if !self.timers.is_empty() {
            let mut injection = Injection::begin(task)?;
            let mut left = Vec::new();
            let mut shifted = Ok(());
            for (which, by) in &self.timers {
                match timers::shift(&mut injection, *which, *by) {
                    Ok(Some(time)) => left.push((*which, time)),
                    Ok(None) => {}
                    Err(error) => shifted = Err(error),
                }
            }
            injection.end()?;
            shifted?;
            ends = left.iter().any(|(_, left)| *left <= 1000);
            done.left = self.asks.then_some(left);
        }
        let registers = tracee::registers(task)?;
        match &self.expires {
            Some((blocked, ending)) if is_in(&registers, &blocked.call) => {
                expire(task, registers, ending)?;
                expired();
            }
            // The end of a timer will interrupt it anyway.
            _ => done.waits_on = ends || goes_on(task, registers)?,
        }
        ptrace::resume(task, 0)?;
        Ok(done)
    }
}

/// Whether the task stands in this call, interrupted.
fn is_in(registers: &Registers, call: &WaitingCall) -> bool {
    let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = *registers;
    let result = registers.rax.cast_signed();
    registers.orig_rax.cast_signed() == call.number
        && [rdi, rsi, rdx, r10, r8, r9] == call.arguments
        && (RESTARTS.contains(&result) || result == INTERRUPTED)
}

/// Gives the call the result that it has when its time is over.
fn expire(task: i32, registers: Registers, ending: &Ending) -> io::Result<()> {
    for (address, length) in &ending.zeroes {
        // The kernel too leaves what it cannot write.
        let _ = memory::write(task, *address, &vec![0; *length]);
    }
    let result = ending.result.cast_unsigned();
    set(task, Registers { rax: result, orig_rax: u64::MAX, ..registers })
}

/// Lets a call go on that would fail for our interruption alone. Whether it does.
fn goes_on(task: i32, registers: Registers) -> io::Result<bool> {
    let result = registers.rax.cast_signed();
    if RESTARTS.contains(&result) {
        return Ok(true);
    }
    if result != INTERRUPTED || registers.orig_rax == u64::MAX || has_signal(task) {
        return Ok(false);
    }
    let rip = registers.rip.wrapping_sub(2);
    set(task, Registers { rax: registers.orig_rax, orig_rax: u64::MAX, rip, ..registers })?;
    Ok(true)
}

fn set(task: i32, registers: Registers) -> io::Result<()> {
    Ok(nix::sys::ptrace::setregs(nix::unistd::Pid::from_raw(task), registers)?)
}

/// The call that `task`, which stands still before a signal, will go on with by restart_syscall(2), which no
/// longer shows what it was.
pub(super) fn restarting(task: i32) -> Option<i64> {
    let registers = tracee::registers(task).ok()?;
    let number = registers.orig_rax.cast_signed();
    (registers.rax.cast_signed() == -516 && number >= 0 && number != libc::SYS_restart_syscall)
        .then_some(number)
}
