//! Until when a blocked call waits, and how it ends when nothing comes.
//!
//! What is not understood here is not skipped: the table below is complete, or time passes as it does.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;

use nix::sys::socket::{getsockopt, sockopt};

use super::super::call::low_half;
use super::sight::WaitingCall;
use crate::sys::{memory, pidfd};

const SECOND: u64 = 1_000_000_000;
/// A wait that is longer is one without an end.
const FAR: u64 = 366 * 24 * 3600 * SECOND;
/// Descriptors in a set of select(2).
const MOST: usize = 1 << 16;
/// FUTEX_CLOCK_REALTIME
const REALTIME: u32 = 256;
/// FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME
const FLAGS: u32 = 128 | REALTIME;

/// How a blocked call ends when its time is over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ending {
    pub(super) result: i64,
    /// What the kernel would have zeroed in the task's memory: address, bytes.
    pub(super) zeroes: Vec<(u64, usize)>,
}

/// A wait that is understood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wait {
    /// On the timeline; `None` when it has none.
    pub(super) deadline: Option<u64>,
    pub(super) ending: Ending,
    /// The kernel compares the deadline with its clock, which is behind the timeline.
    pub(super) is_absolute: bool,
    /// It fails with EINTR when it is interrupted, instead of being started again.
    pub(super) is_touchy: bool,
}

/// What the clocks of a task say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    /// The timeline.
    pub(super) now: u64,
    /// Where that was when the wait began.
    pub(super) begun: u64,
    /// What the task's own clocks are behind it: less than nothing where its program has begun sooner than it did.
    pub(super) behind: i64,
    /// What CLOCK_REALTIME and CLOCK_BOOTTIME are ahead of CLOCK_MONOTONIC.
    pub(super) real: u64,
    pub(super) boot: u64,
}

impl Clocks {
    fn after(&self, time: u64) -> Option<u64> {
        (time < FAR).then(|| self.begun.saturating_add(time))
    }

    /// The deadline of a time on a clock of the task; `None` for a clock that is not understood.
    fn at(&self, clock: i32, time: u64) -> Option<Option<u64>> {
        let ahead = match clock {
            libc::CLOCK_MONOTONIC => 0,
            libc::CLOCK_REALTIME => self.real,
            libc::CLOCK_BOOTTIME => self.boot,
            _ => return None,
        };
        let time = time.saturating_sub(ahead).saturating_add_signed(self.behind);
        Some((time.saturating_sub(self.now) < FAR).then_some(time))
    }
}

/// A blocked task, for a closer look at its call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) task: i32,
    pub(super) process: i32,
    /// A thread of ours waits in its place.
    pub(super) is_represented: bool,
    pub(super) clocks: Clocks,
    /// What it has read last, where it reads from a tape.
    pub(super) taken: Option<u64>,
}

impl Caller {
    /// Until when a wait lasts on the task's own clock, where that is a tape.
    pub(super) fn until(&self, wait: &Wait) -> Option<u64> {
        let Clocks { now, behind, .. } = self.clocks;
        let relative = now.wrapping_sub(self.taken?).cast_signed();
        let ahead = if wait.is_absolute { behind } else { relative };
        wait.deadline.map(|deadline| deadline.saturating_sub_signed(ahead))
    }

