//! The queue between the producers and the writer: bounded in bytes, and never more than what the disk has promised.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::chain::Body;
use super::error::{Named, TraceError};
use super::event::Event;
use super::fold::{Fold, Folds, Repeats, hash_of};
use super::layout::{LONGEST_WRITTEN_LINE, QUEUE_BYTES, RESERVE_AHEAD, RESERVE_FOR_END};
use super::space::Space;
use super::tally::{Denials, Tally, Totals};

mod observed;
mod promise;
pub use promise::Promise;

/// Longer events are not compared with others: it bounds what the comparison holds.
const LONGEST_FOLDED: u64 = 16 << 10;

/// How long the writer lets events gather once it was woken, and waits for more once it has written: a wake for
/// each of them would cost the producer more than the event itself.
const GATHER: Duration = Duration::from_millis(4);
/// So many bytes are worth a wake at once.
const GATHERED: u64 = QUEUE_BYTES / 8;

/// What the writer's thread is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// It will look at the queue by itself.
    Busy,
    /// It waits for anything at all.
    Idle,
    /// It lets events gather.
    Gathering,
}

/// Whether an event may be folded into an identical one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Fold,
    Keep,
}

/// One entry to be written.
pub(super) struct Item {
    pub(super) body: Arc<Body>,
    pub(super) count: Option<u64>,
    pub(super) micros: u64,
}

/// What the writer has to do next.
pub(super) enum Work {
    Write { items: Vec<Item>, promised: u64 },
    End { run_end: Option<Box<Event>> },
}

pub(super) struct Queue {
    state: Mutex<State>,
    work_arrived: Condvar,
    work_done: Condvar,
    /// Whether there is a failure, for all that ask at every step.
    failed: Arc<AtomicBool>,
}

struct State {
    items: Vec<Item>,
    /// Most bytes of what is queued, being written, or counted as repeats.
    promised: u64,
    /// Most bytes of entries that will be recorded when something that is under way has ended.
    kept: u64,
    /// Most bytes of `items` alone.
    queued: u64,
    /// Where the file ends.
    written_to: u64,
    /// `None` once the writer has ended.
    space: Option<Space>,
    folds: Folds,
    tally: Tally,
    failure: Option<Arc<str>>,
    failed: Arc<AtomicBool>,
    ending: bool,
    run_end: Option<Box<Event>>,
    accepted: u64,
    stored: u64,
    writer: Writer,
    /// Items that are written: who comes next lets go of them, for that takes longer on another thread than the one
    /// that made them.
    spent: Vec<Item>,
    /// It has just written: where one event came, the next is likely.
    lingers: bool,
}

impl Queue {
    pub(super) fn new(mut space: Space) -> Result<Self, TraceError> {
        space
            .reserve(RESERVE_FOR_END)
            .map_err(|source| TraceError::Failed { reason: reserve_reason(&source) })?;
        let failed = Arc::<AtomicBool>::default();
        Ok(Self {
            state: Mutex::new(State {
                items: Vec::new(),
                promised: 0,
                kept: 0,
                queued: 0,
                written_to: 0,
                space: Some(space),
                folds: Folds::default(),
                tally: Tally::default(),
                failure: None,
                failed: Arc::clone(&failed),
                ending: false,
                run_end: None,
                accepted: 0,
                stored: 0,
                writer: Writer::Busy,
                spent: Vec::new(),
                lingers: false,
            }),
            work_arrived: Condvar::new(),
            work_done: Condvar::new(),
            failed,
        })
    }

    /// Makes sure that the entry of an effect that is about to happen can be written.
    pub(super) fn make_room(&self) -> Result<(), TraceError> {
        let mut state = self.lock();
        state.check_open()?;
        state.reserve(RESERVE_AHEAD)
    }

    /// Accepts an event: when this returns, the disk has room for its line.
    pub(super) fn accept(&self, event: &Event, repeat: Repeat) -> Result<(), TraceError> {
        self.accept_body(Arc::new(Body::new(event)), repeat, |tally| tally.count(event))
    }

