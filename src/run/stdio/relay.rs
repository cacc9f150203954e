//! One thread that copies a stream between the command and the launcher's own descriptor, and
//! digests what arrives.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{pipe2, read, write};
use sha2::{Digest as _, Sha256};

use super::End;
use crate::sys::{descriptor, pidfd};
use crate::trace::{BlobWriter, hex};

/// As much as a pipe holds (pipe(7)).
const BLOCK: usize = 64 * 1024;

/// Less than that at once, so soon after the last, is one of many short writes: so long others are let come.
const FEW: usize = 4096;
const OFTEN: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(100);

/// So much of an output is kept: enough to see where two part.
const KEPT_OUTPUT: u64 = 1 << 20;

/// A stream that will be copied.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) from: Arc<OwnedFd>,
    /// Bytes that were taken out of it; held while some are.
    pub(super) taken: Arc<Mutex<u64>>,
    pub(super) to: OwnedFd,
    /// The command reads it: what is left when the run ends is not taken from the launcher.
    pub(super) inwards: bool,
    /// Where it ended in the recorded run, if its reader left then.
    pub(super) end: Option<End>,
}

/// What has arrived.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrived {
    digest: Sha256,
    /// In bytes.
    pub(super) size: u64,
    /// Why no more arrives.
    pub(super) failure: Option<Errno>,
    /// Bytes that the command had written when the reader of its output left.
    pub(super) closed_at: Option<u64>,
}

impl Arrived {
    pub(super) fn sha256(&self) -> String {
        hex(&self.digest.clone().finalize())
    }
}

/// What is kept of a stream.
#[derive(Debug)]
struct Kept {
    body: BlobWriter,
    /// Bytes that are still to be kept.
    left: u64,
}

impl Kept {
    /// Keeps what has arrived. False where that fails: then the trace has failed, which stops the run.
    fn take(&mut self, arrived: &[u8]) -> bool {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(arrived.len());
        self.left -= most as u64;
        most == 0 || self.body.write_all(&arrived[..most]).is_ok()
    }
}

/// The thread at work.
#[derive(Debug)]
pub(super) struct Relay {
    arrived: Arc<Mutex<Arrived>>,
    kept: Arc<Mutex<Option<Kept>>>,
    /// Hangs up when the thread has ended.
    ended: OwnedFd,
}

impl Relay {
    /// Starts to copy. When `finish` hangs up nobody writes any more: what is there is copied
    /// still. A stream outwards that cannot be written stops the run behind `init`. What arrives goes into
    /// `kept` too: all of an input, the beginning of an output.
    pub(super) fn start(
        flow: Flow,
        finish: BorrowedFd<'_>,
        init: BorrowedFd<'_>,
        kept: Option<BlobWriter>,
    ) -> io::Result<Self> {
        let arrived = Arc::new(Mutex::new(Arrived::default()));
        let left = if flow.inwards { u64::MAX } else { KEPT_OUTPUT };
        let kept = Arc::new(Mutex::new(kept.map(|body| Kept { body, left })));
        let (ended, alive) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let worker = Worker {
            flow,
            arrived: Arc::clone(&arrived),
            kept: Arc::clone(&kept),
            finish: finish.try_clone_to_owned()?,
            init: init.try_clone_to_owned()?,
        };
        std::thread::Builder::new().name("stdio".to_owned()).spawn(move || {
            worker.work();
            // The command sees the closed pipe before anybody hears that this is over.
            drop(worker);
            drop(alive);
        })?;
        Ok(Self { arrived, kept, ended })
    }

    /// What has arrived until now, as a body of the trace, if it was kept.
    pub(super) fn take_kept(&self) -> (Arrived, Option<BlobWriter>) {
        // Taken together: a byte more in one of them would make another content of it.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (self.arrived(), kept.take().map(|kept| kept.body))
    }

