//! A regular file as standard input: opened for reading alone, and digested beside the run.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open, readlink};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC,
    fstatfs,
};
use nix::unistd::{Whence, lseek};
use sha2::{Digest as _, Sha256};

use crate::sys::mount::{self, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::trace::{BlobWriter, Recorder, hex};

const BLOCK: usize = 128 * 1024;

/// Opens the file behind `own` at its offset, through a mount that is read-only: the kernel then
/// refuses to open it for writing through /proc/self/fd, and to change its mode or owner. Runs
/// in the cloned child, who may mount.
///
/// # Errors
/// When the file has no path here any more, or may not be mounted or opened.
pub(super) fn open_read_only(own: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = readlink(link(own).as_str())?;
    // A mount can be cloned through a descriptor of this mount namespace alone (open_tree(2)).
    let file = open(path.as_os_str(), OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    let tree = mount::clone_tree(file.as_fd(), c"", false)?;
    mount::set_attributes(tree.as_fd(), RDONLY | NOSUID | NODEV | NOEXEC, 0, false)?;
    let opened = open(link(tree.as_fd()).as_str(), READ, Mode::empty())?;
    let (wanted, got) = (fstat(own)?, fstat(&opened)?);
    if (wanted.st_dev, wanted.st_ino) != (got.st_dev, got.st_ino) {
        // Another file has that name now.
        return Err(Errno::ESTALE.into());
    }
    lseek(&opened, lseek(own, 0, Whence::SeekCur)?, Whence::SeekSet)?;
    Ok(opened)
}

/// Opens the pipe behind `own` for reading alone, if it could be written to.
///
/// # Errors
/// The errno of open(2).
pub(super) fn open_again(own: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let flags = OFlag::from_bits_retain(fcntl(own, FcntlArg::F_GETFL)?);
    if flags & OFlag::O_ACCMODE == OFlag::O_RDONLY {
        return Ok(None);
    }
    // Opening a FIFO waits for its writer, which is the descriptor itself.
    Ok(Some(open(link(own).as_str(), READ, Mode::empty())?))
}

const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_CLOEXEC).union(OFlag::O_NOCTTY);

fn link(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
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

/// Largest file that is kept, in bytes.
const LARGEST: u64 = 1 << 30;

/// What the thread gives: the content, and itself where it is kept.
type Digested = io::Result<(Content, Option<BlobWriter>)>;

/// The thread that digests.
#[derive(Debug)]
pub(super) struct Hashing {
    thread: JoinHandle<Digested>,
    offset: u64,
    file: File,
    before: Stamp,
}

/// Size and time of the last change of a file's content.
type Stamp = (u64, i64, i64);

impl Hashing {
    /// Starts it; what it reads is kept where there is a recorder.
    pub(super) fn start(mut file: File, recorder: Option<&Recorder>) -> io::Result<Self> {
        let offset = file.stream_position()?;
        let copy = file.try_clone()?;
        let before = stamp(&file)?;
        let small = before.0.saturating_sub(offset) <= LARGEST;
        let kept = recorder.filter(|_| small).and_then(|recorder| recorder.blob().ok());
        let thread = std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || digest(&copy, offset, before.0, kept))?;
        Ok(Self { thread, offset, file, before })
    }

    /// Where the file was read from.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Waits for the digest. What the command has read counts as read from the launcher's own
    /// standard input, whoever shares that.
    pub(super) fn finish(mut self) -> Digested {
        let (content, kept) =
            self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the digest failed")))?;
        let changed = stamp(&self.file)? != self.before;
        let offset = i64::try_from(self.file.stream_position()?).map_err(io::Error::other)?;
        lseek(io::stdin(), offset, Whence::SeekSet)?;
        Ok((Content { changed, ..content }, kept))
    }
}

/// Such files have no size, and reading some of them waits or consumes.
pub(super) fn is_of_kernel(file: BorrowedFd<'_>) -> bool {
    fstatfs(file).is_ok_and(|status| {
        [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC]
            .contains(&status.filesystem_type())
    })
}

/// Digests `file` from `offset` to `end`, without moving its offset, and copies it into `kept`.
fn digest(file: &File, offset: u64, end: u64, mut kept: Option<BlobWriter>) -> Digested {
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
        if let Some(kept) = &mut kept {
            kept.write_all(&block[..count])?;
        }
        at += count as u64;
    }
    Ok((Content { sha256: hex(&hash.finalize()), size: at.saturating_sub(offset), changed: false }, kept))
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
        let (content, _) = digest(&file, 6, 9, None).expect("digested");
        assert_eq!(content.size, 3);
        assert_eq!(content.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let mut rest = String::new();
        file.read_to_string(&mut rest).expect("read");
        assert_eq!(rest, "abc");
    }
}
