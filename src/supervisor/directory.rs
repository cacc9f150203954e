//! Directories: one that a rule grants, and that is asked for as a directory, is opened at once.
//!
//! Elsewhere a file is found first, by O_PATH, for to open a device or a FIFO has effects. To open a directory has none.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

use super::access::{Area, Decision};
use super::beside::is_plain;
use super::call::{Call, Reply};
use super::request::Request;
use super::view::{Found, Spelled};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;

impl Supervisor {
    /// Opens a directory by a path without links, if a rule grants that.
    pub(super) fn open_directory(
        &mut self,
        call: &Call,
        request: &Request,
        spelled: &Spelled,
    ) -> Result<Option<Reply>, Stop> {
        if !is_plain(request, &spelled.absolute) {
            return Ok(None);
        }
        let path = Path::new(OsStr::from_bytes(&spelled.absolute));
        let rule = match self.access.decide(PathAccess::Read, path, None) {
            // What the kernel opens by itself is not recorded.
            Decision::Allow(Area::Rule(rule)) if !self.access.is_system(path) => rule,
            _ => return Ok(None),
        };
        let flags = (request.flags & !OFlag::O_NOFOLLOW) | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        let Ok((file, status)) = self.view.open_by_path(&spelled.absolute, flags) else { return Ok(None) };
        // Nothing that was removed, and nothing of the launcher's by another name.
        let is_plain = status.st_nlink > 0 && !self.access.is_own(self.view.id_at(path, &status));
        if !is_plain || self.statuses.follow_reads_of(&status) {
            return Ok(None);
        }
        self.saw_unfollowed(path, &status, &file);
        let found = Found { file, path: path.to_owned(), status };
        self.record_directory(call, spelled, &found, rule)?;
        let close_on_exec = request.flags.contains(OFlag::O_CLOEXEC);
        Ok(Some(Reply::Descriptor { file: found.file, close_on_exec }))
    }
}
