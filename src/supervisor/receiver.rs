//! The memory of a task that waits for an answer, to write that answer into it: where the task may write itself, and
//! never into the memory of a program that was executed meanwhile.

use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::uio::{pread, pwrite};

use super::Supervisor;
use super::call::Call;
use crate::sys::{memory, seccomp};

/// The memory of one task.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Leads to the memory, and respects how its pages are protected.
    thread: Option<i32>,
    /// The memory itself, protected pages too (/proc/PID/mem): for when the thread has ended.
    memory: Option<OwnedFd>,
}

impl Supervisor {
    /// The memory of the task that waits in `call`.
    pub(super) fn receiver(&mut self, call: &Call) -> nix::Result<Receiver> {
        let task = &call.task;
        // A thread that is not the main one has the memory of its process as long as it has its id: by execve(2) it
        // would lose that. So has the main one while it is alone.
        let thread = match self.tasks.kin() {
            _ if task.tid != task.tgid => Some(task.tid),
            Some(kin) => Some(kin.thread_of(task.tgid).unwrap_or(task.tid)),
            None => None,
        };
        // Not there where the task hides it, and we are not root (PR_SET_DUMPABLE).
        let memory = task.memory().ok();
        // Else it could be that of the program that another thread has executed meanwhile.
        if !seccomp::still_waits(self.listener.as_fd(), call.id) {
            return Err(Errno::ESRCH);
        }
        Ok(Receiver { thread, memory })
    }

    /// Writes all of `bytes` into the memory of the task that waits in `call`.
    pub(super) fn give(&mut self, call: &Call, address: u64, bytes: &[u8]) -> nix::Result<()> {
        match self.receiver(call)?.write(address, bytes)? {
            count if count == bytes.len() => Ok(()),
            _ => Err(Errno::EFAULT),
        }
    }
}

impl Receiver {
    /// Writes what there is room for; EPERM where the memory is hidden.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> nix::Result<usize> {
        let at = i64::try_from(address).map_err(|_| Errno::EFAULT)?;
        // The memory is gone, and the id of the thread may be another's.
        if self.memory.as_ref().is_some_and(|memory| pread(memory, &mut [0], at) == Ok(0)) {
            return Err(Errno::ESRCH);
        }
        let errno = match self.thread.map(|thread| memory::write_some(thread, address, bytes)) {
            Some(Ok(count)) => return Ok(count),
            Some(Err(error)) => error.raw_os_error().map_or(Errno::EPERM, Errno::from_raw),
            None => Errno::EPERM,
        };
        match &self.memory {
            Some(memory) if errno != Errno::EFAULT => pwrite(memory, bytes, at),
            _ => Err(errno),
        }
    }
}
