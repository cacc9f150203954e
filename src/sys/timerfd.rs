//! Timers behind descriptors (timerfd_create(2)): what is left of them.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

const SECOND: u64 = 1_000_000_000;

/// A timer that runs, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// Until it ends.
    pub left: u64,
    /// From one end to the next; 0 when it ends once.
    pub interval: u64,
}

/// What is left of a timer; `None` when it does not run.
///
/// # Errors
/// The errno of timerfd_gettime(2).
pub fn running(timer: BorrowedFd<'_>) -> io::Result<Option<Running>> {
    let nothing = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut value = libc::itimerspec { it_interval: nothing, it_value: nothing };
    // SAFETY: the kernel writes one itimerspec, which outlives the call.
    let asked = unsafe { libc::timerfd_gettime(timer.as_raw_fd(), &raw mut value) };
    super::checked(libc::c_long::from(asked))?;
    let whole = |time: libc::timespec| {
        let part = |part: i64| u64::try_from(part).unwrap_or(0);
        part(time.tv_sec).saturating_mul(SECOND).saturating_add(part(time.tv_nsec))
    };
    let (left, interval) = (whole(value.it_value), whole(value.it_interval));
    Ok((left > 0).then_some(Running { left, interval }))
}

/// Sets a timer, counted from now; nothing left ends it at once.
///
/// # Errors
/// The errno of timerfd_settime(2).
pub fn set(timer: BorrowedFd<'_>, running: Running) -> io::Result<()> {
    let time = |time: u64| libc::timespec {
        tv_sec: (time / SECOND).cast_signed(),
        tv_nsec: (time % SECOND).cast_signed(),
    };
    let value = libc::itimerspec { it_interval: time(running.interval), it_value: time(running.left.max(1)) };
    let none = std::ptr::null_mut();
    // SAFETY: the kernel reads one itimerspec, which outlives the call, and writes none.
    let set = unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const value, none) };
    super::checked(libc::c_long::from(set)).map(|_| ())
}
