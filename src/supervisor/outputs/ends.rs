//! The order in which processes end beside each other, as their parents see it.
//!
//! A parent that has several children hears of the end of one after the other, and has the time to notice each: the
//! next one that calls exit_group(2) waits in it, with its pipes open, until nothing of the parent runs, for a moment
//! at most. So they end one after the other, and that order is known. In a replay each waits besides until those of
//! its siblings that ended before have ended again, and its parent has written what it wrote before. Whom a signal
//! ends is not held.

use super::super::{Stop, Supervisor, skip};
use super::course::{Activity, Ending};
use super::reader::{self, Rest};
use crate::sys::seccomp::Notification;

impl Supervisor {
    /// A process has ended; `parent`: whose child it was, where that has had others meanwhile.
    pub(in crate::supervisor) fn note_end(&mut self, (process, id): (&str, i32), parent: Option<i32>) {
        if let Some(parent) = parent {
            // Whom a signal has ended, it ends now.
            if !self.outputs.course.is_let_end(process) {
                self.outputs.lines.end(process);
            }
            let ran = self.has_run(parent);
            self.outputs.course.is_told(parent, ran);
        }
        self.outputs.course.ended(process);
        self.outputs.tellings.ended(process, id);
    }

    /// A process is about to end.
    pub(in crate::supervisor) fn serve_end(&mut self, notification: Notification) -> Result<(), Stop> {
        let beside = self.tasks.kin().and_then(|kin| {
            let process = kin.process_of(notification.pid)?;
            Some((kin.lineage(process)?, kin.parent_of_several(process)?))
        });
        let Some((process, parent)) = beside else { return self.let_on(&notification) };
        if self.outputs.tellings.is_reader(parent) && !self.outputs.course.is_hearing(parent) {
            // What it hears of its children comes one after the other.
            let ran = self.has_run(parent);
            self.outputs.course.is_told(parent, ran);
        }
        let since = self.outputs.course.pace.now();
        self.outputs.course.hold_end(Ending { process, parent, notification, since });
        self.serve_ends()
    }

    /// Lets those end whose turn has come.
    pub(super) fn serve_ends(&mut self) -> Result<(), Stop> {
        while self.outputs.course.is_ending() {
            let waiting: Vec<_> = self.represented().collect();
            let kin = self.tasks.kin();
            let tasks_of = |process| kin.iter().flat_map(move |kin| kin.tasks_of(process));
            let tellings = &self.outputs.tellings;
            let rests = |process| match kin.as_ref().filter(|_| tellings.is_reader(process)) {
                Some(kin) => reader::rest(kin, process, &waiting, None) != Rest::Moving,
                None => skip::are_at_rest(tasks_of(process).filter(|task| !waiting.contains(task))),
            };
            let look = |process| Activity {
                is_at_rest: rests(process),
                ran: tasks_of(process).map(skip::has_run).sum(),
            };
            let Some(ending) = self.outputs.course.take_end(look) else { break };
            self.outputs.course.ends(ending.parent);
            // From here on its parent may see that its pipes are closed, and say so.
            if self.outputs.course.let_end(&ending.process) {
                self.outputs.lines.end(&ending.process);
            }
            self.let_on(&ending.notification)?;
        }
        Ok(())
    }
}
