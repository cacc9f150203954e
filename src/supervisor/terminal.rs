//! The caller's terminal, given back to the caller's group.
//!
//! A shell takes the terminal for groups of its own, and gives it back to the group that had it when it ends. That
//! one has no number inside: it is told as 0 (pid_namespaces(7)), which no caller of TIOCSPGRP can name.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

use super::Supervisor;
use super::call::{Call, Reply};
use crate::sys::memory;

impl Supervisor {
    /// ioctl(2), TIOCSPGRP: of any other group the kernel decides.
    pub(super) fn give_terminal_back(&self, call: &Call) -> Reply {
        let [number, _, address, ..] = call.arguments;
        let mut group = [0; size_of::<i32>()];
        if memory::read_exact(call.task.tid, address, &mut group).is_err() || group != [0; 4] {
            return Reply::Continue;
        }
        // Of another session it is not the controlling terminal, which the kernel says.
        let session = |pid| getsid(pid).ok();
        if session(Some(Pid::from_raw(call.task.tgid))) != session(None) {
            return Reply::Continue;
        }
        let caller = getpgid(Some(Pid::from_raw(call.task.tgid)));
        let given = self.fetch(call, call.int(number)).and_then(|terminal| {
            // Who does not have it takes it from nobody.
            if tcgetpgrp(&terminal)? != caller? {
                return Err(Errno::EPERM);
            }
            // We may be in the background meanwhile (tcsetpgrp(3)).
            let stop = SigSet::from(Signal::SIGTTOU);
            let former = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
            let given = tcsetpgrp(&terminal, getpgrp());
            former.thread_set_mask()?;
            given
        });
        match given {
            Ok(()) => Reply::Value(0),
            Err(Errno::EBADF) => Reply::Continue,
            Err(errno) => Reply::Errno(errno),
        }
    }
}
