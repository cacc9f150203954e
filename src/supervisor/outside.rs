//! Signals that come to the run from outside: recorded where they came, and given again in its replay.
//!
//! The place of a signal is told by the calls of the command's main thread that the supervisor had seen, and by the
//! time since the last of them. In a replay it comes when that time has passed since the same call. Where the
//! thread is not there yet, as on a busy machine, it comes once nothing else would happen any more; where it makes
//! the next call before, with that.

use std::collections::VecDeque;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid, getpgrp};
use serde_json::{Map, Value};

use super::clock::Clock;
use super::{Ended, Stop, Supervisor};
use crate::trace::{Event, Kind, TraceError};

/// The operation under which the trace holds a signal.
pub const OPERATION: &str = "run.signal";

/// How long a signal whose place does not come is put off beyond its time, in nanoseconds.
const GRACE: u64 = 10_000_000_000;

/// A signal from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutsideSignal {
    number: i32,
    /// The terminal sent it to all processes of the launcher's group, the command's among them.
    to_group: bool,
    /// Where the timeline was.
    at: u64,
    /// Calls of the command's main thread before it.
    calls: u64,
    /// Nanoseconds since the last of them.
    since: u64,
}

impl OutsideSignal {
    /// What an entry says of it; `None` where it does not say enough.
    #[must_use]
    pub fn of(args: &Map<String, Value>) -> Option<Self> {
        let number = |name: &str| args.get(name).and_then(Value::as_u64);
        let signal = i32::try_from(number("signal")?).ok()?;
        // The kernel sends no other by a terminal, and no other is passed on.
        let known = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1];
        Some(Self {
            number: Some(signal).filter(|signal| known.contains(signal))?,
            to_group: args.get("to").and_then(Value::as_str) == Some("group"),
            at: number("at")?,
            calls: number("calls")?,
            since: number("since")?,
        })
    }
}

/// Signals from outside: where the command is, and in a replay those that are to come.
#[derive(Debug, Default)]
pub(super) struct Signals {
    coming: VecDeque<OutsideSignal>,
    /// Processes of the recorded run that a signal has ended, and that signal, in order.
    pub(super) ends: VecDeque<(String, i32)>,
    /// Why the replay was ended, if it was.
    pub(super) ended_by: Option<Ended>,
    calls: u64,
    /// Where the timeline was at the last call.
    called_at: u64,
}

impl Signals {
    pub(super) fn new(coming: Vec<OutsideSignal>, ends: VecDeque<(String, i32)>) -> Self {
        Self { coming: coming.into(), ends, ..Self::default() }
    }

    /// When the next signal comes on the timeline; `None` where there is none, or its place was not reached.
    pub(super) fn next(&self) -> Option<u64> {
        let next = self.coming.front().filter(|next| self.calls >= next.calls)?;
        Some(self.called_at.saturating_add(next.since))
    }

    /// When the next signal came where it was recorded.
    pub(super) fn recorded(&self) -> Option<u64> {
        self.coming.front().map(|next| next.at)
    }

    /// When the next signal comes, whatever else does.
    pub(super) fn latest(&self) -> Option<u64> {
        self.next().or_else(|| self.recorded().map(|at| at.saturating_add(GRACE)))
    }

    /// The command's main thread makes a call. Whether the next signal had come before it.
    fn called(&mut self, now: u64) -> bool {
        self.calls += 1;
        self.called_at = now;
        self.coming.front().is_some_and(|next| self.calls > next.calls)
    }
}

impl Supervisor {
    /// Task `task` makes a call, or a process or thread.
    pub(super) fn count_call(&mut self, task: i32) -> Result<(), TraceError> {
        if self.command_pid != Some(task) {
            return Ok(());
        }
        let now = self.clock.as_ref().map_or(0, Clock::timeline);
        if self.outside.called(now) { self.give_signal() } else { Ok(()) }
    }

