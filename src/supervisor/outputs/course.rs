//! The order of a recorded run, and how far a replay has come in it.

mod notice;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use self::notice::Unaware;
pub(super) use self::notice::{Activity, BUSY, NOTICE};
use super::lines::{Does, Line, MOST};
use super::pace::Pace;
use crate::sys::seccomp::Notification;

/// How long a write waits while others go on, and the one that is to come does not, on a machine that is not busy.
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

/// A process that is about to end, and waits.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) process: String,
    pub(super) parent: i32,
    pub(super) notification: Notification,
    pub(super) since: Duration,
}

/// A write that waits, to what another process of the run reads.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) process: String,
    /// The same by its number.
    pub(super) teller: i32,
    /// Which of its writes of this kind.
    pub(super) index: u64,
    /// Where it leads.
    pub(super) stream: String,
    pub(super) notification: Notification,
    pub(super) since: Duration,
    /// Since when its reader alone is waited for, and how long that had run by then.
    pub(super) ready: Option<(Duration, Duration)>,
    /// Nothing else goes on.
    pub(super) is_last: bool,
}

/// What is done in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Print,
    End,
    Tell,
}

/// One of the recorded turns.
#[derive(Debug)]
struct Turn {
    what: What,
    /// Whose it is, and who sees it, among the names.
    by: usize,
    house: usize,
    is_over: bool,
}

/// Turns of processes, one after the other.
#[derive(Debug, Default)]
pub struct Course {
    /// Of each process, its turns that are to come: which they are among all, and how often it writes then.
    ahead: HashMap<String, VecDeque<(usize, u64)>>,
    /// The same for what it tells others, with which of its writes that begins.
    telling: HashMap<String, VecDeque<(usize, u64, u64)>>,
    /// Of each process, the turn in which it ends.
    ends: HashMap<String, usize>,
    names: Vec<String>,
    turns: Vec<Turn>,
    /// The first of those in which something is printed or ends that is not over.
    next: usize,
    /// The first of all.
    start: usize,
    held: Vec<Held>,
    pub(super) tellings: Vec<Telling>,
    ending: Vec<Ending>,
    /// Processes that were let end, and have not ended yet.
    let_end: HashSet<String>,
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

impl Course {
    /// What was written down so; `None` where it was not.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<Self> {
        let mut course = Self::default();
        let mut numbers = HashMap::<String, usize>::new();
        for line in str::from_utf8(text).ok()?.lines() {
            let turn = course.turns.len();
            if turn == MOST {
                return None;
            }
            let line = Line::of(line)?;
            let mut number = |name: &str| {
                *numbers.entry(name.to_owned()).or_insert_with(|| {
                    course.names.push(name.to_owned());
                    course.names.len() - 1
                })
            };
            let (by, house) = (number(&line.process), number(line.house()));
            let what = match line.does {
                Does::Print { count } => {
                    course.ahead.entry(line.process).or_default().push_back((turn, count));
                    What::Print
                }
                Does::End => {
                    course.ends.insert(line.process, turn);
                    What::End
                }
                Does::Tell { count, first, .. } => {
                    course.telling.entry(line.process).or_default().push_back((turn, first, count));
                    What::Tell
                }
            };
            course.turns.push(Turn { what, by, house, is_over: false });
        }
        course.pass([]);
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
        let told = self.telling.get_mut(process).map(std::mem::take).unwrap_or_default();
        let end = self.ends.remove(process);
        self.ending.retain(|ending| ending.process != process);
        self.let_end.remove(process);
        self.tellings.retain(|telling| telling.process != process);
        let told = told.into_iter().map(|(turn, ..)| turn);
        self.pass(ahead.into_iter().map(|(turn, _)| turn).chain(told).chain(end));
    }

    fn pass(&mut self, turns: impl IntoIterator<Item = usize>) {
        for turn in turns {
            self.turns[turn].is_over = true;
            self.moved = Some(self.pace.now());
        }
        let is_past = |turn: &Turn| turn.is_over || turn.what == What::Tell;
        while self.turns.get(self.next).is_some_and(is_past) {
            self.next += 1;
            self.since = None;
        }
        while self.turns.get(self.start).is_some_and(|turn| turn.is_over) {
            self.start += 1;
        }
    }

    /// Turns that have to come before this one: all in which something is printed or ends before something is printed;
    /// before something is told or ends, what whoever sees it has seen, and before an end what that one has printed.
    fn before(&self, turn: usize) -> impl Iterator<Item = usize> {
        let own = self.turns.get(turn).map(|turn| (turn.what, turn.house));
        let is_before = move |other: &usize| {
            let other = &self.turns[*other];
            !other.is_over
                && own.is_some_and(|(what, house)| match what {
                    What::Print => other.what != What::Tell,
                    What::End => other.house == house,
                    What::Tell => other.house == house && other.what != What::Print,
                })
        };
        (self.start..turn).filter(is_before)
    }

