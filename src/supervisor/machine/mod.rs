//! What the kernel tells of the machine: how long it has been up, its memory, its load, its processors.
//!
//! While a run is recorded that can be replayed, each file in /proc and /sys that says such a thing is noted when it
//! is opened. The kernel opens it, so that what is read from the same descriptor later is newer, but for the shortest
//! ones: those are given as they were noted. A replay gives the noted content. Of sysinfo(2) is noted what it says at
//! the start of the run; how long the machine has been up follows the clock. Of processes is noted when they began,
//! and what they see of the run's mounts and sockets. What statfs(2) says is noted and given as the files are. What
//! cannot be noted, or given, is told in the trace.

mod place;
mod process;
mod recorded;
mod space;

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, SFlag, fchmod};

use self::place::Place;
use self::process::Usage;
use self::recorded::Told;
pub use self::recorded::{LONGEST as LONGEST_MACHINE_FILE, RecordedMachine};
use super::access::{Area, Decision, is_below};
use super::call::{Call, Reply};
use super::request::Request;
use super::view::{Found, own_path};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;
use crate::sys::system::{self, SYSINFO};
use crate::trace::{Event, Kind, Recorder, TraceError, hex, unhex};

/// The operation under which the trace holds it.
pub const OPERATION: &str = "machine.file";

/// What stands for sysinfo(2) among the files.
pub(super) const SYSINFO_NAME: &str = "sysinfo(2)";

/// What a file of ours is named that holds the same in a run and in its replay, and what one that stands for a file of
/// the kernel's in a replay alone: C libraries make their buffers by the status of a file.
const NOTED: &CStr = c"machine";
const STAND_IN: &CStr = c"file of procfs";
const STAND_IN_OF_SYS: &CStr = c"file of sysfs";

/// What changes all the time, and is opened anew by whoever asks again.
const CHANGING: [&str; 2] = ["/proc/loadavg", "/proc/uptime"];

/// The largest content that stands in its entry.
const INLINE: usize = 512;
/// Opens of a run that are noted.
const MOST: usize = 4096;

/// Such files, and directories of them. What differs from namespace to namespace (proc_sys(5)) is none.
const FILES: [&str; 17] = [
    "/proc/buddyinfo",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/diskstats",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/stat",
    "/proc/swaps",
    "/proc/uptime",
    "/proc/version",
    "/proc/vmstat",
    "/sys/devices/system",
];

/// The machine of a run.
#[derive(Debug)]
pub(super) enum Machine {
    /// Nobody asks.
    Unseen,
    /// It is noted, so many opens so far.
    Kept(usize),
    /// In a replay: as it was; and what had to be told of today, or not as exactly as it was.
    Shown(Box<RecordedMachine>, HashSet<PathBuf>),
}

impl Machine {
    /// `keeps`: the run can be replayed; `recorded`: it is the replay of one, which noted this.
    pub(super) fn new(keeps: bool, recorded: Option<RecordedMachine>) -> Self {
        match recorded {
            Some(recorded) => Self::Shown(Box::new(recorded), HashSet::new()),
            None if keeps => Self::Kept(0),
            None => Self::Unseen,
        }
    }
}

impl Supervisor {
    /// Notes what is asked for without opening anything.
    pub(super) fn note_machine(&mut self) -> Result<(), TraceError> {
        let (Machine::Kept(_), Ok(info)) = (&self.machine, system::info()) else { return Ok(()) };
        let event = Event::new(Kind::Meta, OPERATION).arg("path", SYSINFO_NAME);
        self.recorder.record(event.arg("content", hex(&info)))
    }

    /// A file that says something of the machine is opened: in a replay it says what it said.
    pub(super) fn open_machine_file(
        &mut self,
        call: &Call,
        request: &Request,
        found: &Found,
    ) -> Result<Option<Reply>, Stop> {
        let only_reads = request.access() == PathAccess::Read
            && !request
                .flags
                .intersects(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CREAT | OFlag::O_TRUNC);
        let usage = Usage::of(&found.path);
        let is_known = usage.is_some() || Place::of(&found.path).is_some() || is_of_machine(&found.path);
        if !only_reads || found.kind() != SFlag::S_IFREG || !is_known {
            return Ok(None);
        }
        // No rule leads to pid 1; what everybody may read of it the kernel gives.
        let may_read = self.decide_file(PathAccess::Read, found) == Decision::Allow(Area::System)
            || (usage.is_some() && self.is_system_file(request, found.path.as_os_str().as_bytes(), found));
        if !may_read {
            return Ok(None);
        }
        if let Some(usage) = usage {
            return self.open_usage(call, request, found, usage);
        }
        match &self.machine {
            Machine::Unseen => Ok(None),
            Machine::Kept(_) => self.note_file(call, request, found),
            Machine::Shown(..) => self.show_file(call, request, found),
        }
    }

