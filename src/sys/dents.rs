//! Directory entries as the kernel hands them out (getdents(2)): read raw, and put together again in another
//! order.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Number of its inode.
    pub inode: u64,
    /// `DT_*`.
    pub kind: u8,
    /// Its name.
    pub name: OsString,
}

/// Offset of the name in `struct linux_dirent64`.
const NAME: usize = 19;

/// Reads all entries that are left, `.` and `..` among them.
///
/// # Errors
/// The errno of getdents64(2).
pub fn read(directory: BorrowedFd<'_>) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut buffer = vec![0u8; 32 << 10];
    loop {
        // SAFETY: the kernel writes at most the given length to `buffer`, which outlives the call.
        let count = super::checked(unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                buffer.as_mut_ptr().cast::<libc::c_void>(),
                buffer.len(),
            )
        })?;
        let count = usize::try_from(count).map_err(io::Error::other)?;
        if count == 0 {
            return Ok(entries);
        }
        let mut rest = buffer.get(..count).unwrap_or_default();
        while let Some((entry, after)) = split(rest) {
            entries.push(entry);
            rest = after;
        }
    }
}

/// The first of packed entries, and the others.
fn split(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let inode = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
    let length = usize::from(u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?));
    let kind = *bytes.get(18)?;
    let name = bytes.get(NAME..length)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    let name = OsStr::from_bytes(&name[..end]).to_owned();
    Some((Entry { inode, kind, name }, bytes.get(length..)?))
}

/// Packs as many of `entries` as `room` bytes hold; `at` is the offset of the first, each is followed by the
/// offset of the next. Gives how many there are as well.
#[must_use]
pub fn pack(entries: &[Entry], at: u64, room: usize) -> (Vec<u8>, usize) {
    let mut packed = Vec::new();
    for (count, (entry, next)) in entries.iter().zip(at + 1..).enumerate() {
        let name = entry.name.as_bytes();
        let length = (NAME + name.len() + 1).next_multiple_of(8);
        if packed.len() + length > room {
            return (packed, count);
        }
        let start = packed.len();
        packed.extend(entry.inode.to_ne_bytes());
        packed.extend(next.to_ne_bytes());
        packed.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
        packed.push(entry.kind);
        packed.extend(name);
        packed.resize(start + length, 0);
    }
    (packed, entries.len())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn what_is_packed_is_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["a", "longer name", "é"] {
            File::create(directory.path().join(name)).expect("makes");
        }
        let entries = read(File::open(directory.path()).expect("opens").as_fd()).expect("reads");
        assert_eq!(entries.len(), 5);
        let (packed, count) = pack(&entries, 0, 1000);
        assert_eq!(count, 5);
        let mut rest = packed.as_slice();
        let mut again = Vec::new();
        while let Some((entry, after)) = split(rest) {
            again.push(entry);
            rest = after;
        }
        assert_eq!(again, entries);
        let (some, count) = pack(&entries, 0, 60);
        assert!((1..5).contains(&count) && some.len() <= 60);
        assert_eq!(pack(&entries, 0, 8), (Vec::new(), 0));
    }
}
