//! Blobs: bodies beside the trace, compressed, each named by the SHA-256 of its content.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use zstd::bulk::Compressor;

mod file;
mod held;
mod inline;
mod place;

use self::file::Temporary;
use self::held::Held;
pub(super) use self::held::room_for;
pub use self::inline::BodyRef;
pub(super) use self::place::Place;
use super::ballast::Ballast;
use super::error::{Named, TraceError};
use super::event::hex;
use super::layout::blob_name;
use super::queue::{Queue, more_room};

/// Content that is compressed and written at once, and the most of one body that is held in memory. A body that ends
/// within it and is stored already costs no write.
const PIECE: usize = 128 << 10;
/// The most that is held of all bodies together: past it each of them is written piece by piece, however small.
const HELD: usize = 4 << 20;
/// zstd's fastest ordinary level: the run waits for this.
const LEVEL: i32 = 1;
/// So many pieces after one that was not made shorter are stored as they are: the rest is likely the same.
const DENSE: u8 = 7;

/// Names a stored body: in an event, `{"blob": SHA-256, "size": N}`, with `"private": true` where it is a secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BlobRef {
    /// SHA-256 of the content, in lower-case hex.
    #[serde(rename = "blob")]
    pub sha256: String,
    /// Bytes of the content.
    pub size: u64,
    /// Its content is a secret of the run: what is passed on without secrets is passed on without it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
}

impl BlobRef {
    /// The same, marked as a secret of the run.
    #[must_use]
    pub fn private(self) -> Self {
        Self { private: true, ..self }
    }
}

impl From<BlobRef> for Value {
    fn from(blob: BlobRef) -> Self {
        if blob.private {
            json!({"blob": blob.sha256, "size": blob.size, "private": true})
        } else {
            json!({"blob": blob.sha256, "size": blob.size})
        }
    }
}

/// Where blobs are kept.
#[derive(Clone)]
pub(super) enum BlobStore {
    Directory(Arc<Directory>),
    Memory(Arc<Mutex<HashMap<String, Vec<u8>>>>),
}

pub(super) struct Directory {
    place: Place,
    next: AtomicU64,
    /// Bytes that bodies hold in memory.
    held: AtomicUsize,
    /// One for all: a context takes more memory than what is held of a body.
    press: Mutex<Option<Press>>,
    /// Keeps space for what has passed already.
    ballast: Ballast,
    /// Told when a body cannot be stored: the run must stop as when a line cannot be written.
    queue: Option<Arc<Queue>>,
}

impl BlobStore {
    pub(super) fn new(place: Place, queue: Option<Arc<Queue>>) -> Self {
        Self::Directory(Arc::new(Directory {
            place,
            next: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            press: Mutex::default(),
            ballast: Ballast::default(),
            queue,
        }))
    }

    pub(super) fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(super) fn start(&self) -> BlobWriter {
        BlobWriter {
            store: self.clone(),
            hash: Sha256::new(),
            size: 0,
            held: Vec::new(),
            file: None,
            hurried: false,
            dense: 0,
            passed: None,
        }
    }

    pub(super) fn content(&self, sha256: &str) -> Option<Vec<u8>> {
        match self {
            Self::Directory(_) => None,
            Self::Memory(blobs) => blobs.lock().unwrap_or_else(PoisonError::into_inner).get(sha256).cloned(),
        }
    }
}

/// A body that is being stored. Dropped before [`finish`](Self::finish), it leaves nothing.
///
/// It holds no descriptor, and little memory: there may be thousands at once.
pub struct BlobWriter {
    store: BlobStore,
    hash: Sha256,
    size: u64,
    held: Vec<u8>,
    file: Option<Temporary>,
    hurried: bool,
    /// Pieces that are not worth a try to compress them.
    dense: u8,
    /// What of it is held.
    passed: Option<Held>,
}

impl std::fmt::Debug for BlobWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BlobWriter").field("size", &self.size).finish_non_exhaustive()
    }
}

impl BlobWriter {
    /// Bytes that were written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Stores what follows as it is, or compressed again: somebody waits for it, or nobody does.
    pub fn hurry(&mut self, hurried: bool) {
        self.hurried = hurried;
    }

    /// Ends the body and gives it its name.
    pub fn finish(mut self) -> Result<BlobRef, TraceError> {
        let sha256 = hex(&self.hash.finalize_reset());
        let blob = BlobRef { sha256, size: self.size, private: false };
        match self.store.clone() {
            BlobStore::Memory(blobs) => {
                let content = std::mem::take(&mut self.held);
                blobs.lock().unwrap_or_else(PoisonError::into_inner).insert(blob.sha256.clone(), content);
            }
            BlobStore::Directory(directory) => {
                self.keep(&directory, &blob.sha256).map_err(|source| {
                    directory.fail(&source);
                    TraceError::StoreBlob { source }
                })?;
            }
        }
        Ok(blob)
    }

