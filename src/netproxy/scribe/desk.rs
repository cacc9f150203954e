//! The desk of the thread that writes what passes: the bodies that are open, and the entries that are made.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::{ENTRY, FEW, KEPT, PIECE, Reel, Scribe, Work};
use crate::trace::{BlobRef, BlobWriter, BodyRef, Effect, Members, Promise, TraceError};

/// The thread's side: the bodies that are open.
pub(crate) struct Desk {
    pub(super) scribe: Arc<Scribe>,
    reels: HashMap<u64, BlobWriter>,
    /// Room for the parts of an entry, from one to the next.
    parts: Option<Box<Parts>>,
}

/// The arguments and the result of an entry that is made.
#[derive(Default)]
pub(in super::super) struct Parts {
    pub(in super::super) args: Members,
    pub(in super::super) result: Members,
}

impl Desk {
    pub(super) fn new(scribe: Arc<Scribe>) -> Self {
        Self { scribe, reels: HashMap::new(), parts: None }
    }

    /// Empty parts, which [`record`](Self::record) takes back.
    pub(in super::super) fn parts(&mut self) -> Box<Parts> {
        let mut parts = self.parts.take().unwrap_or_default();
        parts.args.clear();
        parts.result.clear();
        parts
    }

    /// Ends a body and gives it its name.
    pub(crate) fn finish(&mut self, reel: Reel) -> Result<BlobRef, TraceError> {
        self.take(reel)?.finish()
    }

    /// Ends a body of a message: what the entry says of it. A small text that `may_stand` there does.
    pub(crate) fn finish_body(
        &mut self,
        reel: Reel,
        may_stand: impl FnOnce(&str) -> bool,
    ) -> Result<Value, TraceError> {
        self.take(reel)?.finish_in_entry(may_stand)
    }

    /// The same of one that is there as a whole, for which so many bytes are held.
    pub(crate) fn small_body<'a>(
        &mut self,
        bytes: &'a [u8],
        held: u64,
        may_stand: impl FnOnce(&str) -> bool,
    ) -> Result<BodyRef<'a>, TraceError> {
        self.scribe.recorder.small_body(bytes, held, may_stand)
    }

    /// Records an effect of these parts, for which room was kept.
    pub(in super::super) fn record(
        &mut self,
        op: &'static str,
        mut parts: Box<Parts>,
        (proc, rule): (Option<&str>, &str),
        promise: Promise,
    ) -> Result<(), TraceError> {
        let effect = Effect { op, args: &mut parts.args, result: &mut parts.result, proc, rule };
        let recorded = self.scribe.recorder.record_effect(effect, promise);
        self.parts = Some(parts);
        recorded
    }

    /// Stores a body that is there as a whole.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Result<BlobRef, TraceError> {
        let mut writer = self.scribe.recorder.blob()?;
        std::io::Write::write_all(&mut writer, bytes).map_err(|source| TraceError::StoreBlob { source })?;
        writer.finish()
    }

    fn take(&mut self, mut reel: Reel) -> Result<BlobWriter, TraceError> {
        let number = std::mem::take(&mut reel.number);
        match self.reels.remove(&number) {
            Some(writer) => Ok(writer),
            // Nothing was ever written.
            None => Ok(self.scribe.recorder.held_blob()),
        }
    }

    /// Adds to a body from here.
    pub(crate) fn write(&mut self, reel: &Reel, bytes: &[u8]) -> Result<(), TraceError> {
        self.append(reel.number, bytes, 0)
    }

    pub(super) fn run(mut self) {
        let scribe = Arc::clone(&self.scribe);
        let (mut list, mut spent) = (Vec::new(), Vec::new());
        while scribe.next(&mut list, &mut spent) {
            for work in list.drain(..) {
                let (done, bytes) = match work {
                    Work::Write { reel, bytes, held } => {
                        (self.append(reel, &bytes, held), bytes.len() + PIECE)
                    }
                    Work::Discard { reel } => {
                        self.reels.remove(&reel);
                        (Ok(()), 0)
                    }
                    Work::Once(once) => (once(&mut self), ENTRY),
                    Work::Entry(entry, weight) => {
                        let made = entry.make(&mut self);
                        spent.push(entry);
                        (made, weight)
                    }
                };
                if let Err(error) = done {
                    scribe.fail(&error);
                }
                scribe.stored(bytes);
            }
            // Handed over next time; but one that a burst made large is given back.
            list.shrink_to(KEPT);
        }
    }

    fn append(&mut self, reel: u64, bytes: &[u8], held: u64) -> Result<(), TraceError> {
        let writer = self.reels.entry(reel).or_insert_with(|| self.scribe.recorder.held_blob());
        // A transfer that waits for the disk must not wait for the compression as well.
        writer.hurry(self.scribe.waiting.load(Ordering::Relaxed) >= FEW);
        writer.write_held(bytes, held).map_err(|source| TraceError::StoreBlob { source })
    }
}