    /// Until when `call` waits; `None` where that is not understood.
    pub(super) fn understand(&self, call: &WaitingCall) -> Option<Wait> {
        let [a, b, c, d, e, f] = call.arguments;
        let endless = Some(Wait::default());
        match call.number {
            libc::SYS_nanosleep => Some(self.relative(self.timespec(a)?, 0)),
            libc::SYS_clock_nanosleep if low_half(b) & 1 == 0 => self.sleep(a, c),
            libc::SYS_clock_nanosleep => self.absolute(a, c, 0),
            libc::SYS_poll => Some(self.milliseconds(c)),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => Some(touchy(self.milliseconds(d))),
            libc::SYS_epoll_pwait2 if d != 0 => Some(touchy(self.relative(self.timespec(d)?, 0))),
            libc::SYS_epoll_pwait2 => Some(touchy(Wait::default())),
            libc::SYS_ppoll if c != 0 => Some(zeroing(self.relative(self.timespec(c)?, 0), c)),
            libc::SYS_select if e != 0 => {
                let [seconds, microseconds] = self.words(e)?;
                let time = nanoseconds(seconds, microseconds.checked_mul(1000)?)?;
                self.sets(zeroing(self.relative(time, 0), e), call)
            }
            libc::SYS_pselect6 if e != 0 => self.sets(zeroing(self.relative(self.timespec(e)?, 0), e), call),
            libc::SYS_futex => self.futex(call),
            // futex_wait(2), futex_waitv(2)
            455 if e != 0 => self.absolute(f, e, libc::ETIMEDOUT),
            449 if d != 0 => self.absolute(e, d, libc::ETIMEDOUT),
            libc::SYS_rt_sigtimedwait if c != 0 => {
                Some(touchy(self.relative(self.timespec(c)?, libc::EAGAIN)))
            }
            libc::SYS_semtimedop if d != 0 => Some(touchy(self.relative(self.timespec(d)?, libc::EAGAIN))),
            libc::SYS_mq_timedreceive | libc::SYS_mq_timedsend if e != 0 => {
                self.absolute(libc::CLOCK_REALTIME as u64, e, libc::ETIMEDOUT)
            }
            libc::SYS_rt_sigtimedwait | libc::SYS_semtimedop | libc::SYS_semop => {
                Some(touchy(Wait::default()))
            }
            libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6 | 449 | 455 => endless,
            libc::SYS_mq_timedreceive | libc::SYS_mq_timedsend => endless,
            libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_pause | libc::SYS_rt_sigsuspend => endless,
            libc::SYS_msgrcv | libc::SYS_msgsnd => endless,
            // Its turn comes by us.
            libc::SYS_exit_group => self.is_represented.then(Wait::default),
            // Their callers wait for a child that shares their memory.
            libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => endless,
            libc::SYS_fcntl => {
                [libc::F_SETLKW, libc::F_OFD_SETLKW].contains(&low_half(b).cast_signed()).then(Wait::default)
            }
            libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_flock => {
                self.is_represented.then(Wait::default)
            }
            _ => self.transfer(call),
        }
    }

    /// Reading and writing: endless, but for sockets with a time of their own.
    fn transfer(&self, call: &WaitingCall) -> Option<Wait> {
        let [descriptor, _, _, _, timeout, _] = call.arguments;
        let reads = match call.number {
            libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg => true,
            libc::SYS_accept | libc::SYS_accept4 => true,
            libc::SYS_recvmmsg if timeout == 0 => true,
            libc::SYS_write | libc::SYS_writev | libc::SYS_sendto | libc::SYS_sendmsg => false,
            _ => return None,
        };
        let number = low_half(descriptor).cast_signed();
        let path = format!("/proc/{}/fd/{number}", self.task);
        let kind = fs::metadata(&path).ok()?.file_type();
        if kind.is_socket() {
            return self.socket(number, reads);
        }
        let is_anonymous =
            || fs::read_link(&path).is_ok_and(|target| target.to_string_lossy().starts_with("anon_inode:"));
        // Whoever serves a file from outside, as FUSE does, may be about to answer.
        (kind.is_fifo() || kind.is_char_device() || is_anonymous()).then(Wait::default)
    }

    fn socket(&self, number: i32, reads: bool) -> Option<Wait> {
        let process = pidfd::open(self.process).ok()?;
        let socket = pidfd::fetch(process.as_fd(), number).ok()?;
        let time = match reads {
            true => getsockopt(&socket, sockopt::ReceiveTimeout),
            false => getsockopt(&socket, sockopt::SendTimeout),
        };
        let time = time.ok()?;
        let microseconds = time.tv_usec().checked_mul(1000)?;
        match nanoseconds(time.tv_sec().cast_unsigned(), microseconds.cast_unsigned())? {
            0 => Some(Wait::default()),
            time => Some(touchy(self.relative(time, libc::EAGAIN))),
        }
    }

