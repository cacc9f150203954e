//! Pid 1 of a run (pid_namespaces(7)): reaps, tells the launcher how the command ended, and
//! takes everything with it when the launcher or the command is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::channel;

/// How the command ended, as pid 1 reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    /// Exit status, or 128 plus the number of the signal that killed it.
    pub code: i32,
    /// The signal that killed it, 0 if none.
    pub signal: i32,
    /// Processor time of everything that ended, in microseconds.
    pub cpu_micros: i64,
    /// Largest resident set of one process, in KiB.
    pub peak_kib: i64,
}

/// First byte of the message that carries a [`CommandEnd`].
pub const END: u8 = b'E';

impl CommandEnd {
    fn encode(self) -> [u8; 25] {
        let mut bytes = [0; 25];
        bytes[0] = END;
        bytes[1..5].copy_from_slice(&self.code.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.signal.to_le_bytes());
        bytes[9..17].copy_from_slice(&self.cpu_micros.to_le_bytes());
        bytes[17..25].copy_from_slice(&self.peak_kib.to_le_bytes());
        bytes
    }

    /// Reads what [`run`] sent.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&END, rest) = bytes.split_first()? else { return None };
        let rest: &[u8; 24] = rest.try_into().ok()?;
        let (code, rest) = rest.split_first_chunk::<4>()?;
        let (signal, rest) = rest.split_first_chunk::<4>()?;
        let (cpu, peak) = rest.split_first_chunk::<8>()?;
        Some(Self {
            code: i32::from_le_bytes(*code),
            signal: i32::from_le_bytes(*signal),
            cpu_micros: i64::from_le_bytes(*cpu),
            peak_kib: i64::from_le_bytes(peak.try_into().ok()?),
        })
    }
}

/// First byte of a request to show a place that has appeared, and of its answer.
pub const ATTACH: u8 = b'A';

/// The request to show the place `index`.
#[must_use]
pub fn attach_request(index: usize) -> [u8; 5] {
    let mut bytes = [ATTACH; 5];
    bytes[1..].copy_from_slice(&u32::try_from(index).unwrap_or(u32::MAX).to_le_bytes());
    bytes
}

/// The errno in the answer to such a request, 0 when it was done; `None` for another message.
#[must_use]
pub fn attach_answer(bytes: &[u8]) -> Option<i32> {
    let rest = bytes.strip_prefix(&[ATTACH])?;
    Some(i32::from_le_bytes(rest.try_into().ok()?))
}

/// Serves as pid 1 until `command` ends or the process behind `launcher` is gone. The caller
/// exits then, and the kernel kills whatever is left in the namespace.
///
/// # Errors
/// The errno of the call that kept it from watching: the caller exits as well.
pub fn run(
    command: Pid,
    launcher: &OwnedFd,
    report: BorrowedFd<'_>,
    attach: &mut Attach<'_>,
) -> io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    let children = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    loop {
        if let Some(end) = reap(command)? {
            return channel::send(report, &end.encode(), &[]);
        }
        let mut watched = [
            PollFd::new(launcher.as_fd(), PollFlags::POLLIN),
            PollFd::new(children.as_fd(), PollFlags::POLLIN),
            PollFd::new(report, PollFlags::POLLIN),
        ];
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let launcher_is_gone = watched[0].any().unwrap_or(true);
        if launcher_is_gone {
            return Ok(());
        }
        if watched[2].any().unwrap_or(true) {
            serve(report, attach)?;
        }
        while let Ok(Some(_)) = children.read_signal() {}
    }
}

/// Shows the place of that number, or says why not: an errno.
pub type Attach<'a> = dyn FnMut(usize) -> Result<(), i32> + 'a;

fn serve(report: BorrowedFd<'_>, attach: &mut Attach<'_>) -> io::Result<()> {
    let (bytes, _) = channel::receive(report)?;
    let Some(index) =
        bytes.strip_prefix(&[ATTACH]).and_then(|rest| rest.try_into().ok()).map(u32::from_le_bytes)
    else {
        // The launcher closed its end: its pidfd says the same.
        return Ok(());
    };
    let errno = attach(usize::try_from(index).unwrap_or(usize::MAX)).err().unwrap_or(0);
    let mut answer = [ATTACH; 5];
    answer[1..].copy_from_slice(&errno.to_le_bytes());
    channel::send(report, &answer, &[])
}

fn reap(command: Pid) -> nix::Result<Option<CommandEnd>> {
    loop {
        let (pid, code, signal) = match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, code, 0),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32, signal as i32),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(None),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        };
        if pid == command {
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
            let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            return Ok(Some(CommandEnd { code, signal, cpu_micros: cpu, peak_kib: usage.max_rss() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CommandEnd;

    #[test]
    fn end_survives_the_channel() {
        let end = CommandEnd { code: 137, signal: 9, cpu_micros: 1 << 40, peak_kib: -1 };
        assert_eq!(CommandEnd::decode(&end.encode()), Some(end));
        assert_eq!(CommandEnd::decode(b"E"), None);
        assert_eq!(CommandEnd::decode(b""), None);
    }
}
