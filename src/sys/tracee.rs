//! Makes a task that stands still in its tracer's hands run code that is not its own, for a moment.
//!
//! A new program stands at its first instruction (PTRACE_EVENT_EXEC). [`Visit::begin`] puts code over the page
//! that this instruction is on, and [`Visit::run`] lets the task run to the code's next trap; when the visit
//! ends the page, the registers and the signal mask are as they were. Pages of code are private to the
//! process, so nobody else sees it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::memory;

/// Registers of a 64-bit task.
pub type Registers = libc::user_regs_struct;

/// `cs` of code that is not 64-bit.
const CODE_32: u64 = 0x23;
/// Stops between two traps that are not the trap: signals that cannot be blocked.
const STOPS: usize = 64;

/// The registers of a stopped task.
///
/// # Errors
/// ESRCH when it was killed meanwhile.
pub fn registers(task: i32) -> io::Result<Registers> {
    Ok(ptrace::getregs(Pid::from_raw(task))?)
}

/// Sets the registers of a stopped task.
///
/// # Errors
/// ESRCH when it was killed meanwhile.
pub fn set_registers(task: i32, registers: Registers) -> io::Result<()> {
    Ok(ptrace::setregs(Pid::from_raw(task), registers)?)
}

/// Whether a task with these registers runs 64-bit code.
#[must_use]
pub fn is_64_bit(registers: &Registers) -> bool {
    registers.cs != CODE_32
}

/// Why a visit did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The task was killed, or is gone.
    #[error("the process is gone")]
    Gone,
    /// Code of another width.
    #[error("the program is not a 64-bit program")]
    Foreign,
    /// The code could not be put there, or taken away.
    #[error("its code cannot be changed: {0}")]
    Code(#[source] io::Error),
    /// The code did not reach its trap.
    #[error("signal {0} came instead of a trap")]
    Signal(i32),
}

impl From<Errno> for VisitError {
    fn from(errno: Errno) -> Self {
        if errno == Errno::ESRCH { Self::Gone } else { Self::Code(errno.into()) }
    }
}

/// A task that runs code which is not its own.
#[derive(Debug)]
pub struct Visit {
    task: Pid,
    registers: Registers,
    /// Signals that it blocks.
    mask: u64,
    /// Its memory: written as a debugger does, pages of code too (proc_pid_mem(5)).
    memory: File,
    /// Where the code is, and what was there.
    at: u64,
    before: Vec<u8>,
    /// Came meanwhile, and could not be held back otherwise.
    stopped: bool,
}

impl Visit {
    /// Puts `code` where `task`, which has these registers and this memory, stands. The code ends each of its parts by a trap
    /// (`int3`).
    ///
    /// # Errors
    /// Why it could not; then nothing has changed.
    pub fn begin(task: i32, registers: Registers, memory: OwnedFd, code: &[u8]) -> Result<Self, VisitError> {
        let pid = Pid::from_raw(task);
        if !is_64_bit(&registers) {
            return Err(VisitError::Foreign);
        }
        // On the page of the first instruction: it is there.
        let page = registers.rip & !(memory::PAGE as u64 - 1);
        let at = registers.rip.min(page + memory::PAGE as u64 - code.len() as u64);
        let memory = File::from(memory);
        let mut before = vec![0; code.len()];
        memory.read_exact_at(&mut before, at).map_err(VisitError::Code)?;
        let mask = signal_mask(task)?;
        let visit = Self { task: pid, registers, mask, memory, at, before, stopped: false };
        // All but the trap itself.
        set_signal_mask(task, !(1 << (Signal::SIGTRAP as u32 - 1)))?;
        visit.write(code)?;
        ptrace::setregs(pid, Registers { rip: at, orig_rax: u64::MAX, ..registers })?;
        Ok(visit)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), VisitError> {
        self.memory.write_all_at(bytes, self.at).map_err(VisitError::Code)
    }

