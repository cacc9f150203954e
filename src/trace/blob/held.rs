//! Bodies of what has passed already: each byte has its space before it passes, and is stored also when the disk is full.

use std::io::{self, Write as _};
use std::sync::Arc;

use nix::errno::Errno;

use super::super::error::TraceError;
use super::file::nameless;
use super::{BlobStore, BlobWriter, DENSE, Directory, PIECE};

/// What a body takes of the disk besides its bytes, at first and for each piece: a block, and headers.
const BLOCK: u64 = 4 << 10;
const HEADERS: u64 = 64;

/// So much is given back at once, where a body goes on.
const LEAST: u64 = PIECE as u64 / 2;

/// The most that so many bytes of a body, which `begins` with them or not, take of the disk.
pub(in crate::trace) fn room_for(length: usize, begins: bool) -> u64 {
    let (length, block) = (length as u64, if begins { BLOCK } else { 0 });
    // What cannot be compressed grows a little (RFC 8878 section 3.1.1).
    length + length / 128 + HEADERS + block
}

/// Bytes of one body that are held and not on the disk.
#[derive(Default)]
pub(super) struct Held {
    owed: u64,
}

impl BlobStore {
    /// Makes sure that so many bytes more can be stored.
    pub(in crate::trace) fn hold(&self, bytes: u64) -> Result<(), TraceError> {
        let Self::Directory(directory) = self else { return Ok(()) };
        directory.ballast.hold(bytes, || nameless(directory)).map_err(|source| {
            directory.fail(&source);
            TraceError::StoreBlob { source }
        })
    }

    pub(in crate::trace) fn start_held(&self) -> BlobWriter {
        let mut writer = self.start();
        writer.passed = Some(Held::default());
        writer
    }

    pub(in crate::trace) fn give_up_ballast(&self) {
        if let Self::Directory(directory) = self {
            directory.ballast.give_up();
        }
    }
}

impl BlobWriter {
    /// Writes what has passed, for which so many bytes are held.
    ///
    /// # Errors
    /// As for any other body.
    pub fn write_held(&mut self, bytes: &[u8], held: u64) -> io::Result<()> {
        if let Some(passed) = &mut self.passed {
            passed.owed += held;
        }
        self.write_all(bytes)?;
        // What still waits in memory is short of a piece, and so is what it needs of the disk.
        let waits = if self.held.is_empty() { 0 } else { room_for(self.held.len(), true) };
        if let BlobStore::Directory(directory) = &self.store
            && let Some(passed) = &mut self.passed
            && passed.owed >= waits + LEAST
        {
            directory.ballast.settle(passed.owed - waits);
            passed.owed = waits;
        }
        Ok(())
    }

    pub(super) fn settle(&mut self, directory: &Directory) {
        if let Some(passed) = &mut self.passed {
            directory.ballast.settle(std::mem::take(&mut passed.owed));
        }
    }

    /// Appends a piece to the file.
    pub(super) fn append(&mut self, directory: &Arc<Directory>, piece: &[u8]) -> io::Result<()> {
        let as_is = self.hurried || self.dense > 0;
        let is_dense = match directory.append(&mut self.file, piece, as_is) {
            Err(error) if self.passed.is_some() && is_full(&error) => {
                // From here on nothing passes, and the run stops.
                directory.fail(&error);
                directory.ballast.wait();
                directory.append(&mut self.file, piece, as_is)
            }
            other => other,
        }?;
        self.dense = if !as_is && is_dense { DENSE } else { self.dense.saturating_sub(1) };
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOSPC | Errno::EDQUOT))
}
