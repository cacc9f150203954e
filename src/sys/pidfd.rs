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

/// The process of a task, and its parent, as the caller sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// The process that the task belongs to.
    pub tgid: i32,
    /// The parent of that; 0 when it is out of sight.
    pub parent: i32,
}

/// `struct pidfd_info` as of its first version.
#[repr(C)]
#[derive(Default)]
struct RawInfo {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    parent: u32,
    credentials: [u32; 8],
    exit_code: i32,
}

/// Asks what is behind `pidfd` (PIDFD_GET_INFO, Linux 6.13).
///
/// # Errors
/// ENOTTY on older kernels, ESRCH when the task has ended.
pub fn info(pidfd: BorrowedFd<'_>) -> io::Result<Info> {
    // _IOWR(0xff, 11, struct pidfd_info)
    const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
    const PIDFD_INFO_PID: u64 = 1;
    const _: () = assert!(size_of::<RawInfo>() == 64);
    let mut raw = RawInfo { mask: PIDFD_INFO_PID, ..RawInfo::default() };
    // SAFETY: the kernel reads and writes one pidfd_info of the size that the request names.
    super::checked(libc::c_long::from(unsafe {
        libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut raw)
    }))?;
    Ok(Info { tgid: raw.tgid.cast_signed(), parent: raw.parent.cast_signed() })
}

/// A number that no other task has had or will have while the machine runs (Linux 6.9).
///
/// # Errors
/// ENOSYS where the kernel has no such number, ESRCH when the task has ended.
pub fn identity(pidfd: BorrowedFd<'_>) -> io::Result<u64> {
    // Kernels that have this know the number as well; on older ones all such descriptors share one.
    info(pidfd)?;
    Ok(nix::sys::stat::fstat(pidfd)?.st_ino)
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_known_until_it_was_waited_for() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("starts");
        let id = i32::try_from(child.id()).expect("a pid");
        let pidfd = open(id).expect("opens");
        assert!(holds_its_number(pidfd.as_fd()));
        if let Ok(info) = info(pidfd.as_fd()) {
            assert_eq!(info, Info { tgid: id, parent: std::process::id().cast_signed() });
            let own = open(info.parent).and_then(|own| identity(own.as_fd())).expect("a number");
            assert_ne!(identity(pidfd.as_fd()).expect("a number"), own);
            assert_eq!(identity(open(id).expect("opens").as_fd()).ok(), identity(pidfd.as_fd()).ok());
        }
        child.kill().and_then(|()| child.wait()).expect("ends");
        assert!(!holds_its_number(pidfd.as_fd()));
    }
}
