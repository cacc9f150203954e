//! Examines the lines of a trace on several threads, and hands the findings on in the order of the file.
//!
//! What an entry says about itself needs no other entry: only the links between them are checked one by one. Memory is
//! bounded by the batches that are under way.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::super::chain::entry_sha;
use super::super::reader::{Line, Reader};
use super::super::scan::{BlobMention, Scanner};
use super::Tamper;

/// Bytes of lines that are examined together.
const BATCH: usize = 512 << 10;
/// Batches that are under way for each thread.
const BATCHES_A_THREAD: usize = 3;
/// Beyond this many threads, the reading is the limit.
const MOST_THREADS: usize = 4;

/// What an entry says, with a hash that is right for it.
pub(super) struct Examined {
    pub(super) index: u64,
    pub(super) prev: [u8; 64],
    pub(super) sha: [u8; 64],
    /// The arguments, where the entry tells of all entries before it.
    pub(super) history: Option<History>,
    pub(super) blobs: Vec<BlobMention>,
}

/// A checkpoint or a seal.
pub(super) struct History {
    pub(super) is_seal: bool,
    pub(super) args: String,
}

/// How the reading ended.
pub(super) enum End {
    /// The last line was whole.
    Whole,
    /// Bytes without a newline followed.
    Torn { bytes: usize },
    /// A line was too long.
    TooLong,
    /// The taker wanted no more.
    Stopped,
    /// The first line is not the beginning of a trace.
    NotATrace,
}

type Finding = Result<Examined, Tamper>;

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends in `bytes`.
    ends: Vec<usize>,
}

struct Job {
    batch: Batch,
    answer: SyncSender<Vec<Finding>>,
}

/// Examines all lines and hands each finding to `take`.
pub(super) fn examine_all<R: Read>(
    reader: &mut Reader<R>,
    is_start: impl Fn(&[u8]) -> bool,
    mut take: impl FnMut(Finding) -> ControlFlow<()>,
) -> io::Result<End> {
    let (sender, receiver) = channel::<Job>();
    let receiver = Mutex::new(receiver);
    let wanted = thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS));
    thread::scope(|scope| {
        let start = |_: &usize| thread::Builder::new().spawn_scoped(scope, || work(&receiver)).is_ok();
        let threads = (0..wanted).filter(start).count();
        let mut line_up = LineUp { sender, threads, under_way: VecDeque::new(), scanner: Scanner::default() };
        let end = read_all(reader, is_start, &mut line_up, &mut take)?;
        match line_up.drain(&mut take) {
            ControlFlow::Continue(()) => Ok(end),
            ControlFlow::Break(()) => Ok(End::Stopped),
        }
    })
}

fn read_all<R: Read>(
    reader: &mut Reader<R>,
    is_start: impl Fn(&[u8]) -> bool,
    line_up: &mut LineUp,
    take: &mut impl FnMut(Finding) -> ControlFlow<()>,
) -> io::Result<End> {
    let mut batch = Batch::default();
    let mut is_first = true;
    loop {
        let line = reader.next_line()?;
        let (end, bytes) = match line {
            None => (Some(End::Whole), &[][..]),
            Some(Line::TooLong) => (Some(End::TooLong), &[][..]),
            Some(Line::Torn(bytes)) => (Some(End::Torn { bytes: bytes.len() }), bytes),
            Some(Line::Whole(bytes)) => (None, bytes),
        };
        if is_first && line.is_some() && !matches!(line, Some(Line::TooLong)) && !is_start(bytes) {
            return Ok(End::NotATrace);
        }
        is_first = false;
        if let Some(end) = end {
            let stopped = line_up.submit(batch, take).is_break();
            return Ok(if stopped { End::Stopped } else { end });
        }
        batch.bytes.extend_from_slice(bytes);
        batch.ends.push(batch.bytes.len());
        if batch.bytes.len() >= BATCH && line_up.submit(std::mem::take(&mut batch), take).is_break() {
            return Ok(End::Stopped);
        }
    }
}

