//! Writes to what another process of the run reads, through standard output or error: one after the other, where
//! several come together in one reader.
//!
//! Such a write waits until its reader has nothing more to do with what it was told before, and waits itself: so the
//! reader gets each piece alone, and their order is known. In a replay they come in that order, and find the reader at
//! rest again. A pipe that one process writes and another one does nothing but read has no need of that: its writes
//! are let on.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use super::super::{Stop, Supervisor, skip};
use super::SOON;
use super::course::{BUSY, NOTICE, Telling};
use super::reader::{self, Rest};
use crate::sys::seccomp::Notification;

/// How often in a row a reader may go on with something else before it is not waited for.
const VAIN: u8 = 3;
/// In a replay a reader that was at rest comes to rest, though later maybe.
const LONGER: u32 = 10;
/// What was let on before has been written by then.
const LATE: Duration = Duration::from_millis(100);
/// Streams that are known at a time: the agent can make as many as it likes.
const MOST: usize = 1 << 12;

/// A stream that leads from one process, or several, to another.
#[derive(Debug, Default)]
struct Stream {
    reader: Option<i32>,
    /// While one process alone writes to it, and the reader does nothing else: what was not noted of that yet.
    alone: Option<Alone>,
}

#[derive(Debug)]
struct Alone {
    writer: String,
    first: u64,
    count: u64,
    reader: String,
    /// The task that has written last, and how often it will have then, where that is known.
    last: (i32, Option<u64>),
}

/// A process that reads several streams, or one that several processes write.
#[derive(Debug, Default)]
struct Reader {
    /// How often it did not come to rest.
    vain: u8,
    /// The task that writes to it now, and how often that had written before.
    under_way: Option<(i32, u64)>,
}

/// What processes of the run tell each other.
#[derive(Debug, Default)]
pub(super) struct Tellings {
    /// How often each has.
    counts: HashMap<String, u64>,
    streams: HashMap<String, Stream>,
    readers: HashMap<i32, Reader>,
}

impl Tellings {
    /// Which write of a process this is.
    fn count(&mut self, process: &str) -> u64 {
        if let Some(count) = self.counts.get_mut(process) {
            *count += 1;
            return *count - 1;
        }
        self.counts.insert(process.to_owned(), 1);
        0
    }

    /// Whether nobody else writes to a stream, and its reader does nothing but read it.
    fn is_alone(&mut self, (process, task): (&str, i32), index: u64, stream: &str) -> bool {
        let alone = self.streams.get_mut(stream).and_then(|stream| stream.alone.as_mut());
        let Some(alone) = alone.filter(|alone| alone.writer == process && alone.first + alone.count == index)
        else {
            return false;
        };
        alone.count += 1;
        let (last, written) = alone.last;
        alone.last = (task, written.filter(|_| last == task).map(|written| written + 1));
        true
    }

    /// Whether a process reads from several.
    pub(super) fn is_reader(&self, process: i32) -> bool {
        self.readers.contains_key(&process)
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, lineage: &str, process: i32) {
        self.counts.remove(lineage);
        self.readers.remove(&process);
    }
}

/// How often a task has written (proc_pid_io(5)).
fn writes_of(task: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{task}/task/{task}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscw: "))?.parse().ok()
}

impl Supervisor {
    /// A write to a stream that is no output of the run.
    pub(super) fn serve_telling(
        &mut self,
        (process, teller): (&str, i32),
        stream: &str,
        notification: Notification,
    ) -> Result<(), Stop> {
        let index = self.outputs.tellings.count(process);
        let course = &mut self.outputs.course;
        let is_free = match course.has_tellings() {
            true => course.turn_to_tell(process, index).is_none(),
            false => self.outputs.tellings.is_alone((process, notification.pid), index, stream),
        };
        if is_free {
            return self.let_on(&notification);
        }
        let (process, stream, since) = (process.to_owned(), stream.to_owned(), course.pace.now());
        let (ready, is_last) = (None, false);
        course.tellings.push(Telling { process, teller, index, stream, notification, since, ready, is_last });
        self.serve_tellings()
    }

    /// Lets those write on whose turn has come and whose reader waits.
    pub(super) fn serve_tellings(&mut self) -> Result<(), Stop> {
        let mut begun = Instant::now();
        while !self.outputs.course.tellings.is_empty() {
            self.look_at_told();
            if let Some((telling, rest)) = self.next_telling() {
                self.tell(telling, rest)?;
                begun = Instant::now();
            } else if begun.elapsed() > SOON {
                break;
            }
        }
        // An end may wait for that.
        self.look_at_told();
        Ok(())
    }

    /// What was told is there once its writer has written, or waits for room.
    fn look_at_told(&mut self) {
        let under_way = self.outputs.tellings.readers.iter();
        let under_way = under_way.filter_map(|(reader, state)| Some((*reader, state.under_way?)));
        for (reader, (task, writes)) in under_way.collect::<Vec<_>>() {
            if writes_of(task) == Some(writes) && !skip::waits_to_write(task) {
                continue;
            }
            let ran = self.has_run(reader);
            self.outputs.course.is_told(reader, ran);
            if let Some(state) = self.outputs.tellings.readers.get_mut(&reader) {
                state.under_way = None;
            }
        }
    }

