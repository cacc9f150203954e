//! What statx(2) says of a file, and the two forms in which a program gets that (`struct stat` of x86-64,
//! `struct statx`).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Size of `struct stat`.
pub const STAT: usize = 144;
/// Size of `struct statx`.
pub const STATX: usize = 256;

/// What programs can ask for and [`statx_bytes`] gives: all up to STATX_MNT_ID_UNIQUE.
pub const KNOWN: u32 = 0x7fff;

/// Looks at what `file` refers to.
///
/// # Errors
/// The errno of statx(2).
pub fn of(file: BorrowedFd<'_>, flags: i32, mask: u32) -> io::Result<libc::statx> {
    look(file, c"", flags | libc::AT_EMPTY_PATH, mask)
}

/// Looks at a name in a directory, and at a link itself; nothing is mounted for that (stat(2) mounts nothing either).
///
/// # Errors
/// The errno of statx(2); EINVAL for a name that none can be.
pub fn at(directory: BorrowedFd<'_>, name: &[u8], mask: u32) -> io::Result<libc::statx> {
    look(directory, &CString::new(name)?, libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT, mask)
}

fn look(directory: BorrowedFd<'_>, name: &std::ffi::CStr, flags: i32, mask: u32) -> io::Result<libc::statx> {
    // SAFETY: statx is plain integers; all zeroes is a valid value.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the name is a C string, and both it and `status` live across the call.
    let result =
        unsafe { libc::statx(directory.as_raw_fd(), name.as_ptr(), flags, mask & KNOWN, &raw mut status) };
    super::checked(libc::c_long::from(result))?;
    Ok(status)
}

/// The number of its device, as stat(2) gives it.
#[must_use]
pub fn device(status: &libc::statx) -> u64 {
    libc::makedev(status.stx_dev_major, status.stx_dev_minor)
}

/// As `struct stat` (asm/stat.h).
#[must_use]
pub fn stat_bytes(status: &libc::statx) -> [u8; STAT] {
    let mut bytes = [0; STAT];
    let mut put = Writer { bytes: &mut bytes, at: 0 };
    put.long(device(status));
    put.long(status.stx_ino);
    put.long(status.stx_nlink.into());
    put.int(status.stx_mode.into());
    put.int(status.stx_uid);
    put.int(status.stx_gid);
    put.int(0);
    put.long(libc::makedev(status.stx_rdev_major, status.stx_rdev_minor));
    put.long(status.stx_size);
    put.long(status.stx_blksize.into());
    put.long(status.stx_blocks);
    for time in [&status.stx_atime, &status.stx_mtime, &status.stx_ctime] {
        put.long(time.tv_sec.cast_unsigned());
        put.long(time.tv_nsec.into());
    }
    bytes
}

/// As `struct statx` (linux/stat.h); what is behind the fields that are known here is zero.
#[must_use]
pub fn statx_bytes(status: &libc::statx) -> [u8; STATX] {
    let mut bytes = [0; STATX];
    let mut put = Writer { bytes: &mut bytes, at: 0 };
    put.int(status.stx_mask & KNOWN);
    put.int(status.stx_blksize);
    put.long(status.stx_attributes);
    put.int(status.stx_nlink);
    put.int(status.stx_uid);
    put.int(status.stx_gid);
    put.int(status.stx_mode.into());
    put.long(status.stx_ino);
    put.long(status.stx_size);
    put.long(status.stx_blocks);
    put.long(status.stx_attributes_mask);
    for time in [&status.stx_atime, &status.stx_btime, &status.stx_ctime, &status.stx_mtime] {
        put.long(time.tv_sec.cast_unsigned());
        put.int(time.tv_nsec);
        put.int(0);
    }
    put.int(status.stx_rdev_major);
    put.int(status.stx_rdev_minor);
    put.int(status.stx_dev_major);
    put.int(status.stx_dev_minor);
    put.long(status.stx_mnt_id);
    put.int(status.stx_dio_mem_align);
    put.int(status.stx_dio_offset_align);
    bytes
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, word: &[u8]) {
        self.bytes[self.at..self.at + word.len()].copy_from_slice(word);
        self.at += word.len();
    }

    fn int(&mut self, word: u32) {
        self.put(&word.to_ne_bytes());
    }

    fn long(&mut self, word: u64) {
        self.put(&word.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// What the kernel writes into a buffer of that form.
    fn kernel_s<const SIZE: usize>(call: impl FnOnce(*mut u8) -> libc::c_long) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        assert_eq!(call(bytes.as_mut_ptr()), 0);
        bytes
    }

    #[test]
    fn both_forms_are_the_kernel_s() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(5000).expect("grows");
        let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID;
        let status = of(file.as_fd(), 0, mask).expect("is there");
        // SAFETY: the buffer has the size of `struct stat`.
        let stat = kernel_s(|at| unsafe { libc::syscall(libc::SYS_fstat, file.as_raw_fd(), at) });
        let statx = kernel_s(|at| {
            let (empty, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
            // SAFETY: the buffer has the size of `struct statx`, the path is an empty C string.
            unsafe { libc::syscall(libc::SYS_statx, file.as_raw_fd(), empty, flags, mask, at) }
        });
        assert_eq!(stat_bytes(&status), stat);
        assert_eq!(statx_bytes(&status), statx);
        assert_eq!(device(&status), file.metadata().expect("is there").dev());
    }

    #[test]
    fn a_link_is_looked_at_itself() {
        let directory = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("none", directory.path().join("link")).expect("links");
        let opened = File::open(directory.path()).expect("opens");
        let status = at(opened.as_fd(), b"link", libc::STATX_BASIC_STATS).expect("is there");
        assert_eq!(u32::from(status.stx_mode) & libc::S_IFMT, libc::S_IFLNK);
        assert!(at(opened.as_fd(), b"a\0b", libc::STATX_BASIC_STATS).is_err());
    }
}
