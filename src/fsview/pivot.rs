//! Makes the built view the root of the calling process and leaves the old one behind.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::mount::{MntFlags, umount2};
use nix::unistd::{chdir, fchdir, pivot_root};

use super::FsviewError;

/// Enters `root`, see pivot_root(2), "pivot_root(\".\", \".\")".
///
/// # Errors
/// The first call that the kernel refused.
pub fn enter(root: &OwnedFd) -> Result<(), FsviewError> {
    fchdir(root).map_err(|errno| FsviewError::new("fchdir", "/", errno))?;
    pivot_root(".", ".").map_err(|errno| FsviewError::new("pivot_root", "/", errno))?;
    // The old root is mounted on top of the new one now.
    umount2(".", MntFlags::MNT_DETACH).map_err(|errno| FsviewError::new("umount2", "/", errno))?;
    chdir(Path::new("/")).map_err(|errno| FsviewError::new("chdir", "/", errno))
}
