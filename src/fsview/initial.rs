//! The first state of a replay: what was there before the recorded run changed it, put back into the view.
//!
//! Today's files stay where they are and below; what is put back lies in the upper layers (`overlay`).
//! Nothing is put back at a place of the host that is not diverted.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, fstat, fstatat, mkdirat, mknodat, utimensat};
use nix::sys::time::TimeSpec;

use super::{Divert, FsviewError};
use crate::sys::descriptor::own_path;
use crate::sys::relocate;
use crate::trace::StoredBlobs;

/// What was at the places that a run changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InitialState {
    /// Renames of directories, in order: they are undone first, from the last one on.
    pub moves: Vec<MoveBack>,
    /// What was at each path.
    pub states: BTreeMap<PathBuf, Former>,
}

/// A rename of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveBack {
    /// Its name before.
    pub from: PathBuf,
    /// Its name afterwards.
    pub to: PathBuf,
    /// Both names changed places.
    pub exchanged: bool,
}

/// What was at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Former {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// Its mode and time.
        status: Status,
        /// In bytes.
        size: u64,
        /// What it held.
        content: Content,
    },
    /// A directory; what was in it is said apart.
    Directory(Status),
    /// A symbolic link.
    Link {
        /// What it held.
        target: OsString,
        /// Its time.
        status: Status,
    },
    /// A FIFO or a socket that nobody serves.
    Special {
        /// It is a socket.
        socket: bool,
        /// Its mode and time.
        status: Status,
    },
    /// A device or something newer: it is left as it is.
    Other,
}

/// Permissions, and the time of the last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Permission bits.
    pub mode: u32,
    /// Nanoseconds since the epoch.
    pub mtime_ns: i64,
}

/// What a file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// What it holds now: the run has changed its status alone.
    Unchanged,
    /// Nothing.
    Empty,
    /// The blob of this digest, of so many bytes.
    Blob {
        /// SHA-256 of the content.
        sha256: String,
        /// Its bytes.
        size: u64,
    },
    /// It was not kept, for this reason.
    Unkept(String),
    /// It was listed alone: only its size is known.
    Unread,
}

impl InitialState {
    /// What did not exist.
    pub fn absent(&self) -> impl Iterator<Item = &PathBuf> {
        self.states.iter().filter(|(_, former)| **former == Former::Absent).map(|(path, _)| path)
    }

    /// Puts everything back, below `root`; `uppers` are the upper layers of its places.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn restore(
        &self,
        root: BorrowedFd<'_>,
        divert: &Divert,
        uppers: &[(&Path, BorrowedFd<'_>)],
        blobs: &StoredBlobs,
    ) -> Result<(), FsviewError> {
        let restorer = Restorer { root, divert, blobs };
        for step in self.moves.iter().rev() {
            if divert.covers(&step.from) && divert.covers(&step.to) {
                let moved = restorer.move_back(step);
                moved.map_err(|errno| FsviewError::new("rename", &step.to, errno))?;
            }
        }
        let covered = || self.states.iter().filter(|(path, _)| divert.covers(path));
        // Renames have looked names up, and an overlay remembers what it found.
        let uppers = if self.moves.is_empty() { uppers } else { &[] };
        // What is above comes first.
        for (path, former) in covered() {
            if *former == Former::Absent && !divert.roots.contains(path) {
                hide(path, uppers);
            }
            restorer.put_back(path, former)?;
        }
        // And last, for what was put into them has changed their times, and may have needed another mode.
        for (path, former) in covered().rev() {
            if let Former::Directory(status) = former {
                restorer
                    .set_status(path, *status)
                    .map_err(|errno| FsviewError::new("utimensat", path, errno))?;
            }
        }
        Ok(())
    }
}

pub(super) struct Restorer<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) divert: &'a Divert,
    pub(super) blobs: &'a StoredBlobs,
}

