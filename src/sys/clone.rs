//! clone3(2), or clone(2) where that is refused, into new namespaces; and fork(2) inside them.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::refused::Refused;

/// Which side of a clone the caller is on.
#[derive(Debug)]
pub enum Side {
    /// The cloning process: pid of the child in its own namespace, and a pidfd of it.
    Parent {
        /// Process id as the caller sees it.
        pid: i32,
        /// Descriptor that refers to the child for as long as it is held.
        pidfd: OwnedFd,
    },
    /// The new process.
    Child,
}

/// Looks, in milliseconds, for a thread to be gone that was joined: the kernel lists it a little longer.
const PATIENCE: u32 = 200;

/// Whether the calling process has one thread alone: the copy of one with several may hold locks
/// that nobody will ever release.
fn is_single_threaded() -> io::Result<bool> {
    for _ in 0..PATIENCE {
        if std::fs::read_dir("/proc/self/task")?.count() == 1 {
            return Ok(true);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(false)
}

/// Clones the calling process with `flags` (CLONE_NEW*).
///
/// # Errors
/// The errno of clone3(2) or clone(2); that of opening /proc/self/task, or `WouldBlock` when the
/// process has more than one thread.
pub fn clone_process(flags: libc::c_int) -> Result<Side, Refused> {
    const THREADS: &str = "open(/proc/self/task)";
    if !is_single_threaded().map_err(Refused::by(THREADS))? {
        let source = io::Error::new(io::ErrorKind::WouldBlock, "the process has several threads");
        return Err(Refused { call: THREADS, source });
    }
    // A filter that cannot look into the arguments of clone3(2) answers ENOSYS, as containers do by
    // default.
    match by_clone3(flags) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            by_clone(flags).map_err(Refused::by("clone"))
        }
        other => other.map_err(Refused::by("clone3")),
    }
}

/// The processes that the caller makes from now on are in a time namespace of their own
/// (time_namespaces(7)).
///
/// # Errors
/// The errno of unshare(2).
pub fn unshare_time() -> io::Result<()> {
    const CLONE_NEWTIME: libc::c_int = 0x80;
    // SAFETY: integers only.
    super::checked(libc::c_long::from(unsafe { libc::unshare(CLONE_NEWTIME) })).map(|_| ())
}

fn by_clone3(flags: libc::c_int) -> io::Result<Side> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: clone_args is plain integers; all zeroes is a valid value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(flags.cast_unsigned()) | u64::from(libc::CLONE_PIDFD.cast_unsigned());
    arguments.pidfd = std::ptr::from_mut(&mut pidfd).addr() as u64;
    arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    let size = size_of::<libc::clone_args>();
    // SAFETY: `arguments` lives across the call and its size is given; without CLONE_VM the
    // child has a copy of this single-threaded process, so all of its state is consistent.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size) };
    Ok(side(super::checked(result)?, pidfd))
}

fn by_clone(flags: libc::c_int) -> io::Result<Side> {
    let mut pidfd: libc::c_int = -1;
    let flags = i64::from(flags | libc::CLONE_PIDFD | libc::SIGCHLD);
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: `pidfd` lives across the call, which stores the descriptor in place of the parent's
    // thread id (clone(2), CLONE_PIDFD). Without a stack and without CLONE_VM the child goes on here,
    // in a copy of this single-threaded process, so all of its state is consistent.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, none, &raw mut pidfd, none, none) };
    Ok(side(super::checked(result)?, pidfd))
}

fn side(pid: libc::c_long, pidfd: libc::c_int) -> Side {
    if pid == 0 {
        return Side::Child;
    }
    // SAFETY: the kernel stored a new descriptor there, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Side::Parent { pid: i32::try_from(pid).unwrap_or(-1), pidfd }
}

#[cfg(test)]
mod tests {
    #[test]
    fn refuses_to_clone_a_threaded_process() {
        // The test harness itself runs threads.
        let error = super::clone_process(0).expect_err("must refuse");
        assert_eq!(error.source.kind(), std::io::ErrorKind::WouldBlock);
    }
}
