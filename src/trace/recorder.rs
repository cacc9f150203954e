//! The recorder: the handle by which every part of the run says what happened.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::blob::{BlobStore, BlobWriter};
use super::error::TraceError;
use super::event::Event;
use super::queue::{Queue, Repeat};
use super::tally::{Denials, Tally, Totals};

/// A handle to the trace of this run. Clones record into the same trace, from any thread.
#[derive(Clone)]
pub struct Recorder {
    sink: Sink,
    blobs: BlobStore,
}

#[derive(Clone)]
enum Sink {
    File(Arc<Queue>),
    Memory(Arc<Mutex<Memory>>),
}

#[derive(Default)]
struct Memory {
    events: Vec<Event>,
    tally: Tally,
}

impl Recorder {
    pub(super) fn to_file(queue: Arc<Queue>, blobs: BlobStore) -> Self {
        Self { sink: Sink::File(queue), blobs }
    }

    /// Returns a recorder that keeps events and blobs in memory, for tests: see [`events`](Self::events).
    pub fn null() -> Self {
        Self { sink: Sink::Memory(Arc::default()), blobs: BlobStore::in_memory() }
    }

    /// Records an event. When this returns, the disk has room for it; it waits while too much is queued.
    ///
    /// An error means that the effect must not happen and that the run stops.
    pub fn record(&self, event: Event) -> Result<(), TraceError> {
        self.accept(event, Repeat::Keep)
    }

    /// Makes sure, before an effect, that its entry can be written.
    ///
    /// An error means that the effect must not happen and that the run stops.
    pub fn make_room(&self) -> Result<(), TraceError> {
        match &self.sink {
            Sink::File(queue) => queue.make_room(),
            Sink::Memory(_) => Ok(()),
        }
    }

    /// Records a denial. Identical ones that follow become one entry with their `count`.
    pub fn deny(&self, event: Event) -> Result<(), TraceError> {
        self.accept(event, Repeat::Fold)
    }

    /// Records an event of any kind, folding identical ones as [`deny`](Self::deny) does.
    pub fn record_folded(&self, event: Event) -> Result<(), TraceError> {
        self.accept(event, Repeat::Fold)
    }

    /// Starts a body that is stored beside the trace. Name it in an event by the [`BlobRef`](super::BlobRef) that
    /// `finish` returns.
    ///
    /// An error, here or while writing it, means the same as one of [`record`](Self::record).
    pub fn blob(&self) -> Result<BlobWriter, TraceError> {
        if let Sink::File(queue) = &self.sink
            && let Some(reason) = queue.failure()
        {
            return Err(TraceError::Failed { reason });
        }
        Ok(self.blobs.start())
    }

    /// Whether the trace can no longer be written: the run must stop.
    pub fn failed(&self) -> bool {
        self.failure().is_some()
    }

    /// Returns why the trace can no longer be written.
    pub fn failure(&self) -> Option<Arc<str>> {
        match &self.sink {
            Sink::File(queue) => queue.failure(),
            Sink::Memory(_) => None,
        }
    }

    /// Returns how many effects, observations and denials there were, repeats included.
    pub fn totals(&self) -> Totals {
        match &self.sink {
            Sink::File(queue) => queue.totals(),
            Sink::Memory(memory) => memory.lock().unwrap_or_else(PoisonError::into_inner).tally.totals(),
        }
    }

    /// Returns what was refused, the most frequent first.
    pub fn denials(&self) -> Denials {
        match &self.sink {
            Sink::File(queue) => queue.denials(),
            Sink::Memory(memory) => memory.lock().unwrap_or_else(PoisonError::into_inner).tally.denials(),
        }
    }

    /// Returns the events that a recorder in memory holds; one with a file holds none.
    pub fn events(&self) -> Vec<Event> {
        match &self.sink {
            Sink::File(_) => Vec::new(),
            Sink::Memory(memory) => memory.lock().unwrap_or_else(PoisonError::into_inner).events.clone(),
        }
    }

    /// Returns the content of a blob that a recorder in memory holds.
    pub fn blob_content(&self, sha256: &str) -> Option<Vec<u8>> {
        self.blobs.content(sha256)
    }

    fn accept(&self, event: Event, repeat: Repeat) -> Result<(), TraceError> {
        match &self.sink {
            Sink::File(queue) => queue.accept(&event, repeat),
            Sink::Memory(memory) => {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                memory.tally.count(&event);
                memory.events.push(event);
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("totals", &self.totals()).finish_non_exhaustive()
    }
}
