//! Ends of processes, and what a process may not have noticed yet.

use std::time::Duration;

use super::{Course, Ending, PATIENCE};

/// How long the end of a process waits for its parent to have noticed that of another child.
pub(in super::super) const NOTICE: Duration = Duration::from_millis(100);
/// A parent that has run for so long since has something else to do.
pub(in super::super) const BUSY: Duration = Duration::from_millis(5);

/// What a process does.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Activity {
    pub(in super::super) is_at_rest: bool,
    /// For how long it has run.
    pub(in super::super) ran: Duration,
}

/// A process of which a child ends.
#[derive(Debug)]
pub(super) struct Unaware {
    since: Duration,
    /// For how long it had run when the child had ended, once it has.
    ran: Option<Duration>,
}

impl Course {
    /// Turns that have to come before the end of a process.
    fn before_end(&self, process: &str) -> impl Iterator<Item = usize> {
        self.before(self.ends.get(process).copied().unwrap_or(0))
    }

    /// Whether one is kept that is about to end.
    pub(in super::super) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Keeps a process that is about to end.
    pub(in super::super) fn hold_end(&mut self, ending: Ending) {
        self.ending.push(ending);
    }

    /// Whether nothing comes before the end of a process, but what its parent may not know yet.
    fn may_end(&self, process: &str) -> bool {
        self.before_end(process).next().is_none()
    }

    /// The first that is kept and may end, where its parent has noticed the end of others.
    pub(in super::super) fn take_end(&mut self, mut look: impl FnMut(i32) -> Activity) -> Option<Ending> {
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

    /// A process is let end; whether none of its threads was before.
    pub(in super::super) fn let_end(&mut self, process: &str) -> bool {
        self.let_end.insert(process.to_owned())
    }

    /// Whether a process was let end.
    pub(in super::super) fn is_let_end(&self, process: &str) -> bool {
        self.let_end.contains(process)
    }

    /// What comes before the end of one that is kept is not waited for any more.
    pub(super) fn end_at_last(&mut self, ending: usize) {
        let end = self.ends.get(&self.ending[ending].process).copied();
        self.go_on_at(end.unwrap_or(0));
    }

    /// A child of this process ends beside others: the next one waits until that is over, and the parent may know.
    pub(in super::super) fn ends(&mut self, parent: i32) {
        self.unaware.insert(parent, Unaware { since: self.pace.now(), ran: None });
    }

    /// It has ended; `ran`: for how long the parent has run by then.
    pub(in super::super) fn is_told(&mut self, parent: i32, ran: Duration) {
        self.unaware.insert(parent, Unaware { since: self.pace.now(), ran: Some(ran) });
    }

    /// Whether something is on its way to a process.
    pub(in super::super) fn is_hearing(&self, process: i32) -> bool {
        let unaware = self.unaware.get(&process);
        unaware.is_some_and(|unaware| unaware.ran.is_none() && self.pace.since(unaware.since) < NOTICE)
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
}
