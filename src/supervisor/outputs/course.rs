//! The order of a recorded run, and how far a replay has come in it.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::time::Duration;

use super::MOST;
use super::pace::Pace;
use crate::sys::seccomp::Notification;

/// How long a write waits while others go on, and the one that is to come does not, on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often that may be in vain: the order is another one then.
const VAIN: u8 = 3;
/// How long the end of a process waits for its parent to have noticed that of another child.
const NOTICE: Duration = Duration::from_millis(100);
/// A parent that has run for so long since has something else to do.
const BUSY: Duration = Duration::from_millis(5);
/// How often the loop looks for those that may go on, in milliseconds.
const LOOK: u8 = 1;

/// A write that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) process: String,
    pub(super) pipe: usize,
    pub(super) notification: Notification,
}

/// A process that is about to end, and waits.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) process: String,
    pub(super) parent: i32,
    pub(super) notification: Notification,
    pub(super) since: Duration,
}

/// What a process does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Activity {
    pub(super) is_at_rest: bool,
    /// For how long it has run.
    pub(super) ran: Duration,
}

/// A process of which a child ends.
#[derive(Debug)]
struct Unaware {
    since: Duration,
    /// For how long it had run when the child had ended, once it has.
    ran: Option<Duration>,
}

/// One of the recorded turns.
#[derive(Debug)]
struct Turn {
    /// Who writes, or sees that its child ends.
    house: u32,
    is_over: bool,
}

/// Turns of processes, one after the other.
#[derive(Debug, Default)]
pub struct Course {
    /// Of each process, its turns that are to come: which they are among all, and how often it writes then.
    ahead: HashMap<String, VecDeque<(usize, u64)>>,
    /// Of each process, the turn in which it ends.
    ends: HashMap<String, usize>,
    turns: Vec<Turn>,
    /// The first that is not.
    next: usize,
    held: Vec<Held>,
    ending: Vec<Ending>,
    /// Processes that may not have noticed yet that a child has ended, and since when.
    unaware: HashMap<i32, Unaware>,
    /// When a turn was over last.
    moved: Option<Duration>,
    /// Since when one waits for that.
    since: Option<Duration>,
    vain: u8,
    /// On which all of these times are.
    pub(super) pace: Pace,
}

/// Stands for the end of a process in the place of a number of writes.
pub(super) const END: u64 = 0;
/// The same where it is written down.
const END_WORD: &str = "end";

/// Writes turns down: a line for each.
pub(super) fn write(turns: &[(String, u64)], to: &mut impl Write) -> io::Result<()> {
    turns.iter().try_for_each(|(process, count)| match *count {
        END => writeln!(to, "{process} {END_WORD}"),
        count => writeln!(to, "{process} {count}"),
    })
}

/// The parent of a process, by its name.
fn parent_of(process: &str) -> &str {
    process.rsplit_once('.').map_or("", |(parent, _)| parent)
}

