//! A system call that waits for an answer, and the answers.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::errno::Errno;

use super::task::Task;

/// Longest path that the kernel takes (PATH_MAX, with its zero byte).
pub(super) const PATH_MAX: usize = 4096;

/// A waiting call. Its registers are a copy; its memory is read once and then not again.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// By which its notification is answered; 0 where it does not wait.
    pub(super) id: u64,
    pub(super) number: i32,
    pub(super) arguments: [u64; 6],
    pub(super) task: Rc<Task>,
}

impl Call {
    /// A register that the kernel takes as an int: its low half.
    #[allow(clippy::unused_self, reason = "reads as a property of the call")]
    pub(super) fn int(&self, register: u64) -> i32 {
        low_half(register).cast_signed()
    }

    /// Reads a path argument.
    pub(super) fn path(&self, address: u64) -> nix::Result<Vec<u8>> {
        crate::sys::memory::read_string(self.task.tid, address, PATH_MAX).map_err(errno_of)
    }
}

/// Why memory of a task cannot be read.
pub(super) fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EFAULT))
}

/// What the kernel takes of a register where the parameter has 32 bits.
#[allow(clippy::cast_possible_truncation, reason = "the kernel ignores the upper half")]
pub(super) fn low_half(register: u64) -> u32 {
    register as u32
}

/// What the task gets.
pub(super) enum Reply {
    /// The kernel carries the call out: only where it enforces the same thing anyway.
    Continue,
    /// The call fails.
    Errno(Errno),
    /// The call was carried out by us and gave this.
    Value(i64),
    /// The call gives a descriptor of this file.
    Descriptor { file: OwnedFd, close_on_exec: bool },
    /// The answer takes time: a thread finds it.
    Later(Box<dyn FnOnce() -> Self + Send>),
    /// The call was interrupted by a signal; the kernel's own number for what follows.
    Interrupted(i32),
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Continue => formatter.write_str("Continue"),
            Self::Errno(errno) => write!(formatter, "Errno({errno})"),
            Self::Value(value) => write!(formatter, "Value({value})"),
            Self::Descriptor { .. } => formatter.write_str("Descriptor"),
            Self::Interrupted(number) => write!(formatter, "Interrupted({number})"),
            Self::Later(_) => formatter.write_str("Later"),
        }
    }
}

impl From<nix::Result<()>> for Reply {
    fn from(result: nix::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Value(0),
            Err(errno) => Self::Errno(errno),
        }
    }
}
