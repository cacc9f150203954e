//! What the kernel knows of an open descriptor, and holds for it: kcmp(2), statx(2), flock(2).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A path of ours that leads to what `file` refers to (proc_pid_fd(5)).
#[must_use]
pub fn own_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Whether both descriptors of this process share one open file description: one offset.
///
/// # Errors
/// ENOSYS or EPERM where kcmp(2) is not to be had.
pub fn same_open_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    const KCMP_FILE: libc::c_int = 0;
    let pid = std::process::id();
    // SAFETY: integers only.
    let order = super::checked(unsafe {
        libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, one.as_raw_fd(), other.as_raw_fd())
    })?;
    Ok(order == 0)
}

/// Reads the link `name` in `directory` into `target`; gives its length, which is that of `target` where there may be
/// more (readlink(2)).
///
/// # Errors
/// The errno of readlinkat(2).
pub fn read_link(directory: BorrowedFd<'_>, name: &CStr, target: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `name` is a C string, and the kernel writes at most the length of `target` to it.
    let length = unsafe {
        libc::readlinkat(directory.as_raw_fd(), name.as_ptr(), target.as_mut_ptr().cast(), target.len())
    };
    usize::try_from(super::checked(length as libc::c_long)?).map_err(io::Error::other)
}

/// Bytes that wait in a pipe (pipe(7), FIONREAD).
///
/// # Errors
/// The errno of ioctl(2).
pub fn waiting(pipe: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the kernel writes one int to `count`, which outlives the call.
    super::checked(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) }.into())?;
    usize::try_from(count).map_err(io::Error::other)
}

/// Takes or gives up a lock on the whole file (flock(2)), which belongs to the open file description.
///
/// # Errors
/// EWOULDBLOCK, EINTR and the others of flock(2).
pub fn lock(file: BorrowedFd<'_>, operation: i32) -> io::Result<()> {
    // SAFETY: integers only.
    super::checked(unsafe { libc::flock(file.as_raw_fd(), operation) }.into()).map(|_| ())
}

/// The number of the mount through which the file was opened; no two mounts of the machine share it.
///
/// # Errors
/// The errno of statx(2).
pub fn mount_id(file: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: statx is plain integers; all zeroes is a valid value.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty C string, `status` lives across the call.
    let result = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_MNT_ID, &raw mut status)
    };
    super::checked(libc::c_long::from(result))?;
    Ok(status.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_copy_shares_the_open_file_and_a_second_open_does_not() {
        let file = File::open("/dev/null").expect("opens");
        let copy = file.try_clone().expect("copies");
        let second = File::open("/dev/null").expect("opens");
        let Ok(same) = same_open_file(file.as_fd(), copy.as_fd()) else { return };
        assert!(same);
        assert!(!same_open_file(file.as_fd(), second.as_fd()).expect("as before"));
    }

    #[test]
    fn mounts_are_told_apart() {
        let id = |path: &str| mount_id(File::open(path).expect("opens").as_fd()).expect("a number");
        assert_eq!(id("/proc/self/stat"), id("/proc/version"));
        assert_ne!(id("/proc/self/stat"), id("/"));
    }
}
