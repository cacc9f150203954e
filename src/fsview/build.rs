//! Builds the root of a run from an [`FsSpec`], in the cloned child, before it is entered.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag, fstat};

use super::tree::{self, OwnDevices, Shape};
use super::{FsSpec, FsviewError, GeneratedFile, MountKind, MountOp, Pending};
use crate::sys::mount::{self, NODEV, NOEXEC, NOSUID, RDONLY};

/// The host side of one mount, looked at before the clone: what was planned is what is mounted,
/// or nothing is.
#[derive(Debug)]
pub struct Source {
    identity: Option<(u64, u64)>,
    link: Option<std::ffi::OsString>,
    shape: Shape,
}

impl Source {
    /// Looks at the source of `op`.
    ///
    /// # Errors
    /// The errno of open(2) on the source.
    pub fn open(op: &MountOp) -> Result<Self, FsviewError> {
        let MountKind::Bind { source, .. } = &op.kind else {
            return Ok(Self { identity: None, link: None, shape: Shape::Directory });
        };
        let descriptor = open_path(source)?;
        let status = fstat(&descriptor).map_err(|errno| FsviewError::new("fstat", source, errno))?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        let link = if kind == SFlag::S_IFLNK {
            let target = nix::fcntl::readlinkat(&descriptor, c"")
                .map_err(|errno| FsviewError::new("readlink", source, errno))?;
            Some(target)
        } else {
            None
        };
        let shape = if kind == SFlag::S_IFDIR { Shape::Directory } else { Shape::File };
        Ok(Self { identity: Some((status.st_dev, status.st_ino)), link, shape })
    }

    /// Opens the same file in the mount namespace of the calling process: a descriptor from
    /// another one cannot be cloned (open_tree(2), EINVAL).
    fn reopen(&self, path: &Path) -> Result<OwnedFd, FsviewError> {
        let descriptor = open_path(path)?;
        let status = fstat(&descriptor).map_err(|errno| FsviewError::new("fstat", path, errno))?;
        if self.identity == Some((status.st_dev, status.st_ino)) {
            Ok(descriptor)
        } else {
            // It was exchanged since it was planned.
            Err(FsviewError::new("open", path, Errno::ESTALE))
        }
    }
}

fn open_path(path: &Path) -> Result<OwnedFd, FsviewError> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    nix::fcntl::open(path, flags, Mode::empty()).map_err(|errno| FsviewError::new("open", path, errno))
}

/// Builds the view and gives its root and what is kept for later; the root is attached over an existing directory of the old root.
///
/// A first mount at `/` is the root itself; without one the root is an empty file system.
///
/// # Errors
/// The first step that the kernel refused.
pub fn build(spec: &FsSpec, sources: &[Source]) -> Result<(OwnedFd, Pending), FsviewError> {
    let mut trees = clone_sources(spec, sources)?;
    let mut own = OwnDevices::default();
    let whole = spec.mounts.first().is_some_and(|op| op.target == Path::new("/"));
    let root = if whole { trees.first_mut().and_then(Option::take) } else { None };
    let root = match root {
        Some(root) => root,
        None => {
            let root = new_root()?;
            own.add(&root).map_err(|errno| FsviewError::new("fstat", "/", errno))?;
            root
        }
    };
    attach_root(&root)?;
    let mut builder = Builder { root, own };
    for ((op, source), cloned) in spec.mounts.iter().zip(sources).zip(trees).skip(usize::from(whole)) {
        builder.mount_one(op, source, cloned)?;
    }
    // After the mounts: the working directory may lie in a file system of the run's own.
    for directory in &spec.directories {
        builder.make_directory(directory)?;
    }
    for link in &spec.links {
        builder.make_link(&link.path, &link.target)?;
    }
    for file in &spec.files {
        builder.generate(file)?;
    }
    let scratch = if spec.pending.is_empty() || whole { None } else { Some(builder.scratch()?) };
    let pending = Pending::keep(&spec.pending, scratch)?;
    if !whole {
        mount::set_attributes(builder.root.as_fd(), RDONLY | NOSUID | NODEV, 0, false)
            .map_err(|error| FsviewError::new("mount_setattr", "/", error))?;
    }
    Ok((builder.root, pending))
}

