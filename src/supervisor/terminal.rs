//! Terminals: the caller's is given back to the caller's group, and taken from nobody outside the run; `/dev/tty` is that
//! of the task's own session.
//!
//! A shell takes the terminal for groups of its own, and gives it back to the group that had it when it ends. That
//! one has no number inside: it is told as 0 (pid_namespaces(7)), which no caller of TIOCSPGRP can name. The kernel
//! lets whoever ignores SIGTTOU take it from anybody in the session: a run in the background from the user's shell,
//! with what the user types next.

use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::stat::{SFlag, makedev, minor};
use nix::unistd::{Pid, getpgid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

use super::Supervisor;
use super::call::{Call, Reply};
use super::view::Found;
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

/// A session, as we see its number, and the device that is its terminal: 0 where it has none.
type Session = (i32, u64);

impl Supervisor {
    /// What an open of `found` is to open in its place: of `/dev/tty` (tty(4)) the terminal of the task's session. `None`
    /// where it is something else, or ours.
    ///
    /// Should the session change meanwhile, it gets one that it could open by its own name.
    pub(super) fn terminal_of(&self, call: &Call, found: &Found) -> nix::Result<Option<Found>> {
        if found.kind() != SFlag::S_IFCHR || found.status.st_rdev != makedev(5, 0) {
            return Ok(None);
        }
        let (session, terminal) = session_of(&call.task.read("stat")?)?;
        let ours = session_of(&fs::read("/proc/self/stat").map_err(|_| Errno::ENXIO)?)?;
        if session == ours.0 {
            return Ok(None);
        }
        let found = |path: &str| {
            let found = self.view.find(path.as_bytes(), true).ok();
            found.filter(|found| found.kind() == SFlag::S_IFCHR && found.status.st_rdev == terminal)
        };
        // The run's own terminals have numbers of their own, among which may be that of the caller's.
        let (own, callers) = (found(&format!("/dev/pts/{}", minor(terminal))), found("/dev/console"));
        match (own, callers) {
            // It is the terminal of one session alone (TIOCSCTTY in ioctl_tty(2)), and that is ours.
            (Some(own), Some(_)) if ours.1 == terminal => Ok(Some(own)),
            (Some(one), None) | (None, Some(one)) => Ok(Some(one)),
            _ => Err(Errno::ENXIO),
        }
    }
}

/// What /proc/PID/stat says of it (fields 6 and 7 in proc_pid_stat(5)).
fn session_of(stat: &[u8]) -> nix::Result<Session> {
    let text = String::from_utf8_lossy(stat);
    let (_, rest) = text.rsplit_once(')').ok_or(Errno::ESRCH)?;
    let mut words = rest.split_whitespace().skip(3).map(|word| word.parse::<i32>().map_err(|_| Errno::ESRCH));
    let mut next = || words.next().unwrap_or(Err(Errno::ESRCH));
    Ok((next()?, next()?.cast_unsigned().into()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_behind_any_name() {
        let told = |text: &str| session_of(text.as_bytes());
        assert_eq!(told("7 (a) b) 1 2) S 1 7 5 34816 7 4194560"), Ok((5, makedev(136, 0))));
        assert_eq!(told("7 (a) S 1 7 7 0 -1 4194560"), Ok((7, 0)));
        assert_eq!(told("7 (a) S 1 7 7 -1877964800 7"), Ok((7, makedev(136, 0x90100))));
        assert_eq!(told("7 (a) S 1 7"), Err(Errno::ESRCH));
    }
}
