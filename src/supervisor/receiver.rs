//! The memory of a task that waits for an answer, to write that answer into it: where the task may write itself, and
//! never into the memory of a program that was executed meanwhile.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::uio::{pread, pwrite};

use super::Supervisor;
use super::call::Call;
use crate::sys::memory;

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
        self.check_waiting(call)?;
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
    /// This process.
    #[cfg(test)]
    pub(super) fn own() -> Self {
        let memory = std::fs::File::options().read(true).write(true).open("/proc/self/mem");
        Self { thread: i32::try_from(std::process::id()).ok(), memory: memory.ok().map(OwnedFd::from) }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_stay_as_they_are_and_threads_that_end_are_no_end() {
        static CONSTANT: [u8; 8] = [7; 8];
        let own = Receiver::own();
        let at = CONSTANT.as_ptr() as u64;
        assert_eq!(own.write(at, &[1; 8]), Err(Errno::EFAULT));
        assert_eq!(std::hint::black_box(&CONSTANT), &[7; 8]);
        let mut bytes = [0_u8; 8];
        // No thread has this id (PID_MAX_LIMIT).
        for own in [Receiver::own(), Receiver { thread: Some(i32::MAX), ..Receiver::own() }] {
            assert_eq!(own.write(bytes.as_mut_ptr() as u64, &[1; 8]), Ok(8));
        }
        assert_eq!(std::hint::black_box(&bytes), &[1; 8]);
    }

    #[test]
    fn memory_that_is_gone_takes_nothing() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let memory =
            std::fs::File::options().read(true).write(true).open(format!("/proc/{}/mem", child.id()));
        let memory = memory.ok().map(OwnedFd::from);
        child.kill().and_then(|()| child.wait()).expect("ends");
        // Its id may be that of another by now.
        let mut bytes = [0_u8; 8];
        let receiver = Receiver { memory, ..Receiver::own() };
        assert_eq!(receiver.write(bytes.as_mut_ptr() as u64, &[1; 8]), Err(Errno::ESRCH));
        assert_eq!(std::hint::black_box(&bytes), &[0; 8]);
    }
}
