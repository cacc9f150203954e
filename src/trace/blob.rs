//! Blobs: bodies beside the trace, compressed, each named by the SHA-256 of its content.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use zstd::stream::write::Encoder;

use super::error::TraceError;
use super::event::hex;
use super::layout::{FILE_MODE, TEMPORARY_PREFIX, blob_name};
use super::queue::Queue;

/// Bodies up to this size are held in memory until they end: one that is stored already then costs no write.
const HELD: usize = 64 << 10;
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
    /// Told when a body cannot be stored: the run must stop as when a line cannot be written.
    queue: Option<Arc<Queue>>,
}

impl BlobStore {
    pub(super) fn new(directory: OwnedFd, queue: Option<Arc<Queue>>) -> Self {
        Self::Directory(Arc::new(Directory { fd: directory, next: AtomicU64::new(0), queue }))
    }

    pub(super) fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(super) fn start(&self) -> BlobWriter {
        BlobWriter { store: self.clone(), hash: Sha256::new(), size: 0, held: Vec::new(), spilled: None }
    }

    pub(super) fn content(&self, sha256: &str) -> Option<Vec<u8>> {
        match self {
            Self::Directory(_) => None,
            Self::Memory(blobs) => blobs.lock().unwrap_or_else(PoisonError::into_inner).get(sha256).cloned(),
        }
    }
}

/// A body that is being stored. Dropped before [`finish`](Self::finish), it leaves nothing.
pub struct BlobWriter {
    store: BlobStore,
    hash: Sha256,
    size: u64,
    held: Vec<u8>,
    spilled: Option<Temporary>,
}

impl BlobWriter {
    /// Bytes that were written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Ends the body and gives it its name.
    pub fn finish(mut self) -> Result<BlobRef, TraceError> {
        let blob = BlobRef { sha256: hex(&self.hash.finalize_reset()), size: self.size };
        match &self.store {
            BlobStore::Memory(blobs) => {
                let content = std::mem::take(&mut self.held);
                blobs.lock().unwrap_or_else(PoisonError::into_inner).insert(blob.sha256.clone(), content);
            }
            BlobStore::Directory(directory) => {
                let directory = Arc::clone(directory);
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
        if self.spilled.is_none() {
            self.spill(directory)?;
        }
        match self.spilled.take() {
            Some(temporary) => temporary.keep_as(&name),
            None => Ok(()),
        }
    }

    fn spill(&mut self, directory: &Arc<Directory>) -> io::Result<()> {
        let mut temporary = Temporary::create(directory)?;
        temporary.write_all(&self.held)?;
        self.held = Vec::new();
        self.spilled = Some(temporary);
        Ok(())
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = match &self.store {
            BlobStore::Memory(_) => self.held.write(bytes)?,
            BlobStore::Directory(directory) => {
                let directory = Arc::clone(directory);
                let written = self.write_to(&directory, bytes);
                written.inspect_err(|source| directory.fail(source))?
            }
        };
        self.hash.update(&bytes[..count]);
        self.size += u64::try_from(count).unwrap_or(u64::MAX);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlobWriter {
    fn write_to(&mut self, directory: &Arc<Directory>, bytes: &[u8]) -> io::Result<usize> {
        if self.spilled.is_none() && self.held.len() + bytes.len() > HELD {
            self.spill(directory)?;
        }
        match &mut self.spilled {
            Some(temporary) => temporary.write(bytes),
            None => self.held.write(bytes),
        }
    }
}

impl Directory {
    fn fail(&self, source: &io::Error) {
        if let Some(queue) = &self.queue {
            queue.fail(Arc::from(format!("a body cannot be stored: {source}")));
        }
    }
}

/// A file in the directory of blobs that has no name of its own yet.
struct Temporary {
    directory: Arc<Directory>,
    name: String,
    encoder: Option<Encoder<'static, File>>,
}

impl Temporary {
    fn create(directory: &Arc<Directory>) -> io::Result<Self> {
        let number = directory.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMPORARY_PREFIX}{number}");
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&directory.fd, name.as_str(), flags, Mode::from_bits_truncate(FILE_MODE))?;
        let directory = Arc::clone(directory);
        // From here on the name is removed again when anything fails.
        let mut temporary = Self { directory, name, encoder: None };
        temporary.encoder = Some(Encoder::new(File::from(file), LEVEL)?);
        Ok(temporary)
    }

    fn keep_as(mut self, name: &str) -> io::Result<()> {
        if let Some(encoder) = self.encoder.take() {
            encoder.finish()?;
        }
        renameat(self.directory.fd.as_fd(), self.name.as_str(), self.directory.fd.as_fd(), name)?;
        self.name.clear();
        Ok(())
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Some(encoder) => encoder.write(bytes),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
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
    fn memory_keeps_the_content() {
        let store = BlobStore::in_memory();
        let mut writer = store.start();
        writer.write_all(b"abc").expect("it writes");
        let blob = writer.finish().expect("it is stored");
        assert_eq!(store.content(&blob.sha256).as_deref(), Some(&b"abc"[..]));
    }
}
