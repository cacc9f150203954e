//! The writer: one thread that owns the chain and the file, and appends lines.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use nix::unistd::ftruncate;
use serde_json::json;

use super::blob::{BlobStore, Place};
use super::chain::{Body, Chain};
use super::error::{Named, TraceError};
use super::event::Event;
use super::layout::{CHECKPOINT_ENTRIES, CHECKPOINT_SECONDS};
use super::placement::{Placed, Placement};
use super::queue::{Item, Queue, Work, now_micros};
use super::recorder::Recorder;
use super::space::{Purpose, Space};

/// Starts the writer for a placed trace. The first event to record is `meta run.start`.
///
/// This starts a thread: clone the run's first process before.
pub fn create(placement: Placement) -> Result<(Recorder, WriterHandle), TraceError> {
    let (placement, file, blobs) = placement.into_parts()?;
    match start(file, blobs) {
        Ok(Started { recorder, queue, thread, sealed }) => {
            Ok((recorder, WriterHandle { queue, sealed, thread: Some(thread), placement: Some(placement) }))
        }
        Err(error) => {
            placement.discard();
            Err(error)
        }
    }
}

/// Lines of so many bytes are written together: a write for each would cost more than its hash.
const WRITTEN_AT_ONCE: usize = 32 << 10;

type WriterThread = JoinHandle<Result<(), TraceError>>;

fn start(file: Flock<File>, blobs: Place) -> Result<Started, TraceError> {
    let another = file.try_clone().map_err(|source| TraceError::StartWriter { source })?;
    let queue = Arc::new(Queue::new(Space::new(another, Purpose::Lines))?);
    let (seals, sealed) = mpsc::sync_channel(1);
    let writer = Writer {
        queue: Arc::clone(&queue),
        seals,
        file,
        chain: Chain::new(),
        line: String::new(),
        lines: String::new(),
        written_to: 0,
        failed: false,
        checkpoint: Checkpoint { entries: 0, at: Instant::now() },
    };
    let thread = thread::Builder::new()
        .name("trace".to_owned())
        .spawn(move || writer.run())
        .map_err(|source| TraceError::StartWriter { source })?;
    let blobs = BlobStore::new(blobs, Some(Arc::clone(&queue)));
    let recorder = Recorder::to_file(Arc::clone(&queue), blobs);
    Ok(Started { recorder, queue, thread, sealed })
}

struct Started {
    recorder: Recorder,
    queue: Arc<Queue>,
    thread: WriterThread,
    sealed: Receiver<Sealed>,
}

/// The end of the writer that closes the trace. Dropped without [`seal`](Self::seal), it leaves an unsealed trace.
pub struct WriterHandle {
    queue: Arc<Queue>,
    sealed: Receiver<Sealed>,
    thread: Option<WriterThread>,
    placement: Option<Placement>,
}

impl WriterHandle {
    /// Writes `run_end` (with the totals beside its arguments) and the seal, and puts the trace in place. Call it
    /// after the last process of the run has ended.
    ///
    /// After a failure of the writer, what could be written is still put in place, and the failure is returned.
    pub fn seal(self, run_end: Event) -> Result<Placed, TraceError> {
        self.close(run_end)?.finish()
    }

    /// The same, and what is reserved behind the end is still being given back.
    pub fn close(mut self, run_end: Event) -> Result<Closing, TraceError> {
        let totals = self.queue.totals();
        let totals = json!({
            "effects": totals.effects, "observations": totals.observations, "denials": totals.denials,
        });
        self.queue.end(Some(run_end.arg("totals", totals)));
        // Beside the writer: either is a change of the file system.
        if let Some(placement) = &self.placement {
            placement.remove_empty_blobs();
        }
        // A writer that has failed says no word.
        let sealed = self.sealed.recv();
        let mut thread = Some(self.thread.take().ok_or(TraceError::Sealed)?);
        let placement = self.placement.take().ok_or(TraceError::Sealed)?;
        // What is moved must be let go of before.
        let joined = match thread.take_if(|_| sealed.is_err() || !placement.is_in_place()) {
            Some(thread) => join(thread),
            None => Ok(()),
        };
        let placed = placement.place();
        joined?;
        let Sealed { entries, head } = sealed.map_err(|_| TraceError::Sealed)?;
        Ok(Closing { placed: Placed { entries, head, ..placed? }, thread })
    }

    /// Takes the trace away again: nothing was recorded, for nothing has begun.
    pub fn discard(mut self) {
        let _ = self.finish(None);
        if let Some(placement) = self.placement.take() {
            placement.discard();
        }
    }

    fn finish(&mut self, run_end: Option<Event>) -> Result<(), TraceError> {
        self.queue.end(run_end);
        join(self.thread.take().ok_or(TraceError::Sealed)?)
    }
}

