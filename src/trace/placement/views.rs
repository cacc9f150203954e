//! Which places running agents see: a trace that belongs there waits until those runs have ended.
//!
//! Each run locks, in one file of the state directory, a byte for each tree of its view. The locks are those of an open
//! file (fcntl(2), F_OFD_SETLK): they end with the run, however that ends, and need no clearing up.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use sha2::{Digest as _, Sha256};

use super::super::error::TraceError;
use super::super::layout::{VIEWS_NAME, blobs_name};
use super::directory::Directory;
use super::state::StateDirectories;

/// What the agent of a run sees, as far as traces are concerned.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Whether the run's own trace is in it.
    pub own_trace: bool,
    /// The trees of the host that are shown.
    pub trees: Vec<PathBuf>,
    /// Whether it is in the state directory, which no agent of this user sees.
    pub apart: bool,
    /// Other paths under which mounts show the place of the trace.
    pub aliases: Vec<PathBuf>,
}

/// The view of this run, which others are told of.
#[derive(Debug)]
pub(super) struct Views {
    /// Every state directory that there was at the start. One that came since may be an agent's.
    states: Vec<Directory>,
    /// The one in which it is told.
    home: Directory,
    file: File,
}

impl Views {
    /// Tells other runs that this one sees `trees`; waits while one of them puts a trace there.
    pub(super) fn hold(state: &StateDirectories, trees: &[PathBuf]) -> Result<Self, TraceError> {
        let (home, file) = state.make_list(OsStr::new(VIEWS_NAME))?;
        let lock = |source| TraceError::Lock { path: home.join(OsStr::new(VIEWS_NAME)), source };
        for tree in trees {
            let byte = by_identity(tree).unwrap_or_else(|| by_name(tree));
            set(&file, &region(libc::F_RDLCK, byte, 1), true).map_err(lock)?;
        }
        Ok(Self { states: state.existing(), home, file })
    }

    /// Tells other runs, until this one ends, that it writes its trace at `path`, which a list in the directory that is
    /// returned has to name.
    pub(super) fn write_at(&self, path: &Path) -> io::Result<&Directory> {
        set(&self.file, &region(libc::F_RDLCK, by_trace(path), 1), false)?;
        Ok(&self.home)
    }

    pub(super) fn states(&self) -> &[Directory] {
        &self.states
    }

    /// The run has ended, and sees nothing any more.
    pub(super) fn end(self) -> Vec<Directory> {
        // Processes that were started meanwhile may have the file open still.
        let _ = set(&self.file, &region(libc::F_UNLCK, 0, 0), false);
        self.states
    }
}

/// That no agent sees a place, nor begins to while this is held.
pub(super) struct Unseen {
    _files: Vec<File>,
}

/// Makes sure of that for a trace, and its blobs, at each of `paths`; `None` where an agent may see one of them.
/// In `states` runs say what they see.
pub(super) fn unseen<'a>(states: &[Directory], paths: impl Iterator<Item = &'a Path>) -> Option<Unseen> {
    let mut bytes = Vec::new();
    for path in paths {
        let blobs = path.with_file_name(blobs_name(path.file_name()?));
        for place in path.ancestors().chain([blobs.as_path()]) {
            bytes.extend([Some(by_name(place)), by_identity(place)].into_iter().flatten());
        }
    }
    let name = OsStr::new(VIEWS_NAME);
    let mut files = Vec::new();
    for state in states {
        let file = match state.open_list(name) {
            // Where it cannot be made, nobody has.
            Err(error)
                if error.kind() == io::ErrorKind::ReadOnlyFilesystem
                    && matches!(state.entry(name), Ok(None)) =>
            {
                continue;
            }
            opened => opened.ok()?,
        };
        for &byte in &bytes {
            set(&file, &region(libc::F_WRLCK, byte, 1), false).ok()?;
        }
        files.push(file);
    }
    Some(Unseen { _files: files })
}

/// Whether a run writes its trace at `path`, as is told in `home`.
pub(super) fn is_written_at(home: &Directory, path: &Path) -> bool {
    let Ok(file) = home.open_file(OsStr::new(VIEWS_NAME)) else { return false };
    let mut region = region(libc::F_WRLCK, by_trace(path), 1);
    // Asked, and not taken: another run may be about to tell the same.
    let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut region));
    asked.is_err() || i32::from(region.l_type) != libc::F_UNLCK
}

fn set(file: &File, region: &libc::flock, waits: bool) -> io::Result<()> {
    loop {
        let lock = if waits { FcntlArg::F_OFD_SETLKW(region) } else { FcntlArg::F_OFD_SETLK(region) };
        match fcntl(file, lock) {
            Err(Errno::EINTR) => {}
            result => return Ok(result.map(drop)?),
        }
    }
}

fn region(kind: i32, start: i64, length: i64) -> libc::flock {
    // l_pid must be 0 (fcntl(2)).
    let as_short = |value: i32| i16::try_from(value).unwrap_or_default();
    libc::flock {
        l_type: as_short(kind),
        l_whence: as_short(libc::SEEK_SET),
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

fn by_name(path: &Path) -> i64 {
    byte(b"name", path.as_os_str().as_bytes())
}

fn by_trace(path: &Path) -> i64 {
    byte(b"trace", path.as_os_str().as_bytes())
}

/// Another mount may show the same tree under another name.
fn by_identity(path: &Path) -> Option<i64> {
    let status = path.metadata().ok()?;
    Some(byte(b"file", &[status.dev().to_le_bytes(), status.ino().to_le_bytes()].concat()))
}

/// The byte that stands for it: two that share one make a trace wait for nothing, and no more.
fn byte(kind: &[u8], name: &[u8]) -> i64 {
    let hash = Sha256::new().chain_update(kind).chain_update(name).finalize();
    let start = hash.first_chunk().copied().map_or(0, u64::from_le_bytes);
    i64::try_from(start >> 2).unwrap_or_default()
}
