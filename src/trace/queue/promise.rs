//! Room for the entry of something that is under way: it can be recorded also when nothing else can any more.

use std::fmt;
use std::sync::Arc;

use super::super::chain::Body;
use super::super::effect::Effect;
use super::super::error::TraceError;
use super::super::event::Event;
use super::super::layout::LONGEST_WRITTEN_LINE;
use super::super::space::Space;
use super::super::tally::Tally;
use super::{Item, Queue, now_micros};

/// Room that is kept for one entry. Dropped, it is given back.
#[derive(Default)]
pub struct Promise {
    queue: Option<Arc<Queue>>,
    bytes: u64,
}

impl Promise {
    /// Keeps so many bytes more.
    ///
    /// # Errors
    /// When the disk has no room: what the entry is about must not go on, and the run stops.
    pub fn grow(&mut self, bytes: u64) -> Result<(), TraceError> {
        if let Some(queue) = &self.queue {
            queue.keep(bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.as_ref().filter(|_| self.bytes > 0) {
            let mut state = queue.lock();
            state.kept = state.kept.saturating_sub(self.bytes);
        }
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Queue {
    /// Keeps room for an entry of at most so many bytes.
    pub(in crate::trace) fn promise(self: &Arc<Self>, bytes: u64) -> Result<Promise, TraceError> {
        self.keep(bytes)?;
        Ok(Promise { queue: Some(Arc::clone(self)), bytes })
    }

    fn keep(&self, bytes: u64) -> Result<(), TraceError> {
        let mut state = self.lock();
        state.check_open()?;
        state.reserve(bytes)?;
        state.kept += bytes;
        Ok(())
    }

    /// Accepts the entry that room was kept for, whatever has failed since.
    pub(in crate::trace) fn accept_promised(
        &self,
        event: &Event,
        promise: Promise,
    ) -> Result<(), TraceError> {
        self.accept_kept(Body::new(event), promise, |tally| tally.count(event))
    }

    /// The same of an effect that is written already.
    pub(in crate::trace) fn accept_effect(
        &self,
        effect: Effect<'_>,
        promise: Promise,
    ) -> Result<(), TraceError> {
        self.accept_kept(Body::of_effect(effect), promise, Tally::count_effect)
    }

    fn accept_kept(
        &self,
        body: Body,
        mut promise: Promise,
        count: impl FnOnce(&mut Tally),
    ) -> Result<(), TraceError> {
        let body = Arc::new(body);
        let bound = body.line_bound();
        if bound > LONGEST_WRITTEN_LINE {
            return Err(TraceError::EntryTooLong { bytes: bound, limit: LONGEST_WRITTEN_LINE });
        }
        let mut state = self.wait_for_room(self.lock());
        if state.ending {
            return Err(TraceError::Sealed);
        }
        let kept = std::mem::take(&mut promise.bytes);
        state.kept = state.kept.saturating_sub(kept);
        if bound > kept {
            state.reserve(bound)?;
        }
        state.promised += bound;
        count(&mut state.tally);
        state.enqueue(Item { body, count: None, micros: now_micros() }, bound);
        let spent = std::mem::take(&mut state.spent);
        let ticket = state.accepted;
        let waits = state.space.as_ref().is_some_and(Space::write_through) && state.failure.is_none();
        if state.wakes(waits) {
            self.work_arrived.notify_one();
        }
        if waits {
            return self.wait_until_stored(state, ticket);
        }
        // Not under the lock.
        drop(state);
        drop(spent);
        Ok(())
    }
}