    fn accept_body(
        &self,
        body: Arc<Body>,
        repeat: Repeat,
        count: impl FnOnce(&mut Tally),
    ) -> Result<(), TraceError> {
        let bound = body.line_bound();
        if bound > LONGEST_WRITTEN_LINE {
            return Err(TraceError::EntryTooLong { bytes: bound, limit: LONGEST_WRITTEN_LINE });
        }
        let hash = (repeat == Repeat::Fold && bound <= LONGEST_FOLDED).then(|| hash_of(&body));
        let mut state = self.wait_for_room(self.lock());
        state.check_open()?;
        if let Some(hash) = hash {
            match state.folds.offer(hash, &body, Instant::now()) {
                Fold::Counted { first_repeat } => {
                    let promise = first_repeat.map_or(Ok(()), |bytes| state.promise(bytes));
                    count(&mut state.tally);
                    if first_repeat.is_some() {
                        self.wake(state);
                    }
                    return promise;
                }
                Fold::Store { evicted } => {
                    evicted.into_iter().for_each(|repeats| state.enqueue_repeats(repeats))
                }
            }
        }
        state.promise(bound)?;
        count(&mut state.tally);
        state.enqueue(Item { body, count: None, micros: now_micros() }, bound);
        let spent = std::mem::take(&mut state.spent);
        let ticket = state.accepted;
        if state.space.as_ref().is_some_and(Space::write_through) {
            if state.wakes(true) {
                self.work_arrived.notify_one();
            }
            return self.wait_until_stored(state, ticket);
        }
        self.wake(state);
        // Not under the lock.
        drop(spent);
        Ok(())
    }

    /// Waits until all that was accepted is written, repeats included.
    pub(super) fn settle(&self) -> Result<(), TraceError> {
        let mut state = self.lock();
        let repeats = state.folds.take_all();
        repeats.into_iter().for_each(|repeats| state.enqueue_repeats(repeats));
        let ticket = state.accepted;
        if state.wakes(true) {
            self.work_arrived.notify_one();
        }
        self.wait_until_stored(state, ticket)
    }

    /// Waits while too much is queued.
    fn wait_for_room<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.promised > QUEUE_BYTES && state.failure.is_none() && !state.ending {
            if state.wakes(true) {
                self.work_arrived.notify_one();
            }
            state = self.work_done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Waits for work. The items are in the order of acceptance.
    pub(super) fn next_work(&self) -> Work {
        let mut state = self.lock();
        let at_once = state.space.as_ref().is_some_and(Space::write_through);
        let mut gathered = at_once;
        loop {
            let now = Instant::now();
            let due = if state.ending { state.folds.take_all() } else { state.folds.take_due(now) };
            due.into_iter().for_each(|repeats| state.enqueue_repeats(repeats));
            let lingers = !state.items.is_empty() || state.lingers;
            if lingers && !gathered && !state.ending && state.queued < GATHERED {
                gathered = true;
                state.lingers = false;
                state.writer = Writer::Gathering;
                state = self.wait_for(state, GATHER);
                state.writer = Writer::Busy;
                continue;
            }
            if !state.items.is_empty() {
                state.lingers = true;
                let promised = std::mem::take(&mut state.queued);
                return Work::Write { items: std::mem::take(&mut state.items), promised };
            }
            if state.ending {
                return Work::End { run_end: state.run_end.take() };
            }
            state.writer = Writer::Idle;
            state = match state.folds.due() {
                None => self.work_arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => self.wait_for(state, at.saturating_duration_since(now)),
            };
            gathered = at_once;
            state.writer = Writer::Busy;
        }
    }

    /// Wakes the writer if it waits for what there is now. It would find the lock held if we still had it.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let wakes = state.wakes(false);
        drop(state);
        if wakes {
            self.work_arrived.notify_one();
        }
    }

