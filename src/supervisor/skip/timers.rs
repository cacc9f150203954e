//! Timers of the kernel that run while their process waits: those of timer_create(2), setitimer(2) and alarm(2),
//! and timerfds.
//!
//! Which there are is known from /proc and from the calls that make them; what is left of them only the process
//! itself can ask, or, of a timerfd, whoever holds a copy. When time is left out, each is set to what is left
//! then, so that the kernel tells the program the right time, and ends them itself.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use crate::sys::descriptor::same_open_file;
use crate::sys::injection::Injection;
use crate::sys::pidfd;
use crate::sys::timerfd::{self, Running};

const SECOND: u64 = 1_000_000_000;
/// Clocks of timers that run while nothing does: REALTIME, MONOTONIC, BOOTTIME, the alarms, TAI.
const FLOWING: [&str; 6] = ["0", "1", "7", "8", "9", "11"];
/// After so long a timer that has ended has woken whom it wakes.
const SETTLED: u64 = 2_000_000;
/// Timers of a process that are looked after.
const MOST: usize = 64;

/// A timer of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Which {
    /// By its number for timer_settime(2).
    Posix(i32),
    /// ITIMER_REAL
    Interval,
}

/// What is known of the timers of a process that has not run since.
#[derive(Debug, Default)]
struct Held {
    /// When each ends, on the timeline.
    timers: Option<Vec<(Which, u64)>>,
    /// What the kernel does not know yet of the time that was left out.
    owed: u64,
    /// Its timerfds.
    descriptors: Option<Vec<i32>>,
}

/// The timers of a run.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// Processes that have set an ITIMER_REAL.
    alarms: HashSet<i32>,
    /// Timers that were set to a time of their clock, not from then on.
    absolute: HashSet<(i32, Which)>,
    /// Some process has made a timerfd.
    has_descriptors: bool,
    held: HashMap<i32, Held>,
}

impl Timers {
    pub(super) fn set_alarm(&mut self, process: i32) {
        self.alarms.insert(process);
    }

    pub(super) fn set_absolute(&mut self, process: i32, number: i32) {
        self.absolute.insert((process, Which::Posix(number)));
    }

    pub(super) fn made_descriptor(&mut self) {
        self.has_descriptors = true;
    }

    /// A process has run, and can have changed everything.
    pub(super) fn ran(&mut self, process: i32) {
        self.held.remove(&process);
    }

    pub(super) fn ended(&mut self, process: i32) {
        self.held.remove(&process);
        self.alarms.remove(&process);
        self.absolute.retain(|(owner, _)| *owner != process);
    }