impl Restorer<'_> {
    /// The directory that holds `path`, no link on the way, and the name in it; missing ones are made. The run has
    /// changed something in it: what keeps its owner from that by now is taken away.
    fn parent<'p>(&self, path: &'p Path) -> nix::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or(Errno::EINVAL)?;
        let above = path.parent().unwrap_or_else(|| Path::new("/"));
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let mut opened = openat2(self.root, above, how);
        if let Err(Errno::EACCES) = opened {
            let (holder, last) = self.parent(above)?;
            opened = openat2(&holder, last, how);
        }
        match opened {
            Err(Errno::ENOENT) => {
                let (holder, missing) = self.parent(above)?;
                mkdirat(&holder, missing, Mode::from_bits_truncate(0o755))?;
                Ok((openat2(self.root, above, how)?, name))
            }
            other => {
                let directory = other?;
                if self.divert.covers(above) {
                    relocate::permit(directory.as_fd(), &fstat(&directory)?);
                }
                Ok((directory, name))
            }
        }
    }

    fn move_back(&self, step: &MoveBack) -> nix::Result<()> {
        let (there, here) = (self.parent(&step.to)?, self.parent(&step.from)?);
        let (there, here) = ((there.0.as_fd(), there.1), (here.0.as_fd(), here.1));
        if kind_at(there).is_none() {
            // It was removed afterwards, and is put back from its content.
            return Ok(());
        }
        if step.exchanged {
            return relocate::exchange(there, here);
        }
        // What has that name now was made later.
        relocate::remove(here)?;
        relocate::rename_directory(there, here)
    }

    pub(super) fn put_back(&self, path: &Path, former: &Former) -> Result<(), FsviewError> {
        let refused = |call: &'static str| move |errno: Errno| FsviewError::new(call, path, errno);
        if *former == Former::Absent && !self.may_be_there(path) {
            // Its directory may be read-only.
            return Ok(());
        }
        // From outside of the mount namespace a mount point can be removed, and its mount with it.
        let is_mount = self.divert.roots.iter().any(|root| root == path);
        if is_mount && !matches!(former, Former::File { .. } | Former::Directory(_)) {
            return Ok(());
        }
        let (directory, name) = match self.parent(path) {
            // Nor does the run see it.
            Err(Errno::EACCES) if *former == Former::Absent => return Ok(()),
            other => other.map_err(refused("openat2"))?,
        };
        let at = (directory.as_fd(), name);
        match former {
            Former::Absent => relocate::remove(at).map_err(refused("unlink")),
            Former::File { status, size, content } => {
                self.put_file((path, is_mount), at, (*status, *size), content)
            }
            Former::Directory(status) => {
                if kind_at(at) != Some(SFlag::S_IFDIR) && !is_mount {
                    relocate::remove(at).map_err(refused("unlink"))?;
                    mkdirat(at.0, at.1, Mode::S_IRWXU).map_err(refused("mkdir"))?;
                }
                set_mode(at, status.mode).map_err(refused("chmod"))
            }
            Former::Link { target, status } => {
                relocate::remove(at).map_err(refused("unlink"))?;
                nix::unistd::symlinkat(target.as_os_str(), at.0, at.1).map_err(refused("symlink"))?;
                set_time(at, *status).map_err(refused("utimensat"))
            }
            Former::Special { socket, status } => {
                relocate::remove(at).map_err(refused("unlink"))?;
                let kind = if *socket { SFlag::S_IFSOCK } else { SFlag::S_IFIFO };
                mknodat(at.0, at.1, kind, Mode::from_bits_truncate(status.mode), 0)
                    .map_err(refused("mknod"))?;
                set_time(at, *status).map_err(refused("utimensat"))
            }
            Former::Other => Ok(()),
        }
    }

    fn put_file(
        &self,
        (path, is_mount): (&Path, bool),
        at: relocate::At<'_>,
        (status, size): (Status, u64),
        content: &Content,
    ) -> Result<(), FsviewError> {
        let refused = |call: &'static str| move |errno: Errno| FsviewError::new(call, path, errno);
        let blob = match content {
            Content::Empty | Content::Unread => None,
            Content::Blob { sha256, size } => Some((sha256, *size)),
            Content::Unchanged | Content::Unkept(_) => {
                if kind_at(at) != Some(SFlag::S_IFREG) {
                    return Ok(());
                }
                set_mode(at, status.mode).map_err(refused("chmod"))?;
                return set_time(at, status).map_err(refused("utimensat"));
            }
        };
        let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = if is_mount {
            openat(at.0, at.1, flags, Mode::empty())
        } else {
            let make = flags | OFlag::O_CREAT | OFlag::O_EXCL;
            relocate::remove(at).and_then(|()| openat(at.0, at.1, make, Mode::S_IWUSR))
        };
        let mut file = File::from(opened.map_err(refused("open"))?);
        if let Some((sha256, size)) = blob {
            let copied =
                self.blobs.open_sized(sha256, size).and_then(|mut blob| std::io::copy(&mut blob, &mut file));
            copied.map_err(|error| FsviewError::new("write", path, error))?;
        }
        if *content == Content::Unread {
            file.set_len(size).map_err(|error| FsviewError::new("ftruncate", path, error))?;
        }
        file.set_permissions(Permissions::from_mode(status.mode))
            .map_err(|error| FsviewError::new("fchmod", path, error))?;
        set_time(at, status).map_err(refused("utimensat"))
    }

    fn may_be_there(&self, path: &Path) -> bool {
        super::tree::open(self.root, path).map_or_else(|errno| errno == Errno::EACCES, |_| true)
    }

    fn set_status(&self, path: &Path, status: Status) -> nix::Result<()> {
        let (directory, name) = self.parent(path)?;
        let at = (directory.as_fd(), name);
        set_mode(at, status.mode)?;
        set_time(at, status)
    }
}

/// Hides what has a name in the directory of an upper layer, by a whiteout: at once, whatever is in it, and whoever
/// owns that. What the overlay has looked up before, as where something is mounted, is removed as anywhere.
pub(super) fn hide(path: &Path, uppers: &[(&Path, BorrowedFd<'_>)]) {
    let Some((above, name)) = path.parent().zip(path.file_name()) else { return };
    if let Some((_, upper)) = uppers.iter().find(|(place, _)| *place == above) {
        // Where that is refused nothing is hidden.
        let _ = mknodat(upper, name, SFlag::S_IFCHR, Mode::empty(), 0);
    }
}

fn kind_at(at: relocate::At<'_>) -> Option<SFlag> {
    let status = fstatat(at.0, at.1, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    Some(SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT)
}

fn set_mode(at: relocate::At<'_>, mode: u32) -> nix::Result<()> {
    let file = openat(at.0, at.1, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    std::fs::set_permissions(own_path(file.as_fd()), Permissions::from_mode(mode))
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

fn set_time(at: relocate::At<'_>, status: Status) -> nix::Result<()> {
    let seconds = status.mtime_ns.div_euclid(1_000_000_000);
    let time = TimeSpec::new(seconds, status.mtime_ns.rem_euclid(1_000_000_000));
    utimensat(at.0, at.1, &time, &time, UtimensatFlags::NoFollowSymlink)
}
