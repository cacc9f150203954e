//! Exclusive locks: taken by us, on a copy of the descriptor that was judged.
//!
//! flock(2) takes one through a descriptor that is open for reading alone, and the host's own programs
//! would wait for it. (Record locks need a descriptor that is open for writing, fcntl(2).) Shared locks
//! never come here: SQLite needs them.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::access::Decision;
use super::call::{Call, Reply};
use super::view::{Spelled, found};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;
use crate::sys::descriptor;

impl Supervisor {
    pub(super) fn lock(&mut self, call: &Call) -> Result<Reply, Stop> {
        let [number, operation, ..] = call.arguments;
        let (number, operation) = (call.int(number), call.int(operation));
        let file = match call.task.fetch(number) {
            Ok(file) => file,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        let writable = match fcntl(&file, FcntlArg::F_GETFL).map(OFlag::from_bits_retain) {
            Ok(flags) if flags.contains(OFlag::O_PATH) => return Ok(Reply::Errno(Errno::EBADF)),
            Ok(flags) => flags & OFlag::O_ACCMODE != OFlag::O_RDONLY,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        if !writable && !self.may_lock(call, &file)? {
            return Ok(Reply::Errno(Errno::EACCES));
        }
        match take(&file, operation | libc::LOCK_NB) {
            Reply::Errno(Errno::EWOULDBLOCK) if operation & libc::LOCK_NB == 0 => {
                Ok(Reply::Later(Box::new(move || take(&file, operation))))
            }
            reply => Ok(reply),
        }
    }

    /// Whether the file may be written, which an exclusive lock stands for.
    fn may_lock(&mut self, call: &Call, file: &OwnedFd) -> Result<bool, Stop> {
        let Ok(file) = file.try_clone().map_err(|_| Errno::EMFILE).and_then(found) else { return Ok(false) };
        let decision = if self.view.is_inherited(&file) {
            Decision::Deny { rule: None, reason: "it was opened outside, for reading alone".to_owned() }
        } else {
            self.decide_file(PathAccess::Write, &file)
        };
        let spelled = Spelled::of_file(&file.path);
        Ok(self.judge(call, PathAccess::Write, &spelled, &file.path, &decision)?.is_some())
    }
}

fn take(file: &OwnedFd, operation: i32) -> Reply {
    match descriptor::lock(file.as_fd(), operation) {
        Ok(()) => Reply::Value(0),
        Err(error) => Reply::Errno(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
    }
}
