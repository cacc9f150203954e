//! How long something could have come: of the time in which the machine has more to do than it has processors, a
//! tenth counts, for whoever is waited for may be waiting for one.

use std::cell::Cell;
use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

/// How often the machine is looked at.
const TICK: Duration = Duration::from_millis(1);

/// A clock that goes slower while the machine is busy.
#[derive(Debug)]
pub(super) struct Pace(Cell<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    passed: Duration,
    looked: Instant,
    is_busy: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self(Cell::new(State { passed: Duration::ZERO, looked: Instant::now(), is_busy: false }))
    }
}

impl Pace {
    /// What has passed on it.
    pub(super) fn now(&self) -> Duration {
        let State { passed, looked, is_busy } = self.0.get();
        let now = Instant::now();
        let since = now.duration_since(looked);
        if since < TICK {
            return passed + counted(since, is_busy);
        }
        let is_busy = is_busy_now();
        let passed = passed + counted(since, is_busy);
        self.0.set(State { passed, looked: now, is_busy });
        passed
    }

    /// What has passed on it since that.
    pub(super) fn since(&self, then: Duration) -> Duration {
        self.now().saturating_sub(then)
    }
}

fn counted(time: Duration, is_busy: bool) -> Duration {
    if is_busy { time / 10 } else { time }
}

fn is_busy_now() -> bool {
    let processors = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten().unwrap_or(1);
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    runnable(&text).is_some_and(|runnable| runnable > processors)
}

/// How many tasks run or could (proc_loadavg(5)).
fn runnable(text: &str) -> Option<i64> {
    text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_has_ten_times_as_long() {
        assert_eq!(runnable("40.34 34.47 26.07 45/451 12756\n"), Some(45));
        assert_eq!((runnable(""), runnable("1 2 3 x/9 1")), (None, None));
        let second = Duration::from_secs(1);
        assert_eq!([false, true].map(|is_busy| counted(second, is_busy)), [second, second / 10]);
        let pace = Pace::default();
        let begun = pace.now();
        while pace.since(begun).is_zero() {
            std::hint::spin_loop();
        }
    }
}