    fn note_file(&mut self, call: &Call, request: &Request, found: &Found) -> Result<Option<Reply>, Stop> {
        if !self.has_room(call, &found.path)? {
            return Ok(None);
        }
        let noted = || {
            let mut content = read(found)?;
            if found.path == Path::new("/proc/loadavg") {
                end_with(&mut content, call.task.inner_tgid());
            }
            if let Some(place) = Place::of(&found.path) {
                content = place.held(&content, |id| self.view.user(id));
            }
            let reply = if changes(found) { Some(given(request, &content, NOTED)?) } else { None };
            Ok::<_, std::io::Error>((content, reply))
        };
        match noted() {
            Ok((content, reply)) => {
                note(&self.recorder, call, &found.path, &content)?;
                Ok(reply)
            }
            Err(error) => {
                self.miss(call, &found.path, &format!("not kept: {error}"))?;
                Ok(None)
            }
        }
    }

    fn show_file(&mut self, call: &Call, request: &Request, found: &Found) -> Result<Option<Reply>, Stop> {
        let Some(content) = self.told(call, &found.path)? else { return Ok(None) };
        let name = match () {
            () if changes(found) => NOTED,
            () if found.path.starts_with("/sys") => STAND_IN_OF_SYS,
            () => STAND_IN,
        };
        // What says the same today is left as it is.
        let today = if changes(found) { None } else { read(found).ok() };
        if today.as_ref() == Some(&content) {
            return Ok(None);
        }
        let content = match (Place::of(&found.path), today) {
            (Some(place), Some(today)) => place.shown(&content, &today),
            _ => content,
        };
        self.give_file(call, found, given(request, &content, name))
    }

    /// Gives a file in place of the kernel's. Where it could not be made, that is told.
    fn give_file(
        &mut self,
        call: &Call,
        found: &Found,
        made: std::io::Result<Reply>,
    ) -> Result<Option<Reply>, Stop> {
        match made {
            Ok(reply) => Ok(Some(reply)),
            Err(error) => {
                self.miss(call, &found.path, &format!("of today: {error}"))?;
                Ok(None)
            }
        }
    }

    /// Whether one more can be noted. That no more is noted is told once.
    fn has_room(&mut self, call: &Call, path: &Path) -> Result<bool, TraceError> {
        let Machine::Kept(count) = &mut self.machine else { return Ok(false) };
        *count = count.saturating_add(1);
        if *count == MOST + 1 {
            let event = Event::new(Kind::Meta, OPERATION).path("path", path).proc(call.task.lineage.clone());
            let why = format!("not kept: no more than {MOST} are");
            self.recorder.record(event.arg("why", why).arg("cut", true))?;
        }
        Ok(*count <= MOST)
    }

    /// In a replay: what the recorded run was told at `path`. Where that is not known it is told in the trace.
    fn told(&mut self, call: &Call, path: &Path) -> Result<Option<Vec<u8>>, TraceError> {
        let Machine::Shown(recorded, _) = &mut self.machine else { return Ok(None) };
        let (content, why) = match recorded.next(path, &call.task.lineage) {
            Told::Content(content) => return Ok(Some(content.to_vec())),
            Told::Last(content) => (Some(content.to_vec()), "as it was before: no more was kept"),
            Told::NotKept => (None, "of today: it was not kept"),
            Told::Unknown => (None, "of today: the recorded run did not ask for it"),
        };
        self.miss(call, path, why)?;
        Ok(content)
    }

    /// Tells that something of the machine is not noted, or not given as it was.
    fn miss(&mut self, call: &Call, path: &Path, why: &str) -> Result<(), TraceError> {
        if let Machine::Shown(_, missed) = &mut self.machine
            && (missed.len() >= MOST || !missed.insert(path.to_owned()))
        {
            return Ok(());
        }
        let event = Event::new(Kind::Meta, OPERATION).path("path", path).proc(call.task.lineage.clone());
        self.recorder.record(event.arg("why", why))
    }

    /// A file of a process: in a replay that began when it did, and has used as much.
    fn open_usage(
        &mut self,
        call: &Call,
        request: &Request,
        found: &Found,
        usage: Usage,
    ) -> Result<Option<Reply>, Stop> {
        if matches!(self.machine, Machine::Unseen) {
            return Ok(None);
        }
        let Ok(content) = read(found) else { return Ok(None) };
        if !matches!(self.machine, Machine::Shown(..)) {
            if let Some(held) = usage.held(&content)
                && self.has_room(call, &found.path)?
            {
                note(&self.recorder, call, &found.path, &held)?;
            }
            return Ok(None);
        }
        let (process, thread) = (call.task.inner_tgid(), call.task.inner_tid());
        let is_in = |directory: String| found.path.parent() == Some(Path::new(&directory));
        // What a process says of its state is that of its first thread.
        let is_own = is_in(format!("/proc/{process}/task/{thread}"))
            || (process == thread && is_in(format!("/proc/{process}")));
        let held = self.told(call, &found.path)?;
        let Some(mut shown) = held.and_then(|held| usage.shown(&content, &held, is_own)) else {
            return Ok(None);
        };
        if usage == Usage::Status {
            shown = process::with_owners(&shown, |id| self.view.user(id), |id| self.view.group(id));
        }
        if usage == Usage::Stat && is_below(&found.path, Path::new("/proc/1")) {
            shown = process::without_addresses(&shown);
        }
        self.give_file(call, found, given(request, &shown, STAND_IN))
    }

