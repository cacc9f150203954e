//! Watches every file that was opened for writing, and records its content when it settles:
//! at its last close, when it is renamed, and at the end of the run (inotify(7)).

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::stat::{FileStat, Mode, fstat};

use super::content::{Content, Identity};
use super::digest::{self, Digests};
use super::mutate::status_of;
use super::settled::{Settled, made_readable};
use super::view::{Found, Place, View, own_path};
use super::written_file::{Written, record};
use crate::policy::FileId;
use crate::sys::refused::Refused;
use crate::sys::status;
use crate::trace::{Event, Kind, Recorder, TraceError};

/// Longest time that the run is kept waiting for the digests of closed files, and the longest that
/// its end is.
const PAUSE: Duration = Duration::from_secs(5);
const LAST: Duration = Duration::from_secs(30);

/// Files that are remembered by their inode: memory is bounded.
const MOST: usize = 1 << 20;

/// The files that are open for writing.
#[derive(Debug)]
pub(super) struct WrittenFiles {
    inotify: Inotify,
    open: HashMap<WatchDescriptor, Written>,
    /// Those of others that may be written and not read: that they were written is all that is known.
    unreadable: HashMap<FileId, Written>,
    settled: HashMap<FileId, Settled>,
    /// Of both, those whose path was taken away: it is that of another file, or of none.
    nameless: HashSet<FileId>,
    /// Files that memory may share: stores leave no trace in their times.
    shareable: HashSet<FileId>,
    /// What holds times of other files is kept, and the status of each file.
    keeps: bool,
    /// Files that were closed after writing, as they are by then.
    closed: Vec<(PathBuf, libc::statx)>,
}