    /// The timers of a process that it is to be asked about; `None` where everything is known.
    pub(super) fn unknown(&mut self, process: i32) -> io::Result<Option<Vec<Which>>> {
        let held = self.held.entry(process).or_default();
        if held.timers.is_some() {
            return Ok(None);
        }
        let mut found = posix_timers(&fs::read_to_string(format!("/proc/{process}/timers"))?);
        found.extend(self.alarms.contains(&process).then_some(Which::Interval));
        if found.len() > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if found.is_empty() {
            held.timers = Some(Vec::new());
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// What a process was asked: what is left of each timer.
    pub(super) fn learned(&mut self, process: i32, left: Vec<(Which, u64)>, now: u64) {
        let deadlines = left.into_iter().map(|(which, left)| (which, now.saturating_add(left))).collect();
        self.held.entry(process).or_default().timers = Some(deadlines);
    }

    /// The earliest end of a timer that is known.
    pub(super) fn earliest(&self) -> Option<u64> {
        let timers = self.held.values().filter_map(|held| held.timers.as_ref());
        timers.flatten().map(|(_, deadline)| *deadline).min()
    }

    /// All of a process that runs, and what is to be taken from each, `by` more than is owed already.
    pub(super) fn running(&mut self) -> Vec<(i32, Vec<Which>, u64)> {
        let mut found = Vec::new();
        for (process, held) in &mut self.held {
            let timers: Vec<Which> = held.timers.iter().flatten().map(|(which, _)| *which).collect();
            let owed = std::mem::take(&mut held.owed);
            if !timers.is_empty() && owed > 0 {
                found.push((*process, timers, owed));
            }
        }
        found
    }

    /// Time was left out: it is owed to all timers that ran meanwhile. The timeline is `skew` ahead of the kernel's
    /// clock now.
    pub(super) fn left_out(&mut self, by: u64, skew: u64) -> io::Result<()> {
        for held in self.held.values_mut() {
            held.owed = held.owed.saturating_add(by);
        }
        let files = self
            .held
            .iter()
            .flat_map(|(process, held)| held.descriptors.iter().flatten().map(|number| (*process, *number)));
        // Each is set once, however many hold it: one that has ended by that has ticked.
        let mut read: Vec<(OwnedFd, Running)> = Vec::new();
        for (process, number) in files {
            let file = descriptor(process, number)?;
            let is_same = |known: &OwnedFd| same_open_file(known.as_fd(), file.as_fd()).unwrap_or(false);
            if read.iter().any(|(known, _)| is_same(known)) {
                continue;
            }
            if let Some(running) = timerfd::running(file.as_fd())? {
                // Its process may have set it since we looked.
                let by = if is_absolute(process, number)? { skew } else { by };
                read.push((file, Running { left: running.left.saturating_sub(by), ..running }));
            }
        }
        read.into_iter().try_for_each(|(file, running)| timerfd::set(file.as_fd(), running))
    }

    /// Timers whose time is long over have ended without waking anybody, or run again.
    pub(super) fn forget_ended(&mut self, now: u64) {
        let is_over = |(_, deadline): &(Which, u64)| deadline.saturating_add(SETTLED) < now;
        for held in self.held.values_mut() {
            if held.timers.iter().flatten().any(is_over) {
                held.timers = None;
            }
        }
    }

    /// Whether a timer was set to a time of its clock since it was last asked for.
    pub(super) fn take_absolute(&mut self, process: i32, which: Which) -> bool {
        self.absolute.remove(&(process, which))
    }

    /// The earliest end of the timerfds of a process, on the timeline; `skew` is what that is ahead of the
    /// kernel's clock.
    pub(super) fn earliest_descriptor(
        &mut self,
        process: i32,
        now: u64,
        skew: u64,
    ) -> io::Result<Option<u64>> {
        if !self.has_descriptors {
            return Ok(None);
        }
        let held = self.held.entry(process).or_default();
        if held.descriptors.is_none() {
            held.descriptors = Some(descriptors(process)?);
        }
        let mut earliest = None;
        for number in held.descriptors.iter().flatten() {
            let file = descriptor(process, *number)?;
            let Some(mut running) = timerfd::running(file.as_fd())? else { continue };
            if skew > 0 && is_absolute(process, *number)? {
                running.left = running.left.saturating_sub(skew);
                timerfd::set(file.as_fd(), running)?;
            }
            let deadline = now.saturating_add(running.left);
            earliest = Some(earliest.map_or(deadline, |earliest: u64| earliest.min(deadline)));
        }
        Ok(earliest)
    }
}

/// Those in a file /proc/PID/timers (proc_pid_timers(5)) that run while nothing does.
fn posix_timers(text: &str) -> Vec<Which> {
    let mut number = None;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(text) = line.strip_prefix("ID: ") {
            number = text.trim().parse().ok();
        } else if let Some(clock) = line.strip_prefix("ClockID: ")
            && FLOWING.contains(&clock.trim())
        {
            found.extend(number.take().map(Which::Posix));
        }
    }
    found
}

fn descriptors(process: i32) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let entry = entry?;
        let target = fs::read_link(entry.path())?;
        if target.as_os_str() == "anon_inode:[timerfd]" {
            found.extend(entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
        }
    }
    Ok(found)
}

fn descriptor(process: i32, number: i32) -> io::Result<OwnedFd> {
    pidfd::fetch(pidfd::open(process)?.as_fd(), number)
}

/// Whether a timerfd was set to a time of its clock (TFD_TIMER_ABSTIME), as its file in fdinfo says.
fn is_absolute(process: i32, number: i32) -> io::Result<bool> {
    Ok(says_absolute(&fs::read_to_string(format!("/proc/{process}/fdinfo/{number}"))?))
}

fn says_absolute(text: &str) -> bool {
    let flags = text.lines().find_map(|line| line.strip_prefix("settime flags: "));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 1 != 0)
}

