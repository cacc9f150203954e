//! The thread that writes what passes: bodies are hashed, compressed and stored beside the event loop, not in it.
//!
//! What is handed over is bounded. Whoever reads from a socket asks [`Scribe::poll_ready`] before,
//! and so a transfer never runs ahead of its record by more than [`MOST`]; once something cannot be
//! stored, nothing is read any more. Bytes are handed over before they pass, and the disk has room for them then:
//! what passed is stored, also where the disk is full.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;

use super::error::NetproxyError;
use crate::trace::{Event, Promise, Recorder, TraceError};

mod desk;

pub(crate) use self::desk::Desk;
pub(super) use self::desk::Parts;

/// Bytes that may wait to be stored.
const MOST: usize = 2 << 20;

/// Those that wait for room are woken when so few are left.
const FEW: usize = MOST / 2;

/// How long work gathers once there is some, and how long more is waited for once it is done: a wake for each piece
/// would cost more than the piece.
const GATHER: Duration = Duration::from_millis(4);

/// So many bytes are worth a wake at once.
const GATHERED: usize = MOST / 8;

/// What an entry is counted as, while it waits.
const ENTRY: usize = 4 << 10;

/// Places that are kept for the next work, and entries that are let go of elsewhere.
const KEPT: usize = 256;

/// Where so many of those wait, more of them are let go of than are made.
const MANY: usize = KEPT / 2;

/// What each piece is counted as, besides its bytes.
const PIECE: usize = 64;

/// Hands work over to the thread, in order.
pub(crate) struct Scribe {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    /// Bytes handed over and not stored yet.
    waiting: AtomicUsize,
    failed: AtomicBool,
    next: AtomicU64,
    recorder: Recorder,
}

#[derive(Default)]
struct Inbox {
    work: Vec<Work>,
    reader: Reader,
    /// Something was done: more may follow soon.
    lingers: bool,
    closed: bool,
    failure: Option<Arc<str>>,
    for_room: Vec<Waker>,
    /// Entries that are made. To let go of memory takes longer on another thread than the one that took it.
    spent: Vec<Arc<dyn Entry>>,
}

/// What the thread is doing.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Reader {
    /// It will look by itself.
    #[default]
    Busy,
    /// It waits for anything at all.
    Idle,
    /// It lets work gather.
    Gathering,
}

enum Work {
    Write { reel: u64, bytes: Bytes, held: u64 },
    Discard { reel: u64 },
    Once(Once),
    Entry(Arc<dyn Entry>, usize),
}

type Once = Box<dyn FnOnce(&mut Desk) -> Result<(), TraceError> + Send>;

/// What an entry is made of. It is let go of where it was made.
pub(super) trait Entry: Send + Sync {
    /// Makes it, once.
    fn make(&self, desk: &mut Desk) -> Result<(), TraceError>;
}

/// A body that is being stored. Dropped before [`Desk::finish`], it leaves nothing.
pub(crate) struct Reel {
    number: u64,
    begun: AtomicBool,
    scribe: Arc<Scribe>,
}

impl Reel {
    /// Adds to the body what is about to pass. Ask [`Scribe::poll_ready`] before.
    ///
    /// An error means that there is no room for it: it must not pass.
    pub(crate) fn write(&self, bytes: Bytes) -> Result<(), NetproxyError> {
        let held = self.scribe.hold(bytes.len(), !self.begun.load(Ordering::Relaxed))?;
        self.begun.store(true, Ordering::Relaxed);
        self.hand_over(bytes, held);
        Ok(())
    }

    /// Begins it with bytes that are held already.
    pub(super) fn begin(&self, bytes: Bytes, held: u64) {
        self.begun.store(true, Ordering::Relaxed);
        self.hand_over(bytes, held);
    }

    /// Adds what says something of bytes that passed: with the room that is left.
    pub(crate) fn note(&self, bytes: Bytes) {
        if self.write(bytes.clone()).is_err() {
            self.hand_over(bytes, 0);
        }
    }

    fn hand_over(&self, bytes: Bytes, held: u64) {
        let weight = bytes.len() + PIECE;
        self.scribe.hand_over(Work::Write { reel: self.number, bytes, held }, weight);
    }
}

impl Drop for Reel {
    fn drop(&mut self) {
        if self.number != 0 {
            self.scribe.hand_over(Work::Discard { reel: self.number }, 0);
        }
    }
}

impl Scribe {
    /// Starts the thread.
    pub(crate) fn start(recorder: Recorder) -> Result<(Arc<Self>, JoinHandle<()>), NetproxyError> {
        let scribe = Arc::new(Self {
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            waiting: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            next: AtomicU64::new(1),
            recorder,
        });
        let desk = Desk::new(Arc::clone(&scribe));
        let thread = std::thread::Builder::new()
            .name("scribe".to_owned())
            .spawn(move || desk.run())
            .map_err(|source| NetproxyError::Thread { source })?;
        Ok((scribe, thread))
    }