/// Copies every source tree before anything is attached: nothing hides anything else.
fn clone_sources(spec: &FsSpec, sources: &[Source]) -> Result<Vec<Option<OwnedFd>>, FsviewError> {
    let mut trees = Vec::with_capacity(spec.mounts.len());
    for (op, source) in spec.mounts.iter().zip(sources) {
        let (MountKind::Bind { source: path, recursive }, None) = (&op.kind, &source.link) else {
            trees.push(None);
            continue;
        };
        let descriptor = source.reopen(path)?;
        let cloned = mount::clone_tree(descriptor.as_fd(), c"", *recursive)
            .map_err(|error| FsviewError::new("open_tree", &op.target, error))?;
        mount::set_attributes(cloned.as_fd(), op.attributes, 0, *recursive)
            .map_err(|error| FsviewError::new("mount_setattr", &op.target, error))?;
        trees.push(Some(cloned));
    }
    Ok(trees)
}

fn new_root() -> Result<OwnedFd, FsviewError> {
    mount::new_filesystem(c"tmpfs", &[(c"mode", c"755"), (c"size", c"16m")], NOSUID | NODEV)
        .map_err(|error| FsviewError::new("fsmount", "tmpfs", error))
}

/// Attaches the new root somewhere in the old one, whose mounts nobody else sees any more.
fn attach_root(root: &OwnedFd) -> Result<(), FsviewError> {
    let open = |path: &str| {
        nix::fcntl::open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| FsviewError::new("open", path, errno))
    };
    mount::set_attributes(open("/")?.as_fd(), 0, 0, true)
        .map_err(|error| FsviewError::new("mount_setattr", "/", error))?;
    // Any directory will do: it is left behind with the old root.
    let place = ["/tmp", "/proc", "/usr", "/dev"].into_iter().find(|path| Path::new(path).is_dir());
    let place = place.unwrap_or("/etc");
    mount::attach(root.as_fd(), open(place)?.as_fd(), c"")
        .map_err(|error| FsviewError::new("move_mount", place, error))
}

/// The root while it is being built.
struct Builder {
    root: OwnedFd,
    own: OwnDevices,
}

impl Builder {
    /// The root's file system through a second mount, which stays writable.
    fn scratch(&self) -> Result<OwnedFd, FsviewError> {
        let tree = mount::clone_tree(self.root.as_fd(), c"", false)
            .map_err(|error| FsviewError::new("open_tree", "/", error))?;
        mount::set_attributes(tree.as_fd(), NOSUID | NODEV, 0, false)
            .map_err(|error| FsviewError::new("mount_setattr", "/", error))?;
        Ok(tree)
    }

    fn make_directory(&self, path: &Path) -> Result<(), FsviewError> {
        match tree::make_directories(self.root.as_fd(), path, &self.own) {
            // A tree of the host without that directory: it stays absent there too.
            Ok(_) | Err(Errno::EROFS) => Ok(()),
            Err(errno) => Err(FsviewError::new("mkdir", path, errno)),
        }
    }

    fn mount_one(
        &mut self,
        op: &MountOp,
        source: &Source,
        cloned: Option<OwnedFd>,
    ) -> Result<(), FsviewError> {
        match &op.kind {
            MountKind::Bind { .. } => {
                if let Some(link) = &source.link {
                    return self.make_link(&op.target, link);
                }
                let Some(cloned) = cloned else {
                    return Err(FsviewError::new("open_tree", &op.target, Errno::EBADF));
                };
                self.attach(&op.target, source.shape, &cloned)
            }
            MountKind::New { filesystem, options } => {
                let made = new_filesystem(filesystem, options, op)?;
                if filesystem == "tmpfs" {
                    self.own.add(&made).map_err(|errno| FsviewError::new("fstat", &op.target, errno))?;
                }
                self.attach(&op.target, Shape::Directory, &made)
            }
            MountKind::Mask => self.mask(op),
        }
    }

    fn attach(&self, target: &Path, shape: Shape, tree: &OwnedFd) -> Result<(), FsviewError> {
        let point = tree::mount_point(self.root.as_fd(), target, shape, &self.own)
            .map_err(|errno| FsviewError::new("mkdir", target, errno))?;
        mount::attach(tree.as_fd(), point.as_fd(), c"")
            .map_err(|error| FsviewError::new("move_mount", target, error))
    }

