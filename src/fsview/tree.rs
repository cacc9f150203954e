//! Makes mount points and files inside a new root, without ever leaving it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, fstat, mkdirat};

/// What a mount point has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Directory,
    File,
}

/// Opens `path` below `root` as O_PATH; a link at its end is not followed, and no link
/// anywhere leads out of `root` (openat2(2), RESOLVE_IN_ROOT).
pub(super) fn open(root: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)
}

/// Opens the directory that holds `path`, making the missing ones.
pub(super) fn parent<'a>(
    root: BorrowedFd<'_>,
    path: &'a Path,
    own: &OwnDevices,
) -> nix::Result<(OwnedFd, &'a OsStr)> {
    let name = path.file_name().ok_or(Errno::EINVAL)?;
    let directory = path.parent().unwrap_or_else(|| Path::new("/"));
    match open_directory(root, directory) {
        Err(Errno::ENOENT) => Ok((make_directories(root, directory, own)?, name)),
        other => Ok((other?, name)),
    }
}

fn open_directory(root: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_DIRECTORY)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)
}

/// Makes the directory `path` and all above it (mode 0755) where they are missing, in file
/// systems of the run alone: nothing is ever made on the host.
pub(super) fn make_directories(root: BorrowedFd<'_>, path: &Path, own: &OwnDevices) -> nix::Result<OwnedFd> {
    let mut at = open_directory(root, Path::new("."))?;
    let mut walked = PathBuf::from("/");
    for component in path.components() {
        let Component::Normal(name) = component else { continue };
        walked.push(name);
        at = match open_directory(root, &walked) {
            Err(Errno::ENOENT) => {
                own.check(&at)?;
                mkdirat(at.as_fd(), name, Mode::from_bits_truncate(0o755))?;
                open_directory(root, &walked)?
            }
            other => other?,
        };
    }
    Ok(at)
}

/// Opens the mount point `path`, making it where it is missing.
pub(super) fn mount_point(
    root: BorrowedFd<'_>,
    path: &Path,
    shape: Shape,
    own: &OwnDevices,
) -> nix::Result<OwnedFd> {
    match open(root, path) {
        Err(Errno::ENOENT) => {}
        other => return other,
    }
    match shape {
        Shape::Directory => make_directories(root, path, own),
        Shape::File => {
            write_file(root, path, b"", 0o644, own)?;
            open(root, path)
        }
    }
}

/// Writes a new file.
pub(super) fn write_file(
    root: BorrowedFd<'_>,
    path: &Path,
    content: &[u8],
    mode: u32,
    own: &OwnDevices,
) -> nix::Result<()> {
    let (directory, name) = parent(root, path, own)?;
    own.check(&directory)?;
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = nix::fcntl::openat(directory, name, flags, Mode::from_bits_truncate(mode))?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = nix::unistd::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// The file systems that were made for the run.
#[derive(Debug, Default)]
pub(super) struct OwnDevices(Vec<u64>);

impl OwnDevices {
    /// Adds the file system behind `mount`.
    pub(super) fn add(&mut self, mount: &OwnedFd) -> nix::Result<()> {
        self.0.push(fstat(mount)?.st_dev);
        Ok(())
    }

    /// EROFS where `directory` is the host's.
    pub(super) fn check(&self, directory: &OwnedFd) -> nix::Result<()> {
        if self.0.contains(&fstat(directory)?.st_dev) { Ok(()) } else { Err(Errno::EROFS) }
    }
}