    fn keep(&mut self, directory: &Arc<Directory>, sha256: &str) -> io::Result<()> {
        let name = blob_name(sha256);
        if fstatat(directory.place.fd()?, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        if !self.held.is_empty() || self.file.is_none() {
            self.spill(directory)?;
        }
        match self.file.take() {
            Some(temporary) => temporary.keep_as(&name),
            None => Ok(()),
        }
    }

    fn write_to(&mut self, directory: &Arc<Directory>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.held.is_empty() && bytes.len() >= PIECE {
                let (piece, rest) = bytes.split_at(PIECE);
                self.append(directory, piece)?;
                bytes = rest;
                continue;
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(PIECE - self.held.len()));
            self.hold(directory, taken);
            bytes = rest;
            if self.held.len() == PIECE || directory.held.load(Ordering::Relaxed) > HELD {
                self.spill(directory)?;
            }
        }
        Ok(())
    }

    fn hold(&mut self, directory: &Directory, bytes: &[u8]) {
        let before = self.held.capacity();
        self.held.extend_from_slice(bytes);
        directory.held.fetch_add(self.held.capacity() - before, Ordering::Relaxed);
    }

    fn spill(&mut self, directory: &Arc<Directory>) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let appended = self.append(directory, &held);
        self.held = held;
        appended?;
        self.held.clear();
        if directory.held.load(Ordering::Relaxed) > HELD {
            self.let_go(directory);
        }
        Ok(())
    }

    fn let_go(&mut self, directory: &Directory) {
        directory.held.fetch_sub(self.held.capacity(), Ordering::Relaxed);
        self.held = Vec::new();
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.store.clone() {
            BlobStore::Memory(_) => self.held.extend_from_slice(bytes),
            BlobStore::Directory(directory) => {
                let written = self.write_to(&directory, bytes);
                written.inspect_err(|source| directory.fail(source))?;
            }
        }
        self.hash.update(bytes);
        self.size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        if let BlobStore::Directory(directory) = self.store.clone() {
            self.let_go(&directory);
            self.settle(&directory);
        }
    }
}

impl Directory {
    fn fail(&self, source: &io::Error) {
        if let Some(queue) = &self.queue {
            let (said, fix) = (Named(source), more_room(source));
            queue.fail(Arc::from(format!("a body cannot be stored (write): {said}: {fix}")));
        }
    }

    /// Appends one piece of a body, as a zstd frame of its own (RFC 8878 section 3.1: frames may follow each other);
    /// whether that is no shorter.
    fn append(self: &Arc<Self>, file: &mut Option<Temporary>, piece: &[u8], as_is: bool) -> io::Result<bool> {
        if as_is {
            return self.append_frame(file, &raw_frame_header(piece.len()), piece).map(|()| true);
        }
        let mut press = self.press.lock().unwrap_or_else(PoisonError::into_inner);
        let press = match &mut *press {
            Some(press) => press,
            none => none.insert(Press::new()?),
        };
        let length = press.compressor.compress_to_buffer(piece, &mut press.frame[..])?;
        self.append_frame(file, &[], &press.frame[..length])?;
        Ok(length >= piece.len())
    }

    fn append_frame(
        self: &Arc<Self>,
        file: &mut Option<Temporary>,
        header: &[u8],
        content: &[u8],
    ) -> io::Result<()> {
        match file {
            Some(temporary) => temporary.append(header, content),
            none => {
                *none = Some(Temporary::create(self, header, content)?);
                Ok(())
            }
        }
    }
}

/// What stands before content that is stored as it is: the header of a frame that is one segment of that size, and
/// that of its one raw block (RFC 8878 sections 3.1.1.1 and 3.1.1.2).
fn raw_frame_header(length: usize) -> [u8; 12] {
    const ONE_SEGMENT_AND_ITS_SIZE_IN_4_BYTES: u8 = 0b1010_0000;
    const LAST_RAW_BLOCK: u32 = 1;
    debug_assert!(length <= PIECE, "a block has at most 128 KiB");
    let size = u32::try_from(length).unwrap_or(u32::MAX);
    let mut header = [0x28, 0xb5, 0x2f, 0xfd, ONE_SEGMENT_AND_ITS_SIZE_IN_4_BYTES, 0, 0, 0, 0, 0, 0, 0];
    header[5..9].copy_from_slice(&size.to_le_bytes());
    header[9..].copy_from_slice(&(size << 3 | LAST_RAW_BLOCK).to_le_bytes()[..3]);
    header
}

/// What compresses pieces.
struct Press {
    compressor: Compressor<'static>,
    frame: Box<[u8]>,
}

impl Press {
    fn new() -> io::Result<Self> {
        let frame = vec![0; zstd::zstd_safe::compress_bound(PIECE)].into_boxed_slice();
        Ok(Self { compressor: Compressor::new(LEVEL)?, frame })
    }
}

#[cfg(test)]
mod tests;