    fn futex(&self, call: &WaitingCall) -> Option<Wait> {
        let [_, operation, _, time, ..] = call.arguments;
        let operation = low_half(operation);
        if time == 0 {
            return Some(Wait::default());
        }
        match operation & !FLAGS {
            0 => Some(self.relative(self.timespec(time)?, libc::ETIMEDOUT)),
            9 if operation & REALTIME != 0 => {
                self.absolute(libc::CLOCK_REALTIME as u64, time, libc::ETIMEDOUT)
            }
            9 => self.absolute(libc::CLOCK_MONOTONIC as u64, time, libc::ETIMEDOUT),
            _ => None,
        }
    }

    /// clock_nanosleep(2) for a time: not on clocks of CPU time.
    fn sleep(&self, clock: u64, time: u64) -> Option<Wait> {
        let clock = low_half(clock).cast_signed();
        let flows = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME, libc::CLOCK_TAI];
        if !flows.contains(&clock) {
            return None;
        }
        Some(self.relative(self.timespec(time)?, 0))
    }

    fn relative(&self, time: u64, errno: i32) -> Wait {
        let ending = Ending { result: -i64::from(errno), zeroes: Vec::new() };
        Wait { deadline: self.clocks.after(time), ending, ..Wait::default() }
    }

    fn absolute(&self, clock: u64, time: u64, errno: i32) -> Option<Wait> {
        let deadline = self.clocks.at(low_half(clock).cast_signed(), self.timespec(time)?)?;
        Some(Wait { deadline, is_absolute: true, ..self.relative(0, errno) })
    }

    fn milliseconds(&self, register: u64) -> Wait {
        match u64::try_from(low_half(register).cast_signed()) {
            Ok(time) => self.relative(time.saturating_mul(1_000_000), 0),
            Err(_) => Wait::default(),
        }
    }

    /// The sets of select(2) are empty at the end.
    fn sets(&self, mut wait: Wait, call: &WaitingCall) -> Option<Wait> {
        let [count, sets @ .., _, _] = call.arguments;
        let count = usize::try_from(low_half(count).cast_signed()).ok().filter(|count| *count <= MOST)?;
        let bytes = count.div_ceil(64) * 8;
        wait.ending.zeroes.extend(sets.into_iter().filter(|set| *set != 0).map(|set| (set, bytes)));
        Some(wait)
    }

    fn timespec(&self, address: u64) -> Option<u64> {
        let [seconds, rest] = self.words(address)?;
        nanoseconds(seconds, rest)
    }

    fn words(&self, address: u64) -> Option<[u64; 2]> {
        let mut bytes = [[0; 8]; 2];
        memory::read_exact(self.task, address, bytes.as_flattened_mut()).ok()?;
        Some(bytes.map(u64::from_le_bytes))
    }
}

/// The kernel writes the time that is left to where it was told.
fn zeroing(mut wait: Wait, place: u64) -> Wait {
    wait.ending.zeroes.push((place, 16));
    wait
}

fn touchy(wait: Wait) -> Wait {
    Wait { is_touchy: true, ..wait }
}

