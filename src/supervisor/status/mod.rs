//! The statuses of files (stat(2)): their times and numbers, which programs print and put into other files.
//!
//! While a run is recorded that can be replayed, they are noted at moments that both runs have in common: a file
//! is opened, is closed after writing, gets another name or mode (`kept`). No stat(2) of the run is seen for that.
//! In a replay each is: it shows the recorded status of the same moment (`shown`, `call`).
//!
//! What decides for the supervisor is always the file's own status.

mod call;
mod kept;
mod recorded;
mod sample;
mod shown;

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag};

use self::kept::Kept;
pub use self::recorded::{LONGEST_STATUSES, RecordedStatuses, StatusError};
use self::sample::Sample;
use self::shown::Shown;
use super::access::{AccessTable, Area};
use super::view::{Found, Place, View};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;
use crate::sys::dents::Entry;
use crate::sys::status;

/// The operation under which the trace holds them.
pub const OPERATION: &str = "fs.status";

/// All that is noted of a file.
const ALL: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

/// What comes with what is mounted, and has the time of that.
const MOUNTED: [&str; 6] =
    ["/", "/proc/self", "/proc/thread-self", "/proc/acpi", "/proc/scsi", "/dev/pts/ptmx"];

/// Where processes are seen (proc(5)).
const PROCESSES: &str = "/proc";

/// When a file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The supervisor has just changed it, or opened it for writing.
    Changed,
    /// Any other.
    Seen,
}

/// The statuses of a run.
#[derive(Debug)]
pub(super) enum Statuses {
    /// Nobody asks.
    Unseen,
    /// Those of a run that can be replayed.
    Kept(Box<Kept>),
    /// Those of a replay.
    Shown(Box<Shown>),
}

impl Statuses {
    /// `keeps`: the run can be replayed; `recorded`: it is the replay of this one.
    pub(super) fn new(keeps: bool, recorded: Arc<RecordedStatuses>) -> Self {
        match (recorded.is_empty(), keeps) {
            (false, _) => Self::Shown(Box::new(Shown::new(recorded))),
            (true, true) => Self::Kept(Box::default()),
            (true, false) => Self::Unseen,
        }
    }

    /// Notes directories of the view that the run may look at without opening them.
    pub(super) fn note_places(&mut self, view: &View, access: &AccessTable) {
        let mounted = MOUNTED.map(PathBuf::from);
        self.note(view, access.skeleton.iter().chain(&access.private).chain(&mounted));
    }

    /// The same of what is made for the run, when all of it is written, and of directories that are another file
    /// system in a replay: what it writes, and what lies around that and the trace.
    pub(super) fn note_made(&mut self, view: &View, access: &AccessTable) {
        self.note(view, view.made.iter());
        let is_written = |path: &&PathBuf| access.policy.decide_path(PathAccess::Write, path).is_allow();
        let written = access.shown.iter().filter(is_written);
        let traces = access.protected.iter().filter(|file| file.unlisted).map(|file| &file.path);
        let around = written.clone().chain(traces).filter_map(|path| path.parent());
        let mut places: Vec<_> = written.map(PathBuf::as_path).chain(around).map(Path::to_owned).collect();
        places.push(access.policy.cwd().to_owned());
        places.sort();
        places.dedup();
        self.note(view, places.iter());
    }

