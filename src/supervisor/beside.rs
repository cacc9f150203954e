//! Files beside others: one that is only read, in a directory where another was opened, is opened at once.
//!
//! Elsewhere a file is found first, by O_PATH, for to open a device or a FIFO has effects, and then opened once more.
//! Where its directory is held, that tells what the name stands for, and the name is judged. What its path leads to then
//! is opened without links, and is taken only if it is that very file: so the path is its own, whatever has become of
//! the directory that is held.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, SFlag, fstatat};

use super::access::{Area, Decision};
use super::call::{Call, Reply};
use super::read::Opened;
use super::request::Request;
use super::spelling::is_clean;
use super::view::{Spelled, View};
use super::{Stop, Supervisor};
use crate::policy::{FileId, PathAccess};

/// Directories that are held: several threads read in one each.
const HELD: usize = 8;

/// Directories in which files were opened of late.
#[derive(Debug, Default)]
pub(super) struct Directories {
    known: Vec<Directory>,
    /// Which one is forgotten next.
    oldest: usize,
}

#[derive(Debug)]
struct Directory {
    path: Vec<u8>,
    /// Once a second file was opened there (O_PATH).
    held: Option<OwnedFd>,
}

impl Directories {
    /// What is at `absolute`, seen from the directory that is held for it, if any.
    fn look(&mut self, view: &View, absolute: &[u8]) -> Option<FileStat> {
        let slash = absolute.iter().rposition(|&byte| byte == b'/').filter(|&at| at > 0)?;
        let (path, name) = (&absolute[..slash], &absolute[slash + 1..]);
        let Some(directory) = self.known.iter_mut().find(|directory| directory.path == path) else {
            self.note(path);
            return None;
        };
        if directory.held.is_none() {
            directory.held = Some(view.directory(path).ok()?);
        }
        let held = directory.held.as_ref()?;
        fstatat(held, OsStr::from_bytes(name), AtFlags::AT_SYMLINK_NOFOLLOW).ok()
    }

    fn note(&mut self, path: &[u8]) {
        let path = path.to_vec();
        if self.known.len() < HELD {
            self.known.push(Directory { path, held: None });
        } else if let Some(oldest) = self.known.get_mut(self.oldest) {
            *oldest = Directory { path, held: None };
            self.oldest = (self.oldest + 1) % HELD;
        }
    }

    /// Something else is at a path than there is in the directory that is held for it.
    fn forget(&mut self) {
        self.known.clear();
    }
}

impl Supervisor {
    /// Opens a file whose directory is held, if it is a plain one that a rule grants and that is only read.
    pub(super) fn open_beside(
        &mut self,
        call: &Call,
        request: &Request,
        spelled: &Spelled,
    ) -> Result<Option<Reply>, Stop> {
        let path = Path::new(OsStr::from_bytes(&spelled.absolute));
        // What the kernel opens by itself is not recorded.
        if !is_plain(request, &spelled.absolute) || self.access.is_system(path) {
            return Ok(None);
        }
        let Some(status) = self.directories.look(&self.view, &spelled.absolute).filter(is_file) else {
            return Ok(None);
        };
        if self.statuses.follow_reads_of(&status) {
            return Ok(None);
        }
        let id = self.view.id_at(path, &status);
        if self.view.placeholders.contains(&FileId { dev: status.st_dev, ino: status.st_ino }) {
            return Ok(None);
        }
        let Decision::Allow(Area::Rule(rule)) = self.access.decide(PathAccess::Read, path, Some(id)) else {
            return Ok(None);
        };
        let flags = (request.flags & !OFlag::O_NOFOLLOW) | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        let Some((file, now)) = self.view.open_same(&spelled.absolute, &status, flags) else {
            self.directories.forget();
            return Ok(None);
        };
        self.saw_unfollowed(path, &status, &file);
        self.record_read(call, spelled, Opened { path, found: &status, file: &file, now: Some(now) }, rule)?;
        let close_on_exec = request.flags.contains(OFlag::O_CLOEXEC);
        Ok(Some(Reply::Descriptor { file, close_on_exec }))
    }
}

/// Whether it only reads, and the path leads to no file of the kernel's own.
pub(super) fn is_plain(request: &Request, absolute: &[u8]) -> bool {
    // Flags of the C library on 32-bit machines, which some set everywhere (O_LARGEFILE).
    let large = OFlag::from_bits_retain(0o100_000);
    let harmless = OFlag::O_CLOEXEC
        | OFlag::O_NOFOLLOW
        | OFlag::O_NOCTTY
        | OFlag::O_NONBLOCK
        | OFlag::O_DIRECTORY
        | large;
    (request.flags & !harmless).is_empty()
        && request.resolve == 0
        && is_clean(absolute)
        && ![&b"/proc/"[..], b"/dev/", b"/sys/"].iter().any(|tree| absolute.starts_with(tree))
}

/// A regular file that has a name.
fn is_file(status: &FileStat) -> bool {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG && status.st_nlink > 0
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::fcntl::OFlag;
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn what_is_seen_in_a_directory_that_was_replaced_is_not_opened() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("d")).expect("makes");
        for name in ["d/a", "d/b"] {
            fs::write(at(name), name).expect("writes");
        }
        let file = nix::fcntl::open(root.path(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
        let view = View::of(file.expect("a directory"), Vec::new(), Vec::new(), None).expect("a view");
        let mut directories = Directories::default();
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        assert!(directories.look(&view, b"/d/a").is_none(), "the first one");
        let seen = directories.look(&view, b"/d/b").expect("is there");
        assert!(view.open_same(b"/d/b", &seen, flags).is_some());
        fs::rename(at("d"), at("e")).expect("renames");
        assert!(view.open_same(b"/d/b", &seen, flags).is_none(), "gone");
        std::os::unix::fs::symlink("e", at("d")).expect("links");
        assert!(view.open_same(b"/d/b", &seen, flags).is_none(), "its path is another");
        fs::remove_file(at("d")).expect("removes");
        fs::create_dir(at("d")).expect("makes");
        fs::write(at("d/b"), "new").expect("writes");
        let stale = directories.look(&view, b"/d/b").expect("is there");
        assert_eq!(stale.st_ino, seen.st_ino);
        assert!(view.open_same(b"/d/b", &stale, flags).is_none(), "another file");
        directories.forget();
        assert!(directories.look(&view, b"/d/b").is_none());
        let new = directories.look(&view, b"/d/b").expect("is there");
        assert!(view.open_same(b"/d/b", &new, flags).is_some());
    }
}
