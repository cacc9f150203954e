//! Where blobs are: a directory that is made when the first of them comes. Many runs have none.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

use super::super::layout::DIRECTORY_MODE;

/// A directory of blobs, made or not.
pub(in crate::trace) struct Place {
    made: OnceLock<OwnedFd>,
    /// Where it is made, and its name there; nobody has that when it is asked for first.
    ahead: Mutex<Option<(OwnedFd, OsString)>>,
}

impl Place {
    /// A directory that is there.
    pub(in crate::trace) fn made(directory: OwnedFd) -> Self {
        Self { made: OnceLock::from(directory), ahead: Mutex::default() }
    }

    /// One of that name, which is not there yet.
    pub(in crate::trace) fn ahead(parent: OwnedFd, name: OsString) -> Self {
        Self { made: OnceLock::new(), ahead: Mutex::new(Some((parent, name))) }
    }

    /// The directory; the first call makes it.
    ///
    /// # Errors
    /// The errno of mkdirat(2): EEXIST where somebody else has taken the name, for what lies there is not the run's.
    pub(super) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(made) = self.made.get() {
            return Ok(made.as_fd());
        }
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((parent, name)) = &*ahead {
            mkdirat(parent, name.as_os_str(), Mode::from_bits_truncate(DIRECTORY_MODE))?;
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let made = openat(parent, name.as_os_str(), flags, Mode::empty())?;
            // Nobody else sets it: the lock is held.
            let _ = self.made.set(made);
            *ahead = None;
        }
        self.made.get().map(OwnedFd::as_fd).ok_or_else(|| nix::errno::Errno::ENOENT.into())
    }
}
