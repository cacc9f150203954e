//! Places that a rule names and that do not exist yet: shown from the moment they appear.
//!
//! Nothing is made on the host for a rule. What the launcher keeps, out of sight, is a mount of
//! the directory above; when the place appears, pid 1 mounts it from there into the view.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};

use super::tree::{self, Shape};
use super::{FsviewError, PendingRoot};
use crate::sys::mount;

/// What pid 1 keeps for the places that may appear.
#[derive(Debug)]
pub struct Pending {
    roots: Vec<(PendingRoot, OwnedFd)>,
    /// The view's own root file system through a mount that is not read-only.
    pub(super) scratch: Option<OwnedFd>,
    /// Overlays that the run only reads, each through a mount that is not read-only.
    pub(super) overlays: Vec<(PathBuf, OwnedFd)>,
}

impl Pending {
    /// Copies the mounts that will be needed, before the old root is left; with what is mounted below them, which
    /// cannot be left out in a user namespace of one's own (mount_namespaces(7)).
    pub(super) fn keep(roots: &[PendingRoot]) -> Result<Self, FsviewError> {
        let mut kept = Vec::new();
        for root in roots {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let base = nix::fcntl::open(root.base.as_path(), flags, Mode::empty())
                .map_err(|errno| FsviewError::new("open", &root.base, errno))?;
            let tree = mount::clone_tree(base.as_fd(), c"", true)
                .map_err(|error| FsviewError::new("open_tree", &root.base, error))?;
            mount::set_attributes(tree.as_fd(), root.attributes, 0, true)
                .map_err(|error| FsviewError::new("mount_setattr", &root.base, error))?;
            kept.push((root.clone(), tree));
        }
        Ok(Self { roots: kept, scratch: None, overlays: Vec::new() })
    }

    /// Nothing yet: see [`hold`](Self::hold).
    pub(super) fn none() -> Self {
        Self { roots: Vec::new(), scratch: None, overlays: Vec::new() }
    }

    /// Keeps `tree`, an empty directory, in the place of the directory above `root`.
    pub(super) fn hold(&mut self, root: &PendingRoot, tree: OwnedFd) {
        let base = root.path.parent().unwrap_or_else(|| Path::new("/")).to_owned();
        self.roots.push((PendingRoot { base, ..root.clone() }, tree));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    pub(super) fn trees(&self) -> impl Iterator<Item = &OwnedFd> {
        self.roots.iter().map(|(_, tree)| tree)
    }

    /// Whether the kernel copies from mounts that are nowhere attached (Linux 6.15).
    pub(super) fn can_copy(&self) -> bool {
        self.trees().next().is_none_or(|tree| mount::is_copied_unattached(tree.as_fd()))
    }

    /// The descriptors that pid 1 has to keep open.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        let overlays = self.overlays.iter().map(|(_, tree)| tree);
        self.roots.iter().map(|(_, tree)| tree).chain(overlays).chain(self.scratch.as_ref())
    }

    /// Shows the place number `index`, which exists on the host now.
    ///
    /// # Errors
    /// The step that failed.
    pub fn attach(&self, index: usize) -> Result<(), FsviewError> {
        let (root, base) =
            self.roots.get(index).ok_or_else(|| FsviewError::new("attach", "?", Errno::EINVAL))?;
        let below = root.path.strip_prefix(&root.base).unwrap_or(&root.path);
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let place =
            openat2(base, below, how).map_err(|errno| FsviewError::new("openat2", &root.path, errno))?;
        let tree = mount::clone_tree(place.as_fd(), c"", true)
            .map_err(|error| FsviewError::new("open_tree", &root.path, error))?;
        mount::set_attributes(tree.as_fd(), root.attributes, 0, true)
            .map_err(|error| FsviewError::new("mount_setattr", &root.path, error))?;
        let status = fstat(&tree).map_err(|errno| FsviewError::new("fstat", &root.path, errno))?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        let shape = match kind {
            SFlag::S_IFDIR => Shape::Directory,
            // A link is not what the rule named, nor is one on the way: it would lead elsewhere.
            SFlag::S_IFLNK => return Err(FsviewError::new("open_tree", &root.path, Errno::ELOOP)),
            _ => Shape::File,
        };
        let point = self
            .mount_point(&root.path, shape)
            .map_err(|errno| FsviewError::new("mkdir", &root.path, errno))?;
        mount::attach(tree.as_fd(), point.as_fd(), c"")
            .map_err(|error| FsviewError::new("move_mount", &root.path, error))
    }

    /// Where the place is in the view, made where it is missing. The agent may have put links on the way.
    fn mount_point(&self, path: &Path, shape: Shape) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let view = nix::fcntl::open("/", flags, Mode::empty())?;
        match tree::open_final(view.as_fd(), path) {
            Err(Errno::ENOENT) => {}
            other => return other,
        }
        let mut walked = PathBuf::from("/");
        let last = path.components().count() - 1;
        for (at, component) in path.components().enumerate() {
            let Component::Normal(name) = component else { continue };
            let parent = tree::open_final(view.as_fd(), &walked)?;
            walked.push(name);
            if tree::open_final(view.as_fd(), &walked).is_ok() {
                continue;
            }
            let directory = at != last || shape == Shape::Directory;
            match make(&parent, name.as_ref(), directory) {
                Err(Errno::EROFS) => {
                    let above = walked.parent().unwrap_or_else(|| Path::new("/"));
                    let (writable, below) = self.writable(above).ok_or(Errno::EROFS)?;
                    make(&tree::open_final(writable.as_fd(), below)?, name.as_ref(), directory)?;
                }
                other => other?,
            }
        }
        tree::open_final(view.as_fd(), path)
    }

    /// What `directory` is in, through a mount that is not read-only, and where in that.
    fn writable<'p>(&self, directory: &'p Path) -> Option<(&OwnedFd, &'p Path)> {
        let around = self.overlays.iter().filter(|(place, _)| directory.starts_with(place));
        match around.max_by_key(|(place, _)| place.components().count()) {
            Some((place, tree)) => {
                let below = directory.strip_prefix(place).ok()?;
                Some((tree, if below.as_os_str().is_empty() { Path::new("/") } else { below }))
            }
            None => Some((self.scratch.as_ref()?, directory)),
        }
    }
}

fn make(parent: &OwnedFd, name: &Path, directory: bool) -> nix::Result<()> {
    if directory {
        return mkdirat(parent, name, Mode::from_bits_truncate(0o755));
    }
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    nix::fcntl::openat(parent, name, flags, Mode::from_bits_truncate(0o644)).map(|_| ())
}
