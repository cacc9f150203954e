//! What directories list, and in which order.
//!
//! Former traces are listed nowhere: they say nothing of use to a program, and no two runs would see the same
//! ones. Each file system has an order of its own, and programs print it. What a run lists is recorded, and a
//! replay, whose changes lie in another file system, lists the same names in the same order: of directories that the
//! run changes before each change, of all others once, when it has ended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, lstat};
use nix::unistd::{Whence, lseek};

use super::access::AccessTable;
use super::call::{Call, Reply};
use super::status::Statuses;
use super::view::{Found, Place, own_path};
use super::{Stop, Supervisor};
use crate::sys::dents::{self, Entry, Form};
use crate::trace::{Event, Kind, Recorder, TraceError, path_value};

/// Names of directories in the order in which they were listed.
pub type Orders = HashMap<PathBuf, Vec<OsString>>;

/// The operation under which the trace holds the names of directories that the run only listed.
pub const OPERATION: &str = "fs.listed";

/// Names that stand in an entry itself, in bytes; longer lists are bodies.
const INLINE: usize = 4096;
/// Lists that stand in one body, in bytes.
const PART: usize = 1 << 20;
/// Most bytes of lists that are recorded at the end, and most directories.
const MOST_BYTES: usize = 16 << 20;
const MOST_SEEN: usize = 1 << 16;
/// Lists that are given out at the same time.
const MOST: usize = 64;
/// Names in lists that are given out at the same time, but for those of the largest directory.
const MOST_NAMES: usize = 1 << 18;
/// Most bytes that one call gives (the C library asks for 32 KiB).
const ROOM: usize = 1 << 20;

/// What was recorded of directories that the run changes.
#[derive(Debug, Default)]
struct Listed {
    changed: HashSet<PathBuf>,
    moved: Vec<PathBuf>,
    /// What it listed and has not changed, in the order of the paths; and when names in it last changed.
    seen: BTreeMap<PathBuf, Version>,
    /// There were more.
    is_cut: bool,
}

/// Which directory, with which names.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    id: (u64, u64),
    changed: [i64; 2],
}

impl Version {
    fn of(status: &FileStat) -> Self {
        Self { id: (status.st_dev, status.st_ino), changed: [status.st_mtime, status.st_mtime_nsec] }
    }
}

impl Listed {
    fn covers(&self, directory: &Path) -> bool {
        self.changed.contains(directory) || self.moved.iter().any(|moved| directory.starts_with(moved))
    }
}

/// A list while it is given out: which directory, whose descriptor.
type Open = (u64, u64, i32, i32);

/// Lists that are recorded, and lists that a replay gives out.
#[derive(Debug, Default)]
pub(super) struct Listings {
    listed: Option<Listed>,
    orders: Orders,
    open: HashMap<Open, Vec<Entry>>,
}

impl Supervisor {
    /// A name at `place` is about to change: what its directory listed until then is recorded once.
    pub(super) fn note_change(&mut self, place: &Place) -> Result<(), Stop> {
        let directory = &place.directory;
        match &mut self.listings.listed {
            Some(listed) if !listed.covers(&directory.path) => {
                listed.changed.insert(directory.path.clone());
                let own = is_own(directory);
                record(directory, &self.access, &self.recorder, own)?;
                if own { Ok(()) } else { self.note_names(directory) }
            }
            _ => Ok(()),
        }
    }

    /// A directory is about to be listed that no rule names: as [`Self::note_listed`], where it is of the view alone.
    pub(super) fn note_listed_own(&mut self, directory: &Found) -> Result<(), Stop> {
        let is_noted = |listed: &Listed| !listed.covers(&directory.path) && is_own(directory);
        if directory.kind() != SFlag::S_IFDIR || !self.listings.listed.as_ref().is_some_and(is_noted) {
            return Ok(());
        }
        self.note_listed(directory)
    }

    /// The run made this directory, which lists nothing yet.
    pub(super) fn note_new_directory(&mut self, path: PathBuf) {
        if let Some(listed) = &mut self.listings.listed {
            listed.changed.insert(path);
        }
    }

    /// The run gave this directory its name, with everything in it.
    pub(super) fn note_moved_directory(&mut self, path: PathBuf) {
        if let Some(listed) = &mut self.listings.listed {
            listed.moved.push(path);
        }
    }

    /// A directory is about to be listed: what it lists is recorded now where it was changed, else at the end.
    pub(super) fn note_listed(&mut self, directory: &Found) -> Result<(), Stop> {
        let Some(listed) = &mut self.listings.listed else { return Ok(()) };
        if listed.covers(&directory.path) {
            return Ok(record(directory, &self.access, &self.recorder, false)?);
        }
        if listed.seen.contains_key(&directory.path) {
            return Ok(());
        }
        if is_own(directory) {
            listed.changed.insert(directory.path.clone());
            return Ok(record(directory, &self.access, &self.recorder, true)?);
        }
        if listed.seen.len() < MOST_SEEN {
            listed.seen.insert(directory.path.clone(), Version::of(&directory.status));
        } else {
            listed.is_cut = true;
        }
        self.note_names(directory)
    }

