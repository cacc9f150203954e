//! Moves and removes whole directories name by name, where rename(2) cannot: a directory of the lower layer
//! of an overlay (Documentation/filesystems/overlayfs.rst, "Renaming directories": EXDEV).

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, UtimensatFlags, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// A name in a directory.
pub type At<'a> = (BorrowedFd<'a>, &'a OsStr);

/// Deepest tree that is followed: each level holds a descriptor.
const DEEPEST: usize = 256;

/// Renames a directory as rename(2) does, moving what is in it name by name where the kernel does not move
/// it as a whole. An empty directory at `to` is replaced.
///
/// # Errors
/// The errno of the first step that failed; what was moved by then stays there.
pub fn rename_directory(from: At<'_>, to: At<'_>) -> nix::Result<()> {
    rename_within(from, to, DEEPEST)
}

fn rename_within(from: At<'_>, to: At<'_>, left: usize) -> nix::Result<()> {
    match renameat2(from.0, from.1, to.0, to.1, RenameFlags::empty()) {
        Err(Errno::EXDEV) if left > 0 => {}
        other => return other,
    }
    let source = File::from(open(from)?);
    let status = source.metadata().map_err(errno)?;
    match unlinkat(to.0, to.1, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    mkdirat(to.0, to.1, Mode::S_IRWXU)?;
    let target = File::from(open(to)?);
    // A tmpfs, where upper layers are, lists the newest name first: so the order of the list stays.
    for name in names(&source)?.into_iter().rev() {
        rename_within((source.as_fd(), &name), (target.as_fd(), &name), left - 1)?;
    }
    target.set_permissions(std::fs::Permissions::from_mode(status.mode() & 0o7777)).map_err(errno)?;
    unlinkat(from.0, from.1, UnlinkatFlags::RemoveDir)?;
    let times = [
        TimeSpec::new(status.atime(), status.atime_nsec()),
        TimeSpec::new(status.mtime(), status.mtime_nsec()),
    ];
    utimensat(to.0, to.1, &times[0], &times[1], UtimensatFlags::NoFollowSymlink)
}

/// Exchanges two directories as RENAME_EXCHANGE does (rename(2)), see [`rename_directory`].
///
/// # Errors
/// The errno of the first step that failed.
pub fn exchange(one: At<'_>, other: At<'_>) -> nix::Result<()> {
    let mut name = one.1.to_owned();
    name.push(".exchanged");
    let apart = (one.0, name.as_os_str());
    rename_directory(one, apart)?;
    rename_directory(other, one)?;
    rename_directory(apart, other)
}

/// Removes what is at a name, a directory with everything in it; nothing there is fine.
///
/// # Errors
/// The errno of the first removal that failed.
pub fn remove(at: At<'_>) -> nix::Result<()> {
    remove_within(at, DEEPEST)
}

fn remove_within(at: At<'_>, left: usize) -> nix::Result<()> {
    match unlinkat(at.0, at.1, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR) if left > 0 => {}
        Err(errno) => return Err(errno),
    }
    let directory = File::from(open(at)?);
    for name in names(&directory)? {
        remove_within((directory.as_fd(), &name), left - 1)?;
    }
    unlinkat(at.0, at.1, UnlinkatFlags::RemoveDir)
}

/// The names in a directory, all read before anything in it changes.
///
/// # Errors
/// The errno of getdents(2).
pub fn names(directory: &impl AsFd) -> nix::Result<Vec<std::ffi::OsString>> {
    let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
    let entries = std::fs::read_dir(path).map_err(errno)?;
    entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(errno)).collect()
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

fn open(at: At<'_>) -> nix::Result<OwnedFd> {
    openat(at.0, at.1, DIRECTORY, Mode::empty())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
