//! Waits are left out of a replay: when nothing of the run can go on before a time comes, it comes at once.
//!
//! The loop looks when it has been quiet for a moment. Every task must be blocked in a call that is understood
//! (`sight`, `wait`), on two looks with nothing between them, and nobody beside the run may be at work for it:
//! no thread of this process, and no exchange of the proxy; nor may bytes be in the kernel's hands (`transit`). Then the timeline jumps to the earliest deadline. A
//! call whose time is over is ended in its task (`errand`); kernel timers are set forward (`timers`), and end by
//! themselves. Clocks at real rate take the jump in ([`super::clock`]); tapes hold it already.
//!
//! A task that waits for a time counts it on the timeline from when it was first seen in its call, or, where its
//! clock goes at real rate, from when that was read last. The kernel
//! counts on as well, from when the call began: whichever is first ends it. What is not understood is not left
//! out: then time passes as it does.

mod errand;
mod look;
mod patience;
mod sight;
mod timers;
mod transit;
mod wait;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use self::errand::Errand;
use self::look::Waiting;
use self::patience::{Course, Patience};
use self::sight::{Blocked, WaitingCall};
pub(super) use self::sight::{are_at_rest, calls_at_rest, has_run, is_elsewhere, waits_to_write};
use self::timers::Timers;
use self::transit::Transit;
use self::wait::{Caller, Wait};
use super::Supervisor;
use super::call::{Call, Reply, low_half};
use super::clock::Clock;
use super::ending::Ended;
use crate::sys::ptrace;
use crate::trace::TraceError;

/// What is under way beside the run that a task may wait for.
pub struct UnderWay {
    /// Whether something goes on in a moment.
    pub is_any: fn() -> bool,
    /// How long it is until something comes that has its time.
    pub next: fn() -> Option<Duration>,
    /// Says that so much time was left out.
    pub leave_out: fn(Duration),
    /// Says whether what comes is to have its time.
    pub want: fn(bool),
    /// Says that nothing of the run can go on: what is waited for never comes.
    pub stands_still: fn(),
}

/// The longest time between two looks while something runs, in milliseconds.
const SELDOM: u8 = 16;
/// When the loop looks although it is not quiet.
const LATEST: Duration = Duration::from_millis(20);
/// How long nothing must have been able to go on before that is told: it costs connections.
const STANDSTILL: Duration = Duration::from_secs(1);
/// A wait of so many nanoseconds is not over by something else just before its time as a rule.
const LONG: u64 = 100_000_000;
/// How long a task that was interrupted may take to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// A blocked task.
#[derive(Debug)]
struct Known {
    process: i32,
    blocked: Blocked,
    /// The call as the task has made it.
    original: WaitingCall,
    /// The call, under its first number.
    number: i64,
    /// `None` where it is not understood.
    wait: Option<Wait>,
    /// Until when it waits on the task's own clock, where that is a tape.
    until: Option<u64>,
    /// How long, from when it was first seen.
    lasts: u64,
    /// We have interrupted it, and it waits on.
    waits_on: bool,
}

/// What is left out of a replay, and what is known of its waits.
pub(super) struct Skip {
    /// `None` where nothing is left out.
    under_way: Option<UnderWay>,
    /// Whether what the run prints is not taken for now.
    is_unread: fn() -> bool,
    /// What the timeline is ahead of the kernel's clock.
    skew: u64,
    known: HashMap<i32, Known>,
    /// Where the timeline was at the last look.
    looked_at: u64,
    /// What each task has read last, and what the timeline was ahead of that.
    readings: HashMap<i32, (u64, i64)>,
    /// Calls that go on under another number, by task.
    restarts: HashMap<i32, i64>,
    errands: HashMap<i32, Errand>,
    timers: Timers,
    transit: Transit,
    /// Milliseconds of quiet before the next look.
    delay: u8,
    /// Milliseconds to the next time that something waits for while others run.
    soon: u8,
    looked: Instant,
    /// The run goes on for real: no wait is left out any more.
    is_live: bool,
    /// Nothing comes before the next signal from outside.
    signal_is_next: bool,
    /// At the last look nothing could go on.
    rests: bool,
    /// Since when that is so.
    rests_since: Option<Instant>,
    /// It waits for a time beyond the end of the recorded run.
    is_beyond: bool,
    patience: Patience,
}

impl Skip {
    /// Where the timeline is `skew` ahead of the kernel's clock.
    pub(super) fn new(under_way: Option<UnderWay>, is_unread: fn() -> bool, clock: &mut Clock) -> Self {
        Self {
            under_way,
            is_unread,
            skew: clock.catch_up(),
            readings: HashMap::new(),
            known: HashMap::new(),
            looked_at: 0,
            restarts: HashMap::new(),
            errands: HashMap::new(),
            timers: Timers::default(),
            transit: Transit::default(),
            delay: 1,
            soon: u8::MAX,
            looked: Instant::now(),
            is_live: false,
            signal_is_next: false,
            rests: false,
            rests_since: None,
            is_beyond: false,
            patience: Patience::new(),
        }
    }

