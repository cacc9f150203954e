//! Places that rules name and that do not exist yet: the agent may make them, and they are shown
//! from then on.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::call::{Call, Reply};
use super::view::Spelled;
use super::{Stop, Supervisor};

/// Why nothing else is made there: pid 1 shows it by a mount.
const OTHERS_REFUSED: &str =
    "only a file or a directory can be made at this path, unless a rule lets its directory be written";

/// A place that may appear.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// The directory of the host that will hold it, pinned at the start; none when it is absent too.
    parent: Option<OwnedFd>,
    /// It is made inside alone.
    inside: bool,
    shown: bool,
}

/// The places at `paths`; where there are `holders`, they stand for the directories of the host.
pub(super) fn places(paths: Vec<PathBuf>, holders: Vec<OwnedFd>) -> Vec<Place> {
    let mut holders = holders.into_iter();
    let place = |path| match holders.next() {
        Some(holder) => Place { path, parent: Some(holder), inside: true, shown: false },
        None => Place::new(path),
    };
    paths.into_iter().map(place).collect()
}

impl Place {
    fn new(path: PathBuf) -> Self {
        let parent = path.parent().unwrap_or_else(|| Path::new("/"));
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let parent = nix::fcntl::open(parent, flags, Mode::empty()).ok();
        Self { path, parent, inside: false, shown: false }
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }
}

impl Supervisor {
    /// Makes the directory `path` on the host if it is such a place; `None` if it is not.
    pub(super) fn make_pending_directory(
        &mut self,
        path: &Path,
        mode: Mode,
    ) -> Result<Option<nix::Result<()>>, Stop> {
        let Some(index) = self.pending_at(path) else { return Ok(None) };
        let place = &self.pending[index];
        let Some(parent) = &place.parent else { return Ok(Some(Err(Errno::ENOENT))) };
        if let Err(errno) = mkdirat(parent.as_fd(), place.name(), mode) {
            return Ok(Some(Err(errno)));
        }
        let shown = self.show(index)?;
        let place = &self.pending[index];
        if let (Err(_), Some(parent)) = (shown, &place.parent) {
            // Fails if somebody else has found use for it.
            let _ = unlinkat(parent, place.name(), UnlinkatFlags::RemoveDir);
        }
        Ok(Some(shown))
    }

    /// Makes the empty file `path` on the host if it is such a place; `None` if it is not.
    pub(super) fn make_pending_file(
        &mut self,
        path: &Path,
        mode: Mode,
    ) -> Result<Option<nix::Result<()>>, Stop> {
        let Some(index) = self.pending_at(path) else { return Ok(None) };
        let place = &self.pending[index];
        let Some(parent) = &place.parent else { return Ok(Some(Err(Errno::ENOENT))) };
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let made = match nix::fcntl::openat(parent.as_fd(), place.name(), flags, mode).and_then(fstat) {
            Ok(made) => made,
            Err(errno) => return Ok(Some(Err(errno))),
        };
        let shown = self.show(index)?;
        let place = &self.pending[index];
        if let (Err(_), Some(parent)) = (shown, &place.parent)
            && let Ok(now) = fstatat(parent, place.name(), AtFlags::AT_SYMLINK_NOFOLLOW)
            && (now.st_dev, now.st_ino, now.st_size) == (made.st_dev, made.st_ino, 0)
        {
            // It is there or gone: nothing depends on it.
            let _ = unlinkat(parent, place.name(), UnlinkatFlags::NoRemoveDir);
        }
        Ok(Some(shown))
    }

    /// The answer to a call that would make at `path` what is neither a file nor a directory, if it is such a place or
    /// on the way to one.
    pub(super) fn refuse_pending(
        &mut self,
        call: &Call,
        spelled: &Spelled,
        path: &Path,
    ) -> Result<Option<Reply>, Stop> {
        let is_absent = || self.view.find(path.as_os_str().as_bytes(), false).is_err();
        let is_pending = self.pending_at(path).is_some() || (self.leads_to_pending(path) && is_absent());
        is_pending.then(|| self.refuse_always(call, spelled, OTHERS_REFUSED)).transpose()
    }

    /// Shows the place that holds `path` if the host has it by now; true if something changed.
    pub(super) fn look_again(&mut self, path: &Path) -> Result<bool, Stop> {
        let index = self.pending.iter().position(|place| !place.shown && path.starts_with(&place.path));
        let Some(index) = index else { return Ok(false) };
        let place = &self.pending[index];
        if place.inside || place.path.symlink_metadata().is_err() {
            return Ok(false);
        }
        Ok(self.show(index)?.is_ok())
    }

    /// Whether `directory` is on the way to such a place: what is mounted there would move with it.
    pub(super) fn leads_to_pending(&self, directory: &Path) -> bool {
        self.pending.iter().any(|place| place.path != directory && place.path.starts_with(directory))
    }

    fn pending_at(&self, path: &Path) -> Option<usize> {
        self.pending.iter().position(|place| !place.shown && place.path == path)
    }

    /// Has pid 1 mount the place into the view.
    fn show(&mut self, index: usize) -> Result<nix::Result<()>, Stop> {
        let done = self.ask_init(&(self.words.attach)(index), &[])?;
        self.pending[index].shown = done.is_ok();
        Ok(done)
    }
}
