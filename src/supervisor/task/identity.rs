//! Which process a number stands for: its parent, and what tells it from others that had the number.

use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::text::whole;
use crate::sys::pidfd;

/// Words of /proc/PID/stat after the name, from field 3 on (proc_pid_stat(5)).
fn stat_words(pid: i32) -> nix::Result<Vec<String>> {
    let path = format!("/proc/{pid}/stat");
    let file = open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    let text = file.and_then(whole).map_err(|_| Errno::ESRCH)?;
    let text = String::from_utf8_lossy(&text);
    let (_, rest) = text.rsplit_once(')').ok_or(Errno::ESRCH)?;
    Ok(rest.split_whitespace().map(str::to_owned).collect())
}

pub(super) fn parent_of(pid: i32) -> nix::Result<i32> {
    stat_words(pid)?.get(1).and_then(|word| word.parse().ok()).ok_or(Errno::ESRCH)
}

/// What tells the process from others that have had or will have its number.
pub(super) fn identity(pid: i32) -> nix::Result<u64> {
    let process = pidfd::open(pid);
    match process.and_then(|process| pidfd::identity(process.as_fd())) {
        Ok(identity) => Ok(identity),
        Err(_) => start_time(pid),
    }
}

/// Clock ticks since boot at which the process started.
fn start_time(pid: i32) -> nix::Result<u64> {
    stat_words(pid)?.get(19).and_then(|word| word.parse().ok()).ok_or(Errno::ESRCH)
}