    /// Covers what is at `op.target` by an empty file or directory; what is absent stays absent.
    fn mask(&self, op: &MountOp) -> Result<(), FsviewError> {
        let point = match tree::open(self.root.as_fd(), &op.target) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            other => other.map_err(|errno| FsviewError::new("openat2", &op.target, errno))?,
        };
        let status = fstat(&point).map_err(|errno| FsviewError::new("fstat", &op.target, errno))?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        if kind == SFlag::S_IFLNK {
            return Ok(());
        }
        let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
        let tree = if kind == SFlag::S_IFDIR {
            mount::new_filesystem(c"tmpfs", &[(c"mode", c"000"), (c"size", c"4k")], attributes)
                .map_err(|error| FsviewError::new("fsmount", &op.target, error))?
        } else {
            detached_file(b"", 0o000, &op.target)?
        };
        mount::attach(tree.as_fd(), point.as_fd(), c"")
            .map_err(|error| FsviewError::new("move_mount", &op.target, error))
    }

    fn make_link(&self, path: &Path, target: &std::ffi::OsStr) -> Result<(), FsviewError> {
        let parent = tree::parent(self.root.as_fd(), path, &self.own);
        let made = parent.and_then(|(directory, name)| {
            self.own.check(&directory)?;
            nix::unistd::symlinkat(target, directory, name)
        });
        match made {
            Ok(()) | Err(Errno::EEXIST | Errno::EROFS) => Ok(()),
            Err(errno) => Err(FsviewError::new("symlink", path, errno)),
        }
    }

    /// Writes a generated file, over whatever a mounted tree has at that name.
    fn generate(&self, file: &GeneratedFile) -> Result<(), FsviewError> {
        let path = &file.path;
        match tree::write_file(self.root.as_fd(), path, &file.content, 0o644, &self.own) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST | Errno::EROFS) => {}
            Err(errno) => return Err(FsviewError::new("open", path, errno)),
        }
        let point = match tree::open(self.root.as_fd(), path) {
            // A tree of the host without that file: programs do without it as on the host.
            Err(Errno::ENOENT) => return Ok(()),
            other => other.map_err(|errno| FsviewError::new("openat2", path, errno))?,
        };
        let tree = detached_file(&file.content, 0o644, path)?;
        mount::attach(tree.as_fd(), point.as_fd(), c"")
            .map_err(|error| FsviewError::new("move_mount", path, error))
    }
}

/// A mount of one new file, read-only, in a file system of its own.
fn detached_file(content: &[u8], mode: u32, for_path: &Path) -> Result<OwnedFd, FsviewError> {
    let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
    let error = |call: &'static str| move |source: std::io::Error| FsviewError::new(call, for_path, source);
    let errno = |call: &'static str| move |errno: Errno| FsviewError::new(call, for_path, errno);
    let holder = mount::new_filesystem(c"tmpfs", &[(c"mode", c"755")], 0).map_err(error("fsmount"))?;
    let mut own = OwnDevices::default();
    own.add(&holder).map_err(errno("fstat"))?;
    let name = Path::new("/file");
    tree::write_file(holder.as_fd(), name, content, mode, &own).map_err(errno("open"))?;
    let file = tree::open(holder.as_fd(), name).map_err(errno("open"))?;
    let cloned = mount::clone_tree(file.as_fd(), c"", false).map_err(error("open_tree"))?;
    mount::set_attributes(cloned.as_fd(), attributes, 0, false).map_err(error("mount_setattr"))?;
    Ok(cloned)
}

fn new_filesystem(
    filesystem: &str,
    options: &[(String, String)],
    op: &MountOp,
) -> Result<OwnedFd, FsviewError> {
    let text =
        |text: &str| CString::new(text).map_err(|_| FsviewError::new("fsconfig", &op.target, Errno::EINVAL));
    let kind = text(filesystem)?;
    let pairs: Vec<(CString, CString)> = options
        .iter()
        .map(|(key, value)| Ok((text(key)?, text(value)?)))
        .collect::<Result<_, FsviewError>>()?;
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_c_str(), value.as_c_str())).collect();
    mount::new_filesystem(&kind, &pairs, op.attributes)
        .map_err(|error| FsviewError::new("fsmount", PathBuf::from(filesystem), error))
}
