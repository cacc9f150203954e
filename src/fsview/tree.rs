//! Makes mount points and files inside a new root, without ever leaving it or making anything on
//! the host.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat};

use super::FsviewError;
use crate::policy::is_within;
use crate::sys::mount;

/// What a mount point has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Directory,
    File,
}

/// Opens `path` below `root` as O_PATH; a link at its end is not followed, and no link
/// anywhere leads out of `root` (openat2(2), RESOLVE_IN_ROOT).
pub(super) fn open(root: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    open_with(root, path, OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_MAGICLINKS)
}

/// The same where whoever could have made a link decides nothing: ELOOP for one anywhere, its end too.
pub(super) fn open_final(root: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    let opened = open_with(root, path, OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS)?;
    let kind = SFlag::from_bits_truncate(fstat(&opened)?.st_mode) & SFlag::S_IFMT;
    if kind == SFlag::S_IFLNK { Err(Errno::ELOOP) } else { Ok(opened) }
}

fn open_with(root: BorrowedFd<'_>, path: &Path, flags: OFlag, resolve: ResolveFlag) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | flags;
    openat2(root, path, OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT | resolve))
}

/// Pins a path of the old root; a link at its end is not followed.
pub(super) fn open_path(path: &Path) -> Result<OwnedFd, FsviewError> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    nix::fcntl::open(path, flags, Mode::empty()).map_err(|errno| FsviewError::new("open", path, errno))
}

/// A directory of the view, and whether it is in a file system of the run's own.
#[derive(Debug, Clone)]
struct Place {
    directory: Rc<OwnedFd>,
    own: bool,
}

/// A root that is being built.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: OwnedFd,
    own: Vec<u64>,
    known: HashMap<PathBuf, Place>,
}

impl Tree {
    /// Builds below `root`; `own` says that it is a new file system.
    pub(super) fn new(root: OwnedFd, own: bool) -> nix::Result<Self> {
        let mut tree = Self { root, own: Vec::new(), known: HashMap::new() };
        if own {
            let device = fstat(&tree.root)?.st_dev;
            tree.own.push(device);
        }
        Ok(tree)
    }

    /// The file system behind `mount` was made for the run.
    pub(super) fn add_own(&mut self, mount: &OwnedFd) -> nix::Result<()> {
        self.own.push(fstat(mount)?.st_dev);
        Ok(())
    }

    /// Makes the directory `path` and all above it where they are missing.
    pub(super) fn make_directory(&mut self, path: &Path) -> nix::Result<()> {
        self.directory(path).map(|_| ())
    }

    /// Attaches `mount` at `path`, making the mount point where it is missing.
    pub(super) fn attach(&mut self, path: &Path, shape: Shape, mount: &OwnedFd) -> nix::Result<()> {
        let (place, name) = self.parent(path)?;
        if place.own {
            let made = match shape {
                Shape::Directory => mkdirat(place.directory.as_fd(), name, Mode::from_bits_truncate(0o755)),
                Shape::File => {
                    let mode = Mode::from_bits_truncate(0o644);
                    mknodat(place.directory.as_fd(), name, SFlag::S_IFREG, mode, 0)
                }
            };
            existing_is_fine(made)?;
        }
        let c_name = CString::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
        mount::attach(mount.as_fd(), place.directory.as_fd(), &c_name)
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
        if shape == Shape::Directory {
            // What was known there is hidden now.
            self.known.retain(|known, _| !is_within(known, path));
        }
        Ok(())
    }

    /// The directory that holds `path`, in a file system of the run's own; EROFS on the host.
    pub(super) fn own_parent<'a>(&mut self, path: &'a Path) -> nix::Result<(Rc<OwnedFd>, &'a OsStr)> {
        let (place, name) = self.parent(path)?;
        if place.own { Ok((place.directory, name)) } else { Err(Errno::EROFS) }
    }

    /// Makes a symbolic link; EROFS where `path` is on the host.
    pub(super) fn link(&mut self, path: &Path, target: &OsStr) -> nix::Result<()> {
        let (directory, name) = self.own_parent(path)?;
        nix::unistd::symlinkat(target, directory.as_fd(), name)
    }

    /// Makes a new file, open for writing; EROFS where `path` is on the host.
    pub(super) fn create(&mut self, path: &Path, mode: u32) -> nix::Result<File> {
        let (directory, name) = self.own_parent(path)?;
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        nix::fcntl::openat(directory.as_fd(), name, flags, Mode::from_bits_truncate(mode)).map(File::from)
    }

    fn parent<'a>(&mut self, path: &'a Path) -> nix::Result<(Place, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::EINVAL)?;
        Ok((self.directory(path.parent().unwrap_or_else(|| Path::new("/")))?, name))
    }

    fn directory(&mut self, path: &Path) -> nix::Result<Place> {
        if let Some(place) = self.known.get(path) {
            return Ok(place.clone());
        }
        if let Some(above) = path.parent() {
            let (above, name) = (self.directory(above)?, path.file_name().ok_or(Errno::EINVAL)?);
            if above.own {
                let mode = Mode::from_bits_truncate(0o755);
                existing_is_fine(mkdirat(above.directory.as_fd(), name, mode))?;
            }
        }
        let directory = match open_with(
            self.root.as_fd(),
            path,
            OFlag::O_DIRECTORY,
            ResolveFlag::RESOLVE_NO_MAGICLINKS,
        ) {
            Err(Errno::ENOENT) => return Err(Errno::EROFS),
            other => other?,
        };
        let own = self.own.contains(&fstat(&directory)?.st_dev);
        let place = Place { directory: Rc::new(directory), own };
        self.known.insert(path.to_owned(), place.clone());
        Ok(place)
    }
}

fn existing_is_fine(made: nix::Result<()>) -> nix::Result<()> {
    match made {
        Err(Errno::EEXIST) => Ok(()),
        other => other,
    }
}
