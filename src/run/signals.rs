//! The launcher's signals: kept back from the moment that there is something to tidy up.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::RunError;
use crate::ns::heard::PASSED_ON;
use crate::sys::process;
use crate::sys::refused::Refused;

/// Signals that no longer act by themselves.
#[derive(Debug)]
pub struct HeldSignals {
    /// What was blocked before.
    pub(super) former: SigSet,
    pub(super) descriptor: SignalFd,
}

/// Holds the signals back, before the first file of a run is made: from then on none of them ends
/// the launcher in the middle of something. The process must have one thread.
///
/// # Errors
/// When the kernel refuses.
pub fn hold_signals() -> Result<HeldSignals, RunError> {
    // Whoever ignores it hears neither of ends nor of exec events (ptrace(2), wait(2)).
    process::default_action(libc::SIGCHLD).map_err(RunError::call("sigaction(SIGCHLD)"))?;
    let heard = heard();
    let mut held = heard;
    // Past RLIMIT_FSIZE: EFBIG is an answer, the signal would end the launcher.
    held.add(Signal::SIGXFSZ);
    let former = held.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(RunError::call("sigprocmask"))?;
    let descriptor = SignalFd::with_flags(&heard, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(RunError::call("signalfd"))?;
    Ok(HeldSignals { former, descriptor })
}

fn heard() -> SigSet {
    let mut heard = SigSet::empty();
    heard.add(Signal::SIGCHLD);
    PASSED_ON.into_iter().for_each(|signal| heard.add(signal));
    heard
}

/// Holds the same back in the cloned child, until the command's own mask is set: none of them ends a
/// process of the run before there is a command. Gives the former mask.
///
/// # Errors
/// The call and its errno.
pub(super) fn hold_in_child() -> Result<SigSet, Refused> {
    process::default_action(libc::SIGCHLD).map_err(Refused::by("sigaction(SIGCHLD)"))?;
    heard().thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(Refused::by("sigprocmask"))
}

/// A signal that has come meanwhile and that would have ended the launcher; `former` was blocked before.
pub(super) fn ending(former: SigSet) -> Option<Signal> {
    let would_end = |signal: &Signal| {
        !former.contains(*signal)
            && process::is_pending(*signal as i32)
            && !process::is_ignored(*signal as i32)
    };
    PASSED_ON.into_iter().find(would_end)
}
