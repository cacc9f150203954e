//! Digests of file contents, remembered for as long as the file provably has not changed.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::uio::pread;
use sha2::{Digest as _, Sha256};

use super::content::{Content, Identity};
use super::remembered::Remembered;
use crate::trace::{Event, Members};

/// Files whose digest is remembered.
const REMEMBERED: usize = 65_536;
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
    /// What earlier runs knew.
    remembered: Option<Remembered>,
}

impl Digests {
    /// Digests that are kept from run to run.
    pub(super) fn with(remembered: Option<Remembered>) -> Self {
        Self { remembered, ..Self::default() }
    }

    /// Keeps for later runs what this one found out.
    pub(super) fn keep(&self) {
        self.remembered.iter().for_each(Remembered::keep);
    }

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
        if let Some(content) = self.remembered.as_ref().and_then(|remembered| remembered.find(&identity)) {
            return Ok(content);
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
            if let Some(remembered) = &mut self.remembered {
                remembered.add(identity, &content);
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
        // What is small needs no more; a short read shows the end.
        let expected_bytes = usize::try_from(expected).unwrap_or(0);
        let length = if expected_bytes == 0 { BLOCK } else { BLOCK.min(expected_bytes + 1) };
        self.block.resize(length.max(self.block.len()), 0);
        let mut hash = Sha256::new();
        let mut size: u64 = 0;
        // Of what is small nobody asks for the time.
        let mut until = None;
        loop {
            let at = i64::try_from(size).map_err(io::Error::other)?;
            let count = pread(file, &mut self.block, at)?;
            hash.update(&self.block[..count]);
            size += count as u64;
            // A short read at the expected end needs no second one to be sure; files of the kernel
            // that say no size are read until nothing comes.
            let whole = expected > 0 && count < self.block.len() && size >= expected.cast_unsigned();
            if count == 0 || whole {
                break;
            }
            let now = Instant::now();
            let until = *until.get_or_insert_with(|| {
                let own = now + LONGEST;
                self.until.map_or(own, |until| until.min(own))
            });
            // A writer can keep ahead of us for ever.
            if size > LARGEST || (size > BLOCK as u64 && now > until) {
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
        Err(error) => event.arg(without(error), error.to_string()),
    }
}

/// The same for what is written.
pub(super) fn write_to(args: &mut Members, content: &io::Result<Content>) {
    match content {
        Ok(content) => {
            args.string("sha256", &content.sha256);
            args.number("size", content.size);
        }
        Err(error) => args.string(without(error), &error.to_string()),
    }
}

/// What is said in place of a digest.
fn without(error: &io::Error) -> &'static str {
    let too_long = matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::TimedOut);
    if too_long { "undigested" } else { "unreadable" }
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