    /// Starts a body.
    pub(crate) fn reel(self: &Arc<Self>) -> Reel {
        Reel {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            begun: AtomicBool::new(false),
            scribe: Arc::clone(self),
        }
    }

    /// Makes sure that so many bytes of a body, which `begins` with them, can be stored: what is held for them.
    pub(super) fn hold(&self, length: usize, begins: bool) -> Result<u64, NetproxyError> {
        let held = self.recorder.hold(length, begins);
        held.map_err(|error| NetproxyError::Trace { reason: error.to_string() })
    }

    /// Hands over the making of an entry, which comes after everything that was handed over before.
    pub(crate) fn record(
        &self,
        promise: Promise,
        entry: impl FnOnce(&mut Desk) -> Result<Event, TraceError> + Send + 'static,
    ) {
        let once = Box::new(|desk: &mut Desk| {
            let event = entry(desk)?;
            desk.scribe.recorder.record_promised(event, promise)
        });
        self.hand_over(Work::Once(once), ENTRY);
    }

    /// The same with so many bytes of bodies.
    pub(super) fn make(&self, entry: Arc<dyn Entry>, bytes: usize) {
        let weight = ENTRY + bytes;
        self.hand_over(Work::Entry(entry, weight), weight);
    }

    /// Whether more may be read: not while too much waits, and never again after a failure.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), NetproxyError>> {
        let failed = self.failed.load(Ordering::Relaxed) || self.recorder.failed();
        if self.waiting.load(Ordering::Relaxed) < MOST && !failed {
            return Poll::Ready(Ok(()));
        }
        let mut inbox = self.lock();
        if let Some(reason) = inbox.failure.clone().or_else(|| self.recorder.failure()) {
            return Poll::Ready(Err(NetproxyError::Trace { reason: reason.to_string() }));
        }
        // Looked at under the lock, under which the thread looks for whom to wake.
        if self.waiting.load(Ordering::Relaxed) < MOST {
            return Poll::Ready(Ok(()));
        }
        if !inbox.for_room.last().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inbox.for_room.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The same for who can wait.
    pub(crate) async fn ready(&self) -> Result<(), NetproxyError> {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// Lets the thread end once all is stored. Nothing of the run is left that could take the space of what passed.
    pub(crate) fn close(&self) {
        self.recorder.give_up_ballast();
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Whether all that was handed over is stored.
    pub(crate) fn is_idle(&self) -> bool {
        let inbox = self.lock();
        inbox.work.is_empty() && inbox.reader != Reader::Busy
    }

    fn hand_over(&self, work: Work, bytes: usize) {
        let waiting = self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut inbox = self.lock();
        inbox.work.push(work);
        // As many as are made, for what the allocator has at hand for the next exchange is a handful.
        let spent = [inbox.spent.pop(), if inbox.spent.len() > MANY { inbox.spent.pop() } else { None }];
        let worth_it = match inbox.reader {
            Reader::Busy => false,
            Reader::Idle => true,
            Reader::Gathering => waiting >= GATHERED,
        };
        if worth_it {
            inbox.reader = Reader::Busy;
            drop(inbox);
            self.arrived.notify_one();
        } else {
            drop(inbox);
        }
        drop(spent);
    }

    /// Gives back what is `spent`, and waits for work, which is put into the empty `work`. False at the end.
    fn next(&self, work: &mut Vec<Work>, spent: &mut Vec<Arc<dyn Entry>>) -> bool {
        let mut inbox = self.lock();
        let room = KEPT - inbox.spent.len().min(KEPT);
        let kept = spent.len().min(room);
        inbox.spent.extend(spent.drain(..kept));
        // Not under the lock, which a body takes that is dropped.
        drop(inbox);
        spent.clear();
        let mut inbox = self.lock();
        if std::mem::take(&mut inbox.lingers) {
            inbox = self.gather(inbox);
        }
        while inbox.work.is_empty() {
            if inbox.closed {
                return false;
            }
            inbox.reader = Reader::Idle;
            inbox = self.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
            inbox = self.gather(inbox);
        }
        inbox.lingers = true;
        std::mem::swap(&mut inbox.work, work);
        true
    }

    /// Lets work gather, unless it is much already.
    fn gather<'a>(&'a self, mut inbox: MutexGuard<'a, Inbox>) -> MutexGuard<'a, Inbox> {
        if !inbox.closed && self.waiting.load(Ordering::Relaxed) < GATHERED {
            inbox.reader = Reader::Gathering;
            inbox = self.arrived.wait_timeout(inbox, GATHER).unwrap_or_else(PoisonError::into_inner).0;
        }
        inbox.reader = Reader::Busy;
        inbox
    }

    fn stored(&self, bytes: usize) {
        let before = self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        if before >= FEW && before - bytes < FEW {
            let wakers = std::mem::take(&mut self.lock().for_room);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn fail(&self, error: &TraceError) {
        self.failed.store(true, Ordering::Relaxed);
        let mut inbox = self.lock();
        inbox.failure.get_or_insert_with(|| Arc::from(error.to_string()));
        let wakers = std::mem::take(&mut inbox.for_room);
        drop(inbox);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
