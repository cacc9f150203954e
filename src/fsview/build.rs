//! Builds the root of a run from an [`FsSpec`], in the cloned child, before it is entered.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag, fstat};

use super::tree::{self, Shape};
use super::{FsSpec, FsviewError, GeneratedFile, MountKind, MountOp};
use crate::sys::mount::{self, NODEV, NOEXEC, NOSUID, RDONLY};

/// The host side of one mount, opened before the clone with the caller's own rights, so that
/// what was planned is what is mounted.
#[derive(Debug)]
pub struct Source {
    descriptor: Option<OwnedFd>,
    link: Option<std::ffi::OsString>,
    shape: Shape,
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Directory => "Directory",
            Self::File => "File",
        })
    }
}

impl Source {
    /// Opens the source of `op`.
    ///
    /// # Errors
    /// The errno of open(2) on the source.
    pub fn open(op: &MountOp) -> Result<Self, FsviewError> {
        let MountKind::Bind { source, .. } = &op.kind else {
            return Ok(Self { descriptor: None, link: None, shape: Shape::Directory });
        };
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let descriptor = nix::fcntl::open(source.as_path(), flags, Mode::empty())
            .map_err(|errno| FsviewError::new("open", source, errno))?;
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
        Ok(Self { descriptor: Some(descriptor), link, shape })
    }
}

/// Builds the view and gives its root, attached over an existing directory of the old root.
///
/// # Errors
/// The first step that the kernel refused.
pub fn build(spec: &FsSpec, sources: &[Source]) -> Result<OwnedFd, FsviewError> {
    let trees = clone_sources(spec, sources)?;
    let root = new_root()?;
    let at = root.as_fd();
    for directory in &spec.directories {
        tree::make_directories(at, directory).map_err(|errno| FsviewError::new("mkdir", directory, errno))?;
    }
    for ((op, source), cloned) in spec.mounts.iter().zip(sources).zip(trees) {
        mount_one(at, op, source, cloned)?;
    }
    for link in &spec.links {
        make_link(at, &link.path, &link.target)?;
    }
    for file in &spec.files {
        generate(at, file)?;
    }
    mount::set_attributes(at, RDONLY | NOSUID | NODEV, 0, false)
        .map_err(|error| FsviewError::new("mount_setattr", "/", error))?;
    Ok(root)
}

/// Copies every source tree before anything is attached: nothing hides anything else.
fn clone_sources(spec: &FsSpec, sources: &[Source]) -> Result<Vec<Option<OwnedFd>>, FsviewError> {
    let mut trees = Vec::with_capacity(spec.mounts.len());
    for (op, source) in spec.mounts.iter().zip(sources) {
        let (MountKind::Bind { recursive, .. }, Some(descriptor), None) =
            (&op.kind, &source.descriptor, &source.link)
        else {
            trees.push(None);
            continue;
        };
        let cloned = mount::clone_tree(descriptor.as_fd(), c"", *recursive)
            .map_err(|error| FsviewError::new("open_tree", &op.target, error))?;
        mount::set_attributes(cloned.as_fd(), op.attributes, 0, *recursive)
            .map_err(|error| FsviewError::new("mount_setattr", &op.target, error))?;
        trees.push(Some(cloned));
    }
    Ok(trees)
}

fn new_root() -> Result<OwnedFd, FsviewError> {
    let root = mount::new_filesystem(c"tmpfs", &[(c"mode", c"755"), (c"size", c"16m")], NOSUID | NODEV)
        .map_err(|error| FsviewError::new("fsmount", "tmpfs", error))?;
    let old = nix::fcntl::open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| FsviewError::new("open", "/", errno))?;
    mount::set_attributes(old.as_fd(), 0, 0, true)
        .map_err(|error| FsviewError::new("mount_setattr", "/", error))?;
    // Any directory will do: it is left behind with the old root.
    let place = ["/tmp", "/proc", "/usr", "/dev"].into_iter().find(|path| Path::new(path).is_dir());
    let place = place.unwrap_or("/etc");
    let place_fd = nix::fcntl::open(place, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| FsviewError::new("open", place, errno))?;
    mount::attach(root.as_fd(), place_fd.as_fd(), c"")
        .map_err(|error| FsviewError::new("move_mount", place, error))?;
    Ok(root)
}