/// Batches that are under way, in the order of the file.
struct LineUp {
    sender: Sender<Job>,
    threads: usize,
    under_way: VecDeque<Receiver<Vec<Finding>>>,
    scanner: Scanner,
}

impl LineUp {
    fn submit(&mut self, batch: Batch, take: &mut impl FnMut(Finding) -> ControlFlow<()>) -> ControlFlow<()> {
        // A line that is longer than a batch is not held in several copies.
        if self.threads == 0 || batch.bytes.len() > 2 * BATCH {
            self.drain(take)?;
            return examine_batch(&mut self.scanner, &batch).into_iter().try_for_each(take);
        }
        while self.under_way.len() >= self.threads * BATCHES_A_THREAD {
            self.take_first(take)?;
        }
        let (answer, findings) = sync_channel(1);
        match self.sender.send(Job { batch, answer }) {
            Ok(()) => self.under_way.push_back(findings),
            Err(returned) => {
                self.drain(take)?;
                return examine_batch(&mut self.scanner, &returned.0.batch).into_iter().try_for_each(take);
            }
        }
        ControlFlow::Continue(())
    }

    fn drain(&mut self, take: &mut impl FnMut(Finding) -> ControlFlow<()>) -> ControlFlow<()> {
        while !self.under_way.is_empty() {
            self.take_first(take)?;
        }
        ControlFlow::Continue(())
    }

    fn take_first(&mut self, take: &mut impl FnMut(Finding) -> ControlFlow<()>) -> ControlFlow<()> {
        let Some(findings) = self.under_way.pop_front() else {
            return ControlFlow::Continue(());
        };
        match findings.recv() {
            Ok(findings) => findings.into_iter().try_for_each(take),
            // A thread that ended early examined nothing: the trace must not pass for that.
            Err(_) => take(Err(Tamper::NotExamined)),
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    let mut scanner = Scanner::default();
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { batch, answer }) = job else {
            return;
        };
        // Nobody waits any more once a bad entry was found.
        let _ = answer.send(examine_batch(&mut scanner, &batch));
    }
}

fn examine_batch(scanner: &mut Scanner, batch: &Batch) -> Vec<Finding> {
    let mut from = 0;
    let examine_next = |end: &usize| {
        let line = &batch.bytes[from..*end];
        from = *end;
        examine(scanner, line)
    };
    batch.ends.iter().map(examine_next).collect()
}

fn examine(scanner: &mut Scanner, line: &[u8]) -> Finding {
    let fields = scanner.scan(line).map_err(Tamper::Malformed)?;
    let sha = entry_sha(fields.prev.as_bytes(), fields.before_sha.as_bytes(), fields.after_sha.as_bytes());
    let digits = |text: &str| <[u8; 64]>::try_from(text.as_bytes()).map_err(|_| Tamper::Edited);
    let stored = digits(fields.sha)?;
    if stored != hex_digits(&sha) {
        return Err(Tamper::Edited);
    }
    if let Some(sha256) = scanner.wrong_text() {
        return Err(Tamper::TextAltered { sha256: sha256.to_owned() });
    }
    let is_seal = fields.op == "run.seal";
    let tells = fields.kind == "meta" && (is_seal || fields.op == "checkpoint");
    Ok(Examined {
        index: fields.index,
        prev: digits(fields.prev)?,
        sha: stored,
        history: tells.then(|| History { is_seal, args: fields.args.to_owned() }),
        blobs: scanner.blobs().to_vec(),
    })
}

/// Returns the lower-case hex of a hash.
fn hex_digits(hash: &[u8; 32]) -> [u8; 64] {
    let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
    let mut text = [0; 64];
    let (pairs, _) = text.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(hash) {
        *pair = [digit(byte >> 4), digit(byte & 0x0f)];
    }
    text
}