    fn note<'a>(&mut self, view: &View, paths: impl Iterator<Item = &'a PathBuf>) {
        if !self.are_noted() {
            return;
        }
        // They come with their neighbours: the way to a directory is gone once.
        let mut around: Option<(&Path, nix::Result<OwnedFd>)> = None;
        for path in paths {
            let place = path.parent().zip(path.file_name());
            if let Some((directory, _)) = place
                && around.as_ref().is_none_or(|(known, _)| *known != directory)
            {
                around = Some((directory, view.directory(directory.as_os_str().as_bytes())));
            }
            let status = match (place, &around) {
                (Some((_, name)), Some((_, Ok(directory)))) => {
                    status::at(directory.as_fd(), name.as_bytes(), ALL)
                }
                // The root itself, or what is reached by a link.
                (None, _) | (_, Some((_, Err(Errno::ELOOP)))) => {
                    match view.find(path.as_os_str().as_bytes(), false) {
                        Ok(found) => status::of(found.file.as_fd(), 0, ALL),
                        Err(_) => continue,
                    }
                }
                _ => continue,
            };
            if let Ok(status) = status {
                self.add(path, Moment::Seen, (&status).into());
            }
        }
    }

    fn are_noted(&self) -> bool {
        !matches!(self, Self::Unseen)
    }

    /// Gives a name of a directory the number that its file had.
    pub(super) fn number(&self, directory: &Path, entry: &mut Entry) {
        if let Self::Shown(shown) = self
            && let Some(inode) = shown.inode(directory, &entry.name)
        {
            entry.inode = inode;
        }
    }

    /// Whether a file of this status is looked at again after it was opened for reading, since that may change when
    /// it was read last.
    pub(super) fn follow_reads_of(&self, status: &FileStat) -> bool {
        matches!(self, Self::Kept(_)) && shows_reads(&status.into())
    }

    fn add(&mut self, path: &Path, moment: Moment, sample: Sample) {
        match self {
            // A pipe or a socket.
            _ if !path.is_absolute() => {}
            Self::Unseen => {}
            Self::Kept(kept) => kept.add(path, moment, sample, || None),
            Self::Shown(shown) => shown.add(path, moment, sample),
        }
    }

    /// `look` tells when the file was made, which fstat(2) does not: asked where that is new.
    fn add_seen(&mut self, path: &Path, status: &FileStat, look: impl FnOnce() -> io::Result<libc::statx>) {
        match self {
            Self::Kept(kept) if path.is_absolute() => {
                let born = || look().ok().and_then(|status| Sample::from(&status).born);
                kept.add(path, Moment::Seen, status.into(), born);
            }
            _ => self.add(path, Moment::Seen, status.into()),
        }
    }
}

impl Supervisor {
    /// A file is looked at before anything happens to it.
    pub(super) fn saw(&mut self, found: &Found) {
        if self.statuses.are_noted() {
            let look = || status::of(found.file.as_fd(), 0, ALL);
            self.statuses.add_seen(&found.path, &found.status, look);
        }
    }

    /// So is what is at `place`, if anything.
    pub(super) fn saw_at(&mut self, place: &Place, status: &FileStat) {
        if self.statuses.are_noted() {
            let look = || status::at(place.directory.file.as_fd(), place.name.as_bytes(), ALL);
            self.statuses.add_seen(&place.path(), status, look);
        }
    }

    /// A file is about to be opened.
    pub(super) fn saw_open(&mut self, access: PathAccess, found: &Found) {
        self.saw(found);
        if access == PathAccess::Read {
            self.saw_read(found);
            self.saw_root(&found.path);
        } else if found.kind() == SFlag::S_IFIFO
            && let Statuses::Shown(shown) = &mut self.statuses
        {
            // Whoever writes to it leaves the times of the file as they are where an overlay lies over that.
            shown.settled(Sample::from(&found.status).id());
        }
    }

    /// What lists the root looks at /proc next, of which each process of the machine is a link.
    fn saw_root(&mut self, path: &Path) {
        if path == Path::new("/")
            && self.statuses.are_noted()
            && let Ok(found) = self.view.find(PROCESSES.as_bytes(), false)
        {
            self.changed(Path::new(PROCESSES), &found.file);
        }
    }

    /// A file is about to be opened for reading whose reads are not [followed](Statuses::follow_reads_of).
    pub(super) fn saw_unfollowed(&mut self, path: &Path, status: &FileStat, file: &OwnedFd) {
        if self.statuses.are_noted() {
            self.statuses.add_seen(path, status, || status::of(file.as_fd(), 0, ALL));
        }
        if let Statuses::Shown(shown) = &mut self.statuses {
            shown.read(Sample::from(status).id());
        }
        self.saw_root(path);
    }

    /// Reading a file may change when it was read last.
    fn saw_read(&mut self, found: &Found) {
        let sample = Sample::from(&found.status);
        match &mut self.statuses {
            Statuses::Unseen => {}
            Statuses::Shown(shown) => shown.read(sample.id()),
            Statuses::Kept(kept) => {
                if shows_reads(&sample)
                    && let Ok(file) = found.file.try_clone()
                {
                    kept.opened(&found.path, file);
                }
            }
        }
    }

