//! Calls that wait for somebody else: an open of a pipe without its other end, a connection.
//!
//! A thread waits in place of the task. The task itself cannot be woken by a signal while it waits for
//! us (WAIT_KILLABLE_RECV), so the loop looks for signals that have come for it, and passes the
//! interruption on to the thread, whose call then ends as the task's own would have.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollTimeout;

use super::Supervisor;
use super::call::Reply;
use super::controls::Following;
use super::dispatch::answer;
use super::skip::Skip;
use super::task::Task;
use super::waiter::{Idle, Waiter};
use crate::sys::seccomp;

/// How often the loop looks for signals while something waits, in milliseconds.
const LOOK: u8 = 40;
/// The kernel's own "start the call again, or say EINTR, as the handler of the signal wants it"
/// (ERESTARTSYS in its sources), which no task ever sees.
const RESTART: i32 = 512;

/// How soon a task that was answered goes on.
const LATELY: Duration = Duration::from_secs(1);
/// Threads that may wait at once.
const MOST: usize = 2048;

/// The threads that wait in place of tasks.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    calls: Vec<WaitingCall>,
    /// Tasks that were answered, and since when we know.
    answered: Vec<(i32, Instant)>,
    idle: Idle,
}

/// A call that waits.
#[derive(Debug)]
struct WaitingCall {
    id: u64,
    task: Rc<Task>,
    waiter: Waiter,
    works: u64,
}

impl Waiting {
    /// Takes back the threads whose calls are answered.
    fn sweep(&mut self) {
        self.answered.retain(|(_, since)| since.elapsed() < LATELY);
        for call in self.calls.extract_if(.., |call| call.waiter.is_done(call.works)) {
            self.answered.push((call.task.tid, Instant::now()));
            self.idle.keep(call.waiter);
        }
    }
}

impl Supervisor {
    /// Lets a thread find the answer to call `id`; EAGAIN when there can be none.
    pub(super) fn wait_for(
        &mut self,
        id: u64,
        task: &Rc<Task>,
        find: Box<dyn FnOnce() -> Reply + Send>,
    ) -> nix::Result<()> {
        if self.waiting.idle.is_empty() {
            self.waiting.sweep();
        }
        if self.waiting.calls.len() >= MOST {
            return Err(Errno::EAGAIN);
        }
        if self.waiting.idle.is_empty() {
            // The thread must not stay where this one does.
            self.hand_over.leave();
        }
        let listener = Arc::clone(&self.listener);
        // In a process of several threads another one may take the signal: then nothing would start
        // the call again.
        let interrupted = if task.is_alone() { RESTART } else { libc::EINTR };
        let given = self.waiting.idle.give(Box::new(move |busy| {
            let reply = match find() {
                Reply::Errno(Errno::EINTR) => Reply::Interrupted(interrupted),
                other => other,
            };
            // An answer with a descriptor that is interrupted would leave the task with descriptor 0 for
            // its result.
            let reply = busy.end().map_or(Reply::Interrupted(interrupted), |()| reply);
            // A host that refuses answers refuses those of the loop as well, which stops the run.
            let _ = answer(&listener, id, reply);
        }));
        match given {
            Ok((waiter, works)) => {
                self.waiting.calls.push(WaitingCall { id, task: Rc::clone(task), waiter, works });
                Ok(())
            }
            Err(_) => Err(Errno::EAGAIN),
        }
    }

    /// How long the loop may sleep.
    pub(super) fn patience(&self) -> PollTimeout {
        let unnamed = self.following.as_ref().is_some_and(Following::is_waiting);
        let skip = self.skip.as_ref().map(Skip::delay);
        let look = (!self.waiting.calls.is_empty() || unnamed || self.has_births()).then_some(LOOK);
        let held = self.outputs.course.delay();
        if self.more_stops {
            return PollTimeout::ZERO;
        }
        let look = skip.into_iter().chain(look).chain(held).chain(self.before_signal()).min();
        look.map_or(PollTimeout::NONE, PollTimeout::from)
    }

    /// Whether a thread waits in place of a task, or has just answered for it.
    pub(super) fn is_waited_for(&self, task: i32) -> bool {
        let answered = self.waiting.answered.iter().map(|(task, _)| *task);
        self.waiting.calls.iter().map(|call| call.task.tid).chain(answered).any(|one| one == task)
    }

    /// The tasks in whose place a thread waits, and those that wait for their turn.
    pub(super) fn represented(&self) -> impl Iterator<Item = i32> {
        let calls = self.waiting.calls.iter().filter(|call| !call.waiter.is_done(call.works));
        calls.map(|call| call.task.tid).chain(self.outputs.course.tasks())
    }

    /// Interrupts the threads whose task has got a signal, or is gone.
    pub(super) fn look_after_waiters(&mut self) {
        // Each look costs a read of /proc for each of them: not at every call that others make.
        if self.waiting.calls.is_empty() || self.looked.elapsed() < Duration::from_millis(LOOK.into()) {
            return;
        }
        self.waiting.sweep();
        let listener: &OwnedFd = &self.listener;
        for call in &self.waiting.calls {
            if call.task.has_signal() || !seccomp::still_waits(listener.as_fd(), call.id) {
                call.waiter.interrupt();
            }
        }
        self.looked = Instant::now();
    }
}
