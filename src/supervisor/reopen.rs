//! Opens for real what was found by an O_PATH descriptor.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::fcntl::{FcntlArg, OFlag, OpenHow, ResolveFlag, fcntl, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use super::spelling::is_clean;
use super::view::{Found, View};

impl View {
    /// Opens `found` itself, which `absolute` led to; with its status then, where that is known.
    pub(super) fn reopen(
        &self,
        found: &Found,
        absolute: &[u8],
        flags: OFlag,
        mode: Mode,
    ) -> nix::Result<(OwnedFd, Option<FileStat>)> {
        if let Some((file, status)) = self.open_again(found, absolute, flags) {
            return Ok((file, Some(status)));
        }
        let number = found.file.as_raw_fd().to_string();
        Ok((nix::fcntl::openat(&self.descriptors, number.as_str(), flags, mode)?, None))
    }

    /// Opens a file or directory by its path once more: for one that is only read, faster than through /proc, and
    /// as good if it is still the same.
    fn open_again(&self, found: &Found, absolute: &[u8], flags: OFlag) -> Option<(OwnedFd, FileStat)> {
        let changes = OFlag::O_WRONLY | OFlag::O_RDWR | OFlag::O_TRUNC | OFlag::O_TMPFILE;
        let plain = matches!(found.kind(), SFlag::S_IFREG | SFlag::S_IFDIR)
            && !flags.intersects(changes)
            && found.path.as_os_str().as_bytes() == absolute
            && is_clean(absolute);
        if !plain {
            return None;
        }
        self.open_same(absolute, &found.status, flags)
    }

    /// Opens the file or directory of that status, which is only read, by a path without links, if it is there.
    pub(super) fn open_same(
        &self,
        absolute: &[u8],
        same: &FileStat,
        flags: OFlag,
    ) -> Option<(OwnedFd, FileStat)> {
        let (file, status) = self.open_by_path(absolute, flags | OFlag::O_NONBLOCK).ok()?;
        let identity = |status: &FileStat| (status.st_dev, status.st_ino, status.st_mode & libc::S_IFMT);
        if identity(&status) != identity(same) {
            return None;
        }
        if !flags.contains(OFlag::O_NONBLOCK) {
            let asked = flags & (OFlag::O_APPEND | OFlag::O_DIRECT | OFlag::O_NOATIME);
            fcntl(&file, FcntlArg::F_SETFL(asked)).ok()?;
        }
        Some((file, status))
    }

    /// Opens what is at a path without links, and looks at it. A FIFO would hold us, but for O_NONBLOCK.
    pub(super) fn open_by_path(&self, absolute: &[u8], flags: OFlag) -> nix::Result<(OwnedFd, FileStat)> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let how = OpenHow::new().flags(flags).resolve(resolve);
        let file = openat2(&self.root, OsStr::from_bytes(absolute), how)?;
        let status = fstat(&file)?;
        Ok((file, status))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::path::Path;

    use super::*;

    const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_CLOEXEC);

    fn view(root: &Path) -> View {
        let root =
            nix::fcntl::open(root, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).expect("a directory");
        View::of(root, Vec::new(), Vec::new(), None).expect("a view")
    }

    fn content(file: OwnedFd) -> String {
        let mut text = String::new();
        std::fs::File::from(file).read_to_string(&mut text).expect("text");
        text
    }

    #[test]
    fn what_has_taken_the_place_of_a_file_is_not_opened() {
        let root = tempfile::tempdir().expect("a directory");
        let (file, other) = (root.path().join("file"), root.path().join("other"));
        std::fs::write(&file, "judged").expect("writes");
        std::fs::write(&other, "another").expect("writes");
        let view = view(root.path());
        let found = view.find(b"/file", true).expect("is there");
        let (opened, status) = view.reopen(&found, b"/file", READ, Mode::empty()).expect("opens");
        assert!(status.is_some_and(|status| status.st_ino == found.status.st_ino));
        let flags = fcntl(&opened, FcntlArg::F_GETFL).map(OFlag::from_bits_retain).expect("has flags");
        assert!(!flags.contains(OFlag::O_NONBLOCK));
        assert_eq!(content(opened), "judged");
        std::fs::rename(&other, &file).expect("renames");
        let (opened, status) = view.reopen(&found, b"/file", READ, Mode::empty()).expect("opens");
        assert!(status.is_none());
        assert_eq!(content(opened), "judged");
        std::fs::remove_file(&file).expect("removes");
        nix::unistd::mkfifo(&file, Mode::S_IRWXU).expect("makes");
        let (opened, _) = view.reopen(&found, b"/file", READ, Mode::empty()).expect("opens, without waiting");
        assert_eq!(content(opened), "judged");
        std::fs::remove_file(&file).expect("removes");
        std::os::unix::fs::symlink("none", &file).expect("links");
        assert_eq!(content(view.reopen(&found, b"/file", READ, Mode::empty()).expect("opens").0), "judged");
    }
}