    /// Tells whoever is waited for that nothing of the run can go on, once that has been so for a while.
    fn tell_standstill(&mut self) {
        if !self.rests {
            self.rests_since = None;
            return;
        }
        if self.rests_since.get_or_insert_with(Instant::now).elapsed() >= STANDSTILL {
            self.rests_since = None;
            if let Some(under_way) = &self.under_way {
                (under_way.stands_still)();
            }
        }
    }

    /// Whether the run goes on for real.
    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Whether waits are left out.
    pub(super) fn leaves_out(&self) -> bool {
        self.under_way.is_some() && !self.is_live
    }

    /// From now on waits last as long as they do on the timeline, which is so far ahead of the kernel's clock: to
    /// the kernel those until a time may last longer.
    pub(super) fn go_live(&mut self, ahead: u64) {
        (self.skew, self.is_live) = (ahead, true);
    }

    /// How long the loop may sleep, in milliseconds.
    pub(super) fn delay(&self) -> u8 {
        self.delay
    }

    /// Whether it is time to look.
    fn is_due(&mut self, quiet: bool) -> bool {
        if !quiet {
            self.delay = 1;
        }
        self.errands.retain(|_, errand| errand.since.elapsed() < PATIENCE);
        self.errands.is_empty() && (quiet || self.looked.elapsed() > LATEST)
    }

    /// A task is blocked; the caller is only looked at where that is new.
    fn note(&mut self, waiting: &Waiting, caller: impl FnOnce(&mut Self) -> Caller) {
        let Waiting { task, process, blocked, original } = *waiting;
        let known = self.known.get_mut(&task);
        if let Some(known) = known.as_ref().filter(|known| known.blocked == blocked) {
            if known.wait.is_some() {
                return;
            }
            // A thread of ours may wait in its place by now.
        } else if let Some(known) = known {
            known.blocked = blocked;
            let before = std::mem::replace(&mut known.original, original);
            let goes_on = blocked.call.number == libc::SYS_restart_syscall
                && self.restarts.get(&task) == Some(&known.number);
            let is_same = before.arguments == original.arguments
                && (before.number == original.number || original.number == libc::SYS_restart_syscall);
            if std::mem::take(&mut known.waits_on) && is_same {
                return;
            }
            self.timers.ran(process);
            if goes_on && is_same {
                return;
            }
        } else {
            self.timers.ran(process);
        }
        let number = match blocked.call.number {
            libc::SYS_restart_syscall => {
                self.restarts.get(&task).copied().unwrap_or(libc::SYS_restart_syscall)
            }
            number => number,
        };
        let caller = caller(self);
        let wait = caller.understand(&WaitingCall { number, ..original });
        let until = wait.as_ref().and_then(|wait| caller.until(wait));
        let deadline = wait.as_ref().and_then(|wait| wait.deadline).unwrap_or(0);
        let lasts = deadline.saturating_sub(caller.clocks.now);
        self.known
            .insert(task, Known { process, blocked, original, number, wait, until, lasts, waits_on: false });
    }

    /// Until when a task has waited on its own clock, where that is a tape, if the time of its wait is over and it
    /// waits in the same way again.
    fn over(&self, waiting: &Waiting, now: u64) -> Option<u64> {
        let known = self.known.get(&waiting.task).filter(|known| known.blocked != waiting.blocked)?;
        let again = known.original == waiting.original && known.lasts >= LONG;
        known.until.filter(|_| again && known.wait.as_ref().and_then(|wait| wait.deadline) <= Some(now))
    }

    /// A program begins: where it measures time by itself, answers take as long as they did.
    pub(super) fn begins(&self, clock: &Clock) {
        if let Some(under_way) = &self.under_way {
            (under_way.want)(clock.is_any_at_real_rate());
        }
    }

    /// How long waits of `process`, and what it may wait for outside, are still to last, but for short ones.
    fn left(&self, process: i32, clock: &Clock) -> Vec<u64> {
        let now = clock.kernel().0.wrapping_add(self.skew);
        let of_process = self.known.values().filter(|known| known.process == process && known.lasts >= LONG);
        let waits = of_process.filter_map(|known| known.wait.as_ref()?.deadline);
        waits.chain(self.arrival(now)).filter_map(|deadline| deadline.checked_sub(now)).collect()
    }

