//! The caller's terminal: given back to the caller's group, and taken from nobody outside the run.
//!
//! A shell takes the terminal for groups of its own, and gives it back to the group that had it when it ends. That
//! one has no number inside: it is told as 0 (pid_namespaces(7)), which no caller of TIOCSPGRP can name. The kernel
//! lets whoever ignores SIGTTOU take it from anybody in the session: a run in the background from the user's shell,
//! with what the user types next.

use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

use super::Supervisor;
use super::call::{Call, Reply};
use crate::sys::memory;

impl Supervisor {
    /// ioctl(2), TIOCSPGRP.
    pub(super) fn set_foreground(&self, call: &Call) -> Reply {
        let [number, _, address, ..] = call.arguments;
        // Of another session ours is not the controlling terminal, which the kernel says. Nobody comes back from one.
        let session = |pid| getsid(pid).ok();
        if session(Some(Pid::from_raw(call.task.tgid))) != session(None) {
            return Reply::Continue;
        }
        // Whatever the descriptor is by the time that the kernel looks: a session has one terminal.
        if is_held_outside() {
            return Reply::Errno(Errno::EPERM);
        }
        let mut group = [0; size_of::<i32>()];
        if memory::read_exact(call.task.tid, address, &mut group).is_err() || group != [0; 4] {
            return Reply::Continue;
        }
        self.give_terminal_back(call, call.int(number))
    }

    fn give_terminal_back(&self, call: &Call, number: i32) -> Reply {
        let caller = getpgid(Some(Pid::from_raw(call.task.tgid)));
        let given = call.task.fetch(number).and_then(|terminal| {
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

/// Whether our terminal has a foreground group of others than us and the run. One of which nobody is left is no
/// one's.
fn is_held_outside() -> bool {
    let terminal = match fs::File::open("/dev/tty") {
        Ok(terminal) => terminal,
        // Without a terminal there is nobody to take it from (tty(4)); what cannot be looked at is not given.
        Err(error) => return error.raw_os_error() != Some(Errno::ENXIO as i32),
    };
    match tcgetpgrp(&terminal) {
        Ok(group) if group != getpgrp() => members(group).any(|member| !is_inside(member)),
        _ => false,
    }
}

/// The processes of a group, its leader first.
fn members(group: Pid) -> impl Iterator<Item = Pid> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    std::iter::once(group).chain(all).filter(move |process| getpgid(Some(*process)) == Ok(group))
}

/// Whether a process has an id in a pid namespace below ours (NSpid in proc_pid_status(5)). One that cannot be
/// looked at has none.
fn is_inside(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| ids.split_whitespace().count() > 1)
}
