//! The tape of one thread: what is recorded of it, or what is left of it to be replayed.

use std::io;

use super::points::{Packer, Point, Unpacker};
use super::space::{Head, Lane};
use crate::sys::vdso::POINTS;

/// The tape of one thread, beyond what its lane holds.
#[derive(Debug)]
pub(super) enum Reel {
    /// Points go onto it.
    Record(Packer),
    /// Points come from it.
    Replay(Replay),
}

/// What is left of a recorded tape.
#[derive(Debug)]
pub(super) struct Replay {
    points: Unpacker,
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
    skew: Option<u64>,
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
    pub(super) fn new((points, recorded): (Unpacker, u64), start: u64) -> Self {
        let window = Vec::new();
        Self { points, window, recorded, before: 0, last: start, beyond: 0, mismatches: 0, skew: None }
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
            lane.set_cursor(head.cursor + 1)?;
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
        let head = lane.and_then(|lane| lane.head().ok()).unwrap_or_default();
        if head.adrift {
            return head.last;
        }
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

/// Takes what the image has put into the lane since, and makes room for more.
pub(super) fn drain(packer: &mut Packer, lane: &Lane) -> io::Result<()> {
    let points = lane.points()?;
    if !points.is_empty() {
        points.into_iter().for_each(|point| packer.push(point));
        lane.set_cursor(0)?;
    }
    Ok(())
}
