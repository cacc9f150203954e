//! Keeps the supervisor and the task that it serves on one CPU.
//!
//! A task that waits for an answer and a supervisor that waits for a call hand one CPU to each other
//! (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP). An answer with a descriptor knows no such hand-over: the
//! kernel wakes the task, and then us, on whichever CPU is idle, and to wake an idle CPU of a virtual
//! machine takes longer than all the rest of the call. So for a row of calls of one task this thread
//! stays where it is. Most often the kernel leaves the task there too, for a CPU that has been idle for
//! long is none that it looks for. Once it has taken the task elsewhere it goes on to do so: then, for some
//! calls, the task may run nowhere else while it takes its descriptor. It has its own CPUs again before
//! its call returns: no instruction of the program runs without them.
//!
//! All of that is for one task that calls again and again, or for one after the other, as the programs that a
//! shell starts: what they stop at wakes this thread too, and an idle CPU would take both over, in turns. Where
//! two tasks call in turns, as the compilers of a
//! parallel make do, this thread goes to the CPU of each. Once it hears both on one CPU, that would be handed
//! on from one to the other while the next one is idle: then the answered task is woken on any CPU. Only to
//! take a descriptor, for which this thread waits, it comes to this CPU: where one call after another waits
//! long for that, as in a search with several threads.

mod astray;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use self::astray::Astray;
use crate::sys::{process, seccomp};

/// Calls that make a row, none of tasks in turns.
const ROW: u32 = 4;
/// After so many calls this thread may follow the task to another CPU.
const STAY: u32 = 32;
/// Calls that are no row after work that the program need not wait for.
const APART: u32 = 64;
/// Calls after two tasks have called in turns that are answered where the task was.
const TURNS: u32 = 256;
/// An answer that takes longer waits for another CPU to wake.
const SLOW: Duration = Duration::from_micros(25);
/// Calls for which the task could be drawn in while it waits for one such answer, and as many of them as are remembered.
const WORTH: u32 = 3;
const MOST_SLOW: u32 = 12;
/// Work beside the program that is worth a CPU of its own.
const LONG: Duration = Duration::from_micros(300);
/// The calling thread (sched_setaffinity(2)).
const SELF: Pid = Pid::from_raw(0);

/// Where calls are served.
#[derive(Debug)]
pub(super) struct HandOver {
    /// There is more than one CPU, and the host lets us choose.
    usable: bool,
    /// Whose calls come, and how many came in a row.
    task: i32,
    row: u32,
    /// Calls to come that make no row.
    apart: u32,
    /// Who called before `task`, each of them another than the next.
    before: [i32; 2],
    /// Calls to come of several tasks in turns.
    turns: u32,
    /// Whether many of the last answers took long: each is as much [worth](WORTH) as some that did not.
    slow: u32,
    stay: Option<Stay>,
    astray: Astray,
    /// On which CPU this thread heard `task`, and who called before.
    heard: [Option<usize>; 2],
}

/// This thread stays on one CPU.
#[derive(Debug)]
struct Stay {
    here: CpuSet,
    /// Where it may run otherwise.
    everywhere: CpuSet,
    calls: u32,
}

impl HandOver {
    /// For the calls that come from `listener`. Older kernels answer every call as well, only slower.
    pub(super) fn by(listener: BorrowedFd<'_>) -> Self {
        // Without them this thread waits longer while programs compute.
        let _ = process::take_short_slices();
        Self::new(seccomp::wake_here(listener, true).is_ok())
    }

    /// `wakes_here`: a call wakes this thread on the CPU that it was made on.
    fn new(wakes_here: bool) -> Self {
        let usable = wakes_here && sched_getaffinity(SELF).is_ok_and(|cpus| several(&cpus));
        Self {
            usable,
            task: 0,
            row: 0,
            apart: 0,
            before: [0; 2],
            turns: 0,
            slow: 0,
            stay: None,
            astray: Astray::default(),
            heard: [None; 2],
        }
    }

    /// A call of `task` is about to be served.
    pub(super) fn called(&mut self, task: i32) {
        self.called_on(task, sched_getcpu().ok());
    }

    fn called_on(&mut self, task: i32, cpu: Option<usize>) {
        self.turns = self.turns.saturating_sub(1);
        if self.task != task {
            self.heard[1] = self.heard[0];
            if self.before == [task, self.task] {
                self.turns = TURNS;
            }
            self.before = [self.task, self.before[0]];
            self.task = task;
            if self.turns > 0 && !self.gives_in_turns() {
                self.leave();
            }
        }
        self.heard[0] = cpu;
        if self.apart > 0 || (self.turns > 0 && !self.gives_in_turns()) {
            self.apart = self.apart.saturating_sub(1);
            return;
        }
        self.row = self.row.saturating_add(1);
        if let Some(stay) = &mut self.stay {
            stay.calls += 1;
        } else if self.usable && self.row >= ROW {
            self.stay();
        }
    }

