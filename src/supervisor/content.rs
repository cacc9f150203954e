//! A file's content, and what tells that it has not changed.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::stat::FileStat;

/// A file that changed this recently may change again within one tick of its time stamp, so
/// its digest is not remembered (the racy-clean rule of git).
const RACY_SECONDS: i64 = 2;

/// A content: its SHA-256 in hex, and its size in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sha256: String,
    pub(super) size: u64,
}

/// What changes whenever the content does, on file systems that keep times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: i64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

impl Identity {
    pub(super) fn of(status: &FileStat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
            size: status.st_size,
            modified: (status.st_mtime, status.st_mtime_nsec),
            changed: (status.st_ctime, status.st_ctime_nsec),
        }
    }

    /// Whether it changed so long ago that its next change will show.
    pub(super) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let newest = self.modified.0.max(self.changed.0);
        i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(newest) > RACY_SECONDS
    }
}
