//! The tape of one thread: what is recorded of it, or what is left of it to be replayed.

use std::io;

use super::marks::{Marker, Marks};
use super::points::{Packer, Point, Unpacker};
use super::space::{Head, Lane};
use super::tapes::Strip;
use crate::sys::vdso::POINTS;

/// The tape of one thread, beyond what its lane holds.
#[derive(Debug)]
pub(super) enum Reel {
    /// Points go onto it.
    Record(Record),
    /// Points come from it.
    Replay(Replay),
    /// The trace takes no more points: the thread reads the kernel's clock.
    Full,
}

impl Reel {
    /// A tape onto which nothing goes.
    pub(super) fn full(lane: Option<&Lane>) -> Self {
        // It is a file of ours: it can be written.
        let _ = lane.map(|lane| lane.set_head(Head::default()));
        Self::Full
    }
}

/// What is not in the trace yet.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) packer: Packer,
    pub(super) marker: Marker,
    /// Reads of the whole tape, but for those that are in the lane.
    reads: u64,
}

impl Record {
    /// An empty tape.
    pub(super) fn new(lane: Option<&Lane>) -> Self {
        if let Some(lane) = lane {
            let head = Head { count: POINTS as u64, more: true, ..Head::default() };
            // It is a file of ours: it can be written.
            let _ = lane.set_head(head);
        }
        Self::default()
    }

    pub(super) fn push(&mut self, point: Point) {
        self.packer.push(point);
        self.reads += 1;
    }

    /// Takes what the image has put into the lane since, and makes room for more.
    pub(super) fn drain(&mut self, lane: Option<&Lane>) {
        // It is a file of ours: it can be read and written.
        let points = lane.and_then(|lane| lane.points().ok()).unwrap_or_default();
        if !points.is_empty() {
            points.into_iter().for_each(|point| self.push(point));
            let _ = lane.map(|lane| lane.set_cursor(0));
        }
    }

    /// The thread makes a call.
    pub(super) fn call(&mut self, number: u64, lane: Option<&Lane>) {
        let in_lane = lane.and_then(|lane| lane.cursor().ok()).unwrap_or(0).min(POINTS as u64);
        self.marker.call(number, self.reads + in_lane);
    }
}

/// What is left of a recorded tape.
#[derive(Debug)]
pub(super) struct Replay {
    points: Unpacker,
    marks: Marks,
    /// What the lane holds.
    window: Vec<Point>,
    /// Points of the whole tape, and those before the window.
    recorded: u64,
    before: u64,
    /// The last that was given out by us.
    last: u64,
    /// Reads beyond the end, and of another kind of clock.
    beyond: u64,
    mismatches: u64,
    /// What the timeline is ahead of the program's kernel, beyond the end.
    pub(super) skew: Option<u64>,
}

/// How a replayed tape was followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) recorded: u64,
    pub(super) read: u64,
    pub(super) mismatches: u64,
}

impl Replay {
    /// `start` is where the timeline stands now.
    pub(super) fn new(strip: Strip, start: u64) -> Self {
        let Strip { parts, reads: recorded, marks, .. } = strip;
        let (points, marks) = (Unpacker::new(parts), Marks::new(marks));
        let window = Vec::new();
        Self { points, marks, window, recorded, before: 0, last: start, beyond: 0, mismatches: 0, skew: None }
    }

    /// The thread makes a call: puts it back to where it was then, if it is not there.
    pub(super) fn call(&mut self, number: u64, lane: Option<&Lane>) -> io::Result<()> {
        let Some(reads) = self.marks.call(number) else { return Ok(()) };
        let head = lane.map(Lane::head).transpose()?.unwrap_or_default();
        let held = self.window.len() as u64;
        if reads == self.before + head.cursor.min(held) && !head.adrift {
            return Ok(());
        }
        self.skew = None;
        match (reads.checked_sub(self.before), lane) {
            (Some(place), Some(lane)) if place <= held => {
                lane.set_head(Head { cursor: place, adrift: false, next: [place_of(place); 8], ..head })
            }
            (Some(place), _) => {
                let skipped = place - held;
                self.before += self.points.by_ref().zip(0..skipped).count() as u64;
                self.fill(lane)
            }
            // Too far back to be there still.
            (None, _) => Ok(()),
        }
    }

