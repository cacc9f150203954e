//! The host side of every mount: copied by the child, looked at by the launcher. What both saw is
//! what is mounted, or nothing is.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag, fstat, lstat};

use super::overlay::Lower;
use super::tree::Shape;
use super::{FsSpec, FsviewError, MountKind, MountOp};
use crate::sys::mount;

/// Device and inode.
pub type FileKey = (u64, u64);

/// Looks at the source of each mount with the caller's rights; `None` for one that has no source.
///
/// # Errors
/// The errno of lstat(2) on a source.
pub fn look(spec: &FsSpec) -> Result<Vec<Option<FileKey>>, FsviewError> {
    let look_at = |op: &MountOp| {
        let MountKind::Bind { source, .. } = &op.kind else { return Ok(None) };
        let status = lstat(source).map_err(|errno| FsviewError::new("lstat", source, errno))?;
        Ok(Some(key(&status)))
    };
    spec.mounts.iter().map(look_at).collect()
}

fn key(status: &FileStat) -> FileKey {
    (status.st_dev, status.st_ino)
}

/// A copy of what is at a source.
#[derive(Debug)]
pub(super) enum Copied {
    /// A directory or a file, as a mount that is attached nowhere.
    Tree { tree: OwnedFd, shape: Shape, key: FileKey },
    /// What is diverted.
    Lower { lower: Lower, key: FileKey },
    /// A symbolic link.
    Link { target: OsString, key: FileKey },
    /// What the view has already.
    Drafted { key: Option<FileKey> },
}

impl Copied {
    /// Which file it is of, if there is one.
    pub(super) fn key(&self) -> Option<FileKey> {
        match self {
            Self::Tree { key, .. } | Self::Lower { key, .. } | Self::Link { key, .. } => Some(*key),
            Self::Drafted { key } => *key,
        }
    }
}

/// Copies of every source.
#[derive(Debug)]
pub struct Copies(Vec<Option<Copied>>);

impl Copies {
    /// Copies every source tree before anything is attached: nothing hides anything else. In the
    /// mount namespace of the calling process: a descriptor from another one cannot be copied
    /// (open_tree(2), EINVAL). What is `drafted` is there already.
    ///
    /// # Errors
    /// The first step that the kernel refused.
    pub(super) fn make(
        spec: &FsSpec,
        drafted: impl Fn(&MountOp) -> Option<Copied>,
    ) -> Result<Self, FsviewError> {
        let copy_one = |op| match drafted(op) {
            Some(drafted) => Ok(Some(drafted)),
            None => copy(op, spec.diverts(op)),
        };
        spec.mounts.iter().map(copy_one).collect::<Result<_, _>>().map(Self)
    }

    /// Compares with what [`look`] saw.
    ///
    /// # Errors
    /// ESTALE for a source that was exchanged since it was planned.
    pub fn check(&self, spec: &FsSpec, seen: &[Option<FileKey>]) -> Result<(), FsviewError> {
        let stale = |op: &MountOp| FsviewError::new("open_tree", &op.target, Errno::ESTALE);
        for (index, (op, copied)) in spec.mounts.iter().zip(&self.0).enumerate() {
            let own = copied.as_ref().and_then(Copied::key);
            if seen.get(index) != Some(&own) {
                return Err(stale(op));
            }
        }
        Ok(())
    }

    pub(super) fn into_list(self) -> Vec<Option<Copied>> {
        self.0
    }
}

pub(super) fn copy(op: &MountOp, diverted: bool) -> Result<Option<Copied>, FsviewError> {
    let MountKind::Bind { source, recursive } = &op.kind else { return Ok(None) };
    // Not by a copy of the mount: to close one that is attached nowhere costs a grace period.
    if let Ok(target) = nix::fcntl::readlink(source) {
        let status = lstat(source).map_err(|errno| FsviewError::new("lstat", source, errno))?;
        return Ok(Some(Copied::Link { target, key: key(&status) }));
    }
    if diverted {
        let (lower, status) = Lower::open(source)?;
        return Ok(Some(Copied::Lower { lower, key: key(&status) }));
    }
    let name = CString::new(source.as_os_str().as_encoded_bytes())
        .map_err(|_| FsviewError::new("open_tree", source, Errno::EINVAL))?;
    let tree =
        mount::clone_path(&name, *recursive).map_err(|error| FsviewError::new("open_tree", source, error))?;
    let status = fstat(&tree).map_err(|errno| FsviewError::new("fstat", source, errno))?;
    let shape = match SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => Shape::Directory,
        // It was none a moment ago.
        SFlag::S_IFLNK => return Err(FsviewError::new("open_tree", source, Errno::ESTALE)),
        _ => Shape::File,
    };
    mount::set_attributes(tree.as_fd(), op.attributes, 0, *recursive)
        .map_err(|error| FsviewError::new("mount_setattr", &op.target, error))?;
    Ok(Some(Copied::Tree { tree, shape, key: key(&status) }))
}
