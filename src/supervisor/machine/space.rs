//! What statfs(2) and fstatfs(2) tell of a file system: how much of it is free, above all.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use super::{Machine, note};
use crate::supervisor::call::{Call, Reply};
use crate::supervisor::view::View;
use crate::supervisor::{Stop, Supervisor};
use crate::sys::system::{self, STATFS};
use crate::trace::{hex, unhex};

/// What stands before the path that was asked about.
const CALL: &str = "statfs(2)";

impl Supervisor {
    /// Notes what is told, or tells what was noted.
    pub(in crate::supervisor) fn show_space(&mut self, call: &Call) -> Result<Reply, Stop> {
        if matches!(self.machine, Machine::Unseen) {
            return Ok(Reply::Continue);
        }
        // The kernel refuses what is not found, and tells of what has no path: nothing of that changes.
        let Some((file, path)) = self.on_file_system(call) else { return Ok(Reply::Continue) };
        let Ok(today) = system::file_system(file.as_fd()) else { return Ok(Reply::Continue) };
        let name = Path::new(CALL).join(path.strip_prefix("/").unwrap_or(&path));
        let told = if matches!(self.machine, Machine::Shown(..)) {
            self.told(call, &name)?.and_then(|content| space_of(&content))
        } else if self.has_room(call, &name)? {
            note(&self.recorder, call, &name, hex(&today).as_bytes())?;
            Some(today)
        } else {
            None
        };
        Ok(told.map_or(Reply::Continue, |told| self.hand(call, call.arguments[1], &told)))
    }

    /// The file (O_PATH) that is asked about, and its path.
    fn on_file_system(&self, call: &Call) -> Option<(OwnedFd, PathBuf)> {
        let [first, ..] = call.arguments;
        if i64::from(call.number) == libc::SYS_fstatfs {
            let number = call.int(first);
            let path = PathBuf::from(call.task.link(&format!("fd/{number}")).ok()?);
            return path.is_absolute().then_some((call.task.descriptor(number).ok()?, path));
        }
        let path = call.path(first).ok()?;
        let spelled = View::absolute(&call.task, libc::AT_FDCWD, &path).ok()?;
        let found = self.view.find(&spelled.absolute, true).ok()?;
        Some((found.file, found.path))
    }
}

/// The bytes of such an answer, as they stand in the trace.
fn space_of(content: &[u8]) -> Option<[u8; STATFS]> {
    unhex(std::str::from_utf8(content).ok()?)?.try_into().ok()
}
