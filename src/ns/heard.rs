//! What pid 1 hears of signals to the launcher's process group, of which it is a member: so the launcher knows whether
//! one that it got came to the command as well.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that the launcher passes on to the command.
pub const PASSED_ON: [Signal; 5] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1];

/// Sent by kill(2), and by the kernel (a terminal).
const SI_USER: i32 = 0;
const SI_KERNEL: i32 = 0x80;

/// Signals from outside that have come and were not asked for yet. They are blocked here.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) descriptor: SignalFd,
    come: SigSet,
}

impl Heard {
    pub(super) fn new() -> nix::Result<Self> {
        let descriptor = SignalFd::with_flags(
            &SigSet::from_iter(PASSED_ON),
            SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
        )?;
        Ok(Self { descriptor, come: SigSet::empty() })
    }

    /// Takes what is there; a waiting one of the run's own would hide one from outside (signal(7)).
    pub(super) fn listen(&mut self) {
        while let Ok(Some(signal)) = self.descriptor.read_signal() {
            // Who is outside of the namespace has no number in it (sigaction(2), pid_namespaces(7)). Other codes come
            // of a sender who has filled that in (rt_sigqueueinfo(2)), or of a descriptor with an owner (F_SETSIG).
            let from_outside = signal.ssi_pid == 0 && [SI_USER, SI_KERNEL].contains(&signal.ssi_code);
            if let Ok(number) = Signal::try_from(signal.ssi_signo.cast_signed())
                && from_outside
            {
                self.come.add(number);
            }
        }
    }

    /// Whether this one has come since it was asked for last.
    pub(super) fn take(&mut self, number: u32) -> bool {
        self.listen();
        let Ok(signal) = Signal::try_from(number.cast_signed()) else { return false };
        let come = self.come.contains(signal);
        self.come.remove(signal);
        come
    }
}