    /// Tasks that call in turns take long to take descriptors.
    fn gives_in_turns(&self) -> bool {
        self.turns > 0 && self.slow >= ROW
    }

    /// Whether an answered task is to run on this CPU: not where another one is that calls in turns with it.
    pub(super) fn is_here(&self) -> bool {
        self.turns == 0 || self.heard[0] != self.heard[1]
    }

    /// The call was answered, which took so long: the next one wakes us where the task is by then.
    pub(super) fn answered(&mut self, took: Duration) {
        if self.stay.is_none() {
            let slow = if took > SLOW { self.slow + WORTH } else { self.slow.saturating_sub(1) };
            self.slow = slow.min(MOST_SLOW);
        }
        if self.stay.as_ref().is_some_and(|stay| stay.calls >= STAY) {
            // Whether they still take long is to be seen.
            self.slow = 0;
            self.go();
        }
    }

    /// The call that woke us came from this CPU.
    fn stay(&mut self) {
        let stayed = || {
            let everywhere = sched_getaffinity(SELF)?;
            let mut here = CpuSet::new();
            here.set(sched_getcpu()?)?;
            sched_setaffinity(SELF, &here)?;
            Ok::<_, Errno>(Stay { here, everywhere, calls: 0 })
        };
        match stayed() {
            Ok(stay) => self.stay = Some(stay),
            Err(_) => self.usable = false,
        }
    }

    /// This thread has worked for so long while the program went on: better not on one CPU.
    pub(super) fn worked(&mut self, time: Duration) {
        if time > LONG {
            self.leave();
            self.apart = APART;
        }
    }

    /// This thread, and those that it makes, may run anywhere again.
    pub(super) fn leave(&mut self) {
        self.row = 0;
        self.go();
    }

    fn go(&mut self) {
        if let Some(stay) = self.stay.take() {
            give_back(SELF, &stay.here, &stay.everywhere);
        }
    }

    /// A descriptor was given in one step, which took so long.
    pub(super) fn gave(&mut self, took: Duration) {
        if self.stay.is_some() && self.turns == 0 {
            self.astray.answered(took > SLOW);
        }
    }

    /// Lets the task that is being served, which waits in its call, run on this CPU alone, until the
    /// result is dropped. `None` where that gains nothing.
    pub(super) fn draw_in(&mut self) -> Option<DrawnIn> {
        let here = self.stay.as_ref()?.here;
        if self.turns == 0 && !self.astray.draws() {
            return None;
        }
        let task = Pid::from_raw(self.task);
        let everywhere = sched_getaffinity(task).ok().filter(several)?;
        if sched_setaffinity(task, &here).is_err() {
            self.leave();
            self.usable = false;
            return None;
        }
        Some(DrawnIn { task, here, everywhere })
    }
}

/// A task that may run on one CPU alone for now.
#[derive(Debug)]
pub(super) struct DrawnIn {
    task: Pid,
    here: CpuSet,
    everywhere: CpuSet,
}

impl Drop for DrawnIn {
    fn drop(&mut self) {
        give_back(self.task, &self.here, &self.everywhere);
    }
}

/// Undoes a change, unless somebody else has made another one since.
fn give_back(thread: Pid, here: &CpuSet, everywhere: &CpuSet) {
    if sched_getaffinity(thread).is_ok_and(|now| now == *here) {
        // Gone meanwhile, or its CPUs were taken from it: then there is nothing to give.
        let _ = sched_setaffinity(thread, everywhere);
    }
}