    /// Lets the task run to the next trap; gives the registers that it has there.
    ///
    /// # Errors
    /// Why it did not come there.
    pub fn run(&mut self) -> Result<Registers, VisitError> {
        for _ in 0..STOPS {
            ptrace::cont(self.task, None)?;
            // An end stays to be seen by whoever waits for ends.
            let peek =
                WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT | WaitPidFlag::__WALL;
            let status = loop {
                match waitid(Id::Pid(self.task), peek) {
                    Err(Errno::EINTR) => {}
                    // nix has no name for a real-time signal, and with all blocked it can only have killed.
                    Err(Errno::EINVAL) => return Err(VisitError::Gone),
                    other => break other?,
                }
            };
            if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                return Err(VisitError::Gone);
            }
            match waitpid(self.task, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL))? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => return Ok(ptrace::getregs(self.task)?),
                WaitStatus::Stopped(_, Signal::SIGSTOP) => self.stopped = true,
                WaitStatus::Stopped(_, signal) if is_fault(signal) => {
                    return Err(VisitError::Signal(signal as i32));
                }
                _ => {}
            }
        }
        Err(VisitError::Signal(Signal::SIGSTOP as i32))
    }

    /// Whether the registers that a call of one argument changes held nothing, but for that of its result, which
    /// is that of execve(2).
    #[must_use]
    pub fn began_blank(&self) -> bool {
        let Registers { rdi, rcx, r11, .. } = self.registers;
        [rdi, rcx, r11] == [0; 3]
    }

    /// Leaves the task as it was found.
    ///
    /// # Errors
    /// When it is gone.
    pub fn end(self) -> Result<(), VisitError> {
        // The return from execve(2) is over: it is not to be taken for a call that is started again.
        let registers = Registers { orig_rax: u64::MAX, rax: 0, ..self.registers };
        self.leave(registers)
    }

    /// Leaves the task as it was found, at code that makes one call, with one argument, and then goes to where
    /// the task was, with registers that hold nothing ([`Self::began_blank`]).
    ///
    /// # Errors
    /// When it is gone.
    pub fn end_by(self, code: u64, number: u64, argument: u64) -> Result<(), VisitError> {
        let registers =
            Registers { rip: code, orig_rax: u64::MAX, rax: number, rdi: argument, ..self.registers };
        self.leave(registers)
    }

    fn leave(self, registers: Registers) -> Result<(), VisitError> {
        self.write(&self.before)?;
        ptrace::setregs(self.task, registers)?;
        set_signal_mask(self.task.as_raw(), self.mask)?;
        if self.stopped {
            nix::sys::signal::kill(self.task, Signal::SIGSTOP)?;
        }
        Ok(())
    }
}

fn is_fault(signal: Signal) -> bool {
    matches!(signal, Signal::SIGSEGV | Signal::SIGBUS | Signal::SIGILL | Signal::SIGSYS | Signal::SIGFPE)
}

const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

pub(super) fn signal_mask(task: i32) -> Result<u64, VisitError> {
    let mut mask = 0_u64;
    let size = std::ptr::without_provenance_mut::<libc::c_void>(size_of::<u64>());
    // SAFETY: the kernel writes one signal set of the given size, which outlives the call.
    let asked = unsafe { libc::ptrace(PTRACE_GETSIGMASK, task, size, &raw mut mask) };
    super::checked(asked).map_err(VisitError::Code)?;
    Ok(mask)
}

pub(super) fn set_signal_mask(task: i32, mask: u64) -> Result<(), VisitError> {
    let size = std::ptr::without_provenance_mut::<libc::c_void>(size_of::<u64>());
    // SAFETY: the kernel reads one signal set of the given size, which outlives the call.
    let set = unsafe { libc::ptrace(PTRACE_SETSIGMASK, task, size, &raw const mask) };
    super::checked(set).map_err(VisitError::Code)?;
    Ok(())
}
