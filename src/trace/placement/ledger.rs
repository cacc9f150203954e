//! Which traces were put where an agent could reach them: later runs hide them, whatever their names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::super::layout::{LEDGER_NAME, blobs_name};
use super::directory::Directory;
use super::state::StateDirectories;
use super::{FileIdentity, Protected};

/// Traces that are hidden; each costs every start a mount where it can be reached.
const MOST: usize = 32;
/// Size at which those that are gone, and all but the latest, are forgotten.
const LARGE: u64 = 4 << 10;
/// Most bytes that are read.
const LARGEST: u64 = 1 << 20;

/// Adds the trace `path` to the list beside the directory of waiting traces.
///
/// # Errors
/// When the list cannot be written: the trace itself is in place all the same.
pub(super) fn remember(waiting: &Directory, path: &Path) -> io::Result<()> {
    let state = waiting.path().parent().ok_or(io::ErrorKind::NotFound)?;
    let file = Directory::open_private(state)?.open_list(OsStr::new(LEDGER_NAME))?;
    let mut file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| io::Error::from(errno))?;
    let mut entries = Vec::new();
    if file.metadata()?.len() > LARGE {
        for (kept, _) in existing(&mut file)?.into_iter().rev() {
            push(&mut entries, &kept);
        }
        file.set_len(0)?;
    }
    push(&mut entries, path);
    file.write_all(&entries)
}

/// The latest of them that are still there, and their blobs.
pub(super) fn protected(state: &StateDirectories) -> Vec<Protected> {
    let mut found = Vec::new();
    for directory in state.existing() {
        let list = directory.open_file(OsStr::new(LEDGER_NAME));
        for (path, own) in list.and_then(|mut file| existing(&mut file)).unwrap_or_default() {
            let blobs = path.with_file_name(blobs_name(path.file_name().unwrap_or_default()));
            found.push(Protected { identity: Some(own), path });
            found.push(Protected { identity: identity(&blobs), path: blobs });
        }
    }
    found
}

/// The newest first, each once.
fn existing(file: &mut File) -> io::Result<Vec<(PathBuf, FileIdentity)>> {
    let size = file.metadata()?.len().min(LARGEST);
    // A little more, to see the end at once.
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 64);
    file.rewind()?;
    file.take(LARGEST).read_to_end(&mut content)?;
    let mut seen = HashSet::new();
    let paths = content.split(|&byte| byte == 0).rev().filter(|path| path.first() == Some(&b'/'));
    let paths = paths.filter(|path| seen.insert(*path)).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    Ok(paths.filter_map(|path| identity(&path).map(|own| (path, own))).take(MOST).collect())
}

fn push(entries: &mut Vec<u8>, path: &Path) {
    entries.extend(path.as_os_str().to_owned().into_vec());
    entries.push(0);
}

fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    let status = path.symlink_metadata().ok()?;
    Some(FileIdentity { dev: status.dev(), ino: status.ino() })
}
