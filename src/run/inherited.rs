//! What a command inherits of whoever starts it, and can ask for: limits, niceness, signals that are ignored or
//! blocked. A replay gives it what the recorded one had.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};

use super::RunError;
use crate::sys::process;

/// All of getrlimit(2), by the names of bash and prlimit(1).
const LIMITS: [(&str, Resource); 16] = [
    ("cpu", Resource::RLIMIT_CPU),
    ("fsize", Resource::RLIMIT_FSIZE),
    ("data", Resource::RLIMIT_DATA),
    ("stack", Resource::RLIMIT_STACK),
    ("core", Resource::RLIMIT_CORE),
    ("rss", Resource::RLIMIT_RSS),
    ("nproc", Resource::RLIMIT_NPROC),
    ("nofile", Resource::RLIMIT_NOFILE),
    ("memlock", Resource::RLIMIT_MEMLOCK),
    ("as", Resource::RLIMIT_AS),
    ("locks", Resource::RLIMIT_LOCKS),
    ("sigpending", Resource::RLIMIT_SIGPENDING),
    ("msgqueue", Resource::RLIMIT_MSGQUEUE),
    ("nice", Resource::RLIMIT_NICE),
    ("rtprio", Resource::RLIMIT_RTPRIO),
    ("rttime", Resource::RLIMIT_RTTIME),
];

/// Signals that agentbox needs as they are, or that nobody can ignore.
const OURS: [i32; 4] = [libc::SIGKILL, libc::SIGSTOP, libc::SIGPIPE, libc::SIGCHLD];

/// The numbers of signals.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// Limits by name: soft and hard.
    limits: BTreeMap<String, (u64, u64)>,
    /// nice(2)
    nice: i32,
    /// One bit for each signal that is ignored, the first for signal 1.
    ignored: u64,
    /// As above, of signals that are blocked.
    blocked: u64,
}

impl Inherited {
    /// Its limits of open files, soft and hard.
    pub(super) fn descriptors(&self) -> Option<(u64, u64)> {
        self.limits.get("nofile").copied()
    }

    /// That of this process.
    ///
    /// # Errors
    /// The errno of getrlimit(2), or /proc/self cannot be read.
    pub(super) fn here() -> io::Result<Self> {
        let mut limits = BTreeMap::new();
        for (name, resource) in LIMITS {
            limits.insert(name.to_owned(), getrlimit(resource)?);
        }
        let status = std::fs::read_to_string("/proc/self/status")?;
        let signals = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
        };
        let (ignored, blocked) = (signals("SigIgn:"), signals("SigBlk:"));
        Ok(Self { limits, nice: process::niceness()?, ignored, blocked })
    }

    /// What of it a command that this process starts cannot have.
    ///
    /// # Errors
    /// See getrlimit(2).
    pub fn cannot_be_had(&self) -> Result<Vec<String>, RunError> {
        let here = Self::here().map_err(RunError::call("getrlimit"))?;
        Ok(self.within(&here).1)
    }

    /// What a process like `here` can have of it, and what not.
    pub(super) fn within(&self, here: &Self) -> (Self, Vec<String>) {
        let (mut own, mut less) = (here.clone(), Vec::new());
        (own.ignored, own.blocked) = (self.ignored, self.blocked);
        for (name, limit) in &mut own.limits {
            let (Some(&(soft, hard)), (_, most)) = (self.limits.get(name), *limit) else { continue };
            // One above the other is no limit of anybody.
            let highest = hard.min(most);
            *limit = (soft.min(highest), highest);
            // Nobody gets core files.
            if *limit != (soft, hard) && name != "core" {
                less.push(format!("{name} {} instead of {}", shown(*limit), shown((soft, hard))));
            }
        }
        own.nice = self.nice.max(here.nice);
        let mut said = Vec::new();
        if !less.is_empty() {
            said.push(format!("lower limits than recorded (prlimit): {}", less.join(", ")));
        }
        if own.nice != self.nice {
            said.push(format!("recorded at niceness {}, here it is {}", self.nice, here.nice));
        }
        (own, said)
    }

    /// Gives the limits to the calling process.
    ///
    /// # Errors
    /// The first that the kernel refused.
    pub(super) fn give_limits(&self) -> nix::Result<()> {
        for (name, resource) in LIMITS {
            let Some(&(soft, hard)) = self.limits.get(name) else { continue };
            if getrlimit(resource)? != (soft, hard) {
                setrlimit(resource, soft, hard)?;
            }
        }
        Ok(())
    }

    /// Gives it the niceness, and its children.
    ///
    /// # Errors
    /// The errno of getpriority(2) or setpriority(2).
    pub(super) fn give_niceness(&self) -> io::Result<()> {
        if process::niceness()? == self.nice { Ok(()) } else { process::set_niceness(self.nice) }
    }

    /// Gives the calling process the signals that are ignored; `mask` becomes what is blocked.
    ///
    /// # Errors
    /// The errno of sigaction(2).
    pub(super) fn give_signals(&self, mask: &mut SigSet) -> io::Result<()> {
        for signal in SIGNALS.filter(|signal| !OURS.contains(signal)) {
            process::set_ignored(signal, is_in(self.ignored, signal))?;
        }
        for signal in Signal::iterator() {
            if is_in(self.blocked, signal as i32) { mask.add(signal) } else { mask.remove(signal) }
        }
        Ok(())
    }
}

fn is_in(signals: u64, signal: i32) -> bool {
    signals >> (signal - 1) & 1 == 1
}

fn shown((soft, hard): (u64, u64)) -> String {
    let one =
        |limit| if limit == libc::RLIM_INFINITY { "unlimited".to_owned() } else { u64::to_string(&limit) };
    if soft == hard { one(soft) } else { format!("{}:{}", one(soft), one(hard)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_said() {
        let here = Inherited::here().expect("limits");
        assert_eq!(here.within(&here), (here.clone(), Vec::new()));
        let mut recorded = here.clone();
        recorded.limits.insert("nofile".to_owned(), (10, 20));
        recorded.nice += 1;
        let (own, said) = recorded.within(&here);
        assert_eq!((own.limits.get("nofile"), own.nice, said), (Some(&(10, 20)), recorded.nice, Vec::new()));
        recorded.limits.insert("nofile".to_owned(), (30, 20));
        let (own, said) = recorded.within(&here);
        assert_eq!(own.limits.get("nofile"), Some(&(20, 20)));
        assert!(said[0].contains("nofile 20 instead of 30:20"), "{said:?}");
        recorded.limits.insert("nofile".to_owned(), (10, 20));
        let (own, said) = here.within(&recorded);
        assert_eq!((own.limits.get("nofile"), own.nice), (Some(&(20, 20)), recorded.nice));
        assert!(said[0].contains("nofile 20 instead of") && said[1].contains("niceness"), "{said:?}");
    }
}
