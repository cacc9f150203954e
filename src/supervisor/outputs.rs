//! Who writes to standard output and error, in which order: noted, and the same in a replay.
//!
//! Processes beside each other come to their writes in another order each time. A write that came later in the
//! recorded run waits in its call for those that came before it, by process: threads of one are not told apart. The
//! kernel carries each out itself. None holds a replay up: where nothing else goes on, or what is waited for does not
//! come, the first of those that wait does. No time is left out while one waits.

mod course;
mod ends;
mod lines;
mod pace;
mod reader;
mod tellings;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use nix::sys::stat::fstat;

pub use self::course::Course;
use self::course::Held;
use self::lines::Lines;
use self::tellings::Tellings;
use super::call::Reply;
use super::dispatch::answer;
use super::task::Task;
use super::{Stop, Supervisor};
use crate::sys::descriptor;
use crate::sys::seccomp::Notification;
use crate::trace::{Event, Kind, TraceError};

/// The operation under which the trace holds the order.
pub const OPERATION: &str = "stdio.order";

/// The command's process.
const FIRST: &str = "0";
/// So long we wait in place for a write to come before we do something else.
const SOON: Duration = Duration::from_micros(50);
/// The task of a write that has not come by then is gone, or stopped.
const LATE: Duration = Duration::from_secs(1);
/// Nobody has read for so long: whoever waits for room does not hold others up.
const STALLED: Duration = Duration::from_millis(100);
/// Longest name of a pipe or socket, as /proc/PID/fd shows it.
const LINK: usize = 64;
/// With so many bytes in it a pipe may have no room for more (pipe(7): 64 KiB, in pages).
const FULL: u64 = 32 << 10;

/// A pipe that is standard output or error of the run.
#[derive(Debug)]
pub struct OutputPipe {
    /// As /proc/PID/fd shows it.
    name: String,
    /// Not ours to keep open: who writes is to see when nobody reads any more.
    reader: Weak<OwnedFd>,
    /// Bytes that were taken out of it; held while some are.
    taken: Arc<Mutex<u64>>,
    /// So many have come once the last write has.
    expected: u64,
    /// So many had come when the reader of the recorded run left.
    end: Option<u64>,
}

impl OutputPipe {
    /// The pipe that `reader` reads, from which so many bytes were `taken`: whoever takes some holds that meanwhile.
    /// The reader leaves when it has come to its `end`.
    ///
    /// # Errors
    /// The errno of fstat(2).
    pub fn new(reader: &Arc<OwnedFd>, taken: Arc<Mutex<u64>>, end: Option<u64>) -> nix::Result<Self> {
        let name = format!("pipe:[{}]", fstat(reader.as_fd())?.st_ino);
        Ok(Self { name, reader: Arc::downgrade(reader), taken, expected: 0, end })
    }

    /// Bytes that have come so far, and those of them that are still there; `None` where nobody reads any more.
    fn come(&self) -> Option<(u64, u64)> {
        let reader = self.reader.upgrade()?;
        // What is taken in between would be missed, and then taken for the next write.
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = descriptor::waiting(reader.as_fd()).ok()? as u64;
        Some((*taken + waiting, waiting))
    }

    /// Whether its reader is about to leave.
    fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.come().is_some_and(|(come, _)| come >= end))
    }

    /// Whether the last write has come, or, where it `may_stall`, waits for room. The kernel puts its first byte there
    /// together with all others for which there is room.
    fn is_settled(&self, may_stall: bool) -> bool {
        self.come().is_none_or(|(come, waiting)| come >= self.expected || (may_stall && waiting >= FULL))
    }
}

/// Where a descriptor leads.
#[derive(Debug)]
enum End<'a> {
    /// An output of the run.
    Output(usize),
    /// Another pipe or socket.
    Stream(&'a str),
}

/// The write that went on last.
#[derive(Debug)]
struct Last {
    process: String,
    pipe: usize,
    answered: Duration,
}

/// The order of writes.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pipes: Vec<OutputPipe>,
    last: Option<Last>,
    lines: Lines,
    tellings: Tellings,
    pub(super) course: Course,
}

impl Outputs {
    /// Of a replay, where there is a course.
    pub(super) fn new(pipes: Vec<OutputPipe>, course: Course) -> Self {
        Self { pipes, course, ..Self::default() }
    }