/// `None` for what the kernel would not take.
fn nanoseconds(seconds: u64, rest: u64) -> Option<u64> {
    let is_time = i64::try_from(seconds).is_ok() && rest < SECOND;
    is_time.then(|| seconds.saturating_mul(SECOND).saturating_add(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1000 * SECOND;

    fn caller(behind: i64) -> Caller {
        let process = std::process::id().cast_signed();
        let clocks = Clocks { now: NOW, begun: NOW, behind, real: 5000 * SECOND, boot: 7 };
        Caller { task: process, process, is_represented: false, clocks, taken: None }
    }

    fn wait(caller: &Caller, number: i64, arguments: [u64; 6]) -> Option<Wait> {
        caller.understand(&WaitingCall { number, arguments })
    }

    fn deadline(number: i64, arguments: [u64; 6]) -> Option<Option<u64>> {
        wait(&caller(0), number, arguments).map(|wait| wait.deadline)
    }

    fn place(time: &[u64; 2]) -> u64 {
        std::ptr::from_ref(time).expose_provenance() as u64
    }

    #[test]
    fn times_count_from_now_or_from_the_beginning_of_a_clock() {
        let time = [3, 5];
        let at = place(&time);
        let later = Some(Some(NOW + 3 * SECOND + 5));
        assert_eq!(deadline(libc::SYS_nanosleep, [at, 0, 0, 0, 0, 0]), later);
        assert_eq!(deadline(libc::SYS_clock_nanosleep, [0, 0, at, 0, 0, 0]), later);
        assert_eq!(deadline(libc::SYS_clock_nanosleep, [2, 0, at, 0, 0, 0]), None);
        assert_eq!(deadline(libc::SYS_futex, [0, 128, 0, at, 0, 0]), later);
        assert_eq!(deadline(libc::SYS_futex, [0, 6, 0, at, 0, 0]), None);
        assert_eq!(deadline(libc::SYS_poll, [0, 0, 20, 0, 0, 0]), Some(Some(NOW + 20_000_000)));
        assert_eq!(deadline(libc::SYS_poll, [0, 0, u64::from(u32::MAX), 0, 0, 0]), Some(None));
        let time = [6003, 0];
        let at = place(&time);
        assert_eq!(deadline(libc::SYS_futex, [0, 9 | 256, 0, at, 0, 0]), Some(Some(NOW + 3 * SECOND)));
        assert_eq!(deadline(libc::SYS_clock_nanosleep, [1, 1, at, 0, 0, 0]), Some(Some(6003 * SECOND)));
        let behind = caller(7 * SECOND.cast_signed());
        let sleeping = wait(&behind, libc::SYS_clock_nanosleep, [1, 1, at, 0, 0, 0]).expect("understood");
        assert_eq!((sleeping.deadline, sleeping.is_absolute), (Some(6010 * SECOND), true));
        let ahead = caller(-7 * SECOND.cast_signed());
        let sleeping = wait(&ahead, libc::SYS_clock_nanosleep, [1, 1, at, 0, 0, 0]).expect("understood");
        assert_eq!(sleeping.deadline, Some(5996 * SECOND));
    }

    #[test]
    fn what_never_ends_or_is_not_understood() {
        let [none, far] = [[0; 6], [place(&[u64::MAX >> 1, 0]), 0, 0, 0, 0, 0]];
        for number in [libc::SYS_wait4, libc::SYS_pause, libc::SYS_futex, libc::SYS_select] {
            assert_eq!(deadline(number, none), Some(None));
        }
        assert_eq!(deadline(libc::SYS_nanosleep, far), Some(None));
        assert_eq!(deadline(libc::SYS_nanosleep, [place(&[0, SECOND]), 0, 0, 0, 0, 0]), None);
        assert_eq!(deadline(libc::SYS_nanosleep, none), None);
        assert_eq!(deadline(libc::SYS_openat, none), None);
        assert_eq!(deadline(libc::SYS_getpid, none), None);
    }

    #[test]
    fn the_sets_of_select_are_emptied() {
        let time = [1, 500_000];
        let wait = wait(&caller(0), libc::SYS_select, [65, 16, 0, 32, place(&time), 0]).expect("understood");
        assert_eq!(wait.deadline, Some(NOW + SECOND + SECOND / 2));
        assert_eq!(wait.ending.zeroes, [(place(&time), 16), (16, 16), (32, 16)]);
    }

    #[test]
    fn a_socket_waits_as_long_as_it_was_told() {
        use nix::sys::time::{TimeVal, TimeValLike as _};
        use std::os::fd::AsRawFd as _;
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let read = [one.as_raw_fd().cast_unsigned().into(), 0, 0, 0, 0, 0];
        assert_eq!(deadline(libc::SYS_read, read), Some(None));
        nix::sys::socket::setsockopt(&one, sockopt::ReceiveTimeout, &TimeVal::seconds(2)).expect("set");
        assert_eq!(deadline(libc::SYS_read, read), Some(Some(NOW + 2 * SECOND)));
        assert_eq!(deadline(libc::SYS_write, read), Some(None));
    }
}
