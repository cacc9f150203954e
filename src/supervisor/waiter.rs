//! Threads that wait in place of tasks, one call after another: to start one costs more than most calls wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::Stop;
use crate::sys::process;

/// Threads without work that are kept.
const KEPT: usize = 16;

/// What a thread does; the flag with which it began is its own to end, once nothing may interrupt it any more.
pub(super) type Work = Box<dyn FnOnce(&Busy<'_>) + Send>;

/// A thread that waits for one call at a time.
#[derive(Debug)]
pub(super) struct Waiter {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    slot: Mutex<Slot>,
    arrived: Condvar,
    /// Works that were done so far.
    done: AtomicU64,
}

#[derive(Default)]
struct Slot {
    work: Option<Work>,
    may_be_interrupted: bool,
    ended: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("done", &self.done).finish_non_exhaustive()
    }
}

/// Held by a work that may be interrupted.
pub(super) struct Busy<'a>(&'a Shared);

impl Busy<'_> {
    /// From here on the work is not interrupted.
    pub(super) fn end(&self) -> std::io::Result<()> {
        let blocked = process::let_nothing_interrupt();
        self.0.lock().may_be_interrupted = false;
        blocked
    }
}

impl Waiter {
    fn start() -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("waiter".to_owned()).spawn(move || own.serve())?;
        Ok(Self { shared, thread })
    }

    /// Whether it has done all that it was given, which is so many works.
    pub(super) fn is_done(&self, works: u64) -> bool {
        self.shared.done.load(Ordering::Acquire) >= works
    }

    /// Interrupts the call in which it waits.
    pub(super) fn interrupt(&self) {
        let slot = self.shared.lock();
        // Under the lock: it cannot come to its next work meanwhile.
        if slot.may_be_interrupted {
            process::interrupt(&self.thread);
        }
    }

    /// Gives it work; how many it has been given then.
    fn give(&self, work: Work) -> u64 {
        let mut slot = self.shared.lock();
        slot.work = Some(work);
        slot.may_be_interrupted = true;
        let works = self.shared.done.load(Ordering::Acquire) + 1;
        // Woken under the lock, it would wait for that.
        drop(slot);
        self.shared.arrived.notify_one();
        works
    }
}

/// Lets waits be interrupted, before the first one.
pub(super) fn prepare() -> Result<(), Stop> {
    process::let_threads_be_interrupted().map_err(|source| Stop::Receive { call: "sigaction", source })
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.arrived.notify_one();
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            let mut slot = self.lock();
            let work = loop {
                match slot.work.take() {
                    Some(work) => break work,
                    None if slot.ended => return,
                    None => slot = self.arrived.wait(slot).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(slot);
            // What was meant for the work before is taken here, by a handler that does nothing.
            if process::let_interrupt().is_ok() {
                work(&Busy(self));
            }
            self.done.fetch_add(1, Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads without work.
#[derive(Debug, Default)]
pub(super) struct Idle(Vec<Waiter>);

impl Idle {
    /// Whether there is one.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes one back that is done.
    pub(super) fn keep(&mut self, waiter: Waiter) {
        if self.0.len() < KEPT {
            self.0.push(waiter);
        }
    }

    /// Gives work to one, or to a new one; and how many works it has been given.
    pub(super) fn give(&mut self, work: Work) -> std::io::Result<(Waiter, u64)> {
        let waiter = self.0.pop().map_or_else(Waiter::start, Ok)?;
        let works = waiter.give(work);
        Ok((waiter, works))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn done(waiter: &Waiter, works: u64) {
        while !waiter.is_done(works) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_thread_does_one_work_after_another() {
        let mut idle = Idle::default();
        let (tell, told) = mpsc::channel();
        for _ in 0..3 {
            let tell = tell.clone();
            let work = Box::new(move |busy: &Busy<'_>| {
                busy.end().unwrap();
                tell.send(std::thread::current().id()).unwrap();
            });
            let (waiter, works) = idle.give(work).unwrap();
            done(&waiter, works);
            idle.keep(waiter);
        }
        let threads: Vec<_> = told.try_iter().collect();
        assert!(threads.len() == 3 && threads.iter().all(|thread| *thread == threads[0]), "{threads:?}");
    }

    #[test]
    fn an_interruption_reaches_the_present_work_alone() {
        process::let_threads_be_interrupted().unwrap();
        let mut idle = Idle::default();
        for interrupts in [true, false, true] {
            let (tell, told) = mpsc::channel();
            let (read, write) = nix::unistd::pipe().unwrap();
            let work = Box::new(move |busy: &Busy<'_>| {
                tell.send(None).unwrap();
                let result = nix::unistd::read(&read, &mut [0; 8]);
                busy.end().unwrap();
                tell.send(Some(result)).unwrap();
            });
            let (waiter, works) = idle.give(work).unwrap();
            told.recv().unwrap();
            let result = loop {
                if interrupts {
                    waiter.interrupt();
                } else {
                    nix::unistd::write(&write, b"x").unwrap();
                }
                if let Ok(result) = told.recv_timeout(Duration::from_millis(20)) {
                    break result.unwrap();
                }
            };
            assert_eq!(result, if interrupts { Err(nix::errno::Errno::EINTR) } else { Ok(1) });
            // Too late for it, and too early for the next.
            waiter.interrupt();
            done(&waiter, works);
            waiter.interrupt();
            idle.keep(waiter);
        }
    }
}
