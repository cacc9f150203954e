//! A replay that is ended before it ends by itself: by a signal to the launcher, or because it never would.
//!
//! What ended a process of the recorded run from outside leaves no other mark than how it has ended. So where nothing of
//! a replay can go on, a process that a signal ended then gets that signal.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Supervisor;

/// Why a replay was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The launcher got this signal.
    Signal(i32),
    /// All of it waited for what did not come.
    AtRest,
    /// It went on for much longer than the recorded run.
    Endless,
}

impl Supervisor {
    /// Whether this is a replay that has not gone on for real.
    pub(super) fn is_replay(&self) -> bool {
        self.skip.as_ref().is_some_and(|skip| !skip.is_live())
    }

    /// Whether this is a replay, and what is at `path` is the host's own: what is written is diverted.
    pub(super) fn is_out_of_replay(&self, path: &Path) -> bool {
        self.is_replay() && !self.view.is_diverted(path) && !self.access.is_private(path)
    }

    /// Ends the replay; pid 1 ends whatever is left beside the command.
    pub(super) fn end_replay(&mut self, why: Ended) {
        if self.outside.ended_by.is_none() {
            self.outside.ended_by = Some(why);
            self.forward(libc::SIGKILL.cast_unsigned());
        }
    }

    /// Gives the next process that a signal has ended, and that is still there, its signal. Whether there is one.
    pub(super) fn give_end(&mut self) -> bool {
        let Some(kin) = self.tasks.kin() else { return false };
        let processes: Vec<_> = kin.tasks().into_iter().filter(|(task, process)| task == process).collect();
        while let Some((lineage, number)) = self.outside.ends.pop_front() {
            let is_it = |process: &i32| kin.lineage(*process).as_ref() == Some(&lineage);
            let process = processes.iter().map(|(process, _)| *process).find(is_it);
            if let (Some(process), Ok(signal)) = (process, Signal::try_from(number)) {
                // It may be about to end already.
                let _ = kill(Pid::from_raw(process), signal);
                return true;
            }
        }
        false
    }
}
