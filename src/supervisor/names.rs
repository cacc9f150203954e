//! Names that the run lists without opening them: with `run --capture` their statuses and what links hold are kept, so
//! that a replay can list and look at them where they are not.

use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use nix::fcntl::readlinkat;

use super::status::Statuses;
use super::view::Found;
use super::{Stop, Supervisor, listing};
use crate::trace::{Event, Kind};

/// The operation under which the trace holds what links in a directory lead to.
pub const OPERATION: &str = "fs.links";

impl Supervisor {
    /// Notes what a list of `directory`, and stat(2) of the names in it, tell now.
    pub(super) fn note_names(&mut self, directory: &Found) -> Result<(), Stop> {
        let (Some(_), Statuses::Kept(kept)) = (&self.captures, &mut self.statuses) else { return Ok(()) };
        // Whoever cannot list it cannot print it.
        let Ok(entries) = listing::read(&directory.path, &directory.file, &self.access) else {
            return Ok(());
        };
        let mut links = Vec::new();
        for entry in entries {
            let is_link = kept.note_name(&directory.path, directory.file.as_fd(), &entry.name);
            if is_link && let Ok(target) = readlinkat(&directory.file, entry.name.as_os_str()) {
                for word in [&entry.name, &target] {
                    links.extend_from_slice(word.as_bytes());
                    // Neither has one.
                    links.push(0);
                }
            }
        }
        if links.is_empty() {
            return Ok(());
        }
        let event = Event::new(Kind::Meta, OPERATION).path("path", &directory.path);
        let event = event.arg("links", self.recorder.keep(&links)?.private());
        Ok(self.recorder.record_folded(event)?)
    }
}