fn join(thread: WriterThread) -> Result<(), TraceError> {
    thread
        .join()
        .unwrap_or_else(|_| Err(TraceError::Failed { reason: Arc::from("its writer has ended early") }))
}

/// A trace that is sealed and in place, while the disk space that was reserved behind its end is given back: that can
/// take longer than a short run.
#[derive(Debug)]
pub struct Closing {
    placed: Placed,
    thread: Option<WriterThread>,
}

impl Closing {
    /// Where the trace is.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// Waits until that is done.
    ///
    /// An error says that it was not.
    pub fn finish(mut self) -> Result<Placed, TraceError> {
        self.thread.take().map_or(Ok(()), join)?;
        Ok(self.placed.clone())
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Whoever asks no more has no use for the answer.
            let _ = join(thread);
        }
    }
}

impl std::fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriterHandle").field("placement", &self.placement).finish_non_exhaustive()
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Nobody is left to tell: the missing seal says that this run was not finished.
            let _ = self.finish(None);
            if let Some(placement) = self.placement.take() {
                placement.remove_empty_blobs();
                let _ = placement.place();
            }
        }
    }
}

/// What is known of a trace once its seal is written.
#[derive(Debug)]
struct Sealed {
    entries: u64,
    head: String,
}

struct Checkpoint {
    entries: u64,
    at: Instant,
}

struct Writer {
    queue: Arc<Queue>,
    /// Where it says that the trace is sealed.
    seals: SyncSender<Sealed>,
    file: Flock<File>,
    chain: Chain,
    line: String,
    /// What is written at once.
    lines: String,
    written_to: u64,
    failed: bool,
    checkpoint: Checkpoint,
}

impl Writer {
    fn run(mut self) -> Result<(), TraceError> {
        loop {
            match self.queue.next_work() {
                Work::Write { items, promised } => {
                    for item in &items {
                        self.write(item);
                    }
                    self.checkpoint_if_due();
                    self.flush();
                    self.queue.finished(items, promised, self.written_to);
                }
                Work::End { run_end } => return self.end(run_end.as_deref()),
            }
        }
    }

    fn write(&mut self, item: &Item) {
        if self.failed {
            return;
        }
        self.chain.append(&item.body, item.count, item.micros, &mut self.line);
        self.lines.push_str(&self.line);
        if self.lines.len() >= WRITTEN_AT_ONCE {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.failed || self.lines.is_empty() {
            return;
        }
        if let Err(source) = self.append_lines() {
            self.failed = true;
            self.queue.fail(Arc::from(format!("writing has failed (write): {}", Named(&source))));
        }
    }

    /// Appends lines by one write. If they do not fit they are taken back, so that no torn one is left.
    fn append_lines(&mut self) -> io::Result<()> {
        let bytes = self.lines.as_bytes();
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.written_to += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.lines.clear();
                Ok(())
            }
            Err(source) => {
                let _ = self.truncate();
                Err(source)
            }
        }
    }

    fn write_meta(&mut self, event: &Event) {
        let item = Item { body: Arc::new(Body::new(event)), count: None, micros: self.chain.last_micros() };
        self.write(&item);
    }

    fn checkpoint_if_due(&mut self) {
        let new = self.chain.entries() - self.checkpoint.entries;
        let long_ago = self.checkpoint.at.elapsed() >= Duration::from_secs(CHECKPOINT_SECONDS);
        if new >= CHECKPOINT_ENTRIES || long_ago {
            self.write_meta(&self.chain.checkpoint("checkpoint"));
            self.checkpoint = Checkpoint { entries: self.chain.entries(), at: Instant::now() };
        }
    }

    fn end(mut self, run_end: Option<&Event>) -> Result<(), TraceError> {
        if let Some(run_end) = run_end {
            self.write(&Item { body: Arc::new(Body::new(run_end)), count: None, micros: now_micros() });
            self.write_meta(&self.chain.checkpoint("run.seal"));
        }
        self.flush();
        self.queue.release();
        // Not brought to the disk by force: that would cost a short run more than the run itself. A power
        // failure within seconds may cut the tail, which `verify` then says.
        if !self.failed {
            let sealed = Sealed { entries: self.chain.entries(), head: self.chain.head().to_owned() };
            // A writer that was only told to end is heard by nobody.
            let _ = self.seals.send(sealed);
        }
        // What is reserved behind the end is given back.
        let truncated = self.truncate();
        if self.failed {
            let reason = self.queue.failure().unwrap_or_else(|| Arc::from("writing has failed"));
            return Err(TraceError::Failed { reason });
        }
        truncated.map_err(|source| TraceError::Sync { source })
    }

    fn truncate(&self) -> io::Result<()> {
        let end = i64::try_from(self.written_to).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        Ok(ftruncate(&*self.file, end)?)
    }
}

#[cfg(test)]
mod tests;
