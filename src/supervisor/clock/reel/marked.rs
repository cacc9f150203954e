//! At a call that was marked, a thread is put back to where it was on its tape.

use std::io;

use super::{Replay, place_of};
use crate::supervisor::clock::space::{Head, Lane, Next};
use crate::sys::vdso::{BY_CALLER, KINDS};

/// By how much a time of day may be before or after a mark that it was after or before while it was recorded, in
/// nanoseconds.
const SWAPPED: u64 = 10_000_000;

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
        let next = self.corrected(&head, place, is_there);
        if is_there && next == head.next {
            return Ok(());
        }
        if !is_there {
            self.skew = None;
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
        for point in self.behind.split_off(left).into_iter().rev() {
            self.ahead.push_front(point);
        }
        self.last = self.behind.back().map_or(self.last, |point| point.at);
        (self.skew, self.before, self.loose) = (None, reads, 0);
        self.window.clear();
        self.fill_behind(Vec::new(), Next::default(), lane)
    }

    /// Where each kind of reads goes on at a mark. Which of two events comes first, a call or what asks for the time
    /// of day, is now and then a matter of chance: where the thread is ahead or behind by little, it is left so.
    fn corrected(&self, head: &Head, place: u64, is_there: bool) -> Next {
        let mut next = if is_there { head.next } else { Next([place_of(place); KINDS]) };
        let by_caller = usize::from(BY_CALLER[0]);
        next.0[by_caller..].copy_from_slice(&head.next.0[by_caller..]);
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let Some(at) = place.checked_sub(1).and_then(|before| self.window.get(before)).map(|point| point.at)
        else {
            return next;
        };
        for (index, point) in self.window.iter().enumerate() {
            let kind = usize::from(point.kind);
            let Some(next) = next.0.get_mut(kind).filter(|_| kind >= by_caller) else { continue };
            let was_read = index < usize::from(*next);
            if !was_read && index < place && at.saturating_sub(point.at) > SWAPPED {
                *next = place_of(index as u64 + 1);
            } else if was_read && index >= place && point.at.saturating_sub(at) > SWAPPED {
                *next = place_of(index as u64);
            }
        }
        next
    }
}