    /// Records what the directories list that the run left as they were. One that somebody else has changed
    /// meanwhile is left out: nobody knows what the run saw in it.
    pub(super) fn record_lists(&mut self) -> Result<(), TraceError> {
        let Some(listed) = self.listings.listed.take() else { return Ok(()) };
        let (mut part, mut count, mut total, mut is_cut) = (Vec::new(), 0u64, 0, listed.is_cut);
        for (path, version) in listed.seen.iter().filter(|(path, _)| !listed.covers(path)) {
            // The view has ended with the run. What was the run's own alone is another directory here, or none.
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
            let Ok(directory) = openat2(AT_FDCWD, path, how) else { continue };
            if !fstat(&directory).is_ok_and(|status| Version::of(&status) == *version) {
                continue;
            }
            let Ok(entries) = read(path, &directory, &self.access) else { continue };
            let before = part.len();
            part.extend_from_slice(path.as_os_str().as_bytes());
            part.push(0);
            part.extend(joined(&entries));
            part.push(0);
            (count, total) = (count + 1, total + part.len() - before);
            if total > MOST_BYTES {
                is_cut = true;
                break;
            }
            if part.len() >= PART {
                self.record_part(&std::mem::take(&mut part), std::mem::take(&mut count), false)?;
            }
        }
        if count > 0 || is_cut { self.record_part(&part, count, is_cut) } else { Ok(()) }
    }

    fn record_part(&self, lists: &[u8], count: u64, is_cut: bool) -> Result<(), TraceError> {
        let event = Event::new(Kind::Meta, OPERATION).arg("count", count);
        let event = event.arg("lists", self.recorder.keep(lists)?.private());
        self.recorder.record(if is_cut { event.arg("cut", true) } else { event })
    }

    /// getdents64(2) and getdents(2) of a replay, or where something is left out. That holds only names back: what they
    /// lead to is masked by mounts, and refused.
    pub(super) fn list(&mut self, call: &Call) -> Reply {
        let [number, address, room, ..] = call.arguments;
        let (number, room) = (call.int(number), call.int(room));
        let Ok(path) = call.task.link(&format!("fd/{number}")) else { return Reply::Continue };
        let path = Path::new(&path);
        let is_ordered = self.listings.orders.contains_key(path);
        if !is_ordered && !self.access.hides_in(path) {
            return Reply::Continue;
        }
        let Ok(directory) = call.task.fetch(number) else { return Reply::Continue };
        let form = if i64::from(call.number) == libc::SYS_getdents { Form::Old } else { Form::Wide };
        let room = (usize::try_from(room).unwrap_or(0).min(ROOM), form);
        let given = lseek(&directory, 0, Whence::SeekCur).and_then(|at| {
            let (access, statuses) = (&self.access, &self.statuses);
            let (packed, next) = if is_ordered {
                let reader = (call.task.tgid, number);
                self.listings.give(path, &directory, (reader, at.cast_unsigned()), room, (access, statuses))
            } else {
                shown(path, &directory, at.cast_unsigned(), room, (access, statuses))
            }?;
            Ok((packed, at, next.cast_signed()))
        });
        match given {
            Err(errno) => Reply::Errno(errno),
            Ok((packed, at, next)) => {
                let reply = self.hand_out(call, address, &packed, || {
                    lseek(&directory, next, Whence::SeekSet).map(|_| ())
                });
                if matches!(reply, Reply::Errno(_)) {
                    // What nobody has got comes again.
                    let _ = lseek(&directory, at, Whence::SeekSet);
                }
                reply
            }
        }
    }

    /// Writes `bytes` into the memory of the task that waits.
    fn hand_out(
        &mut self,
        call: &Call,
        address: u64,
        bytes: &[u8],
        done: impl FnOnce() -> nix::Result<()>,
    ) -> Reply {
        let given = self.give(call, address, bytes);
        match given
            .map_err(|errno| if errno == Errno::ESRCH { errno } else { Errno::EFAULT })
            .and_then(|()| done())
        {
            Ok(()) => Reply::Value(i64::try_from(bytes.len()).unwrap_or(0)),
            Err(errno) => Reply::Errno(errno),
        }
    }
}

impl Listings {
    /// `records`: what directories list is recorded; `orders`: what was recorded before.
    pub(super) fn new(records: bool, orders: Orders) -> Self {
        Self { listed: records.then(Listed::default), orders, open: HashMap::new() }
    }

