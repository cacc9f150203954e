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
    /// The offset of the entry after it.
    pub next: u64,
}

/// How entries are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `struct linux_dirent64` of getdents64(2).
    Wide,
    /// `struct linux_dirent` of getdents(2), with the kind in its last byte.
    Old,
}

/// Offset of the name in `struct linux_dirent64`.
const NAME: usize = 19;
/// Offset of the name in `struct linux_dirent`.
const OLD_NAME: usize = 18;
/// Room for every entry.
pub const LONGEST: usize = (NAME + 256).next_multiple_of(8);

/// Reads all entries that are left, `.` and `..` among them.
///
/// # Errors
/// The errno of getdents64(2).
pub fn read(directory: BorrowedFd<'_>) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut buffer = vec![0u8; 32 << 10];
    while read_into(directory, &mut buffer, &mut entries)? {}
    Ok(entries)
}

/// Reads the entries that come next, as many as `room` bytes hold in the wide form; none at the end.
///
/// # Errors
/// The errno of getdents64(2).
pub fn read_next(directory: BorrowedFd<'_>, room: usize) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    read_into(directory, &mut vec![0u8; room], &mut entries)?;
    Ok(entries)
}

/// Whether there were more.
fn read_into(directory: BorrowedFd<'_>, buffer: &mut [u8], entries: &mut Vec<Entry>) -> io::Result<bool> {
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
    let mut rest = buffer.get(..count).unwrap_or_default();
    while let Some((entry, after)) = split(rest) {
        entries.push(entry);
        rest = after;
    }
    Ok(count > 0)
}

/// The first of packed entries, and the others.
fn split(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let inode = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
    let next = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let length = usize::from(u16::from_ne_bytes(bytes.get(16..18)?.try_into().ok()?));
    let kind = *bytes.get(18)?;
    let name = bytes.get(NAME..length)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    let name = OsStr::from_bytes(&name[..end]).to_owned();
    Some((Entry { inode, kind, name, next }, bytes.get(length..)?))
}

/// Packs as many of `entries` as `room` bytes hold. Gives how many there are as well.
#[must_use]
pub fn pack(entries: &[Entry], room: usize, form: Form) -> (Vec<u8>, usize) {
    let mut packed = Vec::new();
    for (count, entry) in entries.iter().enumerate() {
        let name = entry.name.as_bytes();
        // The old form has the kind behind the name's zero byte.
        let least = if form == Form::Wide { NAME + name.len() + 1 } else { OLD_NAME + name.len() + 2 };
        let length = least.next_multiple_of(8);
        if packed.len() + length > room {
            return (packed, count);
        }
        let start = packed.len();
        packed.extend(entry.inode.to_ne_bytes());
        packed.extend(entry.next.to_ne_bytes());
        packed.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
        if form == Form::Wide {
            packed.push(entry.kind);
        }
        packed.extend(name);
        packed.resize(start + length, 0);
        if form == Form::Old
            && let Some(last) = packed.last_mut()
        {
            *last = entry.kind;
        }
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
        let (packed, count) = pack(&entries, 1000, Form::Wide);
        assert_eq!(count, 5);
        let mut rest = packed.as_slice();
        let mut again = Vec::new();
        while let Some((entry, after)) = split(rest) {
            again.push(entry);
            rest = after;
        }
        assert_eq!(again, entries);
        for form in [Form::Wide, Form::Old] {
            let (some, count) = pack(&entries, 60, form);
            assert!((1..5).contains(&count) && some.len() <= 60);
            assert_eq!(pack(&entries, 8, form), (Vec::new(), 0));
        }
    }

    #[test]
    fn the_old_form_is_the_kernels() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["a", "longer name", "é", "seven77", "eight888"] {
            File::create(directory.path().join(name)).expect("makes");
        }
        let own = File::open(directory.path()).expect("opens");
        let mut buffer = [0u8; 4096];
        // SAFETY: the kernel writes at most the given length to `buffer`, which outlives the call.
        let count = super::super::checked(unsafe {
            libc::syscall(libc::SYS_getdents, own.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
        });
        let theirs = &mut buffer[..usize::try_from(count.expect("lists")).expect("a count")];
        let entries = read(File::open(directory.path()).expect("opens").as_fd()).expect("reads");
        let (mut ours, _) = pack(&entries, 4096, Form::Old);
        // What stands between the name and the kind is what was there before.
        for packed in [theirs, ours.as_mut_slice()] {
            let mut at = 0;
            while at < packed.len() {
                let length = usize::from(u16::from_ne_bytes([packed[at + 16], packed[at + 17]]));
                let zero = at + 18 + packed[at + 18..].iter().position(|&byte| byte == 0).expect("ends");
                packed[zero..at + length - 1].fill(0);
                at += length;
            }
        }
        assert_eq!(buffer[..ours.len()], ours);
    }
}
