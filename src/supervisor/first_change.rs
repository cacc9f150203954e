//! First changes: what was at a path before the run first changed it, kept before it does.
//!
//! A replay starts from there. Nothing is kept of what the run made itself, and of a directory that is
//! renamed only that it was: what is below it is where it was moved to.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use serde_json::{Map, Value};

use super::view::{Place, own_path};
use super::{Stop, Supervisor};
use crate::trace::{Event, Recorder, TraceError, path_value};

/// Largest content that is kept, in bytes: as for digests.
const LARGEST: u64 = 1 << 30;
/// What is read at once.
const BLOCK: usize = 128 << 10;

/// The paths that were changed.
#[derive(Debug, Default)]
pub(super) struct FirstChanges {
    known: HashMap<Key, Kept>,
    names: [RandomState; 2],
    /// Directories that were renamed, in order.
    moved: Vec<Moved>,
    /// A file that was made out of the agent's sight, and that it is about to open.
    made: Option<Key>,
}

/// Stands for a path: millions of them would take much memory.
type Key = [u64; 2];

/// How much is kept of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kept {
    /// Its mode and times.
    Status,
    /// Everything.
    Whole,
}

#[derive(Debug)]
struct Moved {
    from: PathBuf,
    to: PathBuf,
    /// What was at `to` is at `from` now.
    exchanged: bool,
}

/// What was at a path; it counts once the change has happened.
#[derive(Debug)]
pub(super) struct Before {
    key: Key,
    kept: Kept,
    value: Value,
}

impl FirstChanges {
    fn key(&self, path: &Path) -> Key {
        let bytes = path.as_os_str().as_bytes();
        [self.names[0].hash_one(bytes), self.names[1].hash_one(bytes)]
    }

    /// Where what is at `path` now was at the start, directories that were renamed taken into account;
    /// `None` where the name was left by one: what is there now was made by the run.
    fn original<'a>(&self, path: &'a Path) -> Option<Cow<'a, Path>> {
        let mut original = Cow::Borrowed(path);
        for Moved { from, to, exchanged } in self.moved.iter().rev() {
            if let Ok(below) = original.strip_prefix(to) {
                original = Cow::Owned(join(from, below));
            } else if let Ok(below) = original.strip_prefix(from) {
                if !exchanged {
                    return None;
                }
                original = Cow::Owned(join(to, below));
            }
        }
        Some(original)
    }

    /// The path and its key where something has to be kept of it.
    fn wanted<'a>(&mut self, path: &'a Path, kept: Kept) -> Option<(Cow<'a, Path>, Key)> {
        let original = self.original(path)?;
        let key = self.key(&original);
        self.known.get(&key).is_none_or(|known| *known < kept).then_some((original, key))
    }

    fn keep(&mut self, before: &Before) {
        self.known.insert(before.key, before.kept);
    }
}

fn join(directory: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { directory.to_owned() } else { directory.join(below) }
}

/// What was at `path`, which goes by `name` at the time of the change.
fn before(path: &Path, name: &Path, key: Key, kept: Kept, mut what: Map<String, Value>) -> Before {
    if what.is_empty() && path == name {
        return Before { key, kept, value: "absent".into() };
    }
    if path != name {
        what.entry("type").or_insert_with(|| "absent".into());
        what.extend(path_value("at", path.as_os_str().as_bytes()));
    }
    Before { key, kept, value: what.into() }
}

impl Supervisor {
    /// That there is nothing at `path`, which is about to be made.
    pub(super) fn before_made(&mut self, path: &Path) -> Option<Before> {
        let (original, key) = self.first.as_mut()?.wanted(path, Kept::Whole)?;
        Some(before(&original, path, key, Kept::Whole, Map::new()))
    }

    /// As [`before_made`](Self::before_made); it is made already, but the agent does not know it yet.
    pub(super) fn note_made(&mut self, path: &Path) {
        if let Some(first) = &mut self.first {
            first.made = Some(first.key(path));
        }
    }

    /// What is at `path`: an open file (O_PATH) and its status.
    pub(super) fn before_change(
        &mut self,
        path: &Path,
        file: &OwnedFd,
        status: &FileStat,
        kept: Kept,
    ) -> Result<Option<Before>, Stop> {
        let Some(first) = &mut self.first else { return Ok(None) };
        if status.st_nlink == 0 {
            // It has no name any more.
            return Ok(None);
        }
        let made = first.made.take();
        let Some((original, key)) = first.wanted(path, kept) else { return Ok(None) };
        let what = if made == Some(key) { Map::new() } else { image(file, status, kept, &self.recorder)? };
        Ok(Some(before(&original, path, key, kept, what)))
    }

