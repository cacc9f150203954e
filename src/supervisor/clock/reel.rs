//! The tape of one thread: what is recorded of it, or what is left of it to be replayed.

mod ahead;
mod marked;

use std::collections::VecDeque;
use std::io;

use self::ahead::{OTHERS, is_of_others};
use super::marks::{Marker, Marks};
use super::points::{Packer, Point, Unpacker};
use super::space::{Head, Lane, Next};
use super::tapes::Strip;
use crate::sys::vdso::{BY_CALLER, OF_INTERPRETER, OF_JAVA, POINTS};

/// The kind of the clock that C libraries and runtimes read as it happens (`image.c`).
const MONOTONIC: u8 = 1;
/// And of that which event loops read.
const COARSE: u8 = 6;
/// As in `image.c`.
const TICK: usize = 64;
/// What a point after a wait may be before its end: clocks are slewed.
const SLACK: u64 = 1_000_000;
/// The tape of one thread, beyond what its lane holds.
#[derive(Debug)]
pub(super) enum Reel {
    /// Points go onto it.
    Record(Record),
    /// Points come from it.
    Replay(Box<Replay>),
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
    /// The first of them, where they were looked through.
    ahead: VecDeque<Point>,
    /// The last before them.
    behind: VecDeque<Point>,
    marks: Marks,
    /// What the lane holds.
    pub(super) window: Vec<Point>,
    /// There are reads of an interpreter among them.
    pub(super) is_interpreter: bool,
    /// How many points at its front are not those that precede the others on the tape.
    loose: u64,
    /// Points of the whole tape, and those before the window.
    recorded: u64,
    before: u64,
    /// The last that was given out by us.
    pub(super) last: u64,
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
        let (ahead, behind, window) = (VecDeque::new(), VecDeque::new(), Vec::new());
        Self {
            points,
            ahead,
            behind,
            marks,
            window,
            is_interpreter: false,
            loose: 0,
            recorded,
            before: 0,
            last: start,
            beyond: 0,
            mismatches: 0,
            skew: None,
        }
    }

    /// The rest of the tape is not read: the thread's clock goes on with the machine's, `ahead` of it, from `now` on.
    pub(super) fn let_go(&mut self, lane: Option<&Lane>, now: u64, ahead: u64) {
        (self.points, self.marks) = (Unpacker::default(), Marks::default());
        (self.ahead, self.behind, self.window) = Default::default();
        (self.last, self.skew) = (now, Some(ahead));
        let head = Head { last: now, skew: ahead, adrift: true, ..Head::default() };
        // It is a file of ours: it can be written.
        let _ = lane.map(|lane| lane.set_head(head));
    }

    /// Puts the next points into the lane.
    pub(super) fn fill(&mut self, lane: Option<&Lane>) -> io::Result<()> {
        self.before += self.window.len() as u64;
        self.window.clear();
        self.loose = 0;
        lane.map_or(Ok(()), |lane| self.fill_behind(Vec::new(), Next::default(), lane))
    }

    /// The same behind points that are not read yet, of each clock from its `next` on; what the lane held is counted
    /// already.
    fn fill_behind(&mut self, unread: Vec<Point>, next: Next, lane: &Lane) -> io::Result<()> {
        let cursor = unread.len() as u64;
        // Places count from the first that is new.
        self.before = self.before.saturating_sub(cursor);
        self.window = unread;
        while self.window.len() < POINTS
            && let Some(point) = self.pull()
        {
            self.window.push(point);
        }
        self.is_interpreter |= self.window.iter().any(|point| OF_INTERPRETER.contains(&point.kind));
        lane.set_points(&self.window)?;
        let count = self.window.len() as u64;
        lane.set_head(Head {
            count,
            more: count == POINTS as u64,
            last: self.last,
            cursor,
            next,
            ..Head::default()
        })
    }

    /// The next point for a read of `kind` that the supervisor answers; `kernel` is the clock of the program's
    /// kernel now.
    pub(super) fn next(&mut self, lane: Option<&Lane>, kind: u8, kernel: u64) -> io::Result<u64> {
        let found = match lane {
            Some(lane) => self.next_of(lane, kind)?,
            None => self.pull().inspect(|_| self.before += 1),
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

    /// The next point of this kind, as the image finds it, and beyond what the lane holds.
    fn next_of(&mut self, lane: &Lane, kind: u8) -> io::Result<Option<Point>> {
        let head = lane.head()?;
        if let Some(point) = self.give(lane, head, kind)? {
            return Ok(Some(point));
        }
        let cursor = usize::try_from(head.cursor).unwrap_or(usize::MAX);
        if self.window.len() < POINTS {
            // The last window is at its end: the image goes on alone, and so does this.
            if head.adrift {
                self.last = head.last;
                self.skew.get_or_insert(head.skew);
            } else if cursor < self.window.len() {
                self.last = self.last.max(head.last);
            } else {
                self.last = self.window.last().map_or(self.last, |point| point.at);
            }
            if happens(kind) || cursor >= self.window.len() {
                lane.set_cursor(head.cursor.saturating_add(1))?;
            }
            return Ok(None);
        }
        self.mismatches += head.mismatches.min(POINTS as u64);
        let skipped = match self.far_own(head, kind) {
            _ if happens(kind) => 0,
            Some(skipped) => skipped,
            None => {
                self.last = self.last.max(head.last);
                return Ok(None);
            }
        };
        self.leap(lane, head, skipped)?;
        self.give(lane, lane.head()?, kind)
    }

    /// Leaves behind what the lane holds, and so many points more.
    fn leap(&mut self, lane: &Lane, head: Head, skipped: usize) -> io::Result<()> {
        let (mut unread, whole) = self.unread(head, skipped);
        self.last = self.window.last().map_or(self.last, |point| point.at);
        self.before += (self.window.len() + skipped) as u64;
        let passed: Vec<_> = self.ahead.drain(..skipped).collect();
        passed.iter().for_each(|point| self.pass(*point));
        unread.extend(passed.into_iter().filter(|point| !happens(point.kind)));
        unread.truncate(POINTS / 2);
        let Some(next) = whole else {
            self.loose = unread.len() as u64;
            let next = next_behind(&unread);
            return self.fill_behind(unread, next, lane);
        };
        self.loose = 0;
        self.fill_behind(unread, next, lane)
    }

    /// A wait of the thread has ended, which is to last until `at` on its own clock: that is not to be behind.
    /// It is where the thread has read the clock less often than it did, and would wait the same time again
    /// at each point that is left of those. What an interpreter's program reads is not before `own`. `kernel` is the clock of the program's kernel now.
    pub(super) fn reach(&mut self, lane: &Lane, at: u64, own: u64, kernel: u64) -> io::Result<()> {
        let is_later = |point: &Point| !is_coarse(point.kind) && point.at >= at;
        let mut head = lane.head()?;
        if self.is_interpreter {
            lane.set_floor(lane.floor()?.max(own.saturating_sub(SLACK)))?;
        }
        if head.drifts() {
            return Ok(());
        }
        let cursor = usize::try_from(head.cursor).unwrap_or(usize::MAX).min(self.window.len());
        let left = self.window.iter().skip(cursor).chain(&self.ahead);
        let next = left.map(|point| (point.kind, point.at)).find(|(kind, _)| !is_coarse(*kind));
        let is_behind = match next {
            Some((_, next)) => next.saturating_add(SLACK) < at,
            None => cursor == self.window.len(),
        };
        if !is_behind {
            return Ok(());
        }
        let mut from = cursor;
        loop {
            let found = self.window.iter().enumerate().skip(from).find(|(_, point)| is_later(point));
            if let Some((place, _)) = found {
                head.mismatches = head.mismatches.saturating_add(u64::from(place as u64 != head.cursor));
                (head.cursor, head.adrift) = (place as u64, false);
                return lane.set_head(head);
            }
            if self.window.len() < POINTS {
                // The end of the tape.
                head.mismatches = head.mismatches.saturating_add(u64::from(from < self.window.len()));
                head.cursor = head.cursor.max(self.window.len() as u64);
                (head.last, head.skew, head.adrift) = (at, at.wrapping_sub(kernel), true);
                return lane.set_head(head);
            }
            self.mismatches += head.mismatches.min(POINTS as u64);
            let skipped = self.far(is_later).unwrap_or(self.ahead.len());
            self.leap(lane, head, skipped)?;
            head = lane.head()?;
            from = usize::try_from(head.cursor).unwrap_or(usize::MAX);
        }
    }

    /// Takes the next point of this kind out of the lane, if it holds one.
    fn give(&mut self, lane: &Lane, mut head: Head, kind: u8) -> io::Result<Option<Point>> {
        let next = usize::from(head.next.of(kind));
        let from = if happens(kind) { usize::try_from(head.cursor).unwrap_or(usize::MAX) } else { next };
        if kind == COARSE
            && !self.window.iter().skip(from).take(TICK).any(|point| point.kind == kind)
            && self.window.iter().skip(from).any(|point| point.kind == MONOTONIC)
        {
            return self.give(lane, head, MONOTONIC);
        }
        let mut others = 0;
        let found = self.window.iter().enumerate().skip(from).find(|(at, point)| {
            others += usize::from(is_of_others(&head, kind, (*at, point)));
            point.kind == kind || others > OTHERS
        });
        let Some((place, point)) = found.filter(|(_, point)| point.kind == kind) else { return Ok(None) };
        let place = place as u64;
        head.mismatches = head.mismatches.saturating_add(u64::from(place != head.cursor));
        (head.cursor, head.last, head.adrift) = (place + 1, point.at, false);
        if let Some(next) = head.next.0.get_mut(usize::from(kind)) {
            *next = place_of(place + 1);
        }
        lane.set_head(head)?;
        Ok(Some(*point))
    }

    /// Reads of the program's own that it has yet to make, though it has read CLOCK_MONOTONIC more often than
    /// before them: they go on with it. Where nothing is skipped and there is room, with all that is behind the
    /// first of them, so that calls find their places there; then with what is next of each clock.
    fn unread(&self, head: Head, skipped: usize) -> (Vec<Point>, Option<Next>) {
        let is_unread = |(place, point): &(usize, &Point)| {
            let next = usize::from(head.next.of(point.kind));
            !happens(point.kind) && *place >= next
        };
        let points = self.window.iter().enumerate();
        let first = points.clone().position(|entry| is_unread(&entry)).unwrap_or(self.window.len());
        let whole = self.window.get(first..).unwrap_or_default();
        if skipped == 0 && first as u64 >= self.loose && whole.len() <= POINTS / 2 {
            let next = Next(head.next.0.map(|next| next.saturating_sub(place_of(first as u64))));
            return (whole.to_vec(), Some(next));
        }
        (points.filter(is_unread).map(|(_, point)| *point).collect(), None)
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

/// Where each kind of reads goes on: at its first of `unread`, else behind them.
fn next_behind(unread: &[Point]) -> Next {
    let mut next = Next::default();
    next.0.iter_mut().skip(BY_CALLER[0].into()).for_each(|next| *next = place_of(unread.len() as u64));
    for (place, point) in unread.iter().enumerate().rev().filter(|(_, point)| point.kind >= BY_CALLER[0]) {
        if let Some(next) = next.0.get_mut(usize::from(point.kind)) {
            *next = place_of(place as u64);
        }
    }
    next
}

/// Kinds of reads that runtimes make as it happens.
fn happens(kind: u8) -> bool {
    [MONOTONIC, COARSE].contains(&kind)
}

/// The kinds that lag behind by a tick.
fn is_coarse(kind: u8) -> bool {
    let [_, by_caller] = BY_CALLER;
    [5, COARSE].contains(&kind) || (by_caller..OF_JAVA).contains(&kind)
}

/// A place in a lane.
fn place_of(cursor: u64) -> u16 {
    u16::try_from(cursor).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
