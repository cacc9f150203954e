//! System calls that a task makes for its tracer, while it stands still in a call of its own.
//!
//! The task stands in a stop that PTRACE_INTERRUPT asked for, and its instruction pointer behind the
//! `syscall` instruction of the call that was interrupted. That instruction makes our calls. Then the task is
//! interrupted once more, so that the kernel decides about its own call as if nothing had happened.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::memory;
use super::tracee::{self, Registers};

/// `cs` of 64-bit code.
const CODE_64: u64 = 0x33;
/// `syscall`
const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// Below the stack pointer: nothing of the program is there (System V ABI, "red zone").
const BELOW: u64 = 512;
/// A call that does not wait comes to its end in less.
const QUICK: Duration = Duration::from_micros(200);
/// On the busiest machine a call that does not wait comes to its end in less.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of memory that calls may use.
const SCRATCH: usize = 64;

/// A task that makes calls for us.
#[derive(Debug)]
pub struct Injection {
    task: i32,
    registers: Registers,
    mask: u64,
    before: [u8; SCRATCH],
    /// SIGSTOP came meanwhile, which cannot be held back otherwise.
    stopped: bool,
}

impl Injection {
    /// Prepares `task`, which stands still.
    ///
    /// # Errors
    /// InvalidData where it is not in a call of 64-bit code; else why it cannot be changed.
    pub fn begin(task: i32) -> io::Result<Self> {
        let registers = tracee::registers(task)?;
        let mut found = [0; 2];
        memory::read_exact(task, registers.rip.wrapping_sub(2), &mut found)?;
        if registers.cs != CODE_64 || found != INSTRUCTION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut before = [0; SCRATCH];
        memory::read_exact(task, scratch(&registers), &mut before)?;
        let mask = tracee::signal_mask(task).map_err(io::Error::other)?;
        tracee::set_signal_mask(task, u64::MAX).map_err(io::Error::other)?;
        Ok(Self { task, registers, mask, before, stopped: false })
    }

    /// Where the task has room for what calls read or write: 64 bytes.
    #[must_use]
    pub fn scratch(&self) -> u64 {
        scratch(&self.registers)
    }

    /// Puts words there.
    ///
    /// # Errors
    /// As [`memory::write`].
    pub fn put<const COUNT: usize>(&self, words: [u64; COUNT]) -> io::Result<()> {
        memory::write(self.task, self.scratch(), words.map(u64::to_le_bytes).as_flattened())
    }

    /// Takes the words that a call has put there.
    ///
    /// # Errors
    /// As [`memory::read_exact`].
    pub fn take<const COUNT: usize>(&self) -> io::Result<[u64; COUNT]> {
        let mut bytes = [[0; 8]; COUNT];
        memory::read_exact(self.task, self.scratch(), bytes.as_flattened_mut())?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    /// Makes a call that does not wait, and that the filter does not ask about.
    ///
    /// # Errors
    /// The call's own errno; ESRCH when the task is gone.
    pub fn call(&mut self, number: libc::c_long, arguments: [u64; 4]) -> io::Result<u64> {
        let [rdi, rsi, rdx, r10] = arguments;
        let wanted = Registers {
            rip: self.registers.rip.wrapping_sub(2),
            rax: number.cast_unsigned(),
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            ..self.registers
        };
        let pid = Pid::from_raw(self.task);
        ptrace::setregs(pid, wanted)?;
        // To its entry, and to its exit.
        for _ in 0..2 {
            self.go(|| ptrace::syscall(pid, None))?;
        }
        let result = tracee::registers(self.task)?.rax;
        match i32::try_from(result.wrapping_neg()) {
            Ok(errno @ 1..4096) => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(result),
        }
    }

    /// Leaves the task in the stop in which it was.
    ///
    /// # Errors
    /// ESRCH when it is gone.
    pub fn end(mut self) -> io::Result<()> {
        let pid = Pid::from_raw(self.task);
        memory::write(self.task, self.scratch(), &self.before)?;
        ptrace::setregs(pid, self.registers)?;
        ptrace::interrupt(pid)?;
        self.go(|| ptrace::cont(pid, None))?;
        tracee::set_signal_mask(self.task, self.mask).map_err(io::Error::other)?;
        if self.stopped {
            nix::sys::signal::kill(pid, Signal::SIGSTOP)?;
        }
        Ok(())
    }

    /// Lets it go to its next stop.
    fn go(&mut self, resume: impl Fn() -> nix::Result<()>) -> io::Result<()> {
        loop {
            resume()?;
            let status = self.stop()?;
            // A signal is about to be delivered: with all others blocked it can only be this one.
            if status >> 16 == 0 && libc::WSTOPSIG(status) == libc::SIGSTOP {
                self.stopped = true;
            } else {
                return Ok(());
            }
        }
    }

    /// Waits until it stands still; an end stays to be heard by whoever waits for ends.
    fn stop(&self) -> io::Result<libc::c_int> {
        let begun = Instant::now();
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        let flags = flags | WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
        let pid = Pid::from_raw(self.task);
        loop {
            match waitid(Id::Pid(pid), flags)? {
                WaitStatus::StillAlive if begun.elapsed() < QUICK => std::thread::yield_now(),
                WaitStatus::StillAlive if begun.elapsed() < PATIENCE => std::thread::sleep(QUICK),
                WaitStatus::StillAlive => {
                    // Another thread has put other code where its call was.
                    nix::sys::signal::kill(pid, Signal::SIGKILL)?;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                _ => break,
            }
        }
        let mut status = 0;
        // SAFETY: the kernel writes one int to `status`, which outlives the call.
        let waited = unsafe { libc::waitpid(self.task, &raw mut status, libc::__WALL | libc::WNOHANG) };
        super::checked(libc::c_long::from(waited))?;
        Ok(status)
    }
}

fn scratch(registers: &Registers) -> u64 {
    registers.rsp.wrapping_sub(BELOW) & !15
}