    /// sysinfo(2), in a replay.
    pub(super) fn show_sysinfo(&mut self, call: &Call) -> Reply {
        let (Machine::Shown(recorded, _), Some(clock)) = (&self.machine, &self.clock) else {
            return Reply::Continue;
        };
        let Some(mut info) = recorded.sysinfo() else { return Reply::Continue };
        let up = clock.since_boot(call.task.tid, call.task.tgid);
        // As the kernel counts.
        let up = up.as_secs() + u64::from(up.subsec_nanos() > 0);
        info[..8].copy_from_slice(&up.to_le_bytes());
        self.hand(call, call.arguments[0], &info)
    }

    fn hand(&mut self, call: &Call, address: u64, bytes: &[u8]) -> Reply {
        match self.give(call, address, bytes) {
            Ok(()) => Reply::Value(0),
            Err(errno @ (Errno::EFAULT | Errno::ESRCH)) => Reply::Errno(errno),
            // One that hides its memory is answered by the kernel (PR_SET_DUMPABLE).
            Err(_) => Reply::Continue,
        }
    }
}

/// Whether it says something else all the time.
fn changes(found: &Found) -> bool {
    CHANGING.iter().any(|name| found.path == Path::new(name))
}

/// Whether the file at a final path says something of the machine.
fn is_of_machine(path: &Path) -> bool {
    FILES.iter().any(|file| is_below(path, Path::new(file)))
}

/// The content of a file, if it has an end.
fn read(found: &Found) -> std::io::Result<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = nix::fcntl::open(found.own_path().as_str(), flags, Mode::empty())?;
    let mut content = Vec::new();
    File::from(file).take(LONGEST_MACHINE_FILE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LONGEST_MACHINE_FILE {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

/// Puts `id` in place of the last word of /proc/loadavg, the latest id of the reader's namespace (proc_loadavg(5)):
/// we are in another one. Most who read it are the latest.
fn end_with(content: &mut Vec<u8>, id: i32) {
    if let Some(last) = content.iter().rposition(|&byte| byte == b' ') {
        content.truncate(last + 1);
        content.extend_from_slice(format!("{id}\n").as_bytes());
    }
}

fn note(recorder: &Recorder, call: &Call, path: &Path, content: &[u8]) -> Result<(), TraceError> {
    let event = Event::new(Kind::Meta, OPERATION).path("path", path).proc(call.task.lineage.clone());
    let event = match std::str::from_utf8(content) {
        Ok(text) if text.len() <= INLINE => event.arg("content", text),
        _ => event.arg("content", recorder.keep(content)?.private()),
    };
    recorder.record(event)
}

/// The answer to an open of a file that holds this.
fn given(request: &Request, content: &[u8], name: &CStr) -> std::io::Result<Reply> {
    let close_on_exec = request.flags.contains(OFlag::O_CLOEXEC);
    Ok(Reply::Descriptor { file: holding(content, name)?, close_on_exec })
}

/// A file that can be read, and that holds nothing else ever.
fn holding(content: &[u8], name: &CStr) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    file.write_all(content)?;
    // As it is in /proc. Whoever has it owns it, and changes that again.
    fchmod(&file, Mode::from_bits_truncate(0o444))?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(own_path(file.as_fd()).as_str(), flags, Mode::empty())?)
}

/// Makes `status` that of the kernel's file for which this stands, a file that has lost its name; false if it is
/// another.
pub(super) fn show_stand_in(path: &Path, status: &mut libc::statx) -> bool {
    let Some(name) = path.to_str().and_then(|path| path.strip_prefix("/memfd:")) else { return false };
    let is = |own: &CStr| name.as_bytes() == own.to_bytes();
    (status.stx_blksize, status.stx_size, status.stx_blocks) = match () {
        () if is(STAND_IN) => (1024, 0, 0),
        () if is(STAND_IN_OF_SYS) => (4096, 4096, 0),
        () => return false,
    };
    status.stx_nlink = 1;
    true
}

/// Whether a descriptor leads to such a file.
pub(super) fn is_stand_in(link: &Path) -> bool {
    let link = link.as_os_str().as_encoded_bytes();
    let is = |own: &CStr| link == [b"/memfd:", own.to_bytes(), b" (deleted)"].concat();
    is(STAND_IN) || is(STAND_IN_OF_SYS)
}

/// The bytes of sysinfo(2), as they stand in the trace.
pub(super) fn info_of(hex: &str) -> Option<[u8; SYSINFO]> {
    unhex(hex)?.try_into().ok()
}