impl WrittenFiles {
    /// `keeps`: the content of files that hold times of others is kept, for it differs in each run.
    pub(super) fn new(keeps: bool) -> Result<Self, Refused> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(Refused::by("inotify_init1"))?;
        let (settled, shareable) = (HashMap::new(), HashSet::new());
        let (open, unreadable, nameless) = (HashMap::new(), HashMap::new(), HashSet::new());
        Ok(Self { inotify, open, unreadable, settled, nameless, shareable, keeps, closed: Vec::new() })
    }

    /// Becomes readable when a file was closed.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Watches `found`, which is about to be handed to the run for writing.
    ///
    /// `shareable`: it was asked for with O_RDWR, which a shared mapping needs (mmap(2)). `named`: it is at its path.
    pub(super) fn watch(
        &mut self,
        found: Found,
        proc: &str,
        rule: String,
        shareable: bool,
        named: bool,
    ) -> Result<(), Refused> {
        let path = own_path(found.file.as_fd());
        let add = || self.inotify.add_watch(path.as_str(), AddWatchFlags::IN_CLOSE_WRITE);
        let (watch, own) = match add() {
            // What may not be read is not watched either (inotify(7)), such as a lock that is made with mode 0.
            Err(Errno::EACCES) => {
                made_readable(&path, || (add(), File::open(&path).ok())).unwrap_or((Err(Errno::EACCES), None))
            }
            other => (other, None),
        };
        let id = found.id();
        let mut written = Written {
            path: found.path,
            proc: proc.to_owned(),
            rule,
            file: found.file,
            reader: own,
            recorded: None,
            id,
            shareable,
            is_closed: false,
        };
        let was_nameless = self.is_at(&written, named);
        if watch == Err(Errno::EACCES) {
            self.unreadable.insert(id, written);
            return Ok(());
        }
        let watch = watch.map_err(Refused::by("inotify_add_watch"))?;
        // The same inode gives the same watch: what was recorded of it stays known.
        if let Some(former) = self.open.remove(&watch) {
            written.shareable |= former.shareable;
            // Its path is the one by which it was opened now.
            written.reader = written.reader.or(former.reader);
            // Under a name that counts no more, it was not.
            written.recorded = former.recorded.filter(|_| !was_nameless);
        }
        if written.shareable && self.shareable.len() < MOST {
            self.shareable.insert(id);
        }
        self.open.insert(watch, written);
        Ok(())
    }

    /// Whether the file is watched already.
    pub(super) fn is_open(&self, id: FileId) -> bool {
        self.open.values().any(|written| written.id == id)
    }

    /// The file may not be opened for reading any more: it is read by this descriptor.
    pub(super) fn read_by(&mut self, id: FileId, reader: File) {
        if let Some(written) = self.open.values_mut().find(|written| written.id == id) {
            written.reader = Some(reader);
        }
    }

    /// Whether the content of the file may change without a trace in its times.
    pub(super) fn changes_unseen(&self, id: FileId) -> bool {
        self.shareable.len() >= MOST || self.shareable.contains(&id)
    }

    /// Notes whether the file is at its path; returns whether it comes to have one again.
    fn is_at(&mut self, written: &Written, named: bool) -> bool {
        if !named {
            self.nameless.insert(written.id);
            return false;
        }
        let was_nameless = self.nameless.remove(&written.id);
        if was_nameless && let Some(settled) = self.settled.get_mut(&written.id) {
            settled.path.clone_from(&written.path);
        }
        was_nameless
    }

    /// The file was cut short by its name, which is recorded with what is left.
    pub(super) fn cut(&mut self, id: FileId, left: &Content) {
        if let Some(written) = self.open.values_mut().find(|written| written.id == id) {
            written.recorded = Some(left.clone());
        }
        if let Some(settled) = self.settled.get_mut(&id) {
            settled.content = left.clone();
        }
    }

    /// The file `from` is called `to` from now on; `exchanged` with what was called so.
    pub(super) fn renamed(&mut self, from: &Path, to: &Path, exchanged: bool) {
        let open = self.open.values_mut().chain(self.unreadable.values_mut());
        let open = open.map(|written| (written.id, &mut written.path));
        let settled = self.settled.iter_mut().map(|(id, settled)| (*id, &mut settled.path));
        for (_, path) in open.chain(settled).filter(|(id, _)| !self.nameless.contains(id)) {
            let moved = path.strip_prefix(from).map(|rest| (to, rest));
            let moved = moved.or_else(|none| {
                if exchanged { path.strip_prefix(to).map(|rest| (from, rest)) } else { Err(none) }
            });
            if let Ok((now, rest)) = moved {
                *path = if rest.as_os_str().is_empty() { now.to_owned() } else { now.join(rest) };
            }
        }
    }

    /// The file at `place` is about to lose that name: returns which it is, if it was written.
    pub(super) fn loses_name(&mut self, place: &Place) -> Option<FileId> {
        let status = status_of(place)?;
        let id = FileId { dev: status.st_dev, ino: status.st_ino };
        if self.unreadable.contains_key(&id) || self.is_open(id) {
            return Some(id);
        }
        if status.st_nlink > 1 && self.settled.contains_key(&id) {
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            self.hold(id, || {
                nix::fcntl::openat(&place.directory.file, place.name.as_os_str(), flags, Mode::empty())
            });
        }
        self.settled.contains_key(&id).then_some(id)
    }

    /// The file has lost its name at `place`: from now on it goes by another by which it was written, or by none.
    pub(super) fn lost_name(&mut self, id: FileId, place: &Place) {
        let is_there = |status: FileStat| FileId { dev: status.st_dev, ino: status.st_ino } == id;
        // Both of its names were to become one (rename(2)): nothing is done then.
        if status_of(place).is_some_and(is_there) || self.nameless.contains(&id) {
            return;
        }
        let lost = place.path();
        let mut open = self.open.values_mut().chain(self.unreadable.values_mut());
        let written = open.find(|written| written.id == id).map(|written| &mut written.path);
        let settled = self.settled.get_mut(&id).map(|settled| &mut settled.path);
        match (written, settled) {
            (Some(path), Some(other)) if *path == lost && *other != lost => path.clone_from(other),
            (Some(path), Some(other)) if *path != lost && *other == lost => other.clone_from(path),
            (Some(path), _) | (None, Some(path)) if *path == lost => {
                self.nameless.insert(id);
            }
            _ => {}
        }
    }

    /// Keeps a settled file for the last look, whatever its names are by then.
    fn hold(&mut self, id: FileId, file: impl FnOnce() -> nix::Result<OwnedFd>) {
        /// Files that are held: of one more is told that it was not looked at again.
        const HELD: usize = 256;
        let is_full = self.settled.values().filter(|settled| settled.held.is_some()).nth(HELD - 1).is_some();
        if let Some(settled) = self.settled.get_mut(&id) {
            settled.held = Some(if is_full { Err(Errno::EMFILE) } else { file() });
        }
    }

    /// The files that were closed after writing since the last call, each as it was then.
    pub(super) fn take_closed(&mut self) -> Vec<(PathBuf, libc::statx)> {
        std::mem::take(&mut self.closed)
    }

    /// Records every file that was closed since the last call.
    pub(super) fn settle(&mut self, digests: &mut Digests, recorder: &Recorder) -> Result<(), TraceError> {
        digests.limit(Some(PAUSE));
        let settled = self.settle_within(digests, recorder);
        digests.limit(None);
        settled
    }

    fn settle_within(&mut self, digests: &mut Digests, recorder: &Recorder) -> Result<(), TraceError> {
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
                // Overflow or worse: the end of the run looks at every file again.
                Err(_) => return Ok(()),
            };
            for event in events {
                if let Some(written) = self.open.get_mut(&event.wd) {
                    written.is_closed = true;
                    let named = !self.nameless.contains(&written.id);
                    if self.keeps && named {
                        let status = status::of(written.file.as_fd(), 0, libc::STATX_BASIC_STATS);
                        self.closed.extend(status.ok().map(|status| (written.path.clone(), status)));
                    }
                    record(written, digests, recorder, self.keeps, named)?;
                    note(written, &mut self.settled);
                }
            }
            self.forget_closed();
        }
    }

    /// Records every file that is still open: the run has ended.
    pub(super) fn finish(
        &mut self,
        view: &View,
        digests: &mut Digests,
        recorder: &Recorder,
    ) -> Result<(), TraceError> {
        digests.limit(Some(LAST));
        let settled = self.settle_within(digests, recorder);
        let record_one = |written: &mut Written| {
            record(written, digests, recorder, self.keeps, !self.nameless.contains(&written.id))
        };
        let recorded = settled.and_then(|()| self.open.values_mut().try_for_each(record_one));
        for written in self.open.values() {
            note(written, &mut self.settled);
        }
        for (_, Written { id, file, .. }) in self.open.drain() {
            if let Some(settled) = self.settled.get_mut(&id) {
                settled.held = Some(Ok(file));
            }
        }
        recorded?;
        for (id, mut written) in self.unreadable.drain() {
            record(&mut written, digests, recorder, false, !self.nameless.contains(&id))?;
        }
        self.sweep(view, digests, recorder)
    }

    /// Looks once more at every file that was written: what no close explains (stores through a
    /// mapping that outlived the descriptor, a second descriptor) is recorded as unobserved.
    fn sweep(&mut self, view: &View, digests: &mut Digests, recorder: &Recorder) -> Result<(), TraceError> {
        for (id, settled) in self.settled.drain() {
            let Some(content) = settled.look(id, view, digests) else { continue };
            if content.as_ref().is_ok_and(|content| *content == settled.content) {
                continue;
            }
            let event = Event::new(Kind::Observe, "fs.write").path("path", &settled.path);
            let mut event = event.proc(settled.proc).rule(settled.rule).arg("unobserved", true);
            if self.nameless.contains(&id) {
                event = event.arg("unlinked", true);
            }
            recorder.record(digest::add_to(event, &content))?;
        }
        Ok(())
    }

    /// Bounds the descriptors that are held: the oldest knowledge is only an optimisation.
    fn forget_closed(&mut self) {
        const HELD: usize = 512;
        if self.open.len() <= HELD {
            return;
        }
        let settled: Vec<WatchDescriptor> = self
            .open
            .iter()
            .filter(|(_, written)| written.is_closed && written.recorded.is_some())
            .map(|(watch, _)| *watch)
            .collect();
        for watch in settled {
            if let Some(Written { id, file, .. }) = self.open.remove(&watch)
                && self.nameless.contains(&id)
                && fstat(&file).is_ok_and(|status| status.st_nlink > 0)
            {
                self.hold(id, || Ok(file));
            }
            // Gone already when the file was deleted.
            let _ = self.inotify.rm_watch(watch);
        }
    }
}

/// Remembers what was recorded, for the sweep.
fn note(written: &Written, settled: &mut HashMap<FileId, Settled>) {
    let (Some(content), Ok(status)) = (&written.recorded, fstat(&written.file)) else { return };
    if settled.len() >= MOST {
        return;
    }
    let former = settled.remove(&written.id);
    let shareable = written.shareable || former.as_ref().is_some_and(|former| former.shareable);
    settled.insert(
        written.id,
        Settled {
            path: written.path.clone(),
            proc: written.proc.clone(),
            rule: written.rule.clone(),
            content: content.clone(),
            was: Identity::of(&status),
            shareable,
            held: former.and_then(|former| former.held),
        },
    );
}
