//! The processors of a run: programs ask how many there are, and choose code by what they can do.

use std::fs::File;
use std::io::{BufRead, BufReader};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::trace::escape;

/// The calling process (sched_setaffinity(2)).
const SELF: Pid = Pid::from_raw(0);

/// Moves a process that the caller has just made to another processor than its own, so that the two go on beside
/// each other: the kernel often leaves it on that of its maker, until that one sleeps (Linux 6.18: 1.9 ms later, in
/// two starts of three). It may use all that it could before. Where it cannot be moved it starts where it is.
///
/// # Errors
/// The errno of sched_setaffinity(2) where it was moved and could not have all of them again.
pub(super) fn apart(process: Pid) -> nix::Result<()> {
    let (Ok(all), Ok(here)) = (sched_getaffinity(process), sched_getcpu()) else { return Ok(()) };
    let mut others = all;
    if others.unset(here).is_err() || usable(&others).next().is_none() {
        return Ok(());
    }
    match sched_setaffinity(process, &others) {
        Ok(()) => sched_setaffinity(process, &all),
        Err(_) => Ok(()),
    }
}

/// What the caller may use.
pub(super) fn own() -> nix::Result<CpuSet> {
    sched_getaffinity(SELF)
}

/// Gives the caller all of these again: a process that was made while its maker was being moved ([`apart`]) has fewer.
pub(super) fn take_back(all: &CpuSet) -> nix::Result<()> {
    if own()? == *all { Ok(()) } else { sched_setaffinity(SELF, all) }
}

/// The processors that a run may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processors {
    /// What the processor calls itself; empty where it does not say.
    pub model: String,
    /// How many.
    pub count: usize,
    /// Their numbers.
    #[serde(default)]
    numbers: Vec<usize>,
    /// Which ones the machine has, as /sys/devices/system/cpu/online says.
    #[serde(default)]
    online: String,
}

impl Processors {
    /// Those that this process may use.
    pub(super) fn here() -> Self {
        let numbers: Vec<_> =
            sched_getaffinity(SELF).map_or_else(|_| vec![0], |cpus| usable(&cpus).collect());
        // Of many processors the file is long, and takes the kernel its time.
        let model =
            File::open("/proc/cpuinfo").map_or_else(|_| String::new(), |file| model(BufReader::new(file)));
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        Self { model, count: numbers.len(), numbers, online: online.trim().to_owned() }
    }

    /// Leaves this process the same ones, if it can have them all.
    fn take_same(&self) -> bool {
        let mut wanted = CpuSet::new();
        let all = self.numbers.iter().try_for_each(|&number| wanted.set(number));
        let Ok(former) = sched_getaffinity(SELF) else { return false };
        if self.numbers.is_empty() || all.is_err() || sched_setaffinity(SELF, &wanted).is_err() {
            return false;
        }
        let has_all = sched_getaffinity(SELF).is_ok_and(|given| given == wanted);
        if !has_all {
            // It had those.
            let _ = sched_setaffinity(SELF, &former);
        }
        has_all
    }

    /// Leaves this process as many as a recorded run had; says what is different here.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        let here = Self::here();
        let mut different = Vec::new();
        let has_same = self.numbers == here.numbers || self.take_same();
        if !has_same {
            different.extend(self.take_as_many(&here));
        }
        if !self.online.is_empty() && self.online != here.online {
            let online = escape::text(&self.online);
            different.push(format!(
                "recorded where there were processors {online}, here there are {}",
                here.online
            ));
        }
        if self.model != here.model {
            let model = escape::text(&self.model);
            different.push(format!("recorded on `{model}`, here it is `{}`", here.model));
        }
        different
    }
}

impl Processors {
    /// Leaves this process as many, if there are; else says so.
    fn take_as_many(&self, here: &Self) -> Option<String> {
        if self.count > here.count {
            return Some(format!("recorded on {} processors, here there are {}", self.count, here.count));
        }
        let mut fewer = CpuSet::new();
        let taken = here.numbers.iter().take(self.count.max(1)).try_for_each(|&number| fewer.set(number));
        let taken = taken.and_then(|()| sched_setaffinity(SELF, &fewer));
        let said = |errno| format!("sched_setaffinity: {errno}: it sees more processors than recorded");
        taken.err().map(said)
    }
}

fn usable(cpus: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::count()).filter(|&cpu| cpus.is_set(cpu).unwrap_or(false))
}

fn model(cpuinfo: impl BufRead) -> String {
    let line = cpuinfo.lines().map_while(Result::ok).find(|line| line.starts_with("model name"));
    line.as_deref()
        .and_then(|line| line.split_once(':'))
        .map_or_else(String::new, |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_read_where_there_is_one() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: x\n";
        assert_eq!(model(cpuinfo.as_bytes()), "Some CPU @ 2 GHz");
        assert_eq!(model("processor\t: 0\n".as_bytes()), "");
    }

    #[test]
    fn what_differs_is_said() {
        let here = Processors::here();
        assert!(here.count > 0);
        assert_eq!(here.take(), Vec::<String>::new());
        let (model, numbers) = ("another".to_owned(), Vec::new());
        let other = Processors { model, count: here.count + 1, numbers, ..here };
        assert_eq!(other.take().len(), 2);
    }

    #[test]
    fn who_was_made_meanwhile_has_all_again() {
        let all = own().expect("some");
        let mut one = CpuSet::new();
        one.set(usable(&all).next().expect("one")).expect("a number");
        sched_setaffinity(SELF, &one).expect("fewer");
        take_back(&all).expect("all");
        assert_eq!(own(), Ok(all));
    }
}
