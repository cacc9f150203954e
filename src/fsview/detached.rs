//! Single files of the launcher's own as mounts, for places where a tree of the host is in the way.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::FsviewError;
use super::tree::Tree;
use crate::sys::mount::{self, NODEV, NOEXEC, NOSUID, RDONLY};

/// Directories of the old root, any of which will do to attach something to: it is left behind with
/// the old root. The view's root takes the first that there is.
pub(super) const LEFT_BEHIND: [&str; 5] = ["/tmp", "/proc", "/usr", "/dev", "/etc"];

/// Makes such files, in one file system.
#[derive(Debug, Default)]
pub(super) struct Files {
    holder: Option<Tree>,
    made: u32,
}

impl Files {
    /// A mount of one new file, read-only.
    pub(super) fn make(
        &mut self,
        content: &[u8],
        mode: u32,
        for_path: &Path,
    ) -> Result<OwnedFd, FsviewError> {
        let error =
            |call: &'static str| move |source: std::io::Error| FsviewError::new(call, for_path, source);
        let holder = match &mut self.holder {
            Some(holder) => holder,
            none => none.insert(attached()?),
        };
        let name = self.made.to_string();
        self.made += 1;
        holder
            .write(&Path::new("/").join(&name), content, mode)
            .map_err(|errno| FsviewError::new("open", for_path, errno))?;
        let name = CString::new(name).map_err(|_| FsviewError::new("open_tree", for_path, Errno::EINVAL))?;
        let file = mount::clone_tree(holder.root.as_fd(), &name, false).map_err(error("open_tree"))?;
        let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
        mount::set_attributes(file.as_fd(), attributes, 0, false).map_err(error("mount_setattr"))?;
        Ok(file)
    }
}

/// A file system in the old root: before Linux 6.15 open_tree(2) copies from attached mounts alone.
fn attached() -> Result<Tree, FsviewError> {
    let holder = mount::new_filesystem(c"tmpfs", &[(c"mode", c"700")], NOSUID | NODEV)
        .map_err(FsviewError::of("tmpfs"))?;
    let mut directories = LEFT_BEHIND.into_iter().filter(|path| Path::new(path).is_dir());
    let place = directories.nth(1).ok_or_else(|| FsviewError::new("open", "/dev", Errno::ENOENT))?;
    let directory = nix::fcntl::open(place, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| FsviewError::new("open", place, errno))?;
    mount::attach(holder.as_fd(), directory.as_fd(), c"")
        .map_err(|error| FsviewError::new("move_mount", place, error))?;
    Tree::new(holder, true).map_err(|errno| FsviewError::new("fstat", place, errno))
}
