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

/// Opens a descriptor of the thread `tid`, whether it leads its group or not (Linux 6.9).
///
/// # Errors
/// ESRCH when there is none, EINVAL on older kernels.
pub fn open_thread(tid: i32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: integers only.
    fd(unsafe { libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD) })
}

/// Whether what is behind `pidfd` has not ended, or was not waited for: nobody else has its number.
#[must_use]
pub fn holds_its_number(pidfd: BorrowedFd<'_>) -> bool {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no siginfo is passed; signal 0 is only checked, not sent.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), 0, none, 0) };
    // EPERM: it is there.
    sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Copies descriptor `number` of the process behind `pidfd` into this process (close-on-exec).
///
/// # Errors
/// EBADF, ESRCH or EPERM as pidfd_getfd(2) says.
pub fn fetch(pidfd: BorrowedFd<'_>, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    fd(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) })
}

/// Kills the process behind `pidfd`.
///
/// # Errors
/// ESRCH when it has ended.
pub fn kill(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no siginfo is passed; the rest are integers.
    super::checked(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGKILL, none, 0)
    })
    .map(|_| ())
}
