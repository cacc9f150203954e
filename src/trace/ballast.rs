//! Disk space for bodies that have passed on and are not stored yet: a file without a name holds it, and is given up
//! when the disk is full and the run has ended, so that nobody in the run can take it first.

use std::fs::File;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::space::{Purpose, Space};

/// How long the end of the run is waited for. It comes within moments, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reservation of one run.
#[derive(Default)]
pub(super) struct Ballast {
    state: Mutex<State>,
    given_up: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` until the first body comes, and again at the end.
    space: Option<Space>,
    /// Bytes that passed and are not stored.
    needed: u64,
    given_up: bool,
}

impl Ballast {
    /// Makes sure that `bytes` more can be stored. `make` gives the file.
    pub(super) fn hold(&self, bytes: u64, make: impl FnOnce() -> io::Result<File>) -> io::Result<()> {
        let mut state = self.lock();
        let needed = state.needed.saturating_add(bytes);
        if !state.given_up {
            let space = match &mut state.space {
                Some(space) => space,
                none => none.insert(Space::new(make()?, Purpose::Bodies)),
            };
            space.reserve(needed)?;
        }
        state.needed = needed;
        Ok(())
    }

    /// Notes that `bytes` are stored, or will never be.
    pub(super) fn settle(&self, bytes: u64) {
        let mut state = self.lock();
        state.needed = state.needed.saturating_sub(bytes);
    }

    /// Gives the space up: whoever waits for it takes it.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        state.given_up = true;
        state.space = None;
        self.given_up.notify_all();
    }

    /// Waits until the space is given up.
    pub(super) fn wait(&self) {
        let state = self.lock();
        let waited = self.given_up.wait_timeout_while(state, PATIENCE, |state| !state.given_up);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.space = None;
    }

    /// Bytes that passed and are not stored.
    #[cfg(test)]
    pub(super) fn needed(&self) -> u64 {
        self.lock().needed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
