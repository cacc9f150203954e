//! Process descriptors: pidfd_open(2), pidfd_getfd(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

fn fd(result: libc::c_long) -> io::Result<OwnedFd> {
    let raw = i32::try_from(super::checked(result)?).map_err(io::Error::other)?;
    // SAFETY: the call that gave `raw` made a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Opens a descriptor of the process (thread group leader) `pid`.
///
/// # Errors
/// ESRCH when there is none, EINVAL when `pid` is a thread that leads no group.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    fd(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// Copies descriptor `number` of the process behind `pidfd` into this process (close-on-exec).
///
/// # Errors
/// EBADF, ESRCH or EPERM as pidfd_getfd(2) says.
pub fn fetch(pidfd: BorrowedFd<'_>, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    fd(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) })
}
