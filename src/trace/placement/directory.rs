//! A directory that is held open, so that its entries are reached without going through its path again.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, RenameFlags, open, openat, renameat, renameat2};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{AccessFlags, LinkatFlags, UnlinkatFlags, faccessat, geteuid, linkat, unlinkat};

use super::super::layout::{DIRECTORY_MODE, FILE_MODE};
use super::FileIdentity;

const PRIVATE: OFlag =
    OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A held directory.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// What a name in a directory stands for, links not followed.
pub(super) struct Entry {
    pub(super) identity: FileIdentity,
    pub(super) kind: EntryKind,
    pub(super) size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Directory,
    Link,
    Special,
}

impl Directory {
    /// Opens a directory that the caller named; links on the way are the caller's own.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let fd = open(&path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { fd, path })
    }

    /// Opens a directory only if it is this user's and nobody else can enter it.
    pub(super) fn open_private(path: &Path) -> io::Result<Self> {
        Self::private(open(path, PRIVATE, Mode::empty())?, path.to_owned())
    }

    /// The same for the directory `name` in it.
    pub(super) fn open_private_in(&self, name: &OsStr) -> io::Result<Self> {
        Self::private(openat(&self.fd, name, PRIVATE, Mode::empty())?, self.join(name))
    }

    fn private(fd: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let stat = fstat(&fd)?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(Errno::EPERM.into());
        }
        Ok(Self { fd, path })
    }

    /// Whether names in it can be listed, made and renamed: by its mode and its lists, and as it is mounted.
    pub(super) fn check_usable(&self) -> io::Result<()> {
        let access = AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK;
        Ok(faccessat(&self.fd, ".", access, AtFlags::AT_EACCESS)?)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn join(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn identity(&self) -> io::Result<FileIdentity> {
        Ok(identity(&fstat(&self.fd)?))
    }

    pub(super) fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(entry(&stat))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates a file for appending; an existing name, a link included, is an error.
    pub(super) fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_APPEND | OFlag::O_NOFOLLOW;
        Ok(File::from(openat(&self.fd, name, flags | OFlag::O_CLOEXEC, Mode::from_bits_truncate(FILE_MODE))?))
    }

    /// Opens an existing file for reading; never through a link, never waiting for a pipe's other end.
    pub(super) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, Mode::empty())?))
    }

    /// Opens a list for reading and appending, making it where it is missing; never through a link.
    pub(super) fn open_list(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, Mode::from_bits_truncate(FILE_MODE))?))
    }

    /// Whether directories can be made in it later, when the process acts without its capabilities: as its owner can.
    pub(super) fn takes_more(&self) -> bool {
        let owner = fstat(&self.fd).map(|status| (status.st_uid, status.st_mode & libc::S_IRWXU));
        owner == Ok((geteuid().as_raw(), libc::S_IRWXU))
    }

    pub(super) fn create_directory(&self, name: &OsStr) -> io::Result<Self> {
        mkdirat(&self.fd, name, Mode::from_bits_truncate(DIRECTORY_MODE))?;
        self.open_directory(name)
    }

    pub(super) fn open_directory(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        Ok(Self { fd, path: self.join(name) })
    }

    /// Opens the directory itself for reading: to lock it, or to bring it to disk.
    pub(super) fn open_self(&self) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.fd, ".", flags, Mode::empty())?))
    }

    /// Lists the names in the directory.
    pub(super) fn names(&self) -> io::Result<Vec<std::ffi::OsString>> {
        use std::os::fd::AsRawFd as _;
        // The link of a descriptor leads to what is held, whatever happened to the path since.
        let listing = std::fs::read_dir(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))?;
        listing.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    /// Renames without replacing anything.
    pub(super) fn rename(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> io::Result<()> {
        match renameat2(&self.fd, name, &to.fd, to_name, RenameFlags::RENAME_NOREPLACE) {
            // Not every file system knows the flag (rename(2)).
            Err(Errno::EINVAL | Errno::ENOSYS) => self.rename_by_link(name, to, to_name),
            result => Ok(result?),
        }
    }

    /// A link, like a new directory, never replaces anything either.
    fn rename_by_link(&self, name: &OsStr, to: &Self, to_name: &OsStr) -> io::Result<()> {
        if self.entry(name)?.is_some_and(|entry| entry.kind == EntryKind::Directory) {
            mkdirat(&to.fd, to_name, Mode::from_bits_truncate(DIRECTORY_MODE))?;
            return Ok(renameat(&self.fd, name, &to.fd, to_name)?);
        }
        linkat(&self.fd, name, &to.fd, to_name, LinkatFlags::empty())?;
        self.remove_file(name)
    }

    /// Renames, and replaces what has that name.
    pub(super) fn replace(&self, name: &OsStr, to_name: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.fd, name, &self.fd, to_name)?)
    }

    pub(super) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes an empty directory.
    pub(super) fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, UnlinkatFlags::RemoveDir)?)
    }

    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Where it is now.
    pub(super) fn path_now(&self) -> io::Result<PathBuf> {
        use std::os::fd::AsRawFd as _;
        std::fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Locks a file for this run alone; `None` when another holds it.
pub(super) fn lock(file: File) -> io::Result<Option<Flock<File>>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(locked) => Ok(Some(locked)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

pub(super) fn file_identity(file: &File) -> io::Result<FileIdentity> {
    Ok(identity(&fstat(file)?))
}

fn entry(stat: &FileStat) -> Entry {
    let kind = match SFlag::from_bits_truncate(stat.st_mode & libc::S_IFMT) {
        SFlag::S_IFREG => EntryKind::File,
        SFlag::S_IFDIR => EntryKind::Directory,
        SFlag::S_IFLNK => EntryKind::Link,
        _ => EntryKind::Special,
    };
    Entry { identity: identity(stat), kind, size: u64::try_from(stat.st_size).unwrap_or(0) }
}

fn identity(stat: &FileStat) -> FileIdentity {
    FileIdentity { dev: stat.st_dev, ino: stat.st_ino }
}