fn several(cpus: &CpuSet) -> bool {
    let allowed = (0..CpuSet::count()).filter(|&cpu| cpus.is_set(cpu).unwrap_or(false));
    allowed.take(2).count() == 2
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> (Child, i32) {
        let child = Command::new("sleep").arg("60").spawn().expect("starts");
        let id = i32::try_from(child.id()).expect("a pid");
        (child, id)
    }

    fn allowed(task: i32) -> CpuSet {
        sched_getaffinity(Pid::from_raw(task)).expect("is there")
    }

    /// The kernel takes the task elsewhere. `None` where there is one CPU alone.
    fn in_a_row(task: i32) -> Option<HandOver> {
        let mut hand_over = HandOver::new(true);
        (0..ROW).for_each(|_| hand_over.called(task));
        assert!(hand_over.draw_in().is_none());
        (0..astray::SLOW_ANSWERS).for_each(|_| hand_over.gave(2 * SLOW));
        hand_over.stay.is_some().then_some(hand_over)
    }

    #[test]
    fn a_task_and_this_thread_get_their_cpus_back() {
        let (mut child, task) = sleeper();
        let (own, its) = (allowed(0), allowed(task));
        if let Some(mut hand_over) = in_a_row(task) {
            assert!(!several(&allowed(0)));
            let drawn_in = hand_over.draw_in().expect("can be moved");
            assert_eq!(allowed(task), allowed(0));
            drop(drawn_in);
            assert_eq!(allowed(task), its);
            (0..STAY).for_each(|_| hand_over.called(task));
            hand_over.answered(Duration::ZERO);
            assert_eq!(allowed(0), own);
            hand_over.called(task);
            assert!(!several(&allowed(0)));
            // Who comes next is served here as well, but not tasks that call in turns.
            hand_over.called(1);
            assert!(!several(&allowed(0)));
            [task, 1].into_iter().for_each(|task| hand_over.called(task));
            assert_eq!(allowed(0), own);
            assert!(hand_over.draw_in().is_none());
        }
        child.kill().and_then(|()| child.wait()).expect("ends");
    }

    #[test]
    fn tasks_that_call_in_turns_on_one_cpu_are_woken_on_any() {
        let mut hand_over = HandOver::new(false);
        let mut call = |task: i32| {
            hand_over.called_on(task, Some(0));
            hand_over.is_here()
        };
        // One after the other is no turn, nor is a parent between its children.
        assert!([1, 1, 2, 3, 4, 1, 5, 1, 6].into_iter().all(&mut call));
        assert!(call(7) && call(6) && !call(7));
        assert!((1..TURNS).all(|_| !call(7)));
        assert!(call(7));
    }

    #[test]
    fn tasks_that_call_in_turns_on_two_cpus_stay_there() {
        let mut hand_over = HandOver::new(false);
        let mut call = |task: i32, cpu| {
            hand_over.called_on(task, Some(cpu));
            hand_over.is_here()
        };
        assert!((0..TURNS).all(|_| call(7, 0) && call(8, 1)));
        // Both on one, until one has gone.
        assert!(!call(7, 1) && !call(8, 1) && call(7, 0) && call(8, 1));
    }

    #[test]
    fn tasks_that_take_long_for_their_descriptors_take_them_on_this_cpu() {
        let (mut child, task) = sleeper();
        let (mut other_child, other) = sleeper();
        let mut hand_over = HandOver::new(true);
        let (own, its) = (allowed(0), allowed(task));
        let both = |hand_over: &mut HandOver, took| {
            for task in [task, other] {
                hand_over.called(task);
                hand_over.answered(took);
            }
        };
        (0..3 * ROW).for_each(|_| both(&mut hand_over, Duration::ZERO));
        assert!(hand_over.turns > 0 && hand_over.draw_in().is_none());
        (0..2 * ROW).for_each(|_| both(&mut hand_over, 2 * SLOW));
        assert!(hand_over.turns > 0);
        hand_over.called(task);
        if hand_over.usable {
            let drawn_in = hand_over.draw_in().expect("can be moved");
            assert_eq!(allowed(task), allowed(0));
            drop(drawn_in);
        }
        assert_eq!(allowed(task), its);
        // After a while it is seen anew whether that is still so.
        (0..STAY).for_each(|_| both(&mut hand_over, Duration::ZERO));
        assert!(hand_over.draw_in().is_none());
        assert_eq!(allowed(0), own);
        for child in [&mut child, &mut other_child] {
            child.kill().and_then(|()| child.wait()).expect("ends");
        }
    }

    #[test]
    fn what_somebody_else_has_chosen_meanwhile_stays() {
        let (mut child, task) = sleeper();
        let its = allowed(task);
        if let Some(mut hand_over) = in_a_row(task) {
            let here = allowed(0);
            let other = (0..CpuSet::count())
                .find(|&cpu| its.is_set(cpu) == Ok(true) && here.is_set(cpu) == Ok(false))
                .expect("there are several");
            let mut chosen = CpuSet::new();
            chosen.set(other).expect("is one");
            let drawn_in = hand_over.draw_in().expect("can be moved");
            sched_setaffinity(Pid::from_raw(task), &chosen).expect("may choose");
            drop(drawn_in);
            assert_eq!(allowed(task), chosen);
            // Whoever runs on one CPU alone is left there.
            assert!(hand_over.draw_in().is_none());
            hand_over.leave();
        }
        child.kill().and_then(|()| child.wait()).expect("ends");
    }
}