    /// Puts the next points into the lane.
    pub(super) fn fill(&mut self, lane: Option<&Lane>) -> io::Result<()> {
        self.before += self.window.len() as u64;
        let Some(lane) = lane else {
            self.window.clear();
            return Ok(());
        };
        self.window = self.points.by_ref().take(POINTS).collect();
        lane.set_points(&self.window)?;
        let count = self.window.len() as u64;
        lane.set_head(Head { count, more: count == POINTS as u64, last: self.last, ..Head::default() })
    }

    /// The next point for a read of `kind` that the supervisor answers; `kernel` is the clock of the program's
    /// kernel now.
    pub(super) fn next(&mut self, lane: Option<&Lane>, kind: u8, kernel: u64) -> io::Result<u64> {
        let found = match lane {
            Some(lane) => self.next_of(lane)?,
            None => self.points.next().inspect(|_| self.before += 1),
        };
        let Some(point) = found else {
            self.beyond += u64::from(lane.is_none());
            let skew = *self.skew.get_or_insert_with(|| self.last.wrapping_sub(kernel));
            self.last = self.last.max(kernel.wrapping_add(skew));
            return Ok(self.last);
        };
        self.mismatches += u64::from(point.kind != kind);
        self.last = point.at;
        Ok(point.at)
    }

    fn next_of(&mut self, lane: &Lane) -> io::Result<Option<Point>> {
        let head = lane.head()?;
        let cursor = usize::try_from(head.cursor).unwrap_or(usize::MAX);
        if let Some(point) = self.window.get(cursor) {
            let mut head = Head { cursor: head.cursor + 1, ..head };
            if let Some(next) = head.next.get_mut(usize::from(point.kind)) {
                *next = place_of(head.cursor);
            }
            lane.set_head(head)?;
            return Ok(Some(*point));
        }
        if self.window.len() < POINTS {
            // The last window is at its end: the image goes on alone, and so does this.
            if !head.adrift {
                self.last = self.window.last().map_or(self.last, |point| point.at);
            } else {
                self.last = head.last;
                self.skew.get_or_insert(head.skew);
            }
            lane.set_cursor(head.cursor.saturating_add(1))?;
            return Ok(None);
        }
        self.mismatches += head.mismatches.min(POINTS as u64);
        self.last = self.window.last().map_or(self.last, |point| point.at);
        let next = self.points.next();
        self.before += u64::from(next.is_some());
        if let Some(point) = next {
            self.last = point.at;
        }
        self.fill(Some(lane))?;
        Ok(next)
    }

    /// Where the timeline stands for this thread.
    pub(super) fn now(&self, lane: Option<&Lane>) -> u64 {
        match lane.and_then(|lane| lane.head().ok()) {
            Some(head) if head.adrift => head.last,
            _ => self.taken(lane),
        }
    }

    /// The last point that the thread has taken from its tape.
    pub(super) fn taken(&self, lane: Option<&Lane>) -> u64 {
        let head = lane.and_then(|lane| lane.head().ok()).unwrap_or_default();
        let given = usize::try_from(head.cursor).unwrap_or(usize::MAX).min(self.window.len());
        given.checked_sub(1).and_then(|at| self.window.get(at)).map_or(self.last, |point| point.at)
    }

    /// How it was followed, at the end of the thread.
    pub(super) fn followed(&self, lane: Option<&Lane>) -> Followed {
        let head = lane.and_then(|lane| lane.head().ok()).unwrap_or_default();
        let most = self.window.len() as u64;
        // Beyond the end the image counts on, and the program can write what it likes there.
        let read = self.before.saturating_add(head.cursor).saturating_add(self.beyond);
        let mismatches = self.mismatches.saturating_add(head.mismatches.min(most));
        Followed { recorded: self.recorded, read, mismatches }
    }
}

/// A place in a lane.
fn place_of(cursor: u64) -> u16 {
    u16::try_from(cursor).unwrap_or(u16::MAX)
}