    /// A file was changed: `file` is open, as O_PATH or otherwise.
    pub(super) fn changed(&mut self, path: &Path, file: &OwnedFd) {
        if !self.statuses.are_noted() {
            return;
        }
        if let Ok(status) = status::of(file.as_fd(), 0, ALL) {
            self.statuses.add(path, Moment::Changed, (&status).into());
        }
    }

    /// A file was opened for writing, or made by that.
    pub(super) fn opened_to_write(&mut self, path: &Path, opened: &OwnedFd, area: Area) {
        self.changed(path, opened);
        // Elsewhere its close is watched.
        let (Statuses::Kept(kept), Area::Private) = (&mut self.statuses, area) else { return };
        // Not the open file itself: it would not be closed when the run closes it.
        let number = opened.as_raw_fd().to_string();
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        if let Ok(file) = openat(&self.view.descriptors, number.as_str(), flags, Mode::empty()) {
            kept.opened(path, file);
        }
    }

    /// What is at a name that is about to be removed, where the file has other names.
    pub(super) fn linked(&self, place: &Place) -> Option<OwnedFd> {
        if !self.statuses.are_noted() {
            return None;
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let (directory, name) = (&place.directory.file, place.name.as_os_str());
        let status =
            status::at(directory.as_fd(), name.as_bytes(), libc::STATX_NLINK | libc::STATX_TYPE).ok()?;
        let has_others = status.stx_nlink > 1 && u32::from(status.stx_mode) & libc::S_IFMT != libc::S_IFDIR;
        if has_others { openat(directory, name, flags, Mode::empty()).ok() } else { None }
    }

    /// A name was changed: what is there now, if anything, and its directory.
    pub(super) fn changed_at(&mut self, place: &Place) {
        if !self.statuses.are_noted() {
            return;
        }
        let directory = &place.directory;
        if let Ok(status) = status::at(directory.file.as_fd(), place.name.as_bytes(), ALL) {
            self.statuses.add(&place.path(), Moment::Changed, (&status).into());
            self.follow_unopened(place, u32::from(status.stx_mode));
        }
        self.changed_in(place);
    }

    /// What comes of a link that is followed, or of a pipe that the kernel opens, shows in its times alone.
    fn follow_unopened(&mut self, place: &Place, mode: u32) {
        let Statuses::Kept(kept) = &mut self.statuses else { return };
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        if matches!(mode & libc::S_IFMT, libc::S_IFLNK | libc::S_IFIFO)
            && let Ok(file) = openat(&place.directory.file, place.name.as_os_str(), flags, Mode::empty())
        {
            kept.opened(&place.path(), file);
        }
    }

    /// A file has got another name, or none.
    pub(super) fn moved_file(&mut self, from: &Place, to: Option<&Place>) {
        if let Statuses::Kept(kept) = &mut self.statuses {
            if let Some(to) = to {
                kept.moved(&to.path(), None);
            }
            kept.moved(&from.path(), to.map(Place::path).as_deref());
        }
    }

    /// Something was changed in a directory.
    pub(super) fn changed_in(&mut self, place: &Place) {
        if !self.statuses.are_noted() {
            return;
        }
        let directory = &place.directory;
        self.saw(&place.directory);
        if let Ok(status) = status::of(directory.file.as_fd(), 0, ALL) {
            self.statuses.add(&directory.path, Moment::Changed, (&status).into());
        }
    }

    /// Files were closed after writing.
    pub(super) fn note_settled(&mut self, closed: Vec<(PathBuf, libc::statx)>) {
        for (path, status) in closed {
            let sample = Sample::from(&status);
            if let Statuses::Shown(shown) = &mut self.statuses {
                shown.settled(sample.id());
            }
            self.statuses.add(&path, Moment::Seen, sample);
        }
    }

    /// Puts what is noted into the trace: when it is much, and the last of it.
    pub(super) fn keep_statuses(&mut self, last: bool) -> Result<(), Stop> {
        match &mut self.statuses {
            Statuses::Kept(kept) => Ok(kept.flush(&self.recorder, last)?),
            _ => Ok(()),
        }
    }
}

/// Whether reading the file may change when it was read last.
fn shows_reads(sample: &Sample) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    sample.shows_reads(i64::try_from(now).unwrap_or(i64::MAX))
}
