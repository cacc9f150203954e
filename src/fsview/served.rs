//! Inputs of a replay that are not on this host as they were: put into the view from what was captured.
//!
//! The places that they are in are overlays and copies like those that may be written, and read-only for the run.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, futimens};
use nix::sys::time::TimeSpec;

use super::initial::{Content, Former, Restorer, hide};
use super::{Divert, FsviewError};
use crate::sys::descriptor::own_path;
use crate::trace::StoredBlobs;

/// Puts `files` into the places that hold them: each by its path, with a directory or file that can be written;
/// `uppers` are the upper layers of these directories.
///
/// # Errors
/// The first step that failed.
pub fn serve(
    files: &BTreeMap<PathBuf, Former>,
    places: &[(&Path, BorrowedFd<'_>)],
    uppers: &[(&Path, BorrowedFd<'_>)],
    blobs: &StoredBlobs,
) -> Result<(), FsviewError> {
    let divert = Divert::default();
    for (path, former) in files {
        if *former == Former::Absent && !places.iter().any(|(place, _)| *place == path) {
            hide(path, uppers);
        }
        let around = places.iter().filter(|(place, _)| path.starts_with(place));
        let Some((place, fd)) = around.max_by_key(|(place, _)| place.components().count()) else { continue };
        match path.strip_prefix(place) {
            Ok(below) if !below.as_os_str().is_empty() => {
                let restorer = Restorer { root: *fd, divert: &divert, blobs };
                restorer.put_back(&Path::new("/").join(below), former)?;
            }
            _ => fill(*fd, path, former, blobs)?,
        }
    }
    Ok(())
}

/// Gives the copy of a file another content.
fn fill(copy: BorrowedFd<'_>, path: &Path, former: &Former, blobs: &StoredBlobs) -> Result<(), FsviewError> {
    let Former::File { status, size: length, content } = former else { return Ok(()) };
    if !matches!(content, Content::Blob { .. } | Content::Unread) {
        return Ok(());
    }
    let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
    let opened: nix::Result<OwnedFd> =
        nix::fcntl::open(own_path(copy.as_fd()).as_str(), flags, Mode::empty());
    let mut file = File::from(opened.map_err(|errno| FsviewError::new("open", path, errno))?);
    let filled = match content {
        Content::Blob { sha256, size } => {
            blobs.open_sized(sha256, *size).and_then(|mut blob| std::io::copy(&mut blob, &mut file)).map(drop)
        }
        _ => file.set_len(*length),
    };
    filled.map_err(|error| FsviewError::new("write", path, error))?;
    file.set_permissions(Permissions::from_mode(status.mode))
        .map_err(|error| FsviewError::new("fchmod", path, error))?;
    let seconds = status.mtime_ns.div_euclid(1_000_000_000);
    let time = TimeSpec::new(seconds, status.mtime_ns.rem_euclid(1_000_000_000));
    futimens(&file, &time, &time).map_err(|errno| FsviewError::new("futimens", path, errno))
}
