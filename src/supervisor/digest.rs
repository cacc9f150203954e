//! Digests of file contents, remembered for as long as the file provably has not changed.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

/// A content: its SHA-256 in hex, and its size in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sha256: String,
    pub(super) size: u64,
}

/// What changes whenever the content does, on file systems that keep times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Files whose digest is remembered.
const REMEMBERED: usize = 65_536;
/// A file that changed this recently may change again within one tick of its time stamp, so
/// its digest is not remembered (the racy-clean rule of git).
const RACY_SECONDS: i64 = 2;
const BLOCK: usize = 128 * 1024;

/// Computes and remembers digests.
#[derive(Debug, Default)]
pub(super) struct Digests {
    known: HashMap<Identity, Content>,
    block: Vec<u8>,
}

impl Digests {
    /// The digest of `file` from its start; its offset does not move.
    pub(super) fn of(&mut self, file: &File) -> io::Result<Content> {
        let metadata = file.metadata()?;
        let identity = Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        if let Some(content) = self.known.get(&identity) {
            return Ok(content.clone());
        }
        let content = self.compute(file)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let newest = identity.modified.0.max(identity.changed.0);
        if i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(newest) > RACY_SECONDS {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            self.known.insert(identity, content.clone());
        }
        Ok(content)
    }

    fn compute(&mut self, file: &File) -> io::Result<Content> {
        self.block.resize(BLOCK, 0);
        let mut hash = Sha256::new();
        let mut size: u64 = 0;
        loop {
            let count = file.read_at(&mut self.block, size)?;
            if count == 0 {
                break;
            }
            hash.update(&self.block[..count]);
            size += count as u64;
        }
        Ok(Content { sha256: hex(&hash.finalize()), size })
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