    /// Whether it is known who tells what when.
    pub(super) fn has_tellings(&self) -> bool {
        !self.telling.is_empty()
    }

    /// The turn of a write to what another process reads.
    pub(super) fn turn_to_tell(&self, process: &str, index: u64) -> Option<usize> {
        let turns = self.telling.get(process)?.iter();
        let mut begun = turns.take_while(|(_, first, _)| *first <= index);
        begun.find(|(_, first, count)| index < first.saturating_add(*count)).map(|(turn, ..)| *turn)
    }

    /// A process has written to what another one reads.
    pub(super) fn told(&mut self, process: &str, index: u64) {
        let Some(turns) = self.telling.get_mut(process) else { return };
        let is_over =
            |(_, first, count): &&(usize, u64, u64)| index.saturating_add(1) >= first.saturating_add(*count);
        let over: Vec<_> = turns.iter().take_while(is_over).map(|(turn, ..)| *turn).collect();
        turns.drain(..over.len());
        self.pass(over);
    }

    /// Those that wait, the first ones first.
    pub(super) fn tellings_in_order(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.tellings.len()).collect();
        order.sort_by_key(|at| self.turn_to_tell(&self.tellings[*at].process, self.tellings[*at].index));
        order
    }

    /// Whether nothing has to come before this write any more.
    pub(super) fn may_tell(&mut self, telling: usize) -> bool {
        let Telling { process, index, since, .. } = &self.tellings[telling];
        let Some(turn) = self.turn_to_tell(process, *index) else { return true };
        if self.before(turn).next().is_none() {
            return true;
        }
        let is_late = self.moved.max(Some(*since)).is_some_and(|since| self.pace.since(since) > PATIENCE);
        if is_late {
            self.vain += 1;
            self.go_on_at(turn);
        }
        is_late
    }

    /// What comes before a turn is not waited for any more.
    fn go_on_at(&mut self, turn: usize) {
        let before: Vec<_> = self.before(turn).collect();
        self.pass(before);
        self.since = None;
        if self.vain >= VAIN {
            self.end();
        }
    }

    /// One that waits no longer.
    pub(super) fn take(&mut self) -> Option<Held> {
        let (first, turn) = self.first()?;
        if turn.is_some_and(|turn| self.next < turn) {
            if self.pace.since(*self.since.get_or_insert_with(|| self.pace.now())) < PATIENCE {
                return None;
            }
            self.vain += 1;
            self.go_on_at(turn.unwrap_or(0));
        }
        Some(self.held.remove(first))
    }

    /// Nothing else goes on: whether one waits, which may go on now.
    pub(in crate::supervisor) fn go_on(&mut self) -> bool {
        let Some((turn, telling)) = self.first_of_all() else { return false };
        if let Some(telling) = telling {
            self.tellings[telling].is_last = true;
        }
        self.go_on_at(turn.unwrap_or(0));
        true
    }

    /// The turn of the first that waits, of all kinds, and which of those it is that tell something.
    fn first_of_all(&self) -> Option<(Option<usize>, Option<usize>)> {
        let prints = self.held.iter().map(|held| (self.turn_of(&held.process), None));
        let ends = self.ending.iter().map(|ending| (self.ends.get(&ending.process).copied(), None));
        let tells = self.tellings.iter().enumerate();
        let tells = tells.map(|(at, one)| (self.turn_to_tell(&one.process, one.index), Some(at)));
        prints.chain(ends).chain(tells).min()
    }

    /// The first of those that wait, and its turn.
    fn first(&self) -> Option<(usize, Option<usize>)> {
        let turns = self.held.iter().map(|held| self.turn_of(&held.process));
        turns.enumerate().min_by_key(|(_, turn)| *turn)
    }

    /// The processes whose turns come before that of the first which waits, of all kinds: one that makes another has to
    /// come first, too.
    pub(in crate::supervisor) fn awaited(&self) -> impl Iterator<Item = &str> {
        let first = self.first_of_all().and_then(|(turn, _)| turn).unwrap_or(0);
        let turns = self.turns.get(self.start..first).unwrap_or_default().iter();
        turns.filter(|turn| !turn.is_over).map(|turn| self.names[turn.by].as_str())
    }

    /// From now on there is no order.
    pub(in crate::supervisor) fn end(&mut self) {
        self.ahead.clear();
        self.telling.clear();
        self.ends.clear();
    }

    /// How soon the loop is to look again, in milliseconds.
    pub(in crate::supervisor) fn delay(&self) -> Option<u8> {
        let is_any = !self.held.is_empty() || !self.ending.is_empty() || !self.tellings.is_empty();
        is_any.then_some(LOOK)
    }

    /// The tasks that wait.
    pub(in crate::supervisor) fn tasks(&self) -> impl Iterator<Item = i32> {
        let ending = self.ending.iter().map(|ending| ending.notification.pid);
        let tellings = self.tellings.iter().map(|telling| telling.notification.pid);
        self.held.iter().map(|held| held.notification.pid).chain(ending).chain(tellings)
    }
}
