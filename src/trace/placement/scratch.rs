//! Scratch: a private directory in which the trace of a replay is written, gone when it was compared.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;

use super::super::error::TraceError;
use super::super::layout::REPLAYS_NAME;
use super::super::queue::now_micros;
use super::directory::{Directory, lock};
use super::pending::hold;
use super::state::StateDirectories;

/// A directory of this process alone. Dropped, it is gone with all that is in it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Says that it is in use.
    _lock: Flock<File>,
}

impl Scratch {
    /// Makes one in the state directory; what killed replays left there is removed.
    ///
    /// # Errors
    /// When no place for it is private, or it cannot be made.
    pub fn new() -> Result<Self, TraceError> {
        let parent = StateDirectories::from_environment().create(REPLAYS_NAME)?;
        let create = |source| TraceError::Create { path: parent.path().to_owned(), source };
        let _guard = hold(&parent).map_err(create)?;
        remove_left_over(&parent);
        let name = OsString::from(format!("{}-{}", now_micros(), std::process::id()));
        let directory = parent.create_directory(&name).map_err(create)?;
        let held = directory.open_self().and_then(lock).map_err(create)?;
        let held = held.ok_or_else(|| TraceError::Busy { path: directory.path().to_owned() })?;
        Ok(Self { path: directory.path().to_owned(), _lock: held })
    }

    /// Removes those that killed commands left.
    pub fn clear() {
        clean_up(&StateDirectories::from_environment());
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed by the next replay.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories that nobody holds.
fn remove_left_over(parent: &Directory) {
    for name in parent.names().unwrap_or_default() {
        let Ok(directory) = parent.open_directory(&name) else { continue };
        if let Ok(Some(_lock)) = directory.open_self().and_then(lock) {
            let _ = std::fs::remove_dir_all(directory.path());
        }
    }
}

/// Removes what killed replays left in the state directory.
pub(super) fn clean_up(state: &StateDirectories) {
    for parent in state.existing_below(REPLAYS_NAME) {
        let Ok(_guard) = hold(&parent) else { continue };
        remove_left_over(&parent);
    }
}
