//! A look at a run in which nothing seems to happen, and the jump to the next time that something waits for.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::super::Supervisor;
use super::super::clock::Clock;
use super::super::controls::Following;
use super::super::outputs::Course;
use super::super::ready::is_called;
use super::errand::Errand;
use super::sight::{self, Blocked, Sight, WaitingCall};
use super::timers::Which;
use super::wait::{Caller, Clocks};
use super::{Known, Skip};
use crate::sys::ptrace;

/// The kernel ends a wait for a time by itself: after so many nanoseconds it has not.
const LATE: u64 = 5_000_000;

/// A task that is blocked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) task: i32,
    pub(super) process: i32,
    pub(super) blocked: Blocked,
    /// The call as the task has made it.
    pub(super) original: WaitingCall,
}

impl Waiting {
    fn of(clock: &Clock, (task, process): (i32, i32), blocked: Blocked) -> Self {
        let original = original(blocked.call, clock.original(task));
        Self { task, process, blocked, original }
    }

    /// How it stands once it is interrupted: it has its own registers again, for which it stops once more.
    fn interrupted(&self) -> Blocked {
        let stops = u64::from(self.original != self.blocked.call);
        Blocked { call: self.original, switches: self.blocked.switches + stops }
    }
}

/// The call before its first arguments were changed for the kernel.
fn original(call: WaitingCall, changed: Option<[u64; 5]>) -> WaitingCall {
    let Some([first, second, third, fourth, fifth]) = changed else { return call };
    let [.., sixth] = call.arguments;
    WaitingCall { arguments: [first, second, third, fourth, fifth, sixth], ..call }
}

impl Supervisor {
    /// Looks at every task. Whether the run has waited for a time, which has come now.
    pub(super) fn look(&mut self, skip: &mut Skip) -> io::Result<bool> {
        let Some(tasks) = self.tasks.kin().map(|kin| kin.tasks()) else { return Ok(false) };
        let represented: HashSet<i32> = self.represented().collect();
        let is_born = self.has_births() || self.following.as_ref().is_some_and(Following::is_waiting);
        let Some(clock) = &mut self.clock else { return Ok(false) };
        let mut moving = self.more_stops || is_born;
        let (mut waiting, mut dead) = (Vec::<Waiting>::new(), Vec::new());
        for (task, process) in tasks {
            let look = if represented.contains(&task) { sight::of_represented } else { sight::of };
            match look(task) {
                Sight::Blocked(blocked) => waiting.push(Waiting::of(clock, (task, process), blocked)),
                Sight::Dead => dead.push(process),
                Sight::Moving => moving = true,
            }
        }
        // Whoever waits for the end of a process hears of it after us.
        moving |= dead.iter().any(|dead| waiting.iter().all(|one| one.process != *dead));
        let leaves_out = skip.under_way.is_some();
        if !leaves_out {
            skip.move_on(clock, &waiting);
        } else if !moving && !skip.is_live {
            // Answers come at once, so that a thread can be far ahead.
            let ahead = clock.furthest().saturating_sub(skip.now(clock));
            skip.catch_up(clock, ahead)?;
        }
        for one in &waiting {
            skip.note_in(clock, one, represented.contains(&one.task));
        }
        skip.looked_at = skip.now(clock);
        if moving || skip.is_live || !leaves_out {
            return skip.end_overdue(clock, &waiting);
        }
        if waiting.is_empty() || !skip.understands(&waiting) {
            return Ok(false);
        }
        let bystanders = sight::bystanders(self.init);
        let is_still = |waiting: &Waiting| sight::is_as_it_was(waiting.task, &waiting.blocked);
        // Asked between two looks with nothing in between: whoever begins something is seen at work.
        let rests = bystanders.is_some()
            && skip.under_way.as_ref().is_some_and(|under_way| !(under_way.is_any)())
            && skip.transit.is_empty(self.init)
            // Else whoever reads what it prints has yet to make room.
            && !self.outputs.are_full()
            && waiting.iter().all(is_still);
        // Who has called since the loop has asked looks blocked too.
        if !rests || is_called(self.listener.as_fd()) || sight::bystanders(self.init) != bystanders {
            return Ok(false);
        }
        let timed = waiting.iter().filter(|one| skip.has_deadline(one.task));
        let timed = timed.filter_map(|one| self.tasks.kin()?.lineage(one.process));
        let is_coming = is_awaited(&self.outputs.course, timed);
        if !is_coming && self.outputs.course.go_on() {
            return Ok(true);
        }
        let signal = (self.outside.next(), self.outside.recorded());
        // Nobody jumps where somebody has moved meanwhile, as one whose wait the kernel has ended.
        Ok(skip.asks_for_timers(&waiting, &represented)?
            || skip.jump(clock, &waiting, &represented, signal)?
            || (is_coming && waiting.iter().all(is_still) && self.outputs.course.go_on()))
    }

