//! What the loop waits for.

use std::os::fd::{AsFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Stop, Supervisor};

/// Most descriptors, where no random device is open.
const WATCHED: usize = 5;

/// What there is to do.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) signal: bool,
    pub(super) channel: bool,
    pub(super) written: bool,
    pub(super) call: bool,
    pub(super) closed: bool,
    /// Of each random device that a task has open, whether it is to be served.
    pub(super) devices: Vec<bool>,
}

impl Ready {
    pub(super) fn is_nothing(&self) -> bool {
        let Self { signal, channel, written, call, closed, devices } = self;
        !(*signal || *channel || *written || *call || *closed || devices.contains(&true))
    }
}

/// Whether a call of `listener` waits to be taken.
pub(super) fn is_called(listener: BorrowedFd<'_>) -> bool {
    let mut calls = [PollFd::new(listener, PollFlags::POLLIN)];
    let found = poll(&mut calls, PollTimeout::ZERO);
    found.is_ok() && calls[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN))
}

impl Supervisor {
    pub(super) fn wait(&mut self, listening: bool) -> Result<Ready, Stop> {
        if !self.expected.is_empty() {
            // A start was let go on, and the kernel loads the program.
            self.check_meanwhile()?;
        }
        let mut watched = Vec::with_capacity(WATCHED);
        // First: where a call waits already, the kernel does not queue us for the others.
        if listening {
            watched.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        watched.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        watched.push(PollFd::new(self.written.descriptor(), PollFlags::POLLIN));
        if !self.silent {
            watched.push(PollFd::new(self.channel.as_fd(), PollFlags::POLLIN));
        }
        if let Some(turn) = &self.turn {
            watched.push(PollFd::new(turn.as_fd(), PollFlags::POLLIN));
        }
        if let Some(following) = &self.following {
            watched.extend(following.feeds.watched());
        }
        match poll(&mut watched, self.patience()) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(errno) => return Err(Stop::Receive { call: "poll", source: errno.into() }),
        }
        let mut events = watched.iter().map(|watched| watched.revents().unwrap_or(PollFlags::empty()));
        let mut next =
            |present: bool| if present { events.next() } else { None }.unwrap_or(PollFlags::empty());
        let (calls, signals, written) = (next(listening), next(true), next(true));
        let channel = next(!self.silent);
        // Whether it has come is asked of itself.
        next(self.turn.is_some());
        Ok(Ready {
            signal: signals.contains(PollFlags::POLLIN),
            channel: channel.intersects(PollFlags::POLLIN | PollFlags::POLLHUP),
            written: written.contains(PollFlags::POLLIN),
            call: calls.contains(PollFlags::POLLIN),
            closed: !calls.contains(PollFlags::POLLIN) && calls.contains(PollFlags::POLLHUP),
            devices: events.map(|events| !events.is_empty()).collect(),
        })
    }
}
