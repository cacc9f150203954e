//! Makes the built view the root of the calling process and leaves the old one behind.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::mount::{MntFlags, umount2};
use nix::unistd::{chdir, fchdir, pivot_root};

use super::FsviewError;

/// Enters `root`, see pivot_root(2), "pivot_root(\".\", \".\")"; every process whose root is that of
/// the caller enters it as well. The old root stays mounted on top of the new one, where no path
/// leads, until [`leave_old_root`].
///
/// # Errors
/// The first call that the kernel refused.
pub fn enter(root: &OwnedFd) -> Result<(), FsviewError> {
    fchdir(root).map_err(|errno| FsviewError::new("fchdir", "/", errno))?;
    pivot_root(".", ".").map_err(|errno| FsviewError::new("pivot_root", "/", errno))
}

/// Takes the old root away, directly after [`enter`]. It waits for a grace period of the kernel.
///
/// # Errors
/// As [`enter`].
pub fn leave_old_root() -> Result<(), FsviewError> {
    umount2(".", MntFlags::MNT_DETACH).map_err(|errno| FsviewError::new("umount2", "/", errno))?;
    chdir(Path::new("/")).map_err(|errno| FsviewError::new("chdir", "/", errno))
}
