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
    /// Other paths under which mounts show the place of the trace.
    pub aliases: Vec<PathBuf>,
}

/// The view of this run, which others are told of.
#[derive(Debug)]
pub(super) struct Views {
    state: StateDirectories,
    file: Option<File>,
}

impl Views {
    /// Tells other runs that this one sees `trees`; waits while one of them puts a trace there.
    pub(super) fn hold(state: &StateDirectories, trees: &[PathBuf]) -> Result<Self, TraceError> {
        // Where none can be made, no run of this user can have a trace that waits.
        let mut views = Self { state: state.clone(), file: None };
        let Some(directory) = state.make_first() else { return Ok(views) };
        let lock = |source| TraceError::Lock { path: directory.join(OsStr::new(VIEWS_NAME)), source };
        let file = match directory.open_list(OsStr::new(VIEWS_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => return Ok(views),
            opened => opened.map_err(lock)?,
        };
        for tree in trees {
            let byte = by_identity(tree).unwrap_or_else(|| by_name(tree));
            set(&file, &region(libc::F_RDLCK, byte, 1), true).map_err(lock)?;
        }
        views.file = Some(file);
        Ok(views)
    }

    /// The run has ended, and sees nothing any more.
    pub(super) fn end(self) -> StateDirectories {
        if let Some(file) = &self.file {
            // Processes that were started meanwhile may have the file open still.
            let _ = set(file, &region(libc::F_UNLCK, 0, 0), false);
        }
        self.state
    }
}

/// That no agent sees a place, nor begins to while this is held.
pub(super) struct Unseen {
    _file: File,
}

/// Makes sure of that for a trace, and its blobs, at each of `paths`; `None` where an agent may see one of them.
/// `waiting` is the directory of waiting traces beside which runs say what they see.
pub(super) fn unseen<'a>(waiting: &Directory, paths: impl Iterator<Item = &'a Path>) -> Option<Unseen> {
    let file =
        Directory::open_private(waiting.path().parent()?).ok()?.open_list(OsStr::new(VIEWS_NAME)).ok()?;
    for path in paths {
        let blobs = path.with_file_name(blobs_name(path.file_name()?));
        for place in path.ancestors().chain([blobs.as_path()]) {
            for byte in [Some(by_name(place)), by_identity(place)].into_iter().flatten() {
                set(&file, &region(libc::F_WRLCK, byte, 1), false).ok()?;
            }
        }
    }
    Some(Unseen { _file: file })
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
