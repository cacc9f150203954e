//! Writes that do not reach the host: the writable places of the view are overlays and copies.
//!
//! Files there have other numbers than the host's, by which the launcher's own files and programs are known;
//! and the kernel does not rename a directory that lies in the lower layer.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{RenameFlags, renameat2};
use nix::sys::stat::{FileStat, SFlag, lstat};

use super::access::{AccessTable, is_below};
use super::view::{Found, Place, View};
use super::{CommandTable, Orders, RecordedMachine, RecordedStatuses};
use crate::policy::FileId;
use crate::sys::relocate;

/// What is written inside alone, and in a replay what was recorded of what the run sees.
#[derive(Debug, Default)]
pub struct DivertedRoots {
    /// Directories and files of the host, by their place.
    pub roots: Vec<PathBuf>,
    /// For each place that does not exist yet, the directory that will hold it.
    pub holders: Vec<OwnedFd>,
    /// The order in which directories list their names.
    pub orders: Orders,
    /// What was recorded of the statuses of files.
    pub statuses: Arc<RecordedStatuses>,
    /// What was recorded of the machine.
    pub machine: Option<RecordedMachine>,
    /// What the launcher has put into the view.
    pub made: Vec<PathBuf>,
    /// Files that stand for those that were listed alone: of their content nothing is known.
    pub placeholders: Vec<PathBuf>,
}

impl View {
    /// Knows `placeholders` from now on, by whatever name. What is not found is not opened.
    pub(super) fn with_placeholders(mut self, placeholders: &[PathBuf]) -> Self {
        let found = placeholders.iter().filter_map(|path| self.find(path.as_os_str().as_bytes(), false).ok());
        self.placeholders =
            found.filter(|found| found.kind() == SFlag::S_IFREG).map(|found| found.id()).collect();
        self
    }

    /// The file by which the launcher knows `found`: one that was not changed is the host's at that path.
    pub(super) fn id_of(&self, found: &Found) -> FileId {
        self.id_at(&found.path, &found.status)
    }

    /// The same for the file of that status at `path`.
    pub(super) fn id_at(&self, path: &Path, status: &FileStat) -> FileId {
        let own = FileId { dev: status.st_dev, ino: status.st_ino };
        if !self.is_diverted(path) {
            return own;
        }
        let same = |host: &FileStat| {
            let what =
                |status: &FileStat| (status.st_ino, status.st_mode, status.st_mtime, status.st_mtime_nsec);
            what(host) == what(status)
        };
        match lstat(path) {
            Ok(host) if same(&host) => FileId { dev: host.st_dev, ino: host.st_ino },
            _ => own,
        }
    }

    /// Whether what is written at `path` stays inside.
    pub(super) fn is_diverted(&self, path: &Path) -> bool {
        self.diverted.iter().any(|root| is_below(path, root))
    }

    /// Programs of the command that were put back to what they were have numbers of their own.
    pub(super) fn know_programs(&self, command: &mut CommandTable, access: &AccessTable) {
        for own in command.own.iter_mut().filter(|own| self.is_diverted(&own.path)) {
            if let Ok(found) = self.find(own.path.as_os_str().as_encoded_bytes(), false)
                && !access.is_protected(&found.path, Some(self.id_of(&found)))
            {
                own.id = self.id_of(&found);
            }
        }
    }

    /// As renameat2(2), within one overlay for directories of the lower layer too.
    pub(super) fn rename(&self, from: &Place, to: &Place, flags: RenameFlags) -> nix::Result<()> {
        let (a, b) = (from.directory.file.as_fd(), to.directory.file.as_fd());
        let done = renameat2(a, from.name.as_os_str(), b, to.name.as_os_str(), flags);
        let one_overlay = from.directory.status.st_dev == to.directory.status.st_dev
            && self.is_diverted(&from.path())
            && self.is_diverted(&to.path());
        if done != Err(Errno::EXDEV) || !one_overlay {
            return done;
        }
        let (from, to) = ((a, from.name.as_os_str()), (b, to.name.as_os_str()));
        match flags {
            RenameFlags::RENAME_EXCHANGE => relocate::exchange(from, to),
            // Something there would have been EEXIST.
            _ => relocate::rename_directory(from, to),
        }
    }
}
