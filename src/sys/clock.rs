//! The machine's clocks, and the place on them where a run begins.

use std::io;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Readings of the clocks at one moment, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockBase {
    /// CLOCK_MONOTONIC
    pub monotonic_ns: u64,
    /// CLOCK_BOOTTIME
    pub boottime_ns: u64,
    /// CLOCK_REALTIME
    pub realtime_ns: u64,
}

impl ClockBase {
    /// With a CLOCK_MONOTONIC that is up to an hour behind: no deadline on it comes before its time, however
    /// slowly everything else goes.
    #[must_use]
    pub fn behind(self) -> Self {
        let hour = 3_600_000_000_000;
        Self { monotonic_ns: self.monotonic_ns - hour.min(self.monotonic_ns / 2), ..self }
    }

    /// Whether a machine could have had these clocks: the kernel takes no offset beyond half of their range.
    #[must_use]
    pub fn is_of_a_machine(&self) -> bool {
        [self.monotonic_ns, self.boottime_ns, self.realtime_ns].iter().all(|&clock| clock < 1 << 62)
    }

    /// Now, as this process sees it.
    ///
    /// # Errors
    /// The errno of clock_gettime(2).
    pub fn now() -> io::Result<Self> {
        Ok(Self {
            monotonic_ns: read(libc::CLOCK_MONOTONIC)?,
            boottime_ns: read(libc::CLOCK_BOOTTIME)?,
            realtime_ns: read(libc::CLOCK_REALTIME)?,
        })
    }
}

/// Reads a clock, in nanoseconds.
///
/// # Errors
/// The errno of clock_gettime(2); EINVAL for a time before 1970.
pub fn read(clock: libc::clockid_t) -> io::Result<u64> {
    let time = clock_gettime(ClockId::from_raw(clock))?;
    let part = |part: i64| u64::try_from(part).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    Ok(part(time.tv_sec())?.wrapping_mul(1_000_000_000).wrapping_add(part(time.tv_nsec())?))
}
