//! What the kernel says of the whole system, and of its file systems: sysinfo(2), fstatfs(2).

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Size of `struct sysinfo`.
pub const SYSINFO: usize = size_of::<libc::sysinfo>();

/// Its bytes, as a program gets them.
///
/// # Errors
/// The errno of sysinfo(2).
pub fn info() -> io::Result<[u8; SYSINFO]> {
    let mut bytes = [0u64; SYSINFO / 8];
    // SAFETY: `bytes` has the size of the structure and at least its alignment, and outlives the call.
    super::checked(libc::c_long::from(unsafe { libc::sysinfo(bytes.as_mut_ptr().cast()) }))?;
    let mut info = [0; SYSINFO];
    info.copy_from_slice(bytes.map(u64::to_ne_bytes).as_flattened());
    Ok(info)
}

/// Size of `struct statfs`.
pub const STATFS: usize = size_of::<libc::statfs>();

/// Its bytes, as a program gets them, of the file system that holds `file`.
///
/// # Errors
/// The errno of fstatfs(2).
pub fn file_system(file: BorrowedFd<'_>) -> io::Result<[u8; STATFS]> {
    let mut bytes = [0u64; STATFS / 8];
    // SAFETY: `bytes` has the size of the structure and at least its alignment, and outlives the call.
    let done = unsafe { libc::fstatfs(file.as_raw_fd(), bytes.as_mut_ptr().cast()) };
    super::checked(libc::c_long::from(done))?;
    let mut space = [0; STATFS];
    space.copy_from_slice(bytes.map(u64::to_ne_bytes).as_flattened());
    Ok(space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_a_size() {
        let root = std::fs::File::open("/").expect("a directory");
        let space = file_system(std::os::fd::AsFd::as_fd(&root)).expect("fstatfs");
        // f_bsize comes second.
        assert_ne!(space[8..16], [0; 8]);
    }

    #[test]
    fn it_begins_with_the_time_since_the_start() {
        let info = info().expect("sysinfo");
        let up = u64::from_le_bytes(*info.first_chunk().expect("a word"));
        assert!(up > 0 && up < 1 << 40, "{up}");
    }
}
