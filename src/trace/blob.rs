//! Blobs: bodies beside the trace, compressed, each named by the SHA-256 of its content.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use zstd::bulk::Compressor;

use super::error::TraceError;
use super::event::hex;
use super::layout::{FILE_MODE, TEMPORARY_PREFIX, blob_name};
use super::queue::Queue;

/// Content that is compressed and written at once, and the most of one body that is held in memory. A body that ends
/// within it and is stored already costs no write.
const PIECE: usize = 128 << 10;
/// The most that is held of all bodies together: past it each of them is written piece by piece, however small.
const HELD: usize = 4 << 20;
/// zstd's fastest ordinary level: the run waits for this.
const LEVEL: i32 = 1;

/// Names a stored body: in an event, `{"blob": SHA-256, "size": N}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BlobRef {
    /// SHA-256 of the content, in lower-case hex.
    #[serde(rename = "blob")]
    pub sha256: String,
    /// Bytes of the content.
    pub size: u64,
}

impl From<BlobRef> for Value {
    fn from(blob: BlobRef) -> Self {
        json!({"blob": blob.sha256, "size": blob.size})
    }
}

/// Where blobs are kept.
#[derive(Clone)]
pub(super) enum BlobStore {
    Directory(Arc<Directory>),
    Memory(Arc<Mutex<HashMap<String, Vec<u8>>>>),
}

pub(super) struct Directory {
    fd: OwnedFd,
    next: AtomicU64,
    /// Bytes that bodies hold in memory.
    held: AtomicUsize,
    /// One for all: a context takes more memory than what is held of a body.
    press: Mutex<Option<Press>>,
    /// Told when a body cannot be stored: the run must stop as when a line cannot be written.
    queue: Option<Arc<Queue>>,
}

impl BlobStore {
    pub(super) fn new(directory: OwnedFd, queue: Option<Arc<Queue>>) -> Self {
        Self::Directory(Arc::new(Directory {
            fd: directory,
            next: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            press: Mutex::default(),
            queue,
        }))
    }

    pub(super) fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(super) fn start(&self) -> BlobWriter {
        BlobWriter { store: self.clone(), hash: Sha256::new(), size: 0, held: Vec::new(), file: None }
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
}

impl BlobWriter {
    /// Bytes that were written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Ends the body and gives it its name.
    pub fn finish(mut self) -> Result<BlobRef, TraceError> {
        let blob = BlobRef { sha256: hex(&self.hash.finalize_reset()), size: self.size };
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
        if fstatat(&directory.fd, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
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
                directory.append(&mut self.file, piece)?;
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
        directory.append(&mut self.file, &self.held)?;
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
        }
    }
}

impl Directory {
    fn fail(&self, source: &io::Error) {
        if let Some(queue) = &self.queue {
            queue.fail(Arc::from(format!("a body cannot be stored: {source}")));
        }
    }

    /// Appends one piece of a body, as a zstd frame of its own (RFC 8878 section 3.1: frames may follow each other).
    fn append(self: &Arc<Self>, file: &mut Option<Temporary>, piece: &[u8]) -> io::Result<()> {
        let mut press = self.press.lock().unwrap_or_else(PoisonError::into_inner);
        let press = match &mut *press {
            Some(press) => press,
            none => none.insert(Press::new()?),
        };
        let length = press.compressor.compress_to_buffer(piece, &mut press.frame[..])?;
        let frame = &press.frame[..length];
        match file {
            Some(temporary) => temporary.append(frame),
            None => file.insert(Temporary::new(self)).create(frame),
        }
    }
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

/// A file in the directory of blobs that has no name of its own yet. It is open only while it is written.
struct Temporary {
    directory: Arc<Directory>,
    name: String,
}

impl Temporary {
    fn new(directory: &Arc<Directory>) -> Self {
        let number = directory.next.fetch_add(1, Ordering::Relaxed);
        Self { directory: Arc::clone(directory), name: format!("{TEMPORARY_PREFIX}{number}") }
    }

    fn create(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes, OFlag::O_CREAT | OFlag::O_EXCL)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes, OFlag::O_APPEND)
    }

    fn write(&self, bytes: &[u8], how: OFlag) -> io::Result<()> {
        let flags = how | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(FILE_MODE);
        let file = openat(&self.directory.fd, self.name.as_str(), flags, mode)?;
        File::from(file).write_all(bytes)
    }

    fn keep_as(mut self, name: &str) -> io::Result<()> {
        renameat(self.directory.fd.as_fd(), self.name.as_str(), self.directory.fd.as_fd(), name)?;
        self.name.clear();
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let _ = unlinkat(&self.directory.fd, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, BlobStore) {
        let directory = tempfile::tempdir().expect("a directory");
        let fd = OwnedFd::from(File::open(directory.path()).expect("it opens"));
        (directory, BlobStore::new(fd, None))
    }

    fn names(directory: &tempfile::TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(directory.path()).expect("it lists");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
    }

    #[test]
    fn a_body_is_named_by_its_content() {
        let (directory, store) = store();
        for content in [b"hello\n".repeat(3), b"0123456789abcdef".repeat(100_000)] {
            let mut writer = store.start();
            for part in content.chunks(1000) {
                writer.write_all(part).expect("it writes");
            }
            let blob = writer.finish().expect("it is stored");
            assert_eq!(blob.size, u64::try_from(content.len()).expect("fits"));
            assert_eq!(blob.sha256, hex(&Sha256::digest(&content)));
            let file = File::open(directory.path().join(blob_name(&blob.sha256))).expect("it is there");
            assert_eq!(zstd::decode_all(&file).expect("zstd"), content);
            assert_eq!(std::os::unix::fs::MetadataExt::mode(&file.metadata().expect("stat")) & 0o777, 0o600);
        }
    }

    #[test]
    fn the_same_body_is_stored_once_and_a_dropped_one_not_at_all() {
        let (directory, store) = store();
        for size in [10, 1_000_000] {
            for _ in 0..2 {
                let mut writer = store.start();
                writer.write_all(&vec![7; size]).expect("it writes");
                writer.finish().expect("it is stored");
            }
            let mut dropped = store.start();
            dropped.write_all(&vec![8; size]).expect("it writes");
        }
        assert_eq!(names(&directory).len(), 2, "{:?}", names(&directory));
    }

    #[test]
    fn many_bodies_at_once_hold_little() {
        let (directory, store) = store();
        let BlobStore::Directory(inner) = &store else { panic!("a directory") };
        let mut writers: Vec<_> = (0..200_u8).map(|number| (number, store.start())).collect();
        for round in 0..40 {
            for (number, writer) in &mut writers {
                writer.write_all(&[round ^ *number; 1000]).expect("it writes");
            }
            let held = inner.held.load(Ordering::Relaxed);
            assert!(held <= HELD + PIECE, "{held} bytes are held");
        }
        for (_, writer) in writers {
            let blob = writer.finish().expect("stored");
            let file = File::open(directory.path().join(blob_name(&blob.sha256))).expect("it is there");
            let content = zstd::decode_all(&file).expect("zstd");
            assert_eq!((blob.size, blob.sha256), (40_000, hex(&Sha256::digest(&content))));
        }
        assert_eq!(inner.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn memory_keeps_the_content() {
        let store = BlobStore::in_memory();
        let mut writer = store.start();
        writer.write_all(b"abc").expect("it writes");
        let blob = writer.finish().expect("it is stored");
        assert_eq!(store.content(&blob.sha256).as_deref(), Some(&b"abc"[..]));
    }
}
