//! Pid 1 of a run (pid_namespaces(7)): reaps, tells the launcher how the command ended, and
//! takes everything with it when the launcher or the command is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use caps::CapSet;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeValLike;
use nix::sys::uio::pwrite;
use nix::unistd::Pid;

use super::apart::Apart;
use super::channel;
use super::heard::Heard;
use crate::sys::ptrace::{self, End, Stop};
use crate::sys::{address, image};

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

/// Whether `bytes` say that nothing is left but pid 1.
#[must_use]
pub fn is_end(bytes: &[u8]) -> bool {
    bytes.first() == Some(&END)
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

/// First byte of a request to bind a socket, and of its answer.
pub const BIND: u8 = b'B';

/// The request to bind the first descriptor that goes with it to `address`, from the second one
/// as working directory: only a process in the run's root can give a Unix socket the name by
/// which the run knows it.
#[must_use]
pub fn bind_request(umask: u32, address: &[u8]) -> Vec<u8> {
    let mut bytes = vec![BIND];
    bytes.extend_from_slice(&umask.to_le_bytes());
    bytes.extend_from_slice(address);
    bytes
}

/// First byte of a request to bind a socket where no path leads, and of its answer.
pub const BIND_APART: u8 = b'S';

/// The request to bind the descriptor that goes with it to `address` there: with the answer comes the file that it is
/// bound to.
#[must_use]
pub fn bind_apart_request(address: &[u8]) -> Vec<u8> {
    [&[BIND_APART, 0, 0, 0, 0], address].concat()
}

/// First byte of a request to say which id of a task was the last, and of its answer.
pub const LAST_ID: u8 = b'L';

/// The request to say that `id` was the last that the namespace gave out.
#[must_use]
pub fn last_id_request(id: i32) -> [u8; 5] {
    let mut bytes = [LAST_ID; 5];
    bytes[1..].copy_from_slice(&id.to_le_bytes());
    bytes
}

/// The file through which a member of a pid namespace says so. It is the writer's namespace that counts, whichever
/// /proc it lies in.
///
/// # Errors
/// ENOENT where the kernel is built without CONFIG_CHECKPOINT_RESTORE; EROFS, EACCES where /proc is kept from being
/// written.
pub fn open_last_id() -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().write(true).open("/proc/sys/kernel/ns_last_pid")?.into())
}

/// First byte of a request to say whether a signal came to the launcher's group, and of its answer.
pub const HEARD: u8 = b'H';

/// The request to say whether this signal came to pid 1 as well since the last one about it: ENOMSG if not.
#[must_use]
pub fn heard_request(signal: i32) -> [u8; 5] {
    let mut bytes = [HEARD; 5];
    bytes[1..].copy_from_slice(&signal.to_le_bytes());
    bytes
}

/// First byte of a request for a pair of connected Unix sockets, and of its answer.
pub const PAIR: u8 = b'P';

/// The request for a pair of that type: only a process in the run's network makes sockets that are
/// none of the host's (network_namespaces(7)).
#[must_use]
pub fn pair_request(kind: SockType) -> [u8; 5] {
    let mut bytes = [PAIR; 5];
    bytes[1..].copy_from_slice(&(kind as i32).to_le_bytes());
    bytes
}

/// The errno in the answer to `request`, 0 when it was done; `None` for another message.
#[must_use]
pub fn answer_to(request: &[u8], bytes: &[u8]) -> Option<i32> {
    let rest = bytes.strip_prefix(request.get(..1)?)?;
    Some(i32::from_le_bytes(rest.try_into().ok()?))
}

/// Where nothing happens for so many milliseconds, the run lasts: what only its beginning needed is let go of.
const QUIET: u8 = 250;

