//! Who reads what a process writes, and whether that waits.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use super::super::controls::Kin;
use super::super::skip;

/// Calls that wait for something to read.
const READS: [i64; 4] = [libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg];
/// Others in which a task waits. Those that we answer are none: whoever makes one goes on at once.
const WAITS: [i64; 21] = [
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_futex,
    // futex_wait(2), futex_waitv(2)
    455,
    449,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_semop,
];
/// Longest way up to whoever has made a stream.
const FAR: usize = 64;

/// What a reader does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// It goes on.
    Moving,
    /// It waits.
    Still,
    /// It does nothing but wait for this.
    Reads,
}

/// Whether a descriptor of a task leads to a stream.
fn leads(task: i32, descriptor: u64, stream: &str) -> bool {
    fs::read_link(format!("/proc/{task}/fd/{descriptor}"))
        .is_ok_and(|target| target.as_os_str().as_bytes() == stream.as_bytes())
}

/// Who reads a stream to which a process writes: who has made it, which is the first of those that made that process
/// which does not write there itself, or the other end of a pipeline.
pub(super) fn of(kin: &Kin, process: i32, stream: &str) -> Option<i32> {
    let mut at = process;
    for _ in 0..FAR {
        let parent = kin.parent(at)?;
        if let Some(other) = kin.children_of(parent).find(|child| *child != at && leads(*child, 0, stream)) {
            return Some(other);
        }
        if !leads(parent, 1, stream) && !leads(parent, 2, stream) {
            return Some(parent);
        }
        at = parent;
    }
    None
}

/// Whether a process has a descriptor of a pipe; the ends of a pair of sockets have names of their own.
pub(super) fn holds(process: i32, stream: &str) -> bool {
    let listed = || {
        let entries = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let mut numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.find(|number| leads(process, *number, stream))
    };
    !stream.starts_with("pipe:") || leads(process, 0, stream) || listed().is_some()
}

/// What a process does whose tasks `waiting` wait for us.
pub(super) fn rest(kin: &Kin, process: i32, waiting: &[i32], stream: Option<&str>) -> Rest {
    let tasks: Vec<_> = kin.tasks_of(process).collect();
    let others = tasks.iter().copied().filter(|task| !waiting.contains(task));
    let Some(calls) = skip::calls_at_rest(others) else { return Rest::Moving };
    let (mut reads_it, mut reads_other) = (false, false);
    for (task, number, first) in calls {
        match number {
            _ if READS.contains(&number) => match stream.is_some_and(|stream| leads(task, first, stream)) {
                true => reads_it = true,
                false => reads_other = true,
            },
            // It has to ask us first.
            libc::SYS_write | libc::SYS_writev if first > 2 => {}
            _ if WAITS.contains(&number) => {}
            _ => return Rest::Moving,
        }
    }
    match (reads_it, reads_other) {
        (true, _) if tasks.len() == 1 => Rest::Reads,
        // It waits for a child to begin, and makes another one then.
        (false, true) if kin.has_young_child(process) => Rest::Moving,
        _ => Rest::Still,
    }
}
