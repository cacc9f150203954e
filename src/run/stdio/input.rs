//! A regular file as standard input: opened for reading alone, and digested beside the run.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::thread::JoinHandle;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC,
    fstatfs,
};
use nix::unistd::{Whence, lseek};
use sha2::{Digest as _, Sha256};

use crate::trace::hex;

const BLOCK: usize = 128 * 1024;

/// Opens what is behind `own` once more, at the same offset, for reading alone.
///
/// # Errors
/// EACCES when the file may not be opened by its path any more.
pub(super) fn open_again(own: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", own.as_raw_fd());
    // Opening a FIFO waits for its writer, which is the descriptor itself.
    let again = open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY, Mode::empty())?;
    if let Ok(offset) = lseek(own, 0, Whence::SeekCur) {
        lseek(&again, offset, Whence::SeekSet)?;
    }
    Ok(again)
}

/// What standard input held when the run started, from its offset on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sha256: String,
    /// In bytes.
    pub(super) size: u64,
    /// It was written to meanwhile, so the command may have read something else.
    pub(super) changed: bool,
}

/// The thread that digests.
#[derive(Debug)]
pub(super) struct Hashing {
    thread: JoinHandle<io::Result<Option<Content>>>,
    file: File,
    before: Stamp,
}

/// Size and time of the last change of a file's content.
type Stamp = (u64, i64, i64);

impl Hashing {
    pub(super) fn start(mut file: File) -> io::Result<Self> {
        let offset = file.stream_position()?;
        let copy = file.try_clone()?;
        let before = stamp(&file)?;
        let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            if is_of_kernel(&copy) { Ok(None) } else { digest(&copy, offset, before.0).map(Some) }
        })?;
        Ok(Self { thread, file, before })
    }

    /// Waits for the digest; `None` for a file that the kernel makes up as it is read.
    pub(super) fn finish(mut self) -> io::Result<Option<Content>> {
        let mut content =
            self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the digest failed")))?;
        if let Some(content) = &mut content {
            content.changed = stamp(&self.file)? != self.before;
        }
        // What the command has read of an open of its own counts as read from the launcher's.
        let offset = self.file.stream_position()?;
        let own = io::stdin();
        if lseek(&own, 0, Whence::SeekCur).is_ok_and(|own| i64::try_from(offset) != Ok(own)) {
            let _ = lseek(&own, i64::try_from(offset).unwrap_or(i64::MAX), Whence::SeekSet);
        }
        Ok(content)
    }
}

/// Such files have no size, and reading some of them waits or consumes.
fn is_of_kernel(file: &File) -> bool {
    fstatfs(file).is_ok_and(|status| {
        [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC]
            .contains(&status.filesystem_type())
    })
}

/// Digests `file` from `offset` to `end`, without moving its offset.
fn digest(file: &File, offset: u64, end: u64) -> io::Result<Content> {
    let mut block = vec![0; BLOCK];
    let mut hash = Sha256::new();
    let mut at = offset;
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(BLOCK).min(BLOCK);
        let count = match file.read_at(&mut block[..most], at) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&block[..count]);
        at += count as u64;
    }
    Ok(Content { sha256: hex(&hash.finalize()), size: at.saturating_sub(offset), changed: false })
}

fn stamp(file: &File) -> io::Result<Stamp> {
    let metadata = file.metadata()?;
    Ok((metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, SeekFrom, Write as _};

    use super::*;

    #[test]
    fn digests_from_the_offset_on_and_leaves_it_there() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"first\nabc").expect("written");
        file.seek(SeekFrom::Start(6)).expect("seeks");
        let content = digest(&file, 6, 9).expect("digested");
        assert_eq!(content.size, 3);
        assert_eq!(content.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let mut rest = String::new();
        file.read_to_string(&mut rest).expect("read");
        assert_eq!(rest, "abc");
    }
}