    /// Where standard output or error of a task leads; asked at each write to them.
    fn end_of<'a>(&self, task: &Task, number: u64, target: &'a mut [u8; LINK]) -> Option<End<'a>> {
        let entry = match number {
            1 => c"fd/1",
            2 => c"fd/2",
            _ => return None,
        };
        let length = descriptor::read_link(task.directory().ok()?.as_fd(), entry, target).ok()?;
        let target = &target[..length];
        if let Some(pipe) = self.pipes.iter().position(|pipe| pipe.name.as_bytes() == target) {
            return Some(End::Output(pipe));
        }
        let is_stream = target.starts_with(b"pipe:[") || target.starts_with(b"socket:[");
        is_stream.then(|| str::from_utf8(target).ok().map(End::Stream))?
    }

    /// Whether it leads to one in which there is room.
    pub(super) fn has_room(&self, task: &Task, number: u64) -> bool {
        let Some(End::Output(pipe)) = self.end_of(task, number, &mut [0; LINK]) else { return false };
        self.pipes[pipe].come().is_some_and(|(_, waiting)| waiting < FULL)
    }

    /// Whoever writes once a reader is about to leave is to see that it has; one that is held up itself is waited for once.
    fn await_ends(&mut self) {
        let begun = Instant::now();
        while self.pipes.iter().any(OutputPipe::is_at_end) {
            if begun.elapsed() > LATE {
                return self.pipes.iter_mut().for_each(|pipe| pipe.end = None);
            }
            std::thread::sleep(SOON);
        }
    }

    /// Whether a write waits while there may be no room for the one before it.
    pub(super) fn are_full(&self) -> bool {
        let is_full = |pipe: &OutputPipe| pipe.come().is_some_and(|(_, waiting)| waiting >= FULL);
        self.course.delay().is_some() && self.pipes.iter().any(is_full)
    }

    /// Whether the write before that of `process` to `pipe` has come: where two processes are told to go on at once,
    /// either may be the first, also where both wait for room.
    fn is_settled(&self, process: &str, pipe: usize) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| last.process != process) else { return true };
        let since = self.course.pace.since(last.answered);
        let may_stall = last.pipe != pipe || since > STALLED;
        self.pipes[last.pipe].is_settled(may_stall) || since > LATE
    }

    /// The same, a little later where it is not so yet.
    fn settles(&self, process: &str, pipe: usize) -> bool {
        let begun = Instant::now();
        while !self.is_settled(process, pipe) {
            if begun.elapsed() > SOON {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// Whether a write waits: then it is kept.
    fn holds(&mut self, process: &str, pipe: usize, notification: Notification) -> bool {
        let waits = self.course.waits(process) || !self.settles(process, pipe);
        if waits {
            self.course.hold(Held { process: process.to_owned(), pipe, notification });
        }
        waits
    }

    /// A write that waits no longer.
    fn take(&mut self) -> Option<Held> {
        let first = self.course.first_held()?;
        if self.is_settled(&first.process, first.pipe) { self.course.take() } else { None }
    }

    /// A process writes now.
    fn note(&mut self, process: &str, pipe: usize) {
        self.count(process);
        let answered = self.course.pace.now();
        match &mut self.last {
            Some(last) if last.process == process => (last.pipe, last.answered) = (pipe, answered),
            last => *last = Some(Last { process: process.to_owned(), pipe, answered }),
        }
        let pipe = &mut self.pipes[pipe];
        pipe.expected = pipe.come().map_or(0, |(come, _)| come + 1);
    }

    fn count(&mut self, process: &str) {
        self.course.wrote(process);
        self.lines.print(process);
    }
}

/// The process of a task, whose threads are not told apart.
fn process_of(lineage: &str) -> &str {
    match lineage.rsplit_once('#') {
        Some((process, thread)) if !thread.contains('.') => process,
        _ => lineage,
    }
}

impl Supervisor {
    /// A write to descriptor 1 or 2.
    pub(super) fn serve_write(&mut self, notification: Notification) -> Result<(), Stop> {
        self.outputs.await_ends();
        // Wherever that leads: nobody else writes.
        if self.tasks.kin().is_some_and(|kin| kin.is_alone()) {
            self.outputs.count(FIRST);
            return self.let_on(&notification);
        }
        let [number, _, length, ..] = notification.arguments;
        let known = self.tasks.known(notification.pid);
        // Who is gone gets no answer anyway.
        let Ok(task) = known.map_or_else(|| self.tasks.meet(notification.pid), Ok) else {
            return self.let_on(&notification);
        };
        let own = task.lineage.contains('#').then(|| self.tasks.kin()?.lineage(task.tgid)).flatten();
        let process = own.as_deref().unwrap_or_else(|| process_of(&task.lineage));
        let mut target = [0; LINK];
        match self.outputs.end_of(&task, number, &mut target).filter(|_| length > 0) {
            Some(End::Output(pipe)) => {
                if self.outputs.holds(process, pipe, notification) {
                    return Ok(());
                }
                self.outputs.note(process, pipe);
            }
            Some(End::Stream(stream)) => {
                return self.serve_telling((process, task.tgid), stream, notification);
            }
            None => {}
        }
        self.let_on(&notification)
    }

    /// Lets those write whose turn has come.
    pub(super) fn serve_held(&mut self) -> Result<(), Stop> {
        self.serve_tellings()?;
        self.serve_ends()?;
        while let Some(held) = self.outputs.take() {
            self.outputs.await_ends();
            self.outputs.note(&held.process, held.pipe);
            self.let_on(&held.notification)?;
        }
        Ok(())
    }

    fn let_on(&mut self, notification: &Notification) -> Result<(), Stop> {
        let begun = Instant::now();
        let sent = answer(&self.listener, notification.id, Reply::Continue);
        self.hand_over.answered(begun.elapsed());
        sent.map_err(|refused| Stop::Receive { call: refused.call, source: refused.source })
    }

    /// Puts the order into the trace, where there was more than one process.
    pub(super) fn tell_order(&mut self) -> Result<(), TraceError> {
        let lines = std::mem::take(&mut self.outputs.lines);
        if lines.len() < 2 {
            return Ok(());
        }
        let mut body = self.recorder.blob()?;
        lines.write(&mut body).map_err(|source| TraceError::StoreBlob { source })?;
        let event = Event::new(Kind::Meta, OPERATION).arg("turns", lines.len());
        let event = if lines.is_cut { event.arg("cut", true) } else { event };
        self.recorder.record(event.arg("order", body.finish_in_entry(|_| true)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_not_told_apart() {
        for (lineage, process) in
            [("0", "0"), ("0#3", "0"), ("0#3.1", "0#3.1"), ("0#3.1#2", "0#3.1"), ("0.2", "0.2")]
        {
            assert_eq!(process_of(lineage), process);
        }
    }
}