/// Takes `by` from what is left of a timer, and says what is left then; `None` when it does not run.
pub(super) fn shift(task: &mut Injection, which: Which, by: u64) -> io::Result<Option<u64>> {
    // The kernel takes the low half of the first register; a call with another upper half is ours, and not
    // asked about.
    const OURS: u64 = 1 << 32;
    let place = task.scratch();
    let (get, set, who) = match which {
        Which::Posix(number) => {
            let number = u64::from(number.cast_unsigned());
            (libc::SYS_timer_gettime, libc::SYS_timer_settime, number)
        }
        Which::Interval => (libc::SYS_getitimer, libc::SYS_setitimer, OURS),
    };
    // struct itimerspec, or itimerval.
    let unit = if which == Which::Interval { 1000 } else { 1 };
    match task.call(get, [who, place, 0, 0]) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        Err(error) => return Err(error),
    }
    let [every, every_rest, seconds, rest] = task.take::<4>()?;
    if seconds == 0 && rest == 0 {
        return Ok(None);
    }
    let left = seconds.saturating_mul(SECOND).saturating_add(rest.saturating_mul(unit));
    if by == 0 {
        return Ok(Some(left));
    }
    let left = left.saturating_sub(by).max(unit);
    task.put([every, every_rest, left / SECOND, left % SECOND / unit])?;
    let arguments = match which {
        Which::Posix(_) => [who, 0, place, 0],
        Which::Interval => [who, place, 0, 0],
    };
    task.call(set, arguments)?;
    Ok(Some(left))
}

#[cfg(test)]
mod tests {
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

    use super::*;

    #[test]
    fn timers_are_found_by_their_clocks() {
        let text = "ID: 0\nsignal: 14/00005581\nnotify: signal/pid.7\nClockID: 0\nID: 1\nsignal: 27/0\n\
                    notify: signal/pid.7\nClockID: -6\nID: 4\nsignal: 0/0\nnotify: none/pid.7\nClockID: 1\n";
        assert_eq!(posix_timers(text), [Which::Posix(0), Which::Posix(4)]);
        assert!(posix_timers("").is_empty());
        assert!(says_absolute("clockid: 1\nsettime flags: 01\n") && !says_absolute("settime flags: 00\n"));
    }

    #[test]
    fn what_is_left_of_a_timerfd_shrinks_by_the_time_that_is_left_out() {
        use std::os::fd::AsRawFd as _;
        let file = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::empty()).expect("a timerfd");
        timerfd::set(file.as_fd(), Running { left: 100 * SECOND, interval: 7 * SECOND }).expect("set");
        let process = std::process::id().cast_signed();
        let mut timers = Timers::default();
        assert_eq!(timers.earliest_descriptor(process, 0, 0).expect("can be read"), None);
        timers.made_descriptor();
        timers.held.entry(process).or_default().descriptors = Some(vec![file.as_fd().as_raw_fd()]);
        let close = |found: u64, wanted: u64| wanted - found < SECOND;
        let earliest = timers.earliest_descriptor(process, 5, 0).expect("can be read").expect("runs");
        assert!(close(earliest, 100 * SECOND + 5), "{earliest}");
        timers.left_out(60 * SECOND, 60 * SECOND).expect("can be set");
        let running = timerfd::running(file.as_fd()).expect("can be read").expect("runs");
        assert!(close(running.left, 40 * SECOND) && running.interval == 7 * SECOND, "{running:?}");
        timers.left_out(50 * SECOND, 110 * SECOND).expect("can be set");
        file.wait().expect("it has ended");
    }

    #[test]
    fn what_is_left_of_a_timerfd_that_waits_for_a_time_is_counted_on_the_timeline() {
        use std::os::fd::AsRawFd as _;
        let (process, clock) = (std::process::id().cast_signed(), ClockId::CLOCK_MONOTONIC);
        let file = TimerFd::new(clock, TimerFlags::empty()).expect("a timerfd");
        let mut timers = Timers::default();
        timers.held.entry(process).or_default().descriptors = Some(vec![file.as_fd().as_raw_fd()]);
        let (now, skew) = (crate::sys::clock::read(libc::CLOCK_MONOTONIC).expect("a time"), 3600 * SECOND);
        let at = std::time::Duration::from_nanos(now + skew + 100 * SECOND).into();
        file.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME).expect("set");
        timers.left_out(60 * SECOND, skew + 60 * SECOND).expect("can be set");
        let left = timerfd::running(file.as_fd()).expect("can be read").expect("runs").left;
        assert!(left <= 40 * SECOND, "{left}");
        timers.left_out(40 * SECOND, skew + 100 * SECOND).expect("can be set");
        file.wait().expect("it has ended");
    }
}