    /// What is at `place`, a directory with nothing of what is below it.
    pub(super) fn before_at(&mut self, place: &Place) -> Result<Option<Before>, Stop> {
        if self.first.is_none() {
            return Ok(None);
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = openat(&place.directory.file, place.name.as_os_str(), flags, Mode::empty());
        match found.and_then(|file| fstat(&file).map(|status| (file, status))) {
            Ok((file, status)) => self.before_change(&place.path(), &file, &status, Kept::Whole),
            Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)) => {
                Err(Stop::Descriptor(errno.into()))
            }
            // What it cannot be, the change will find out.
            Err(_) => Ok(self.before_made(&place.path())),
        }
    }

    /// Adds what was there to the event of the change, which has happened.
    pub(super) fn with_before(&mut self, event: Event, key: &str, before: Option<Before>) -> Event {
        let (Some(first), Some(before)) = (&mut self.first, before) else { return event };
        first.keep(&before);
        event.arg(key, before.value)
    }

    /// A directory is called `to` from now on; `exchanged` with what was there.
    pub(super) fn moved(&mut self, from: PathBuf, to: PathBuf, exchanged: bool) {
        if let Some(first) = &mut self.first {
            first.moved.push(Moved { from, to, exchanged });
        }
    }
}

/// The file as it is.
pub(super) fn image(
    file: &OwnedFd,
    status: &FileStat,
    kept: Kept,
    recorder: &Recorder,
) -> Result<Map<String, Value>, TraceError> {
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    let name = match kind {
        SFlag::S_IFREG => "file",
        SFlag::S_IFDIR => "dir",
        SFlag::S_IFLNK => "symlink",
        SFlag::S_IFIFO => "fifo",
        SFlag::S_IFSOCK => "socket",
        _ => "device",
    };
    let mut image = Map::new();
    image.insert("type".to_owned(), name.into());
    image.insert("mode".to_owned(), (status.st_mode & 0o7777).into());
    image.insert("mtime_ns".to_owned(), nanoseconds(status).into());
    if kind == SFlag::S_IFLNK {
        let target = readlinkat(file, "").unwrap_or_default();
        image.extend(path_value("target", target.as_bytes()));
    }
    if kind == SFlag::S_IFREG {
        image.insert("size".to_owned(), status.st_size.into());
        if status.st_nlink > 1 {
            image.insert("links".to_owned(), status.st_nlink.into());
        }
        if kept == Kept::Status {
            image.insert("kept".to_owned(), "status".into());
        } else if status.st_size != 0 {
            match keep(file, status.st_size, recorder)? {
                Ok(content) => image.insert("content".to_owned(), content),
                Err(why) => image.insert("unkept".to_owned(), why.into()),
            };
        }
    }
    Ok(image)
}

fn nanoseconds(status: &FileStat) -> i64 {
    status.st_mtime.saturating_mul(1_000_000_000).saturating_add(status.st_mtime_nsec)
}

/// Stores the content of a file of about that size as a private body; or says why it is not.
pub(super) fn keep(
    file: &OwnedFd,
    size: i64,
    recorder: &Recorder,
) -> Result<Result<Value, String>, TraceError> {
    if u64::try_from(size).is_ok_and(|size| size > LARGEST) {
        return Ok(Err("larger than 1 GiB".to_owned()));
    }
    // What is no FIFO now is none later: it is this very file.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut source = match nix::fcntl::open(own_path(file.as_fd()).as_str(), flags, Mode::empty()) {
        Ok(source) => File::from(source).take(LARGEST),
        Err(errno) => return Ok(Err(unreadable(errno))),
    };
    let mut blob = recorder.blob()?;
    // The agent waits.
    blob.hurry(true);
    let mut block = vec![0; BLOCK.min(usize::try_from(size).unwrap_or(BLOCK) + 1)];
    loop {
        match source.read(&mut block) {
            Ok(0) => break,
            Ok(count) => {
                blob.write_all(&block[..count]).map_err(|source| TraceError::StoreBlob { source })?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(unreadable(error))),
        }
    }
    Ok(Ok(blob.finish()?.private().into()))
}

fn unreadable(error: impl Into<io::Error>) -> String {
    let error: io::Error = error.into();
    format!("unreadable: {}", Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)).desc())
}

#[cfg(test)]
mod tests;