/// Serves as pid 1 until `command` has ended, and with it everything else, or until the process behind
/// `launcher` is gone. The caller exits then, and the kernel kills whatever is left in the namespace.
///
/// # Errors
/// The errno of the call that kept it from watching: the caller exits as well.
pub fn run(
    command: Pid,
    launcher: &OwnedFd,
    report: BorrowedFd<'_>,
    mut dialler: Option<BorrowedFd<'_>>,
    (attach, last_id): (&mut Attach<'_>, Option<&OwnedFd>),
) -> io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    let children = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let (mut heard, mut apart) = (Heard::new()?, Apart::default());
    let (mut end, mut patience) = (None, PollTimeout::from(QUIET));
    loop {
        let reaped = reap(command)?;
        if reaped.command.is_some() {
            end = reaped.command;
            // All that are left; there may be none.
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
            continue;
        }
        if let Some(end) = end.filter(|_| reaped.all) {
            return channel::send(report, &end.encode(), &[]);
        }
        let fixed = [launcher.as_fd(), children.as_fd(), report, heard.descriptor.as_fd()];
        let watched = fixed.into_iter().chain(dialler);
        let mut watched: Vec<_> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut watched, patience) {
            Ok(0) => {
                patience = PollTimeout::NONE;
                image::let_go();
                continue;
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let launcher_is_gone = watched[0].any().unwrap_or(true);
        if launcher_is_gone {
            return Ok(());
        }
        let is_asked = watched[2].any().unwrap_or(true);
        if let (Some(requests), Some(asked)) = (dialler, watched.get(4))
            && asked.any().unwrap_or(true)
            && !super::dialler::serve(requests)?
        {
            dialler = None;
        }
        heard.listen();
        if is_asked {
            serve(report, attach, last_id, (&mut heard, &mut apart))?;
        }
        while let Ok(Some(_)) = children.read_signal() {}
    }
}

/// Shows the place of that number, or says why not: an errno.
pub type Attach<'a> = dyn FnMut(usize) -> Result<(), i32> + 'a;

fn serve(
    report: BorrowedFd<'_>,
    attach: &mut Attach<'_>,
    last_id: Option<&OwnedFd>,
    (heard, apart): (&mut Heard, &mut Apart),
) -> io::Result<()> {
    let (bytes, descriptors) = channel::receive(report)?;
    // Without a request the launcher closed its end: its pidfd says the same.
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(()) };
    let Some((&number, rest)) = rest.split_first_chunk::<4>() else { return Ok(()) };
    let number = u32::from_le_bytes(number);
    if (kind, descriptors.is_empty()) == (PAIR, true) {
        return send_pair(report, number);
    }
    if let (BIND_APART, [socket]) = (kind, descriptors.as_slice()) {
        let bound = apart.bind(socket.as_fd(), rest)?;
        let file = bound.as_ref().ok().map(AsFd::as_fd);
        return channel::send(
            report,
            &answer(kind, bound.as_ref().map(drop).map_err(errno_of)),
            file.as_slice(),
        );
    }
    let done = match (kind, descriptors.as_slice()) {
        (ATTACH, []) => attach(usize::try_from(number).unwrap_or(usize::MAX)),
        (LAST_ID, []) => match last_id {
            Some(file) => {
                pwrite(file, number.to_string().as_bytes(), 0).map(drop).map_err(|errno| errno as i32)
            }
            None => Err(libc::ENOENT),
        },
        (HEARD, []) => heard.take(number).then_some(()).ok_or(libc::ENOMSG),
        (BIND, [socket, directory]) => {
            bind(socket, directory, number, rest).map_err(|error| errno_of(&error))
        }
        // The launcher waits for an answer, also where its descriptors found no room here.
        _ => Err(libc::EINVAL),
    };
    channel::send(report, &answer(kind, done), &[])
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn answer(kind: u8, done: Result<(), i32>) -> [u8; 5] {
    let mut answer = [kind; 5];
    answer[1..].copy_from_slice(&done.err().unwrap_or(0).to_le_bytes());
    answer
}

fn send_pair(report: BorrowedFd<'_>, kind: u32) -> io::Result<()> {
    let known = [SockType::Stream, SockType::SeqPacket];
    let kind = known.into_iter().find(|known| *known as i32 == kind.cast_signed()).ok_or(Errno::EINVAL);
    match kind.and_then(|kind| socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)) {
        Ok((one, other)) => channel::send(report, &answer(PAIR, Ok(())), &[one.as_fd(), other.as_fd()]),
        Err(errno) => channel::send(report, &answer(PAIR, Err(errno as i32)), &[]),
    }
}

/// Binds with the rights that the command has: without any capability.
fn bind(socket: &OwnedFd, directory: &OwnedFd, mask: u32, raw: &[u8]) -> io::Result<()> {
    let refused = |_| io::Error::from(Errno::EPERM);
    let effective = caps::read(None, CapSet::Effective).map_err(refused)?;
    nix::unistd::fchdir(directory)?;
    caps::clear(None, CapSet::Effective).map_err(refused)?;
    let former = umask(Mode::from_bits_truncate(mask));
    let done = address::bind(socket.as_fd(), raw);
    umask(former);
    caps::set(None, CapSet::Effective, &effective).map_err(refused)?;
    nix::unistd::chdir("/")?;
    done
}

/// What [`reap`] found.
#[derive(Default)]
struct Reaped {
    /// How the command ended, if it has ended now.
    command: Option<CommandEnd>,
    /// No process is left.
    all: bool,
}

fn reap(command: Pid) -> io::Result<Reaped> {
    loop {
        // Not by nix's WaitStatus, which knows no real-time signals.
        let (pid, End { code, signal, .. }) = match ptrace::next_stop() {
            Ok(Some((pid, Stop::Ended(end)))) => (pid, end),
            Ok(None) => return Ok(Reaped::default()),
            Ok(Some(_)) => continue,
            Err(error) => match error.raw_os_error() {
                Some(libc::ECHILD) => return Ok(Reaped { command: None, all: true }),
                Some(libc::EINTR) => continue,
                _ => return Err(error),
            },
        };
        if Pid::from_raw(pid) == command {
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
            let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            let end = CommandEnd { code, signal, cpu_micros: cpu, peak_kib: usage.max_rss() };
            return Ok(Reaped { command: Some(end), all: false });
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
