//! The turn of a run: the moment from which on it is no longer replayed, but goes on for real.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};
use serde_json::{Map, Value};

/// Whether the turn has come: known to all who answer the run, and heard by the one that waits.
#[derive(Debug)]
pub struct Turn {
    has_come: AtomicBool,
    event: EventFd,
    /// What the trace says when it comes.
    pub said: Map<String, Value>,
}

impl Turn {
    /// One that has not come.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new(said: Map<String, Value>) -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { has_come: AtomicBool::new(false), event, said })
    }

    /// It comes now.
    pub fn come(&self) {
        self.has_come.store(true, Ordering::Release);
        // It cannot be full: it comes once.
        let _ = self.event.write(1);
    }

    /// Whether it has come.
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Acquire)
    }

    /// Nobody has to be woken any more.
    pub fn heard(&self) {
        // Empty where another has heard it.
        let _ = self.event.read();
    }
}

impl AsFd for Turn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