    /// How long what others than `asking` of `process` wait for is still to last, where its clock goes at real rate.
    pub(in crate::supervisor) fn waits_left(&mut self, asking: i32, process: i32) -> Vec<u64> {
        if self.clock.as_ref().and_then(|clock| clock.last_read(process)).is_none() {
            return Vec::new();
        }
        let represented: HashSet<i32> = self.represented().collect();
        let (Some(skip), Some(clock)) = (&mut self.skip, &self.clock) else { return Vec::new() };
        let tasks = self.tasks.kin().map(|kin| kin.tasks()).into_iter().flatten();
        for (task, process) in tasks.filter(|(task, owner)| *owner == process && *task != asking) {
            if let Sight::Blocked(blocked) = sight::of(task) {
                let waiting = Waiting::of(clock, (task, process), blocked);
                skip.note_in(clock, &waiting, represented.contains(&task));
            }
        }
        skip.left(process, clock)
    }
}

/// Whether the turn of one of these processes, or of one that made it, comes before those that are kept waiting.
fn is_awaited(course: &Course, lineages: impl Iterator<Item = String>) -> bool {
    let lineages: Vec<_> = lineages.collect();
    course.awaited().any(|awaited| lineages.iter().any(|one| is_of(one, awaited)))
}

/// Whether a process is this one, or was made by it.
fn is_of(lineage: &str, process: &str) -> bool {
    lineage.strip_prefix(process).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Skip {
    /// Whether it is known until when a task waits.
    fn has_deadline(&self, task: i32) -> bool {
        self.known
            .get(&task)
            .and_then(|known| known.wait.as_ref())
            .is_some_and(|wait| wait.deadline.is_some())
    }

    /// A task is blocked.
    fn note_in(&mut self, clock: &Clock, one: &Waiting, is_represented: bool) {
        self.note(one, |skip| {
            let clocks = skip.clocks(clock, one.task, one.process);
            let taken = clock.taken(one.task);
            Caller { task: one.task, process: one.process, is_represented, clocks, taken }
        });
    }

    fn now(&self, clock: &Clock) -> u64 {
        clock.kernel().0.wrapping_add(self.skew)
    }

    /// What the clocks of a task say. Those at real rate keep their distance from the timeline; where the task
    /// reads from a tape, it was last seen when its last point was new.
    fn clocks(&mut self, clock: &Clock, task: i32, process: i32) -> Clocks {
        let (kernel, real, boot) = clock.kernel();
        let now = kernel.wrapping_add(self.skew);
        if let Some(own) = clock.at_real_rate(task, process) {
            let behind = now.wrapping_sub(own).cast_signed();
            // A wait begins when its length was worked out, which is not long before we see it as a rule.
            let read = clock.last_read(process).unwrap_or(own).saturating_add_signed(behind);
            let begun = read.max(self.looked_at).min(now);
            return Clocks { now, begun, behind, real, boot };
        }
        let Some(taken) = clock.taken(task) else {
            return Clocks { now, begun: now, behind: 0, real, boot };
        };
        // Where waits are left out, the timeline draws level with who is ahead of it once nothing else goes on.
        let now = if self.under_way.is_some() { now.max(taken) } else { now };
        let reading = self.readings.entry(task).or_insert((0, 0));
        if reading.0 != taken {
            *reading = (taken, now.wrapping_sub(taken).cast_signed());
        }
        Clocks { now, begun: now, behind: reading.1, real, boot }
    }

    /// What a task that reads from a tape is behind the timeline, which goes on at real rate where a replay is slower
    /// than its recording.
    pub(in crate::supervisor) fn behind(&self, clock: &Clock, task: i32) -> u64 {
        let Some(taken) = clock.taken(task).filter(|_| clock.has_read(task)) else { return 0 };
        let since = match self.readings.get(&task) {
            Some((known, behind)) if *known == taken => *behind,
            _ => self.now(clock).wrapping_sub(taken).cast_signed(),
        };
        since.max(0).cast_unsigned()
    }

    /// Moves threads on that wait again because they are behind on their tape: with the time of the wait that is over.
    fn move_on(&self, clock: &mut Clock, waiting: &[Waiting]) {
        let now = self.now(clock);
        for one in waiting {
            if let Some(until) = self.over(one, now) {
                clock.reach(one.task, one.original.number, until);
            }
        }
    }

    /// Ends the waits whose time is over while others run: to the kernel they may last longer.
    fn end_overdue(&mut self, clock: &Clock, waiting: &[Waiting]) -> io::Result<bool> {
        let now = self.now(clock);
        let mut errands = HashMap::new();
        let mut next = u64::MAX;
        for one in waiting {
            let wait = self.known.get(&one.task).and_then(|known| known.wait.as_ref());
            let Some(wait) = wait else { continue };
            let Some(mut deadline) = wait.deadline else { continue };
            if !wait.is_absolute {
                deadline = deadline.saturating_add(LATE);
            }
            if deadline <= now && sight::is_as_it_was(one.task, &one.blocked) {
                let expires = Some((one.interrupted(), wait.ending.clone()));
                errands.insert(one.task, Errand::new(one.process, expires));
            }
            next = next.min(deadline.saturating_sub(now));
        }
        let any = !errands.is_empty();
        self.send(errands)?;
        let milliseconds = u8::try_from(next.div_ceil(1_000_000)).unwrap_or(u8::MAX);
        self.soon = self.soon.min(milliseconds.max(1));
        Ok(any)
    }

    /// The timeline draws level with the furthest thread. What a clock at real rate was ahead of it is less then, and
    /// so are waits until a time of that.
    fn catch_up(&mut self, clock: &mut Clock, by: u64) -> io::Result<()> {
        if by == 0 {
            return Ok(());
        }
        clock.draw_level(self.now(clock), by);
        let has_time = |known: &Known| known.wait.as_ref().is_some_and(|wait| wait.deadline.is_some());
        self.known.retain(|_, known| known.until.is_some() || !has_time(known));
        self.skew = self.skew.wrapping_add(by);
        self.timers.left_out(by, self.skew)
    }

    /// The timeline goes on at once.
    fn leave_out(&mut self, clock: &mut Clock, by: u64) -> io::Result<()> {
        if by == 0 {
            return Ok(());
        }
        self.skew = self.skew.wrapping_add(by);
        clock.advance(by);
        self.timers.left_out(by, self.skew)
    }

    /// Whether every wait is understood.
    fn understands(&self, waiting: &[Waiting]) -> bool {
        waiting.iter().all(|one| self.known.get(&one.task).is_some_and(|known| known.wait.is_some()))
    }

    /// Interrupts tasks to learn of the timers of their processes; false where all are known.
    fn asks_for_timers(&mut self, waiting: &[Waiting], represented: &HashSet<i32>) -> io::Result<bool> {
        let processes: HashSet<i32> = waiting.iter().map(|one| one.process).collect();
        let mut asks = HashMap::new();
        for process in processes {
            let Some(timers) = self.timers.unknown(process)? else { continue };
            let of = |which: Which| {
                let is_absolute = self.timers.take_absolute(process, which);
                (which, if is_absolute { self.skew } else { 0 })
            };
            let timers = timers.into_iter().map(of).collect();
            let task = self.messenger(process, waiting, represented).ok_or(io::ErrorKind::NotFound)?;
            asks.insert(task, Errand { timers, asks: true, ..Errand::new(process, None) });
        }
        let any = !asks.is_empty();
        self.send(asks)?;
        Ok(any)
    }

    /// The task of a process that is best interrupted.
    fn messenger(&self, process: i32, waiting: &[Waiting], represented: &HashSet<i32>) -> Option<i32> {
        let of_process = waiting.iter().filter(|one| one.process == process);
        // It waits for us, or for a child, and hears of nothing else.
        let can_stop = |one: &&Waiting| {
            let number = one.blocked.call.number;
            let bears = [libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3].contains(&number);
            !bears && !represented.contains(&one.task)
        };
        let is_touchy = |one: &&Waiting| {
            let known = self.known.get(&one.task).and_then(|known| known.wait.as_ref());
            known.is_none_or(|wait| wait.is_touchy)
        };
        of_process.filter(can_stop).min_by_key(is_touchy).map(|one| one.task)
    }

    /// Lets the next time come that something waits for; false where there is none.
    fn jump(
        &mut self,
        clock: &mut Clock,
        waiting: &[Waiting],
        represented: &HashSet<i32>,
        (signal, recorded_signal): (Option<u64>, Option<u64>),
    ) -> io::Result<bool> {
        let now = self.now(clock);
        let deadline_of = |one: &Waiting| self.known.get(&one.task)?.wait.as_ref()?.deadline;
        let first = waiting
            .iter()
            .filter_map(|one| Some((deadline_of(one)?, one)))
            .min_by_key(|(at, one)| (*at, one.task));
        let first_wait = first.map(|(at, _)| at);
        let mut first_timer = self.timers.earliest();
        for process in waiting.iter().map(|one| one.process).collect::<HashSet<_>>() {
            let of_descriptors = self.timers.earliest_descriptor(process, now, self.skew)?;
            first_timer = first_timer.into_iter().chain(of_descriptors).min();
        }
        // A timer that has ended meanwhile is no longer there, and has woken whom it wakes.
        if !waiting.iter().all(|one| sight::is_as_it_was(one.task, &one.blocked)) {
            return Ok(false);
        }
        let event = first_wait.into_iter().chain(first_timer).chain(self.arrival(now)).min();
        let next = event.into_iter().chain(signal).min();
        let Some(next) = next.or(recorded_signal) else {
            // A terminal can be stopped by its user (termios(3), IXON).
            let goes_on = |one: &Waiting| sight::writes_to_device(one.task, &one.blocked.call);
            self.rests = !waiting.iter().any(goes_on);
            return Ok(false);
        };
        self.is_beyond = next > clock.horizon();
        if self.is_beyond {
            return Ok(false);
        }
        self.signal_is_next = event != Some(next);
        let by = next.saturating_sub(now);
        self.leave_out(clock, by)?;
        if let Some(under_way) = &self.under_way {
            (under_way.leave_out)(Duration::from_nanos(by));
        }
        let mut errands = HashMap::new();
        for (process, timers, by) in self.timers.running() {
            let task = self.messenger(process, waiting, represented).ok_or(io::ErrorKind::NotFound)?;
            let timers = timers.into_iter().map(|which| (which, by)).collect();
            errands.insert(task, Errand { timers, ..Errand::new(process, None) });
        }
        if let Some((at, one)) = first
            && at <= next
        {
            let ending = self.known.get(&one.task).and_then(|known| known.wait.clone());
            let errand = errands.entry(one.task).or_insert_with(|| Errand::new(one.process, None));
            errand.expires = ending.map(|wait| (one.interrupted(), wait.ending));
        }
        let any = !errands.is_empty();
        self.send(errands)?;
        self.timers.forget_ended(now);
        Ok(any || next > now || self.signal_is_next)
    }

    fn send(&mut self, errands: HashMap<i32, Errand>) -> io::Result<()> {
        for (task, errand) in errands {
            ptrace::interrupt(task)?;
            self.errands.insert(task, errand);
        }
        Ok(())
    }
}
