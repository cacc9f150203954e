//! At a call that was marked, a thread is put back to where it was on its tape.

use std::io;

use super::{Replay, place_of};
use crate::supervisor::clock::space::{Head, Lane, Next};
use crate::sys::vdso::{BY_CALLER, KINDS};

/// What comes by so much before or after a mark, in nanoseconds, counts as on its own side of it.
const NEAR: u64 = 10_000_000;
/// And as many times of day, for so many marks, however far they are.
const FEW: usize = 2;
const MARKS: u8 = 3;

/// A caller has asked for the time of day more or less often than it had, at so many marks in a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Doubt {
    is_ahead: bool,
    marks: u8,
    since: u64,
}

impl Replay {
    /// The thread makes a call: puts it back to where it was then, if it is not there.
    pub(in crate::supervisor::clock) fn call(&mut self, number: u64, lane: Option<&Lane>) -> io::Result<()> {
        let Some(reads) = self.marks.call(number) else { return Ok(()) };
        let place = match (reads.checked_sub(self.before), lane) {
            (Some(place), _) => place,
            (None, Some(lane)) => return self.rewind(lane, reads),
            (None, None) => return Ok(()),
        };
        let Some(lane) = lane else {
            self.skew = None;
            self.before += (0..place).map_while(|_| self.pull()).count() as u64;
            return Ok(());
        };
        // Its own reads are in order there.
        if place < self.loose {
            return Ok(());
        }
        let (head, held) = (lane.head()?, self.window.len() as u64);
        if place > held {
            self.skew = None;
            return self.skip(lane, head, place - held);
        }
        let is_there = place == head.cursor.min(held) && !head.adrift;
        let mut next = head.next;
        if !is_there {
            self.skew = None;
            next.0.iter_mut().take(BY_CALLER[0].into()).for_each(|next| *next = place_of(place));
        }
        self.correct(&mut next, place);
        if is_there && next == head.next {
            return Ok(());
        }
        lane.set_head(Head { cursor: place, adrift: false, next, ..head })
    }

    /// Goes on behind what the lane holds, and so many points further; what is unread of times of day is kept.
    fn skip(&mut self, lane: &Lane, head: Head, skipped: u64) -> io::Result<()> {
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        while self.ahead.len() < skipped
            && let Some(point) = self.points.next()
        {
            self.ahead.push_back(point);
        }
        self.leap(lane, head, skipped.min(self.ahead.len()))
    }

    /// Goes back to where the thread had read the clock so often, where that is not too far back.
    fn rewind(&mut self, lane: &Lane, reads: u64) -> io::Result<()> {
        let beyond = (self.before + self.window.len() as u64).saturating_sub(reads);
        let Some(left) =
            usize::try_from(beyond).ok().and_then(|beyond| self.behind.len().checked_sub(beyond))
        else {
            return Ok(());
        };
        let taken = self.taken_by_caller(&lane.head()?);
        for point in self.behind.split_off(left).into_iter().rev() {
            self.ahead.push_front(point);
        }
        self.last = self.behind.back().map_or(self.last, |point| point.at);
        (self.skew, self.before, self.loose) = (None, reads, 0);
        self.window.clear();
        self.fill_behind(Vec::new(), Next::default(), lane)?;
        let mut next = Next::default();
        for (index, point) in self.window.iter().enumerate() {
            let kind = usize::from(point.kind);
            if taken.get(kind).is_some_and(|taken| point.at <= *taken) {
                next.0[kind] = place_of(index as u64 + 1);
            }
        }
        self.correct(&mut next, 0);
        lane.set_head(Head { next, ..lane.head()? })
    }

    /// The last time of day that each caller has got; 0 for other kinds of reads.
    fn taken_by_caller(&self, head: &Head) -> [u64; KINDS] {
        let in_window = self.window.iter().enumerate();
        let taken = in_window.filter(|(at, point)| *at < usize::from(head.next.of(point.kind)));
        let before = self.behind.len().saturating_sub(self.window.len());
        let mut last = [0; KINDS];
        for point in self.behind.iter().take(before).chain(taken.map(|(_, point)| point)) {
            if point.kind >= BY_CALLER[0] {
                last[usize::from(point.kind)] = point.at;
            }
        }
        last
    }

    /// Corrects where each caller goes on at a mark. Which of two events comes first, a call or what asks for the time
    /// of day, is now and then a matter of chance: where a caller is ahead or behind by little, it is left so.
    fn correct(&mut self, next: &mut Next, place: u64) {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let before = place.checked_sub(1).and_then(|before| self.window.get(before));
        let at = before.map_or(self.last, |point| point.at);
        // Of each kind, how many points are on the wrong side, and how far.
        let (mut count, mut farthest, mut wanted) = ([0; KINDS], [0; KINDS], next.0);
        for (index, point) in self.window.iter().enumerate() {
            let kind = usize::from(point.kind);
            let was_read = index < usize::from(next.of(point.kind));
            if point.kind < BY_CALLER[0] || was_read == (index < place) {
                continue;
            }
            let distance = at.abs_diff(point.at);
            (count[kind], farthest[kind]) = (count[kind] + 1, distance.max(farthest[kind]));
            if distance > NEAR && !was_read {
                wanted[kind] = place_of(index as u64 + 1);
            } else if distance > NEAR && wanted[kind] == next.of(point.kind) {
                wanted[kind] = place_of(index as u64);
            }
        }
        for (kind, (next, doubt)) in next.0.iter_mut().zip(&mut self.doubts).enumerate() {
            let is_ahead = wanted[kind] < *next;
            if count[kind] == 0 {
                doubt.marks = 0;
                continue;
            }
            if doubt.marks == 0 || doubt.is_ahead != is_ahead {
                *doubt = Doubt { is_ahead, marks: 0, since: at };
            }
            doubt.marks = doubt.marks.saturating_add(1);
            let lasts = doubt.marks >= MARKS && at.saturating_sub(doubt.since) > NEAR;
            if farthest[kind] > NEAR && (count[kind] > FEW || lasts) {
                (*next, doubt.marks) = (wanted[kind], 0);
            }
        }
    }
}