fn mount_one(
    root: BorrowedFd<'_>,
    op: &MountOp,
    source: &Source,
    cloned: Option<OwnedFd>,
) -> Result<(), FsviewError> {
    match &op.kind {
        MountKind::Bind { .. } => {
            if let Some(link) = &source.link {
                return make_link(root, &op.target, link);
            }
            let Some(cloned) = cloned else {
                return Err(FsviewError::new("open_tree", &op.target, Errno::EBADF));
            };
            attach(root, &op.target, source.shape, &cloned)
        }
        MountKind::New { filesystem, options } => {
            let made = new_filesystem(filesystem, options, op)?;
            attach(root, &op.target, Shape::Directory, &made)
        }
        MountKind::Mask => mask(root, op),
    }
}

fn new_filesystem(
    filesystem: &str,
    options: &[(String, String)],
    op: &MountOp,
) -> Result<OwnedFd, FsviewError> {
    let text = |text: &str| {
        CString::new(text).map_err(|_| FsviewError::new("fsconfig", &op.target, Errno::EINVAL))
    };
    let kind = text(filesystem)?;
    let pairs: Vec<(CString, CString)> = options
        .iter()
        .map(|(key, value)| Ok((text(key)?, text(value)?)))
        .collect::<Result<_, FsviewError>>()?;
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_c_str(), value.as_c_str())).collect();
    mount::new_filesystem(&kind, &pairs, op.attributes)
        .map_err(|error| FsviewError::new("fsmount", PathBuf::from(filesystem), error))
}

fn attach(root: BorrowedFd<'_>, target: &Path, shape: Shape, tree: &OwnedFd) -> Result<(), FsviewError> {
    let point = tree::mount_point(root, target, shape)
        .map_err(|errno| FsviewError::new("mkdir", target, errno))?;
    mount::attach(tree.as_fd(), point.as_fd(), c"")
        .map_err(|error| FsviewError::new("move_mount", target, error))
}

/// Covers what is at `op.target` by an empty file or directory; what is absent stays absent.
fn mask(root: BorrowedFd<'_>, op: &MountOp) -> Result<(), FsviewError> {
    let point = match tree::open(root, &op.target) {
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
        detached_file(root, b"", 0o000, attributes, &op.target)?
    };
    mount::attach(tree.as_fd(), point.as_fd(), c"")
        .map_err(|error| FsviewError::new("move_mount", &op.target, error))
}

/// A mount of one new file that has no name in the view.
fn detached_file(
    root: BorrowedFd<'_>,
    content: &[u8],
    mode: u32,
    attributes: u64,
    for_path: &Path,
) -> Result<OwnedFd, FsviewError> {
    let name = Path::new("/.generated");
    tree::write_file(root, name, content, mode)
        .map_err(|errno| FsviewError::new("open", for_path, errno))?;
    let file = tree::open(root, name).map_err(|errno| FsviewError::new("open", for_path, errno))?;
    let cloned = mount::clone_tree(file.as_fd(), c"", false)
        .map_err(|error| FsviewError::new("open_tree", for_path, error))?;
    mount::set_attributes(cloned.as_fd(), attributes, 0, false)
        .map_err(|error| FsviewError::new("mount_setattr", for_path, error))?;
    nix::unistd::unlinkat(root, ".generated", nix::unistd::UnlinkatFlags::NoRemoveDir)
        .map_err(|errno| FsviewError::new("unlink", for_path, errno))?;
    Ok(cloned)
}

fn make_link(root: BorrowedFd<'_>, path: &Path, target: &std::ffi::OsStr) -> Result<(), FsviewError> {
    let (directory, name) =
        tree::parent(root, path).map_err(|errno| FsviewError::new("mkdir", path, errno))?;
    match nix::unistd::symlinkat(target, directory, name) {
        Ok(()) | Err(Errno::EEXIST | Errno::EROFS) => Ok(()),
        Err(errno) => Err(FsviewError::new("symlink", path, errno)),
    }
}

/// Writes a generated file, over whatever a mounted tree has at that name.
fn generate(root: BorrowedFd<'_>, file: &GeneratedFile) -> Result<(), FsviewError> {
    match tree::write_file(root, &file.path, &file.content, 0o644) {
        Ok(()) => Ok(()),
        Err(Errno::EEXIST) => {
            let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
            let tree = detached_file(root, &file.content, 0o644, attributes, &file.path)?;
            let point = tree::open(root, &file.path)
                .map_err(|errno| FsviewError::new("openat2", &file.path, errno))?;
            mount::attach(tree.as_fd(), point.as_fd(), c"")
                .map_err(|error| FsviewError::new("move_mount", &file.path, error))
        }
        // A read-only tree without that file: programs do without it as on the host.
        Err(Errno::EROFS) => Ok(()),
        Err(errno) => Err(FsviewError::new("open", &file.path, errno)),
    }
}
