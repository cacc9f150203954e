//! Which traces were put where an agent could reach them: later runs hide them, whatever their names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::super::layout::{LEDGER_NAME, blobs_name};
use super::directory::Directory;
use super::state::StateDirectories;
use super::views::is_written_at;
use super::{FileIdentity, Protected, list};

/// Traces that are hidden; each costs every start a mount where it can be reached.
const MOST: usize = 32;
/// What an entry begins with whose trace is hidden only while it is written.
const RUNNING: u8 = b'=';
/// Size at which those that are gone, and all but the latest, are forgotten.
const LARGE: u64 = 4 << 10;
/// Most bytes that are read.
const LARGEST: u64 = 1 << 20;

/// Adds the trace `path` to the list in the first of the state directories that takes it.
///
/// # Errors
/// When the list cannot be written.
pub(super) fn remember(states: &[Directory], path: &Path) -> io::Result<()> {
    let added = |state| add(state, path.as_os_str().as_bytes());
    states.iter().map(added).find(io::Result::is_ok).unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
}

/// The same for a trace that is written in place, for as long as `home` says so.
///
/// # Errors
/// When the list cannot be written.
pub(super) fn remember_running(home: &Directory, path: &Path) -> io::Result<()> {
    add(home, &[&[RUNNING], path.as_os_str().as_bytes()].concat())
}

fn add(state: &Directory, entry: &[u8]) -> io::Result<()> {
    let name = OsStr::new(LEDGER_NAME);
    let mut file = list::locked(state, name)?;
    // What a full disk has cut off before ends here.
    let mut entries = vec![0];
    if file.metadata()?.len() <= LARGE {
        push(&mut entries, entry);
        return file.write_all(&entries);
    }
    for kept in existing(state, &mut file)?.into_iter().rev() {
        push(&mut entries, &kept.entry);
    }
    push(&mut entries, entry);
    list::replace(state, name, &file, &entries)
}

/// The latest of them that are still there, and their blobs.
pub(super) fn protected(state: &StateDirectories) -> Vec<Protected> {
    let mut found = Vec::new();
    for directory in state.existing() {
        let list = directory.open_file(OsStr::new(LEDGER_NAME));
        for Listed { path, own, .. } in
            list.and_then(|mut file| existing(&directory, &mut file)).unwrap_or_default()
        {
            let blobs = path.with_file_name(blobs_name(path.file_name().unwrap_or_default()));
            found.push(Protected { identity: Some(own), path });
            found.push(Protected { identity: identity(&blobs), path: blobs });
        }
    }
    found
}

/// A trace that is there.
struct Listed {
    entry: Vec<u8>,
    path: PathBuf,
    own: FileIdentity,
}

/// The newest of the list `file` in `state` first, each once.
fn existing(state: &Directory, file: &mut File) -> io::Result<Vec<Listed>> {
    let size = file.metadata()?.len().min(LARGEST);
    // A little more, to see the end at once.
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 64);
    file.rewind()?;
    file.take(LARGEST).read_to_end(&mut content)?;
    let (mut seen, mut found, mut left) = (HashSet::new(), Vec::new(), MOST);
    for entry in content.split(|&byte| byte == 0).rev() {
        let running = entry.strip_prefix(&[RUNNING]);
        let path = running.unwrap_or(entry);
        if path.first() != Some(&b'/') || (running.is_none() && left == 0) || !seen.insert(entry) {
            continue;
        }
        let path = PathBuf::from(OsStr::from_bytes(path));
        let Some(own) = identity(&path) else { continue };
        if running.is_none() {
            left -= 1;
        } else if !is_written_at(state, &path) {
            continue;
        }
        found.push(Listed { entry: entry.to_vec(), path, own });
    }
    Ok(found)
}

fn push(entries: &mut Vec<u8>, entry: &[u8]) {
    entries.extend(entry);
    entries.push(0);
}

fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    let status = path.symlink_metadata().ok()?;
    Some(FileIdentity { dev: status.dev(), ino: status.ino() })
}
