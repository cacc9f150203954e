//! Stops of traced tasks, ends of processes, signals to the launcher.
//!
//! A task is traced from the moment its exec was allowed until its exec event (PTRACE_SEIZE on
//! demand): forks, threads and signals of everything else are never touched. In a run that is to be
//! replayed every task is traced from its birth ([`super::controls`]).

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getsid};

use super::{Ended, Stop, Supervisor};
use crate::sys::{ptrace, tracee};

/// `si_code` of a signal that the kernel sent itself, as a terminal's Ctrl-C: the command, in
/// the same foreground group, got it too (sigaction(2)).
const SI_KERNEL: i32 = 0x80;

/// Whether the launcher alone gets this signal of the kernel's: of a terminal that goes away the leader of its session
/// is told, and nobody else as long as that lives (`tty_signal_session_leader`).
fn is_leaders(number: i32) -> bool {
    number == libc::SIGHUP && getsid(None).is_ok_and(|leader| leader == getpid())
}

/// Stops that are looked at before the loop looks for other things: the agent can make as many as it
/// likes.
const STOPS: usize = 64;

impl Supervisor {
    /// Takes a waiting signal; true when pid 1 has ended.
    pub(super) fn handle_signal(&mut self) -> Result<bool, Stop> {
        // One at a time: the loop comes back while there are more.
        match self.signals.read_signal() {
            Ok(Some(signal)) if signal.ssi_signo == libc::SIGCHLD.cast_unsigned() => self.handle_stops(),
            Ok(Some(signal)) => {
                let number = signal.ssi_signo.cast_signed();
                if self.is_replay() && number != libc::SIGUSR1 {
                    self.interrupted = true;
                    self.end_replay(Ended::Signal(number));
                    return Ok(false);
                }
                let heard = self.was_heard_inside(number)?;
                let to_group = heard || (signal.ssi_code == SI_KERNEL && !is_leaders(number));
                self.signal_from_outside(number, to_group)?;
                Ok(false)
            }
            Ok(None) | Err(_) if self.more_stops => self.handle_stops(),
            Ok(None) | Err(_) => Ok(false),
        }
    }

    /// Takes what came with the end: nobody is left to forward it to.
    pub(super) fn hear_last_signals(&mut self) {
        let harmless = [libc::SIGCHLD.cast_unsigned(), libc::SIGUSR1.cast_unsigned()];
        while let Ok(Some(signal)) = self.signals.read_signal() {
            self.interrupted |= !harmless.contains(&signal.ssi_signo);
        }
    }

    pub(super) fn forward(&mut self, number: u32) {
        let Ok(number) = i32::try_from(number) else { return };
        // Pid 1 of the run heeds none of them (pid_namespaces(7)).
        let Some(pid) = self.command_pid else {
            self.early_signals.push(number);
            return;
        };
        let (pid, signal) = (Pid::from_raw(pid), Signal::try_from(number).ok());
        // The command may have ended already.
        let _ = nix::sys::signal::kill(pid, signal);
    }

    /// A task is about to make a call that is another in a replay: it waits until a time, or makes a task.
    fn about_to_call(&mut self, task: i32) -> Result<(), Stop> {
        // A task that was killed meanwhile answers ESRCH; its end is reported next.
        if let Ok(registers) = tracee::registers(task)
            && !self.is_birth(task, &registers)?
        {
            self.translate_wait(task, registers)?;
        }
        Ok(())
    }

    /// Looks at every task that changed state; true when pid 1 has ended.
    fn handle_stops(&mut self) -> Result<bool, Stop> {
        self.more_stops = false;
        for _ in 0..STOPS {
            let (pid, stop) = match ptrace::next_stop() {
                Ok(Some(stop)) => stop,
                Ok(None) => return Ok(false),
                // No child is left: pid 1 was the last.
                Err(_) => return Ok(true),
            };
            // A task that was killed meanwhile answers ESRCH; its end is reported next.
            let _ = match stop {
                ptrace::Stop::Ended(_) if pid == self.init => return Ok(true),
                ptrace::Stop::Ended(end) => {
                    self.ended(pid, end)?;
                    Ok(())
                }
                ptrace::Stop::Exec => {
                    self.executed(pid)?;
                    Ok(())
                }
                ptrace::Stop::Cloned => {
                    self.made(pid, true)?;
                    Ok(())
                }
                ptrace::Stop::Forked => {
                    self.made(pid, false)?;
                    Ok(())
                }
                ptrace::Stop::Call => {
                    self.about_to_call(pid)?;
                    Ok(())
                }
                ptrace::Stop::Returned => {
                    let returned = self.wait_returned(pid);
                    self.end_birth(pid)?;
                    returned
                }
                ptrace::Stop::Group | ptrace::Stop::Event => self.stood_still(pid, stop),
                ptrace::Stop::Signal(signal) => {
                    self.begin_unheard_anew(pid);
                    self.signalled(pid, signal)
                }
            };
        }
        self.more_stops = true;
        Ok(false)
    }
}
