//! A trace as a command names it: a file beside its blobs, one that waits to be put in place, or a packed one.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;

use super::error::TraceError;
use super::held::Held;
use super::layout::blobs_name;
use super::pack;
use super::placement::{Scratch, locate};
use super::verify::Verification;

/// A trace that can be read.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    name: PathBuf,
    /// Holds what was packed.
    scratch: Option<Scratch>,
    /// Keeps one that waits where it is, with the bodies that are yet to be read.
    _stays: Option<Flock<File>>,
}

impl Opened {
    /// Where it is read from, as an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is called in what is said.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// What is on disk of it, no links in the paths: none of it was there while its run lasted.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        let Ok(file) = self.name.canonicalize() else { return Vec::new() };
        let blobs = file.file_name().map(|name| file.with_file_name(blobs_name(name)));
        std::iter::once(file).chain(blobs.filter(|_| !self.is_packed())).collect()
    }

    /// Verifies it, and holds what was verified of it.
    ///
    /// # Errors
    /// When it cannot be read, is no trace, or cannot be held.
    pub fn verify(&self) -> Result<(Held, Verification), TraceError> {
        // What was unpacked lies where nobody else writes.
        Held::verify(&self.path, self.is_packed())
    }

    /// Whether it is one file.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.scratch.is_some()
    }
}

/// Finds the trace that is called `asked`, and removes what killed commands left in the state directory. A packed one is unpacked into a private directory, which is gone with
/// what is returned.
///
/// # Errors
/// When there is none, it is no regular file, nothing is in it, or a packed one cannot be unpacked.
pub fn open(asked: &Path) -> Result<Opened, TraceError> {
    Scratch::clear();
    let (found, stays) = locate(asked);
    match found.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(TraceError::Absent { path: found }),
        Ok(metadata) if !metadata.is_file() => return Err(TraceError::NotATrace { path: found }),
        Ok(metadata) if metadata.len() == 0 => return Err(TraceError::Empty { path: found }),
        Ok(_) | Err(_) => {}
    }
    if !pack::is_packed(&found) {
        // Who reads it may change its directory first.
        let path = std::path::absolute(&found).unwrap_or_else(|_| found.clone());
        return Ok(Opened { path, name: found, scratch: None, _stays: stays });
    }
    let scratch = Scratch::new()?;
    let path = pack::unpack(&found, scratch.path())?;
    Ok(Opened { path, name: found, scratch: Some(scratch), _stays: stays })
}
