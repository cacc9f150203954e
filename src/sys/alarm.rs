//! A timer of the calling thread that interrupts what it waits in (timer_create(2)).

use std::cell::OnceCell;
use std::io;
use std::time::Duration;

use super::process;

thread_local! {
    /// None where the kernel gives none (RLIMIT_SIGPENDING).
    static ALARM: OnceCell<Option<Alarm>> = const { OnceCell::new() };
}

/// Does what may wait, but no longer than about `most`: what waits then fails with EINTR. `None` where this thread can
/// have no timer, and nothing was done.
pub fn within<T>(most: Duration, call: impl FnOnce() -> T) -> Option<T> {
    ALARM.with(|alarm| {
        let alarm = alarm.get_or_init(|| Alarm::new().ok()).as_ref()?;
        // Again and again: the first may come before the call has begun.
        alarm.set(most).ok()?;
        let result = call();
        // One that goes on only interrupts calls that are made anew then.
        let _ = alarm.set(Duration::ZERO);
        Some(result)
    })
}

struct Alarm(libc::timer_t);

impl Alarm {
    fn new() -> io::Result<Self> {
        process::let_threads_be_interrupted()?;
        process::let_interrupt()?;
        // SAFETY: sigevent is integers and pointers; all zeroes is a valid value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = process::INTERRUPTION as libc::c_int;
        // SAFETY: takes nothing.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = std::ptr::null_mut();
        // SAFETY: `event` and `timer` outlive the call.
        let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        super::checked(libc::c_long::from(made))?;
        Ok(Self(timer))
    }

    /// Every so long; not at all where that is no time.
    fn set(&self, every: Duration) -> io::Result<()> {
        let time = libc::timespec {
            tv_sec: every.as_secs().cast_signed(),
            tv_nsec: i64::from(every.subsec_nanos()),
        };
        let value = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer lives as long as `self`; `value` outlives the call, no old value is asked for.
        let set = unsafe { libc::timer_settime(self.0, 0, &raw const value, std::ptr::null_mut()) };
        super::checked(libc::c_long::from(set)).map(|_| ())
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer is this one's own and is used no more.
        unsafe { libc::timer_delete(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use nix::errno::Errno;

    use super::*;

    #[test]
    fn what_waits_is_interrupted_and_what_does_not_is_done() {
        let (read, write) = nix::unistd::pipe().unwrap();
        for _ in 0..20 {
            let begun = Instant::now();
            let waited = within(Duration::from_millis(1), || nix::unistd::read(&read, &mut [0; 8]));
            assert_eq!(waited, Some(Err(Errno::EINTR)));
            assert!(begun.elapsed() < Duration::from_secs(5));
            nix::unistd::write(&write, b"x").unwrap();
            let done = within(Duration::from_secs(100), || nix::unistd::read(&read, &mut [0; 8]));
            assert_eq!(done, Some(Ok(1)));
        }
    }
}
