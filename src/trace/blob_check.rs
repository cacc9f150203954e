//! Checks blobs against the names and sizes by which entries refer to them.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::libc;
use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;

use super::event::hex;
use super::layout::{REDACTED_NAME, blob_name, blobs_name};
use super::mentions::is_sha256;
use super::scan::BlobMention;
use super::tamper::Tamper;

/// Names of good blobs that are remembered, so that a body that occurs often is read once.
const MOST_REMEMBERED: usize = 1 << 16;
/// The largest window that a blob may ask the decoder to hold: 2^27 bytes, zstd's own default limit.
const LARGEST_WINDOW_LOG: u32 = 27;

pub(super) struct BlobCheck {
    directory: PathBuf,
    good: HashSet<(String, Option<u64>)>,
    /// Whether private blobs were left out.
    redacted: bool,
    /// Beginnings of the digests of those that were.
    left_out: HashSet<[u8; 16]>,
}

impl BlobCheck {
    /// Checks the blobs beside the trace at `path`.
    pub(super) fn beside(path: &Path) -> Self {
        let directory = path.with_file_name(blobs_name(path.file_name().unwrap_or_default()));
        let redacted = is_redacted(&directory);
        Self { directory, good: HashSet::new(), redacted, left_out: HashSet::new() }
    }

    /// How many private blobs were left out.
    pub(super) fn left_out(&self) -> u64 {
        u64::try_from(self.left_out.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn check(&mut self, mention: &BlobMention) -> Result<(), Tamper> {
        let known = (mention.sha256.clone(), mention.size);
        if self.good.contains(&known) {
            return Ok(());
        }
        let sha256 = || mention.sha256.clone();
        let file = match self.open(&mention.sha256) {
            Ok(file) => file,
            Err(error) if self.may_lack(mention, &error) => {
                self.left_out.extend(mention.sha256.as_bytes().first_chunk::<16>());
                return Ok(());
            }
            Err(_) if self.directory.symlink_metadata().is_err() => {
                return Err(Tamper::BlobsMissing { directory: self.directory.clone() });
            }
            Err(_) => return Err(Tamper::BlobMissing { sha256: sha256() }),
        };
        match content_is(file, mention) {
            Ok(true) => {}
            Ok(false) | Err(_) => return Err(Tamper::BlobAltered { sha256: sha256() }),
        }
        if self.good.len() >= MOST_REMEMBERED {
            self.good.clear();
        }
        self.good.insert(known);
        Ok(())
    }

    fn may_lack(&self, mention: &BlobMention, error: &io::Error) -> bool {
        self.redacted && mention.private && error.kind() == io::ErrorKind::NotFound
    }

    fn open(&self, sha256: &str) -> io::Result<File> {
        open_blob(&self.directory, sha256)
    }
}

/// Whether private blobs were left out of this directory.
pub(super) fn is_redacted(directory: &Path) -> bool {
    directory.join(REDACTED_NAME).symlink_metadata().is_ok()
}

/// Opens the file of a blob.
pub(super) fn open_blob(directory: &Path, sha256: &str) -> io::Result<File> {
    if !is_sha256(sha256) {
        // It could lead out of the directory, and nothing has checked what it names.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a blob is no SHA-256"));
    }
    let path = directory.join(blob_name(sha256));
    // Neither a link nor a pipe is a blob.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(file)
}

/// Decompresses a blob.
pub(super) fn decoder<R: Read>(file: R) -> io::Result<Decoder<'static, BufReader<R>>> {
    let mut decoder = Decoder::new(file)?;
    decoder.window_log_max(LARGEST_WINDOW_LOG)?;
    Ok(decoder)
}

/// Whether the file holds what was mentioned. Never reads more than one byte beyond the size that was recorded.
pub(super) fn content_is(file: impl Read, mention: &BlobMention) -> io::Result<bool> {
    let mut content = decoder(file)?.take(mention.size.map_or(u64::MAX, |size| size.saturating_add(1)));
    let mut hash = Sha256::new();
    let mut size = 0_u64;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = content.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        size += u64::try_from(count).unwrap_or(u64::MAX);
    }
    Ok(mention.size.is_none_or(|expected| expected == size) && hex(&hash.finalize()) == mention.sha256)
}