    /// Hangs up when nothing more will arrive.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// What has arrived until now.
    pub(super) fn arrived(&self) -> Arrived {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Outputs that are being written.
static WRITING: AtomicUsize = AtomicUsize::new(0);

/// One of them.
struct Writing;

impl Writing {
    fn begin() -> Self {
        WRITING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        WRITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether somebody has yet to read what the command has written.
pub(crate) fn is_unread() -> bool {
    WRITING.load(Ordering::Relaxed) > 0
}

struct Worker {
    flow: Flow,
    arrived: Arc<Mutex<Arrived>>,
    kept: Arc<Mutex<Option<Kept>>>,
    finish: OwnedFd,
    init: OwnedFd,
}

impl Worker {
    fn work(&self) {
        // Past the limit of RLIMIT_FSIZE: EFBIG is an answer, the signal would end the launcher.
        let mut limit = SigSet::empty();
        limit.add(Signal::SIGXFSZ);
        let result = limit.thread_block().and_then(|()| self.copy());
        // The reader is gone: whoever writes next is told so by SIGPIPE, for our end closes now.
        let Err(errno) = result else { return };
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(errno, Errno::EPIPE | Errno::ECONNRESET) {
            arrived.closed_at = (!self.flow.inwards).then(|| self.written());
        } else {
            arrived.failure = Some(errno);
            if !self.flow.inwards {
                // What the command wrote is lost, and it believes otherwise.
                // It may have ended already: ESRCH.
                let _ = pidfd::kill(self.init.as_fd());
            }
        }
    }

    fn copy(&self) -> nix::Result<()> {
        let mut block = Vec::new();
        let mut last = Instant::now();
        loop {
            let (shown, left) = self.left();
            if left == 0 {
                // The reader left here.
                return Err(Errno::EPIPE);
            }
            if !self.wait()? {
                return Ok(());
            }
            // Not before: the kernel has to give each page of it, while the command is to start.
            block.resize(BLOCK, 0);
            let most = if self.flow.inwards { self.room() } else { BLOCK.min(left) };
            let count = match self.take(&mut block[..most]) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(Errno::EINTR | Errno::EAGAIN) => continue,
                Err(errno) => return Err(errno),
            };
            self.deliver(&block[..count.min(shown)])?;
            if count < FEW && !self.flow.inwards && self.flow.end.is_none() && last.elapsed() < OFTEN {
                self.pause()?;
            }
            last = Instant::now();
        }
    }

    /// Bytes that are still passed on, and that are still taken, before the end of the recorded run's.
    fn left(&self) -> (usize, usize) {
        let taken = *self.flow.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let until = |end: u64| usize::try_from(end.saturating_sub(taken)).unwrap_or(usize::MAX);
        self.flow.end.map_or((usize::MAX, usize::MAX), |end| (until(end.size), until(end.written)))
    }

    /// Bytes that the command has written so far.
    fn written(&self) -> u64 {
        let taken = self.flow.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken + descriptor::waiting(self.flow.from.as_fd()).unwrap_or(0) as u64
    }

    fn take(&self, block: &mut [u8]) -> nix::Result<usize> {
        let mut taken = self.flow.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = read(&self.flow.from, block)?;
        *taken += count as u64;
        Ok(count)
    }

    /// Waits for something to copy; false when there will be none.
    fn wait(&self) -> nix::Result<bool> {
        loop {
            let mut watched = [
                PollFd::new(self.flow.from.as_fd(), PollFlags::POLLIN),
                // Its reader leaves: POLLERR.
                PollFd::new(self.flow.to.as_fd(), PollFlags::empty()),
                PollFd::new(self.finish.as_fd(), PollFlags::empty()),
            ];
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            }
            let events = |at: usize| watched.get(at).and_then(PollFd::revents).unwrap_or(PollFlags::empty());
            let finishing = !events(2).is_empty();
            if !events(1).is_empty() && !self.flow.inwards {
                return Err(Errno::EPIPE);
            }
            if !events(1).is_empty() || (finishing && self.flow.inwards) {
                return Ok(false);
            }
            if !self.flow.inwards && events(0) == PollFlags::POLLHUP {
                // A pipe that nobody writes to, and nothing is left in it.
                return Ok(false);
            }
            if !events(0).is_empty() {
                return Ok(true);
            }
            if finishing {
                return Ok(false);
            }
        }
    }

    /// Lets some more come, unless that is the end: to be woken by each of many short writes costs the writer more than
    /// the write.
    fn pause(&self) -> nix::Result<()> {
        let mut ends = [
            PollFd::new(self.flow.to.as_fd(), PollFlags::empty()),
            PollFd::new(self.finish.as_fd(), PollFlags::empty()),
        ];
        match ppoll(&mut ends, Some(PAUSE.into()), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// What the command's pipe takes without waiting, at least one byte: nothing is taken from others that it
    /// might never read, as far as that can be told.
    fn room(&self) -> usize {
        let waiting = descriptor::waiting(self.flow.to.as_fd()).unwrap_or(0);
        BLOCK.saturating_sub(waiting).max(1)
    }

    fn deliver(&self, mut bytes: &[u8]) -> nix::Result<()> {
        while !bytes.is_empty() {
            let written = {
                let _writing = (!self.flow.inwards).then(Writing::begin);
                write(&self.flow.to, bytes)
            };
            match written {
                Ok(count) => {
                    let (written, rest) = bytes.split_at(count);
                    let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.take_if(|kept| !kept.take(written));
                    let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
                    arrived.digest.update(written);
                    arrived.size += count as u64;
                    bytes = rest;
                }
                Err(Errno::EINTR) => {}
                // Whoever shares the descriptor with us made it non-blocking.
                Err(Errno::EAGAIN) => {
                    let _writing = (!self.flow.inwards).then(Writing::begin);
                    self.wait_for_room()?;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self) -> nix::Result<()> {
        match poll(&mut [PollFd::new(self.flow.to.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}
