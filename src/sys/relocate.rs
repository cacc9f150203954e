//! Moves and removes whole directories name by name, where rename(2) cannot: a directory of the lower layer
//! of an overlay (Documentation/filesystems/overlayfs.rst, "Renaming directories": EXDEV).

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;

use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{FileStat, Mode, UtimensatFlags, fstat, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::descriptor::own_path;

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
        // A directory whose mode closes it gets no other parent (rename(2)): its content does.
        Err(Errno::EACCES)
            if left > 0 && openat(from.0, from.1, DIRECTORY | OFlag::O_PATH, Mode::empty()).is_ok() => {}
        other => return other,
    }
    let (source, status) = enter(from)?;
    match unlinkat(to.0, to.1, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    mkdirat(to.0, to.1, Mode::S_IRWXU)?;
    let (target, _) = enter(to)?;
    // A tmpfs, where upper layers are, lists the newest name first: so the order of the list stays.
    for name in names(&source)?.into_iter().rev() {
        rename_within((source.as_fd(), &name), (target.as_fd(), &name), left - 1)?;
    }
    target.set_permissions(std::fs::Permissions::from_mode(status.st_mode & 0o7777)).map_err(errno)?;
    unlinkat(from.0, from.1, UnlinkatFlags::RemoveDir)?;
    let times = [
        TimeSpec::new(status.st_atime, status.st_atime_nsec),
        TimeSpec::new(status.st_mtime, status.st_mtime_nsec),
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
    let (directory, _) = enter(at)?;
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
    let entries = std::fs::read_dir(own_path(directory.as_fd())).map_err(errno)?;
    entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(errno)).collect()
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Opens a directory that is emptied, and gives its status: its mode may forbid that to its owner, and is changed then.
fn enter(at: At<'_>) -> nix::Result<(File, FileStat)> {
    let found = openat(at.0, at.1, DIRECTORY | OFlag::O_PATH, Mode::empty())?;
    let status = fstat(&found)?;
    permit(found.as_fd(), &status);
    Ok((File::from(openat(&found, ".", DIRECTORY, Mode::empty())?), status))
}

/// Lets the owner of a directory use it, whatever its mode forbids; of somebody else's nothing is changed.
pub fn permit(directory: BorrowedFd<'_>, status: &FileStat) {
    let mode = status.st_mode & 0o7777;
    if mode & 0o700 != 0o700 {
        // What is forbidden all the same the next call says.
        let _ = std::fs::set_permissions(own_path(directory), std::fs::Permissions::from_mode(mode | 0o700));
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