    /// When the next thing comes by itself, on the timeline.
    fn arrival(&self, now: u64) -> Option<u64> {
        let left = (self.under_way.as_ref()?.next)()?;
        Some(now.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn ended(&mut self, task: i32) {
        self.known.remove(&task);
        self.restarts.remove(&task);
        self.readings.remove(&task);
        self.errands.remove(&task);
        self.timers.ended(task);
    }
}

impl Supervisor {
    /// Leaves out the wait of a run in which nothing happens; `quiet` says that nothing has come since.
    pub(super) fn skip_waits(&mut self, quiet: bool) -> Result<(), TraceError> {
        let Some(mut skip) = self.skip.take() else { return Ok(()) };
        if skip.is_due(quiet) {
            // Tasks can be gone at any time, and an answer be missing: then nothing is left out.
            skip.soon = SELDOM;
            (skip.rests, skip.is_beyond) = (false, false);
            skip.delay = match self.look(&mut skip) {
                Ok(true) => 1,
                Ok(false) | Err(_) => skip.delay.saturating_mul(2).min(skip.soon),
            };
            skip.looked = Instant::now();
            skip.tell_standstill();
        }
        let signal_is_next = std::mem::take(&mut skip.signal_is_next);
        let ended = if skip.patience.is_due() { self.lose_patience(&mut skip) } else { None };
        self.skip = Some(skip);
        if let Some(why) = ended {
            self.end_replay(why);
        }
        if signal_is_next { self.give_signal() } else { Ok(()) }
    }

    /// Why the replay is to be ended now, if it is.
    fn lose_patience(&mut self, skip: &mut Skip) -> Option<Ended> {
        let tasks: Vec<_> = self.tasks.kin()?.tasks().into_iter().map(|(task, _)| task).collect();
        let clock = self.clock.as_ref().filter(|_| !skip.is_live)?;
        let is_late = skip.under_way.is_none() && clock.timeline() > clock.horizon();
        let course = Course {
            lasted: clock.lasted(),
            left_out: clock.left_out().all,
            is_beyond: skip.is_beyond || is_late,
            rests: skip.rests,
            steps: [clock.steps(), self.recorder.totals().steps()],
        };
        let ended = skip.patience.look(&tasks, course)?;
        if (skip.is_unread)() || self.give_end() {
            skip.patience.begin_anew();
            return None;
        }
        Some(ended)
    }

    /// Whether a task was interrupted by us.
    pub(super) fn has_errand(&self, task: i32) -> bool {
        self.skip.as_ref().is_some_and(|skip| skip.errands.contains_key(&task))
    }

    /// A task stands still: whether that was for us. Then it goes on already.
    pub(super) fn ran_errand(&mut self, task: i32) -> bool {
        let Some(skip) = &mut self.skip else { return false };
        let Some(errand) = skip.errands.remove(&task) else { return false };
        let process = errand.process;
        let until = skip.known.get(&task).and_then(|known| Some((known.number, known.until?)));
        let expired = || {
            if let (Some(clock), Some((number, until))) = (&mut self.clock, until) {
                clock.reach(task, number, until);
            }
        };
        match errand.run(task, expired) {
            Ok(done) => {
                let kernel = self.clock.as_ref().map_or(0, |clock| clock.kernel().0);
                if let Some(left) = done.left {
                    skip.timers.learned(process, left, kernel.wrapping_add(skip.skew));
                }
                if let Some(known) = skip.known.get_mut(&task) {
                    known.waits_on = done.waits_on;
                }
            }
            Err(_) => {
                // Gone, or it goes on as it is.
                let _ = ptrace::resume(task, 0);
            }
        }
        true
    }

    /// A task is about to get a signal, and goes on.
    pub(super) fn signalled(&mut self, task: i32, signal: i32) -> std::io::Result<()> {
        let Some(skip) = &mut self.skip else { return ptrace::resume(task, signal) };
        if let Some(number) = errand::restarting(task) {
            skip.restarts.insert(task, number);
        }
        ptrace::resume(task, signal)?;
        // The stop for the signal took the place of ours.
        if let Some(errand) = skip.errands.get_mut(&task) {
            errand.expires = None;
            ptrace::interrupt(task)?;
        }
        Ok(())
    }

    /// A task has ended: nothing of it is waited for.
    pub(super) fn forget_waits(&mut self, task: i32) {
        if let Some(skip) = &mut self.skip {
            skip.ended(task);
        }
    }

    /// A call that makes or sets a timer.
    pub(super) fn note_timer(&mut self, call: &Call) -> Reply {
        if let Some(skip) = &mut self.skip {
            match i64::from(call.number) {
                libc::SYS_timerfd_create => skip.timers.made_descriptor(),
                // In a replay it is seen by its tracer.
                libc::SYS_timer_settime => {}
                _ => skip.timers.set_alarm(call.task.tgid),
            }
        }
        Reply::Continue
    }

    /// A timer of a process is set to a time of its clock.
    pub(super) fn note_absolute_timer(&mut self, process: i32, timer: u64) {
        if let Some(skip) = &mut self.skip {
            skip.timers.set_absolute(process, low_half(timer).cast_signed());
        }
    }
}
