//! At a call that was marked, a thread is put back to where it was on its tape.

use std::io;

use super::ahead::NEAR as FARTHEST;
use super::{Replay, place_of};
use crate::supervisor::clock::space::{Head, Lane, Next};
use crate::sys::vdso::{BESIDE_LOOP, BY_CALLER, KINDS, OF_INTERPRETER};

/// What comes by so many nanoseconds or so many reads before or after a mark counts as on its own side of it.
const NEAR: u64 = 10_000_000;
const NEAR_READS: usize = 8;

impl Replay {
    /// The thread makes a call: puts it back to where it was then, if it is not there.
    pub(in crate::supervisor::clock) fn call(&mut self, number: u64, lane: Option<&Lane>) -> io::Result<()> {
        // Beyond the end there is nothing to go on from.
        let Some(reads) = self.marks.call(number).filter(|reads| *reads <= self.recorded) else {
            return Ok(());
        };
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
            lane.set_floor(0)?;
        }
        let moved = if is_there { usize::from(OF_INTERPRETER[0]) } else { 0 };
        next.0[moved..BESIDE_LOOP.into()].fill(place_of(place));
        self.correct(&mut next, place);
        if is_there && next == head.next {
            return Ok(());
        }
        lane.set_head(Head { cursor: place, adrift: false, next, ..head })
    }

    /// Goes on behind what the lane holds, and so many points further; what is unread of times of day is kept.
    fn skip(&mut self, lane: &Lane, head: Head, skipped: u64) -> io::Result<()> {
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        // Marks of a trace may say anything: so many points are held in memory, and no more.
        let far = skipped.saturating_sub(FARTHEST);
        self.before += (0..far).map_while(|_| self.pull()).count() as u64;
        let skipped = skipped - far;
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
            if point.kind >= BESIDE_LOOP {
                last[usize::from(point.kind)] = point.at;
            }
        }
        // Of those before the lane's it has yet to get what lies at its front.
        let loose = self.window.iter().enumerate().take(usize::try_from(self.loose).unwrap_or(0));
        for (_, point) in loose.rev().filter(|(at, point)| *at >= usize::from(head.next.of(point.kind))) {
            let last = &mut last[usize::from(point.kind)];
            *last = (*last).min(point.at.saturating_sub(1));
        }
        last
    }

    /// Corrects where each caller goes on at a mark. Which of two events comes first, a call or what asks for the time
    /// of day, is now and then a matter of chance: where a caller is ahead or behind by little, it is left so.
    fn correct(&self, next: &mut Next, place: u64) {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let before = place.checked_sub(1).and_then(|before| self.window.get(before));
        let at = before.map_or(self.last, |point| point.at);
        self.correct_beside_loop(next, place);
        for (index, point) in self.window.iter().enumerate().filter(|(_, point)| point.kind >= BY_CALLER[0]) {
            let Some(next) = next.0.get_mut(usize::from(point.kind)) else { continue };
            let was_read = index < usize::from(*next);
            let is_near = index.abs_diff(place) <= NEAR_READS || at.abs_diff(point.at) <= NEAR;
            if was_read != (index < place) && !is_near {
                *next = place_of(index as u64 + u64::from(!was_read));
            }
        }
    }

    /// The same of what an event loop's program reads. The calls of such a loop come as its events do: where few of
    /// the program's reads lie between, these are in order.
    fn correct_beside_loop(&self, next: &mut Next, place: usize) {
        let Some(next) = next.0.get_mut(usize::from(BESIDE_LOOP)) else { return };
        let from = usize::from(*next);
        let between = self.window.iter().take(place.max(from)).skip(place.min(from));
        if between.filter(|point| point.kind == BESIDE_LOOP).count() > NEAR_READS {
            *next = place_of(place as u64);
        }
    }
}
