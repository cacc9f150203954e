//! The time namespace of a replay (time_namespaces(7)): the clocks of its kernel go on from where those of
//! the recorded run began, so that a deadline that a program makes of a recorded time is as far away as it
//! was.
//!
//! The pages of the kernel's vDSO, /proc/uptime and the start times of processes follow it.

use std::fs::OpenOptions;
use std::io::{self, Write as _};

use crate::sys::clock::ClockBase;
use crate::sys::clone;

/// What [`Offsets::enter`] asks for.
pub const UNSHARE: &str = "unshare(CLONE_NEWTIME)";

const SECOND: i64 = 1_000_000_000;

/// What the namespace adds to the machine's clocks, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offsets {
    /// To CLOCK_MONOTONIC.
    pub monotonic: i64,
    /// To CLOCK_BOOTTIME.
    pub boottime: i64,
}

impl Offsets {
    /// What makes the clocks begin at `base` now.
    ///
    /// # Errors
    /// The errno of clock_gettime(2).
    pub fn to(base: ClockBase) -> io::Result<Self> {
        let now = ClockBase::now()?;
        let from = |now: u64, base: u64| base.wrapping_sub(now).cast_signed();
        Ok(Self {
            monotonic: from(now.monotonic_ns, base.monotonic_ns),
            boottime: from(now.boottime_ns, base.boottime_ns),
        })
    }

    /// Makes the namespace, for the processes that the caller makes from now on.
    ///
    /// # Errors
    /// EPERM, EINVAL or ENOSPC where the host does not let it be made (Linux 5.6); ERANGE for a time that no
    /// machine has.
    pub fn enter(self) -> io::Result<()> {
        clone::unshare_time()?;
        let line = |name: &str, offset: i64| {
            format!("{name} {} {}\n", offset.div_euclid(SECOND), offset.rem_euclid(SECOND))
        };
        let lines = line("monotonic", self.monotonic) + &line("boottime", self.boottime);
        // The kernel takes them in one write, and none after the first process.
        OpenOptions::new().write(true).open("/proc/self/timens_offsets")?.write_all(lines.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_to_now_is_the_base() {
        let now = ClockBase::now().expect("clocks");
        let earlier = ClockBase { monotonic_ns: now.monotonic_ns / 2, ..now };
        let Offsets { monotonic, boottime } = Offsets::to(earlier).expect("clocks");
        let half = (now.monotonic_ns - now.monotonic_ns / 2).cast_signed();
        assert!((-half - 10 * SECOND..=-half).contains(&monotonic), "{monotonic}");
        assert!((-10 * SECOND..=0).contains(&boottime), "{boottime}");
    }
}