impl Course {
    /// What was written down so; `None` where it was not.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<Self> {
        let mut course = Self::default();
        let mut houses = HashMap::<&str, u32>::new();
        for line in str::from_utf8(text).ok()?.lines() {
            let turn = course.turns.len();
            if turn == MOST {
                return None;
            }
            let (process, word) = line.split_once(' ')?;
            let host = if word == END_WORD { parent_of(process) } else { process };
            if word == END_WORD {
                course.ends.insert(process.to_owned(), turn);
            } else {
                let count = word.parse().ok().filter(|count| *count > 0)?;
                course.ahead.entry(process.to_owned()).or_default().push_back((turn, count));
            }
            let next = u32::try_from(houses.len()).ok()?;
            let house = *houses.entry(host).or_insert(next);
            course.turns.push(Turn { house, is_over: false });
        }
        Some(course)
    }

    /// Whether no order was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
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
        self.since.get_or_insert_with(|| self.pace.now());
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
                let turn = *turn;
                ahead.pop_front();
                self.pass([turn]);
            }
        }
    }

    /// A process has ended: it writes no more.
    pub(super) fn ended(&mut self, process: &str) {
        let ahead = self.ahead.remove(process).unwrap_or_default();
        let end = self.ends.remove(process);
        self.ending.retain(|ending| ending.process != process);
        self.pass(ahead.into_iter().map(|(turn, _)| turn).chain(end));
    }

    fn pass(&mut self, turns: impl IntoIterator<Item = usize>) {
        for turn in turns {
            self.turns[turn].is_over = true;
            self.moved = Some(self.pace.now());
        }
        while self.turns.get(self.next).is_some_and(|turn| turn.is_over) {
            self.next += 1;
            self.since = None;
        }
    }

    /// Turns that come before the end of a process in what its parent does and sees.
    fn before_end(&self, process: &str) -> impl Iterator<Item = usize> {
        let end = self.ends.get(process).copied().unwrap_or(0);
        let house = self.turns.get(end).map(|turn| turn.house);
        let is_before = move |turn: &usize| {
            let turn = &self.turns[*turn];
            !turn.is_over && Some(turn.house) == house
        };
        (self.next..end).filter(is_before)
    }

    /// Whether one is kept that is about to end.
    pub(super) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Keeps a process that is about to end.
    pub(super) fn hold_end(&mut self, ending: Ending) {
        self.ending.push(ending);
    }

    /// Whether nothing comes before the end of a process, but what its parent may not know yet.
    fn may_end(&self, process: &str) -> bool {
        self.before_end(process).next().is_none()
    }

    /// The first that is kept and may end, where its parent has noticed the end of others.
    pub(super) fn take_end(&mut self, mut look: impl FnMut(i32) -> Activity) -> Option<Ending> {
        let is_late = |ending: &Ending| {
            self.moved.max(Some(ending.since)).is_some_and(|since| self.pace.since(since) > PATIENCE)
        };
        let late = self.ending.iter().position(|ending| !self.may_end(&ending.process) && is_late(ending));
        if let Some(late) = late {
            self.vain += 1;
            self.end_at_last(late);
        }
        let next = (0..self.ending.len()).find(|index| {
            let Ending { process, parent, .. } = &self.ending[*index];
            self.may_end(process) && !self.is_unaware(*parent, &mut look)
        })?;
        Some(self.ending.remove(next))
    }

    /// What comes before the end of one that is kept is not waited for any more.
    fn end_at_last(&mut self, ending: usize) {
        let before: Vec<_> = self.before_end(&self.ending[ending].process).collect();
        self.pass(before);
        if self.vain >= VAIN {
            self.end();
        }
    }

    /// A child of this process ends beside others: the next one waits until that is over, and the parent may know.
    pub(super) fn ends(&mut self, parent: i32) {
        self.unaware.insert(parent, Unaware { since: self.pace.now(), ran: None });
    }

    /// It has ended; `ran`: for how long the parent has run by then.
    pub(super) fn is_told(&mut self, parent: i32, ran: Duration) {
        self.unaware.insert(parent, Unaware { since: self.pace.now(), ran: Some(ran) });
    }

    /// Whether a process may still have to hear of the end of a child. Where nothing of it goes on since, it has.
    fn is_unaware(&self, parent: i32, look: impl FnOnce(i32) -> Activity) -> bool {
        let is_lately = |unaware: &Unaware| self.pace.since(unaware.since) < NOTICE;
        let is_yet = |unaware: &Unaware| match unaware.ran.filter(|_| is_lately(unaware)) {
            Some(ran) => {
                let Activity { is_at_rest, ran: now } = look(parent);
                !is_at_rest && now.saturating_sub(ran) < BUSY
            }
            None => is_lately(unaware),
        };
        self.unaware.get(&parent).is_some_and(is_yet)
    }

    /// One that waits no longer.
    pub(super) fn take(&mut self) -> Option<Held> {
        let (first, turn) = self.first()?;
        if turn.is_some_and(|turn| self.next < turn) {
            if self.pace.since(*self.since.get_or_insert_with(|| self.pace.now())) < PATIENCE {
                return None;
            }
            self.vain += 1;
            self.go_on();
        }
        Some(self.held.remove(first))
    }

    /// Nothing else goes on: whether one waits, which may go on now.
    pub(in crate::supervisor) fn go_on(&mut self) -> bool {
        let end_of = |ending: &Ending| self.ends.get(&ending.process).copied();
        let first_end = self.ending.iter().enumerate().min_by_key(|(_, ending)| end_of(ending));
        let first_end = first_end.map(|(first, ending)| (end_of(ending), first));
        let first = self.first().map(|(_, turn)| turn);
        if let Some((end, index)) = first_end
            && first.is_none_or(|turn| end < turn)
        {
            self.end_at_last(index);
            return true;
        }
        let Some(turn) = first else { return false };
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

    /// The processes whose turns come before that of the first which waits.
    pub(in crate::supervisor) fn awaited(&self) -> impl Iterator<Item = &str> {
        let writes = self.first().and_then(|(_, turn)| turn);
        let ends = self.ending.iter().filter_map(|ending| self.ends.get(&ending.process)).min().copied();
        let first = writes.into_iter().chain(ends).min().unwrap_or(0);
        let ahead = self.ahead.iter().filter_map(|(process, ahead)| Some((process, ahead.front()?.0)));
        let ends = self.ends.iter().map(|(process, turn)| (process, *turn));
        ahead.chain(ends).filter(move |(_, turn)| *turn < first).map(|(process, _)| process.as_str())
    }

    /// From now on there is no order.
    pub(in crate::supervisor) fn end(&mut self) {
        self.ahead.clear();
        self.ends.clear();
    }

    /// How soon the loop is to look again, in milliseconds.
    pub(in crate::supervisor) fn delay(&self) -> Option<u8> {
        (!self.held.is_empty() || !self.ending.is_empty()).then_some(LOOK)
    }

    /// The tasks that wait.
    pub(in crate::supervisor) fn tasks(&self) -> impl Iterator<Item = i32> {
        let ending = self.ending.iter().map(|ending| ending.notification.pid);
        self.held.iter().map(|held| held.notification.pid).chain(ending)
    }
}
