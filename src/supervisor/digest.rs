//! Digests of file contents, remembered for as long as the file provably has not changed.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::uio::pread;
use sha2::{Digest as _, Sha256};

use crate::trace::Event;

/// A content: its SHA-256 in hex, and its size in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sha256: String,
    pub(super) size: u64,
}

/// What changes whenever the content does, on file systems that keep times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    pub(super) fn of(status: &FileStat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
            size: status.st_size,
            modified: (status.st_mtime, status.st_mtime_nsec),
            changed: (status.st_ctime, status.st_ctime_nsec),
        }
    }

    /// Whether it changed so long ago that its next change will show.
    pub(super) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let newest = self.modified.0.max(self.changed.0);
        i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(newest) > RACY_SECONDS
    }
}

/// Files whose digest is remembered.
const REMEMBERED: usize = 65_536;
/// A file that changed this recently may change again within one tick of its time stamp, so
/// its digest is not remembered (the racy-clean rule of git).
const RACY_SECONDS: i64 = 2;
const BLOCK: usize = 128 * 1024;
/// Largest file that is digested, in bytes, and the longest time that one may take: a sparse file
/// of a tebibyte costs the agent nothing, and nobody is served while it is read.
const LARGEST: u64 = 1 << 30;
const LONGEST: Duration = Duration::from_secs(2);

/// Computes and remembers digests.
#[derive(Debug, Default)]
pub(super) struct Digests {
    known: HashMap<Identity, Content>,
    block: Vec<u8>,
    /// After this, contents that are not known stay undigested.
    until: Option<Instant>,
}

impl Digests {
    /// Limits the time that all further digests may take together; `None` limits each alone.
    pub(super) fn limit(&mut self, time: Option<Duration>) {
        self.until = time.map(|time| Instant::now() + time);
    }

    /// The digest of `file` from its start; its offset does not move.
    ///
    /// FileTooLarge or TimedOut where that would take too long.
    pub(super) fn of(&mut self, file: BorrowedFd<'_>) -> io::Result<Content> {
        self.of_status(file, None)
    }

    /// As [`of`](Self::of); `status` is what fstat(2) has just said of `file`, if it was asked.
    pub(super) fn of_status(
        &mut self,
        file: BorrowedFd<'_>,
        status: Option<FileStat>,
    ) -> io::Result<Content> {
        let status = match status {
            Some(status) => status,
            None => fstat(file)?,
        };
        let identity = Identity::of(&status);
        if let Some(content) = self.known.get(&identity) {
            return Ok(content.clone());
        }
        let regular = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        if regular && u64::try_from(status.st_size).is_ok_and(|size| size > LARGEST) {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 1 GiB"));
        }
        let content = self.compute(file, if regular { status.st_size } else { 0 })?;
        if identity.is_settled() {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            self.known.insert(identity, content.clone());
        }
        Ok(content)
    }

    /// The digest of `file`, computed whatever is known of it.
    pub(super) fn anew(&mut self, file: BorrowedFd<'_>) -> io::Result<Content> {
        let status = fstat(file)?;
        if u64::try_from(status.st_size).is_ok_and(|size| size > LARGEST) {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 1 GiB"));
        }
        self.compute(file, status.st_size)
    }

    fn compute(&mut self, file: BorrowedFd<'_>, expected: i64) -> io::Result<Content> {
        self.block.resize(BLOCK, 0);
        let mut hash = Sha256::new();
        let mut size: u64 = 0;
        let own = Instant::now() + LONGEST;
        let until = self.until.map_or(own, |until| until.min(own));
        loop {
            let at = i64::try_from(size).map_err(io::Error::other)?;
            let count = pread(file, &mut self.block, at)?;
            hash.update(&self.block[..count]);
            size += count as u64;
            // A short read at the expected end needs no second one to be sure; files of the kernel
            // that say no size are read until nothing comes.
            let whole = expected > 0 && count < BLOCK && size >= expected.cast_unsigned();
            if count == 0 || whole {
                break;
            }
            // A writer can keep ahead of us for ever.
            if size > LARGEST || (size > BLOCK as u64 && Instant::now() > until) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long"));
            }
        }
        Ok(Content { sha256: hex(&hash.finalize()), size })
    }
}

/// Adds a digest to an event, or why there is none.
pub(super) fn add_to(event: Event, content: &io::Result<Content>) -> Event {
    match content {
        Ok(content) => event.arg("sha256", content.sha256.clone()).arg("size", content.size),
        Err(error) if matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::TimedOut) => {
            event.arg("undigested", error.to_string())
        }
        Err(error) => event.arg("unreadable", error.to_string()),
    }
}

/// The digest of what a reader gives.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The SHA-256 of everything that `reader` gives, in hex.
///
/// # Errors
/// Those of the reader.
pub fn sha256_of(reader: &mut dyn io::Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        let count = reader.read(&mut block)?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&block[..count]);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn what_takes_too_long_stays_undigested() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 40).expect("a sparse file");
        let mut digests = Digests::default();
        let error = digests.of(file.as_fd()).expect_err("must refuse");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        file.set_len(1 << 29).expect("a sparse file");
        digests.limit(Some(Duration::ZERO));
        assert_eq!(digests.of(file.as_fd()).expect_err("must stop").kind(), io::ErrorKind::TimedOut);
        file.set_len(3).expect("a short file");
        assert_eq!(digests.of(file.as_fd()).expect("is short").size, 3);
    }
}
