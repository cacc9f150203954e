//! What covers something in the view: an empty file, an empty directory, a generated file.
//!
//! All of them are copies out of one file system. It is attached while the view is built, for
//! before Linux 6.15 a mount that is nowhere attached cannot be copied (open_tree(2), EINVAL); and
//! a file system for each would make every start pay for the traces of all former runs.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};

use super::FsviewError;
use super::tree::{Shape, Tree};
use crate::sys::mount::{self, NODEV, NOEXEC, NOSUID, RDONLY};

/// Directories of the old root that nothing needs any more; the first that is there is used. It
/// is left behind with the old root.
const PLACES: [&str; 3] = ["/sys", "/usr", "/dev"];

/// The place of a draft, before everything is copied: a directory of the old root that every host has, and that holds
/// nothing which views show. What a draft was made with in vain is left there, too.
pub(super) const ASIDE: &str = "/proc/tty";

/// The file system, and what was made in it.
#[derive(Debug)]
pub(super) struct Covers {
    tree: Tree,
    files: usize,
    has_blanks: bool,
}

impl Covers {
    /// Makes the file system and attaches it where nothing is needed any more, when everything is copied.
    ///
    /// # Errors
    /// The first step that the kernel refused.
    pub(super) fn new() -> Result<Self, FsviewError> {
        Self::at(PLACES.into_iter().find(|path| Path::new(path).is_dir()).unwrap_or("/etc"))
    }

    /// The same, attached at `place`.
    ///
    /// # Errors
    /// As [`Covers::new`].
    pub(super) fn at(place: &str) -> Result<Self, FsviewError> {
        let error = |call: &'static str| move |source: std::io::Error| FsviewError::new(call, place, source);
        let made = mount::new_filesystem(c"tmpfs", &[(c"mode", c"755")], NOSUID | NODEV)
            .map_err(FsviewError::of(place))?;
        let point = super::tree::open_path(Path::new(place))?;
        mount::attach(made.as_fd(), point.as_fd(), c"").map_err(error("move_mount"))?;
        let tree = Tree::new(made, true).map_err(|errno| FsviewError::new("fstat", place, errno))?;
        Ok(Self { tree, files: 0, has_blanks: false })
    }

    /// One new file, which can be written, and a read-only mount of it.
    ///
    /// # Errors
    /// The first step that the kernel refused; `for_path` names what it was for.
    pub(super) fn file(&mut self, for_path: &Path) -> Result<(File, OwnedFd), FsviewError> {
        let name = self.files.to_string();
        self.files += 1;
        let file = self.create(&name, 0o644, for_path)?;
        Ok((file, self.copy(&name, for_path)?))
    }

    /// A mount of a file or directory that nobody can open.
    ///
    /// # Errors
    /// As [`Covers::file`].
    pub(super) fn blank(&mut self, shape: Shape, for_path: &Path) -> Result<OwnedFd, FsviewError> {
        if !self.has_blanks {
            self.create("blank", 0o000, for_path)?;
            let made = self.tree.make_directory(Path::new("/blanks")).and_then(|()| {
                fchmodat(&self.tree.root, "blanks", Mode::empty(), FchmodatFlags::FollowSymlink)
            });
            made.map_err(|errno| FsviewError::new("mkdir", for_path, errno))?;
            self.has_blanks = true;
        }
        self.copy(if shape == Shape::Directory { "blanks" } else { "blank" }, for_path)
    }

    fn create(&mut self, name: &str, mode: u32, for_path: &Path) -> Result<File, FsviewError> {
        let path = Path::new("/").join(name);
        self.tree.create(&path, mode).map_err(|errno| FsviewError::new("open", for_path, errno))
    }

    fn copy(&self, name: &str, for_path: &Path) -> Result<OwnedFd, FsviewError> {
        let error =
            |call: &'static str| move |source: std::io::Error| FsviewError::new(call, for_path, source);
        let name = CString::new(name).map_err(|_| FsviewError::new("open_tree", for_path, Errno::EINVAL))?;
        let copy = mount::clone_tree(self.tree.root.as_fd(), &name, false).map_err(error("open_tree"))?;
        mount::set_attributes(copy.as_fd(), RDONLY | NOSUID | NODEV | NOEXEC, 0, false)
            .map_err(error("mount_setattr"))?;
        Ok(copy)
    }
}
