//! Calls that wait for somebody else: an open of a pipe without its other end, a connection.
//!
//! A thread waits in place of the task. The task itself cannot be woken by a signal while it waits for
//! us (WAIT_KILLABLE_RECV), so the loop looks for signals that have come for it, and passes the
//! interruption on to the thread, whose call then ends as the task's own would have.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollTimeout;

use super::Supervisor;
use super::call::Reply;
use super::controls::Following;
use super::dispatch::answer;
use super::skip::Skip;
use super::task::Task;
use crate::sys::{process, seccomp};

/// How often the loop looks for signals while something waits, in milliseconds.
const LOOK: u8 = 40;
/// The kernel's own "start the call again, or say EINTR, as the handler of the signal wants it"
/// (ERESTARTSYS in its sources), which no task ever sees.
const RESTART: i32 = 512;

/// Threads that may wait at once.
const MOST: usize = 2048;

/// A thread that waits in place of a task.
#[derive(Debug)]
pub(super) struct Waiter {
    id: u64,
    task: Rc<Task>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    /// Lets a thread find the answer to call `id`; EAGAIN when there can be none.
    pub(super) fn wait_for(
        &mut self,
        id: u64,
        task: &Rc<Task>,
        find: Box<dyn FnOnce() -> Reply + Send>,
    ) -> nix::Result<()> {
        if self.waiters.len() >= MOST {
            self.waiters.retain(|waiter| !waiter.thread.is_finished());
        }
        if self.waiters.len() >= MOST {
            return Err(Errno::EAGAIN);
        }
        // The thread must not stay where this one does.
        self.hand_over.leave();
        let listener = Arc::clone(&self.listener);
        // In a process of several threads another one may take the signal: then nothing would start
        // the call again.
        let interrupted = if task.is_alone() { RESTART } else { libc::EINTR };
        let spawned = std::thread::Builder::new().name("waiter".to_owned()).spawn(move || {
            let reply = match find() {
                Reply::Errno(Errno::EINTR) => Reply::Interrupted(interrupted),
                other => other,
            };
            // An answer with a descriptor that is interrupted would leave the task with descriptor 0 for
            // its result.
            let reply = process::let_nothing_interrupt().map_or(Reply::Interrupted(interrupted), |()| reply);
            // A host that refuses answers refuses those of the loop as well, which stops the run.
            let _ = answer(&listener, id, reply);
        });
        match spawned {
            Ok(thread) => {
                self.waiters.push(Waiter { id, task: Rc::clone(task), thread });
                Ok(())
            }
            Err(_) => Err(Errno::EAGAIN),
        }
    }

    /// How long the loop may sleep.
    pub(super) fn patience(&self) -> PollTimeout {
        let unnamed = self.following.as_ref().is_some_and(Following::is_waiting);
        let skip = self.skip.as_ref().map(Skip::delay);
        match self.waiters.is_empty() && !unnamed {
            _ if self.more_stops => PollTimeout::ZERO,
            true => skip.map_or(PollTimeout::NONE, PollTimeout::from),
            false => PollTimeout::from(skip.map_or(LOOK, |delay| delay.min(LOOK))),
        }
    }

    /// The tasks in whose place a thread waits.
    pub(super) fn represented(&self) -> impl Iterator<Item = i32> {
        self.waiters.iter().filter(|waiter| !waiter.thread.is_finished()).map(|waiter| waiter.task.tid)
    }

    /// Interrupts the threads whose task has got a signal, or is gone.
    pub(super) fn look_after_waiters(&mut self) {
        // Each look costs a read of /proc for each of them: not at every call that others make.
        if self.waiters.is_empty() || self.looked.elapsed() < Duration::from_millis(LOOK.into()) {
            return;
        }
        self.waiters.retain(|waiter| !waiter.thread.is_finished());
        let listener: &OwnedFd = &self.listener;
        for waiter in &self.waiters {
            if waiter.task.has_signal() || !seccomp::still_waits(listener.as_fd(), waiter.id) {
                process::interrupt(&waiter.thread);
            }
        }
        self.looked = Instant::now();
    }
}
