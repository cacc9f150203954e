//! The flags of the launcher's terminals, which it shares with whoever has started it (F_SETFL, fcntl(2)).

use std::io;
use std::os::fd::AsFd as _;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::treatment::Treatment;

/// What they were; when it is dropped, they are so again. Left with O_NONBLOCK, a terminal would give EAGAIN to
/// whatever reads it next.
#[derive(Debug)]
pub(super) struct Flags([Option<OFlag>; 3]);

impl Flags {
    /// Looks at those of what is handed in as it is.
    pub(super) fn look(treatments: &[Treatment; 3]) -> Self {
        let own = (io::stdin(), io::stdout(), io::stderr());
        let own = [own.0.as_fd(), own.1.as_fd(), own.2.as_fd()];
        let mut flags = [None; 3];
        for ((flags, own), treatment) in flags.iter_mut().zip(own).zip(treatments) {
            if matches!(treatment, Treatment::Passed(_)) {
                *flags = fcntl(own, FcntlArg::F_GETFL).ok().map(OFlag::from_bits_retain);
            }
        }
        Self(flags)
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        let own = (io::stdin(), io::stdout(), io::stderr());
        for (flags, own) in self.0.iter().zip([own.0.as_fd(), own.1.as_fd(), own.2.as_fd()]) {
            // A terminal that has gone away has no use for them.
            let _ = flags.map(|flags| fcntl(own, FcntlArg::F_SETFL(flags)));
        }
    }
}
