//! The caller's terminal after the run: what ended as its foreground group leaves it to the caller's.

use std::fs::File;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal on which our group stood in the foreground.
#[derive(Debug)]
pub(super) struct Foreground(Option<File>);

impl Foreground {
    /// Looks who has the terminal, if there is one.
    pub(super) fn now() -> Self {
        let terminal = File::open("/dev/tty").ok();
        Self(terminal.filter(|terminal| tcgetpgrp(terminal) == Ok(getpgrp())))
    }
}

impl Drop for Foreground {
    /// Takes the terminal from a group that is no more, and from no other.
    fn drop(&mut self) {
        let Some(terminal) = &self.0 else { return };
        let Ok(group) = tcgetpgrp(terminal) else { return };
        if group == getpgrp() || kill(Pid::from_raw(-group.as_raw()), None) != Err(Errno::ESRCH) {
            return;
        }
        // As one in the background we would be stopped (tcsetpgrp(3)).
        let Ok(former) = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return;
        };
        let _ = tcsetpgrp(terminal, getpgrp());
        let _ = former.thread_set_mask();
    }
}