    /// A signal has come for the run.
    pub(super) fn signal_from_outside(&mut self, number: i32, to_group: bool) -> Result<(), TraceError> {
        self.interrupted |= number != libc::SIGUSR1;
        let to = if to_group { "group" } else { "command" };
        let mut event = Event::new(Kind::Meta, OPERATION).arg("signal", number).arg("to", to);
        if let Some(clock) = &self.clock {
            let Signals { calls, called_at, .. } = self.outside;
            let now = clock.timeline();
            let called_at = if calls > 0 { called_at } else { clock.beginning() };
            event = event.arg("at", now).arg("calls", calls).arg("since", now.saturating_sub(called_at));
        }
        self.recorder.record(event)?;
        if !to_group {
            self.forward(number.unsigned_abs());
        }
        Ok(())
    }

    /// Whether a signal that the launcher got came to the command as well, as one to their process group does: pid 1 is
    /// in that too, and gets it before the launcher, for it joined later (`__kill_pgrp_info`).
    pub(super) fn was_heard_inside(&mut self, number: i32) -> Result<bool, Stop> {
        let heard = self.ask_init(&(self.words.heard)(number), &[])?.is_ok();
        let is_beside = |command: i32| getpgid(Some(Pid::from_raw(command))) == Ok(getpgrp());
        Ok(heard && self.command_pid.is_some_and(is_beside))
    }

    /// Milliseconds to the next signal of a replay, or to when it is time to look for it again.
    pub(super) fn before_signal(&self) -> Option<u8> {
        let left = self.outside.latest()?.saturating_sub(self.clock.as_ref()?.timeline());
        Some(u8::try_from(left.div_ceil(1_000_000)).unwrap_or(u8::MAX))
    }

    /// In a replay, gives the signals whose time has come.
    pub(super) fn give_due_signals(&mut self) -> Result<(), TraceError> {
        let Some(clock) = &self.clock else { return Ok(()) };
        // The clock is read only where there are some.
        let Some(now) = self.outside.latest().map(|_| clock.timeline()) else { return Ok(()) };
        while self.outside.latest().is_some_and(|at| at <= now) {
            self.give_signal()?;
        }
        Ok(())
    }

    /// Gives the next signal that was recorded, if there is one.
    pub(super) fn give_signal(&mut self) -> Result<(), TraceError> {
        let Some(next) = self.outside.coming.pop_front() else { return Ok(()) };
        self.signal_from_outside(next.number, next.to_group)?;
        if next.to_group
            && let Some(kin) = self.tasks.kin()
        {
            let own = getpgrp();
            let in_group = |process: &Pid| getpgid(Some(*process)) == Ok(own);
            let processes = kin.tasks().into_iter().filter(|(task, process)| task == process);
            let signal = Signal::try_from(next.number).ok();
            for process in processes.map(|(_, process)| Pid::from_raw(process)).filter(in_group) {
                // It may have ended already.
                let _ = kill(process, signal);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn signal(args: &Value) -> Option<OutsideSignal> {
        OutsideSignal::of(args.as_object().expect("an object"))
    }

    #[test]
    fn a_signal_comes_when_its_time_has_passed_since_its_call() {
        let entry = json!({"signal": 15, "to": "command", "at": 500, "calls": 2, "since": 30});
        let mut signals = Signals::new(vec![signal(&entry).expect("a signal")], VecDeque::new());
        assert!(!signals.called(400));
        assert_eq!(
            (signals.next(), signals.recorded(), signals.latest()),
            (None, Some(500), Some(500 + GRACE))
        );
        assert!(!signals.called(700));
        assert_eq!(signals.next(), Some(730));
        assert!(signals.called(710));
        assert_eq!(Signals::default().next(), None);
    }

    #[test]
    fn what_says_too_little_is_none() {
        let whole = json!({"signal": 2, "to": "group", "at": 5, "calls": 0, "since": 0});
        assert!(signal(&whole).is_some_and(|signal| signal.to_group));
        for name in ["signal", "at", "calls", "since"] {
            let mut less = whole.clone();
            less[name] = json!("no");
            assert_eq!(signal(&less), None);
        }
        let mut other = whole;
        other["signal"] = json!(9);
        assert_eq!(signal(&other), None);
    }
}