    /// The entries that come next, packed, and the offset after them.
    fn give(
        &mut self,
        path: &Path,
        directory: &OwnedFd,
        ((process, number), at): ((i32, i32), u64),
        (room, form): (usize, Form),
        (access, statuses): (&AccessTable, &Statuses),
    ) -> nix::Result<(Vec<u8>, u64)> {
        let status = fstat(directory)?;
        let key = (status.st_dev, status.st_ino, process, number);
        if at == 0 || !self.open.contains_key(&key) {
            let order = self.orders.get(path).map(Vec::as_slice).unwrap_or_default();
            let mut entries = sorted(read(path, directory, access)?, order);
            for (entry, next) in entries.iter_mut().zip(1..) {
                statuses.number(path, entry);
                entry.next = next;
            }
            let held: usize = self.open.values().map(Vec::len).sum();
            if self.open.len() >= MOST || held + entries.len() > MOST_NAMES {
                self.open.clear();
            }
            self.open.insert(key, entries);
        }
        let entries = self.open.get(&key).map(Vec::as_slice).unwrap_or_default();
        let rest = usize::try_from(at).ok().and_then(|at| entries.get(at..)).unwrap_or_default();
        if rest.is_empty() {
            self.open.remove(&key);
            return Ok((Vec::new(), at));
        }
        let (packed, count) = dents::pack(rest, room, form);
        if count == 0 {
            return Err(Errno::EINVAL);
        }
        Ok((packed, at + count as u64))
    }
}

/// The entries that the kernel gives next but those that are not listed, packed, and the offset after them.
fn shown(
    path: &Path,
    directory: &OwnedFd,
    at: u64,
    (room, form): (usize, Form),
    (access, statuses): (&AccessTable, &Statuses),
) -> nix::Result<(Vec<u8>, u64)> {
    let mut next = at;
    loop {
        // What is not listed may be longer than what is.
        let mut entries = dents::read_next(directory.as_fd(), room.max(dents::LONGEST)).map_err(errno_of)?;
        let Some(last) = entries.last().map(|last| last.next) else { return Ok((Vec::new(), next)) };
        entries.retain(|entry| !access.hides(&path.join(&entry.name)));
        entries.iter_mut().for_each(|entry| statuses.number(path, entry));
        let (packed, count) = dents::pack(&entries, room, form);
        next = match (count.checked_sub(1).and_then(|before| entries.get(before)), entries.len()) {
            (_, 0) => last,
            (Some(_), all) if all == count => last,
            (Some(before), _) => before.next,
            (None, _) => {
                lseek(directory, at.cast_signed(), Whence::SeekSet)?;
                return Err(Errno::EINVAL);
            }
        };
        if count > 0 {
            return Ok((packed, next));
        }
    }
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// In the order that was recorded; what was not there then comes last.
fn sorted(mut entries: Vec<Entry>, order: &[OsString]) -> Vec<Entry> {
    let places: HashMap<&OsStr, usize> =
        order.iter().enumerate().map(|(at, name)| (name.as_os_str(), at)).collect();
    entries.sort_by_key(|entry| places.get(entry.name.as_os_str()).copied().unwrap_or(usize::MAX));
    entries
}

/// The entries of `directory` but those that are not listed.
pub(super) fn read(path: &Path, directory: &OwnedFd, access: &AccessTable) -> nix::Result<Vec<Entry>> {
    // The offset of the agent's own open file stays where it is.
    let (own, flags) = (own_path(directory.as_fd()), OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC);
    // When it was read last is for the run's own reads; not so of another user's directory.
    let own = match nix::fcntl::open(own.as_str(), flags | OFlag::O_NOATIME, Mode::empty()) {
        Err(Errno::EPERM) => nix::fcntl::open(own.as_str(), flags, Mode::empty())?,
        own => own?,
    };
    let mut entries = dents::read(own.as_fd()).map_err(errno_of)?;
    if access.hides_in(path) {
        entries.retain(|entry| !access.hides(&path.join(&entry.name)));
    }
    Ok(entries)
}

fn joined(entries: &[Entry]) -> Vec<u8> {
    let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_bytes()).collect();
    names.join(&b'/')
}

/// Whether it is another directory on the host, or none: then it was made for the view, which is built anew each time.
fn is_own(directory: &Found) -> bool {
    let id = |status: &FileStat| (status.st_dev, status.st_ino);
    lstat(&directory.path).map_or(true, |host| id(&host) != id(&directory.status))
}

/// Records the names in `directory`; no name holds a slash, which stands between them. `own` says that it is of the
/// view alone: the host's names there say nothing of it.
fn record(directory: &Found, access: &AccessTable, recorder: &Recorder, own: bool) -> Result<(), TraceError> {
    // Whoever cannot list it cannot print it.
    let Ok(entries) = read(&directory.path, &directory.file, access) else { return Ok(()) };
    let names = joined(&entries);
    let mut event = Event::new(Kind::Meta, "fs.order").path("path", &directory.path);
    if own {
        event = event.arg("own", true);
    }
    if names.len() <= INLINE {
        event.args.extend(path_value("names", &names));
    } else {
        event = event.arg("names", recorder.keep(&names)?.private());
    }
    recorder.record_folded(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_the_recorded_order_and_new_ones_last() {
        let entry = |name: &str| Entry { inode: 1, kind: 8, name: name.into(), next: 0 };
        let order: Vec<OsString> = ["c", "gone", "a"].map(OsString::from).to_vec();
        let names: Vec<_> = sorted(["new", "a", "c", "newer"].map(entry).to_vec(), &order)
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["c", "a", "new", "newer"]);
    }
}
