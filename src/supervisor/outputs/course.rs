//! The order of a recorded run, and how far a replay has come in it.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::MOST;
use crate::sys::seccomp::Notification;

/// How long a write waits while others go on, and the one that is to come does not.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often that may be in vain: the order is another one then.
const VAIN: u8 = 3;
/// How often the loop looks for those that may go on, in milliseconds.
const LOOK: u8 = 1;

/// A write that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) process: String,
    pub(super) pipe: usize,
    pub(super) notification: Notification,
}

/// Turns of processes, one after the other.
#[derive(Debug, Default)]
pub struct Course {
    /// Of each process, its turns that are to come: which they are among all, and how often it writes then.
    ahead: HashMap<String, VecDeque<(usize, u64)>>,
    /// Of each turn, whether it is over.
    over: Vec<bool>,
    /// The first that is not.
    next: usize,
    held: Vec<Held>,
    /// Since when one waits for that.
    since: Option<Instant>,
    vain: u8,
}

/// Writes turns down: a line for each.
pub(super) fn write(turns: &[(String, u64)], to: &mut impl Write) -> io::Result<()> {
    turns.iter().try_for_each(|(process, count)| writeln!(to, "{process} {count}"))
}

impl Course {
    /// What was written down so; `None` where it was not.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<Self> {
        let mut course = Self::default();
        for line in str::from_utf8(text).ok()?.lines() {
            if course.over.len() == MOST {
                return None;
            }
            let (process, count) = line.split_once(' ')?;
            let turn = (course.over.len(), count.parse().ok().filter(|count| *count > 0)?);
            course.ahead.entry(process.to_owned()).or_default().push_back(turn);
            course.over.push(false);
        }
        Some(course)
    }

    /// Whether no order was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.over.is_empty()
    }

    /// The turn in which the process writes next.
    fn turn_of(&self, process: &str) -> Option<usize> {
        self.ahead.get(process)?.front().map(|(turn, _)| *turn)
    }

    /// Whether the turn of a process is still to come.
    pub(super) fn waits(&self, process: &str) -> bool {
        self.turn_of(process).is_some_and(|turn| self.next < turn)
    }

    /// Keeps a write that waits.
    pub(super) fn hold(&mut self, held: Held) {
        self.since.get_or_insert_with(Instant::now);
        self.held.push(held);
    }

    /// The next of the writes that wait.
    pub(super) fn first_held(&self) -> Option<&Held> {
        self.first().map(|(first, _)| &self.held[first])
    }

    /// A process writes.
    pub(super) fn wrote(&mut self, process: &str) {
        let Some(ahead) = self.ahead.get_mut(process) else { return };
        if let Some((turn, count)) = ahead.front_mut() {
            *count -= 1;
            if *count == 0 {
                self.over[*turn] = true;
                ahead.pop_front();
                self.pass();
            }
        }
    }

    /// A process writes no more.
    pub(in crate::supervisor) fn ended(&mut self, process: &str) {
        let Some(ahead) = self.ahead.remove(process) else { return };
        for (turn, _) in ahead {
            self.over[turn] = true;
        }
        self.pass();
    }

    fn pass(&mut self) {
        while self.over.get(self.next) == Some(&true) {
            self.next += 1;
            self.since = None;
        }
    }

    /// One that waits no longer.
    pub(super) fn take(&mut self) -> Option<Held> {
        let (first, turn) = self.first()?;
        if turn.is_some_and(|turn| self.next < turn) {
            if self.since.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
                return None;
            }
            self.vain += 1;
            self.go_on();
        }
        Some(self.held.remove(first))
    }

    /// Nothing else goes on: whether one waits, which may go on now.
    pub(in crate::supervisor) fn go_on(&mut self) -> bool {
        let Some((_, turn)) = self.first() else { return false };
        // What came before it is not waited for any more.
        self.next = self.next.max(turn.unwrap_or(0));
        self.since = None;
        if self.vain >= VAIN {
            self.end();
        }
        true
    }

    /// The first of those that wait, and its turn.
    fn first(&self) -> Option<(usize, Option<usize>)> {
        let turns = self.held.iter().map(|held| self.turn_of(&held.process));
        turns.enumerate().min_by_key(|(_, turn)| *turn)
    }

    /// From now on there is no order.
    pub(in crate::supervisor) fn end(&mut self) {
        self.ahead.clear();
    }

    /// How soon the loop is to look again, in milliseconds.
    pub(in crate::supervisor) fn delay(&self) -> Option<u8> {
        (!self.held.is_empty()).then_some(LOOK)
    }

    /// The tasks that wait.
    pub(in crate::supervisor) fn tasks(&self) -> impl Iterator<Item = i32> {
        self.held.iter().map(|held| held.notification.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course() -> Course {
        let turns = [("0", 2), ("0.0", 1), ("0.1", 1), ("0.0", 1)];
        let turns = turns.map(|(process, count)| (process.to_owned(), count));
        let mut text = Vec::new();
        write(&turns, &mut text).expect("into memory");
        Course::of(&text).expect("is one")
    }

    /// Whether it is kept.
    fn call(course: &mut Course, process: &str, pid: i32) -> bool {
        let notification = Notification { id: 1, pid, number: 1, arguments: [1, 0, 1, 0, 0, 0] };
        let waits = course.waits(process);
        if waits {
            course.hold(Held { process: process.to_owned(), pipe: 0, notification });
        }
        waits
    }

    fn next(course: &mut Course) -> Option<i32> {
        course.take().map(|held| {
            course.wrote(&held.process);
            held.notification.pid
        })
    }

    #[test]
    fn each_waits_for_its_turn() {
        let mut course = course();
        assert!(!call(&mut course, "0", 1) && call(&mut course, "0.1", 3));
        course.wrote("0");
        assert!(call(&mut course, "0.0", 2) && next(&mut course).is_none());
        course.wrote("0");
        assert_eq!((next(&mut course), next(&mut course), next(&mut course)), (Some(2), Some(3), None));
        assert!(!call(&mut course, "0.0", 2));
        course.wrote("0.0");
        // More than was recorded.
        assert!(!call(&mut course, "0.0", 2) && !call(&mut course, "0.7", 9));
    }

    #[test]
    fn who_has_ended_is_not_waited_for() {
        let mut course = course();
        assert!(call(&mut course, "0.0", 2) && course.tasks().eq([2]));
        course.ended("0");
        assert_eq!(next(&mut course), Some(2));
        assert!(course.delay().is_none() && call(&mut course, "0.0", 2));
        course.ended("0.1");
        assert_eq!(next(&mut course), Some(2));
    }

    #[test]
    fn where_nothing_goes_on_the_first_does() {
        let mut course = course();
        assert!(!course.go_on());
        assert!(call(&mut course, "0.1", 3) && call(&mut course, "0.0", 2));
        assert!(course.go_on());
        assert_eq!((next(&mut course), next(&mut course)), (Some(2), Some(3)));
        // It comes all the same.
        assert!(!call(&mut course, "0", 1));
    }

    #[test]
    fn what_never_comes_is_waited_for_a_few_times() {
        let text: String = (0..20).map(|process| format!("{process} 1\n")).collect();
        let mut course = Course::of(text.as_bytes()).expect("is one");
        assert!((1..20).rev().all(|process| call(&mut course, &process.to_string(), process)));
        let begun = Instant::now();
        let mut taken = 0;
        while begun.elapsed() < PATIENCE * 4 && taken < 19 {
            taken += i32::from(next(&mut course).is_some());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(taken, 19);
    }

    #[test]
    fn what_is_no_order_is_none() {
        assert!(Course::default().is_empty() && !course().is_empty());
        for text in [&b"0"[..], b"0 0", b"0 x", b"\xff 1"] {
            assert!(Course::of(text).is_none(), "{text:?}");
        }
        let longest = "0 1\n".repeat(MOST);
        assert!(Course::of(longest.as_bytes()).is_some());
        assert!(Course::of((longest + "0 1").as_bytes()).is_none());
    }
}
