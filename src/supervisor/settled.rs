//! A written file whose content was recorded, and the last look at it.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, fstat};

use super::content::{Content, Identity};
use super::digest::Digests;
use super::view::{View, own_path};
use crate::policy::FileId;

/// A file whose content was recorded, by device and inode.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) path: PathBuf,
    pub(super) proc: String,
    pub(super) rule: String,
    pub(super) content: Content,
    /// The file when that was so. Its time of change is none that a program can set back (utimensat(2)).
    pub(super) was: Identity,
    /// It was open for reading too, so that memory may share it: stores leave no trace in its time.
    pub(super) shareable: bool,
    /// O_PATH, where its name was taken away while it had others, and where it was not closed yet.
    pub(super) held: Option<nix::Result<OwnedFd>>,
}

impl Settled {
    /// What the file `id` holds by now. None where it is gone or cannot have changed.
    pub(super) fn look(&self, id: FileId, view: &View, digests: &mut Digests) -> Option<io::Result<Content>> {
        let found = match self.file(view) {
            Err(Errno::EACCES) => made_passable(&self.path, || self.file(view)),
            other => other,
        };
        let file = match found {
            Ok(file) => file,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return None,
            Err(errno) => return Some(Err(errno.into())),
        };
        let status = fstat(&file).ok()?;
        let is_gone = status.st_nlink == 0 || FileId { dev: status.st_dev, ino: status.st_ino } != id;
        if is_gone || (Identity::of(&status) == self.was && !self.shareable) {
            return None;
        }
        let path = own_path(file.as_fd());
        let opened = File::open(&path)
            .or_else(|_| made_readable(&path, || File::open(&path)).and_then(|opened| opened));
        Some(opened.and_then(|file| digests.anew(file.as_fd())))
    }

    /// The file by O_PATH, or what is at its path by now.
    fn file(&self, view: &View) -> nix::Result<OwnedFd> {
        if let Some(held) = &self.held {
            return held.as_ref().map_err(|errno| *errno)?.try_clone().map_err(|_| Errno::EMFILE);
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // Its root is the host's again, unless it was written inside alone.
        match view.is_diverted(&self.path) {
            true => view.open(self.path.as_os_str().as_encoded_bytes(), flags, Mode::empty()),
            false => open_direct(&self.path, OFlag::empty()),
        }
    }
}

/// Has the owner read the file for as long as `work` lasts; fails where it is somebody else's.
pub(super) fn made_readable<T>(path: &str, work: impl FnOnce() -> T) -> io::Result<T> {
    let former = std::fs::metadata(path)?.permissions();
    std::fs::set_permissions(path, Permissions::from_mode(former.mode() | 0o400))?;
    let done = work();
    std::fs::set_permissions(path, former)?;
    Ok(done)
}

/// Has the owner pass the directories on the way to `path` for as long as `work` lasts; those of others stay closed,
/// and so does what a link on the way leads to.
fn made_passable<T>(path: &Path, work: impl FnOnce() -> T) -> T {
    let mut closed = Vec::new();
    for directory in path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
        let Ok(directory) = open_direct(directory, OFlag::O_DIRECTORY) else { break };
        let Ok(status) = fstat(&directory) else { break };
        let permissions = |mode| Permissions::from_mode(mode & 0o7777);
        // fchmod(2) takes no O_PATH: this link leads to what is held.
        let held = own_path(directory.as_fd());
        if status.st_mode & 0o100 == 0
            && std::fs::set_permissions(held, permissions(status.st_mode | 0o100)).is_ok()
        {
            closed.push((directory, permissions(status.st_mode)));
        }
    }
    let done = work();
    for (directory, former) in closed.into_iter().rev() {
        // It was ours a moment ago.
        let _ = std::fs::set_permissions(own_path(directory.as_fd()), former);
    }
    done
}

/// What is at a path of the host without links on its way, by O_PATH.
fn open_direct(path: &Path, more: OFlag) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | more;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(AT_FDCWD, path, how)
}