    /// Notes that work is done (or given up, after a failure) and that the file now ends at `written_to`.
    pub(super) fn finished(&self, items: Vec<Item>, promised: u64, written_to: u64) {
        let mut state = self.lock();
        state.stored += u64::try_from(items.len()).unwrap_or(u64::MAX);
        let before = std::mem::replace(&mut state.spent, items);
        state.promised = state.promised.saturating_sub(promised);
        state.written_to = written_to;
        drop(state);
        self.work_done.notify_all();
        drop(before);
    }

    /// Notes that nothing can be recorded any more.
    pub(super) fn fail(&self, reason: Arc<str>) {
        self.lock().fail(reason);
        self.work_done.notify_all();
    }

    /// Takes no more events, and lets the writer end.
    pub(super) fn end(&self, run_end: Option<Event>) {
        let mut state = self.lock();
        state.ending = true;
        state.run_end = run_end.map(Box::new);
        self.work_arrived.notify_all();
        self.work_done.notify_all();
    }

    /// Lets go of the file.
    pub(super) fn release(&self) {
        self.lock().space = None;
    }

    pub(super) fn failure(&self) -> Option<Arc<str>> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.lock().failure.clone()
    }

    pub(super) fn totals(&self) -> Totals {
        self.lock().tally.totals()
    }

    pub(super) fn denials(&self) -> Denials {
        self.lock().tally.denials()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.work_arrived.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn wait_until_stored(&self, mut state: MutexGuard<'_, State>, ticket: u64) -> Result<(), TraceError> {
        while state.stored < ticket {
            if let Some(reason) = &state.failure {
                return Err(TraceError::Failed { reason: Arc::clone(reason) });
            }
            state = self.work_done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.failure {
            Some(reason) => Err(TraceError::Failed { reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }
}

impl State {
    /// Whether the writer waits for anything, or for what there is now: it is woken then.
    fn wakes(&mut self, at_once: bool) -> bool {
        let wakes = match self.writer {
            Writer::Busy => false,
            Writer::Idle => true,
            Writer::Gathering => at_once || self.queued >= GATHERED,
        };
        if wakes {
            self.writer = Writer::Busy;
        }
        wakes
    }

    fn check_open(&self) -> Result<(), TraceError> {
        if let Some(reason) = &self.failure {
            return Err(TraceError::Failed { reason: Arc::clone(reason) });
        }
        if self.ending {
            return Err(TraceError::Sealed);
        }
        Ok(())
    }

    /// Promises that `bytes` more can be written, beside all that was promised before and the end of the run.
    fn promise(&mut self, bytes: u64) -> Result<(), TraceError> {
        self.reserve(bytes)?;
        self.promised += bytes;
        Ok(())
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), TraceError> {
        let end = self.written_to + self.promised + self.kept + bytes + RESERVE_FOR_END;
        let Some(space) = &mut self.space else {
            return Err(TraceError::Sealed);
        };
        if let Err(source) = space.reserve(end) {
            let reason = reserve_reason(&source);
            self.fail(Arc::clone(&reason));
            return Err(TraceError::Failed { reason });
        }
        Ok(())
    }

    fn enqueue(&mut self, item: Item, bound: u64) {
        self.items.push(item);
        self.queued += bound;
        self.accepted += 1;
    }

    /// Queues a run of repeats, whose bytes were promised when it began.
    fn enqueue_repeats(&mut self, repeats: Repeats) {
        let bound = repeats.body.line_bound();
        self.enqueue(Item { body: repeats.body, count: Some(repeats.count), micros: now_micros() }, bound);
    }

    fn fail(&mut self, reason: Arc<str>) {
        self.failure.get_or_insert(reason);
        self.failed.store(true, Ordering::Release);
    }
}

fn reserve_reason(source: &std::io::Error) -> Arc<str> {
    let fix = more_room(source);
    Arc::from(format!("no disk space can be reserved for it (fallocate): {}: {fix}", Named(source)))
}

/// What would make room on the disk.
pub(super) fn more_room(source: &std::io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EFBIG) => "raise the limit of the size of files (ulimit -f)",
        Some(libc::EDQUOT) => "raise the quota",
        _ => "free some space, or name a file elsewhere with -t",
    }
}

pub(super) fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
