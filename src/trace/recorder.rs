//! The recorder: the handle by which every part of the run says what happened.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::blob::{BlobRef, BlobStore, BlobWriter, BodyRef, room_for};
use super::effect::Effect;
use super::error::TraceError;
use super::event::Event;
use super::observation::Observation;
use super::queue::{Promise, Queue, Repeat};
use super::tally::{Denials, Tally, Totals};

/// Is told each event when it has been accepted, before whoever records it goes on.
pub type Watch = Arc<dyn Fn(&Event) + Send + Sync>;

/// A handle to the trace of this run. Clones record into the same trace, from any thread.
#[derive(Clone)]
pub struct Recorder {
    sink: Sink,
    blobs: BlobStore,
    watch: Option<Watch>,
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
        Self { sink: Sink::File(queue), blobs, watch: None }
    }

    /// Returns a recorder that keeps events and blobs in memory, for tests: see [`events`](Self::events).
    pub fn null() -> Self {
        Self { sink: Sink::Memory(Arc::default()), blobs: BlobStore::in_memory(), watch: None }
    }

    /// The same, and `watch` is told what is recorded by it and its clones.
    #[must_use]
    pub fn watched(self, watch: Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Waits until all that was recorded stands in the file.
    ///
    /// # Errors
    /// When it cannot be written any more.
    pub fn settle(&self) -> Result<(), TraceError> {
        match &self.sink {
            Sink::File(queue) => queue.settle(),
            Sink::Memory(_) => Ok(()),
        }
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

    /// The same of an observation that is written already.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn observe(&self, seen: Observation<'_>) -> Result<(), TraceError> {
        match &self.sink {
            Sink::File(queue) if self.watch.is_none() => queue.accept_observation(seen),
            Sink::File(_) | Sink::Memory(_) => self.record_folded(seen.into()),
        }
    }

    /// Starts a body that is stored beside the trace. Name it in an event by the [`BlobRef`] that
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

    /// Stores something of the launcher's own as a whole. A short one stands there as it is: it may be the only one of a
    /// run, and to make what compresses it would take longer than all else about it.
    ///
    /// # Errors
    /// As for any other body.
    pub fn keep(&self, bytes: &[u8]) -> Result<BlobRef, TraceError> {
        const SHORT: usize = 8 << 10;
        let mut blob = self.blob()?;
        blob.hurry(bytes.len() <= SHORT);
        blob.write_all(bytes).map_err(|source| TraceError::StoreBlob { source })?;
        blob.finish()
    }

    /// Keeps room for the entry, of about so many bytes, of something that is about to begin.
    ///
    /// # Errors
    /// As [`record`](Self::record): it must not begin.
    pub fn promise(&self, bytes: u64) -> Result<Promise, TraceError> {
        match &self.sink {
            Sink::File(queue) => queue.promise(bytes),
            Sink::Memory(_) => Ok(Promise::default()),
        }
    }

    /// Records what room was kept for, also when nothing else can be recorded any more.
    ///
    /// # Errors
    /// When it is longer than the room and the disk has no more, or the trace is sealed.
    pub fn record_promised(&self, event: Event, promise: Promise) -> Result<(), TraceError> {
        match &self.sink {
            Sink::File(queue) => {
                queue.accept_promised(&event, promise)?;
                self.tell(&event);
                Ok(())
            }
            Sink::Memory(_) => self.accept(event, Repeat::Keep),
        }
    }

    /// The same of an effect that is written already.
    ///
    /// # Errors
    /// As [`record_promised`](Self::record_promised).
    pub fn record_effect(&self, effect: Effect<'_>, promise: Promise) -> Result<(), TraceError> {
        match &self.sink {
            Sink::File(queue) if self.watch.is_none() => queue.accept_effect(effect, promise),
            Sink::File(_) | Sink::Memory(_) => self.record_promised(effect.into(), promise),
        }
    }

    /// Makes sure that so many bytes of a body, which `begins` with them or not and which are about to pass, can be
    /// stored: what is held for them.
    ///
    /// # Errors
    /// As [`record`](Self::record): they must not pass.
    pub fn hold(&self, length: usize, begins: bool) -> Result<u64, TraceError> {
        if let Some(reason) = self.failure() {
            return Err(TraceError::Failed { reason });
        }
        let bytes = room_for(length, begins);
        self.blobs.hold(bytes)?;
        Ok(bytes)
    }

    /// Starts a body whose bytes are each [held](Self::hold) before they are written to it by
    /// [`write_held`](BlobWriter::write_held). It is stored whatever has failed before; where the disk is full it
    /// waits for [`give_up_ballast`](Self::give_up_ballast).
    pub fn held_blob(&self) -> BlobWriter {
        self.blobs.start_held()
    }

    /// Stores a small body as a whole, for which so many bytes are [held](Self::hold): what the entry says of it. A text
    /// that `may_stand` there stands in the entry itself.
    ///
    /// # Errors
    /// As for any other body.
    pub fn small_body<'a>(
        &self,
        bytes: &'a [u8],
        held: u64,
        may_stand: impl FnOnce(&str) -> bool,
    ) -> Result<BodyRef<'a>, TraceError> {
        self.blobs.small(bytes, held, may_stand)
    }

    /// The run has ended: what passed may take the space that was held for it.
    pub fn give_up_ballast(&self) {
        self.blobs.give_up_ballast();
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

    fn tell(&self, event: &Event) {
        if let Some(watch) = &self.watch {
            watch(event);
        }
    }

    fn accept(&self, event: Event, repeat: Repeat) -> Result<(), TraceError> {
        match &self.sink {
            Sink::File(queue) => {
                queue.accept(&event, repeat)?;
                self.tell(&event);
                Ok(())
            }
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