    /// For how long a process has run.
    pub(super) fn has_run(&mut self, process: i32) -> Duration {
        let kin = self.tasks.kin();
        kin.map(|kin| kin.tasks_of(process).map(skip::has_run).sum()).unwrap_or_default()
    }

    /// The first that may write, with who reads it, and what that does.
    fn next_telling(&mut self) -> Option<(Telling, Option<(i32, Rest)>)> {
        for at in self.outputs.course.tellings_in_order() {
            if !self.outputs.course.may_tell(at) {
                continue;
            }
            let Some(reader) = self.reader_of(at) else {
                return Some((self.outputs.course.tellings.remove(at), None));
            };
            if let Some(rest) = self.hears(at, reader) {
                return Some((self.outputs.course.tellings.remove(at), Some((reader, rest))));
            }
        }
        None
    }

    /// Who reads what it writes to.
    fn reader_of(&mut self, at: usize) -> Option<i32> {
        let Telling { teller, stream, .. } = &self.outputs.course.tellings[at];
        let found = self.tasks.kin().and_then(|kin| reader::of(kin, *teller, stream));
        found.or_else(|| self.outputs.tellings.streams.get(stream)?.reader)
    }

    /// What its reader does, where it may be told something now.
    fn hears(&mut self, at: usize, reader: i32) -> Option<Rest> {
        if self.outputs.course.is_hearing(reader) {
            return None;
        }
        let waiting: Vec<_> = self.represented().collect();
        let Telling { stream, since, .. } = &self.outputs.course.tellings[at];
        let alone = self.outputs.tellings.streams.get(stream).and_then(|stream| stream.alone.as_ref());
        if let Some((task, written)) = alone.map(|alone| alone.last)
            && written.is_none_or(|written| writes_of(task).is_some_and(|writes| writes < written))
            && self.outputs.course.pace.since(*since) < LATE
            && !waiting.contains(&task)
            && !skip::is_elsewhere(task)
        {
            return None;
        }
        let known = self.outputs.tellings.streams.get(stream).and_then(|stream| stream.reader);
        // Else it is who has made the stream, for one that is still to come.
        let is_it = known == Some(reader) || reader::holds(reader, stream);
        let kin = self.tasks.kin().filter(|_| is_it);
        let rest = kin.map_or(Rest::Moving, |kin| reader::rest(kin, reader, &waiting, Some(stream)));
        let state = self.outputs.tellings.readers.entry(reader).or_default();
        if rest != Rest::Moving {
            state.vain = 0;
            return Some(rest);
        }
        if state.vain >= VAIN {
            return Some(rest);
        }
        let ran = self.has_run(reader);
        let course = &mut self.outputs.course;
        let longer = if course.has_tellings() { LONGER } else { 1 };
        let now = course.pace.now();
        let telling = &mut course.tellings[at];
        let (since, had_run) = *telling.ready.get_or_insert((now, ran));
        let is_late =
            now.saturating_sub(since) > NOTICE * longer || ran.saturating_sub(had_run) > BUSY * longer;
        if !is_late && !telling.is_last {
            return None;
        }
        if let Some(state) = self.outputs.tellings.readers.get_mut(&reader) {
            state.vain += 1;
        }
        Some(rest)
    }

    /// Lets a write on.
    fn tell(&mut self, telling: Telling, heard: Option<(i32, Rest)>) -> Result<(), Stop> {
        let Telling { process, index, stream, notification, .. } = telling;
        let is_followed = self.outputs.course.has_tellings();
        self.outputs.course.told(&process, index);
        let lineage = heard.and_then(|(reader, _)| self.tasks.kin()?.lineage(reader));
        let (Some((reader, rest)), Some(lineage)) = (heard, lineage) else {
            return self.let_on(&notification);
        };
        let outputs = &mut self.outputs;
        let is_new = !outputs.tellings.streams.contains_key(&stream);
        if is_new && outputs.tellings.streams.len() >= MOST {
            outputs.tellings.streams.clear();
        }
        let known = outputs.tellings.streams.entry(stream).or_default();
        known.reader = Some(reader).filter(|_| rest != Rest::Moving).or(known.reader);
        if let Some(Alone { writer, first, count, reader, .. }) = known.alone.take() {
            outputs.lines.tell(&writer, (first, count), &reader);
        }
        if is_new && rest == Rest::Reads && !is_followed {
            let last = (notification.pid, writes_of(notification.pid).map(|writes| writes + 1));
            known.alone = Some(Alone { writer: process, first: index, count: 1, reader: lineage, last });
            // It reads nothing else.
            outputs.tellings.readers.remove(&reader);
            return self.let_on(&notification);
        }
        outputs.lines.tell(&process, (index, 1), &lineage);
        let task = notification.pid;
        let state = outputs.tellings.readers.entry(reader).or_default();
        // Where the kernel does not count them it has written at once.
        state.under_way = Some((task, writes_of(task).unwrap_or(0)));
        outputs.course.ends(reader);
        self.let_on(&notification)
    }
}
