//! Changes of names: carried out by us, on directories that were judged and cannot be swapped.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use nix::unistd::{LinkatFlags, UnlinkatFlags};

use super::absent::Wish;
use super::access::{Area, DENIED_BELOW, Decision, HOLDS_OWN};
use super::attributes::{DEVICE, SET_ID, SET_ID_REFUSED, Which};
use super::call::{Call, Reply};
use super::first_change::Before;
use super::view::{Found, Place, Spelled, View};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;
use crate::trace::{Event, Kind};

/// A name that may be changed, and whether that is recorded.
pub(super) struct Target {
    pub(super) spelled: Spelled,
    pub(super) place: Place,
    pub(super) area: Area,
}

/// Either the target or the answer that ends the call.
pub(super) type Judged = Result<Target, Reply>;

impl Supervisor {
    pub(super) fn make_directory(
        &mut self,
        call: &Call,
        directory: i32,
        path: u64,
        mode: u64,
    ) -> Result<Reply, Stop> {
        let mode = u32::try_from(mode & 0o7777).unwrap_or(0);
        if mode & SET_ID != 0 {
            return self.refuse_at(call, directory, path, SET_ID_REFUSED);
        }
        let target = match self.name(call, Wish::Make, directory, path)? {
            Ok(target) => target,
            Err(reply) => return Ok(reply),
        };
        let mode = Mode::from_bits_truncate(mode & !self.umask(call));
        let event = Event::new(Kind::Observe, "fs.mkdir").arg("mode", mode.bits());
        let before = self.before_made(&target.place.path());
        let done = match self.make_pending_directory(&target.place.path(), mode)? {
            Some(done) => done,
            None => nix::sys::stat::mkdirat(
                target.place.directory.file.as_fd(),
                target.place.name.as_os_str(),
                mode,
            ),
        };
        if done.is_ok() {
            self.note_new_directory(target.place.path());
        }
        self.finish(call, &target, event, before, done)
    }

    fn refuse_at(&mut self, call: &Call, directory: i32, path: u64, why: &str) -> Result<Reply, Stop> {
        match self.path_of(call, path).and_then(|path| View::absolute(&call.task, directory, &path)) {
            Ok(spelled) => self.refuse_always(call, &spelled, why),
            Err(errno) => Ok(Reply::Errno(errno)),
        }
    }

    pub(super) fn make_node(
        &mut self,
        call: &Call,
        directory: i32,
        path: u64,
        mode: u64,
    ) -> Result<Reply, Stop> {
        let mode = u32::try_from(mode & 0xffff).unwrap_or(0);
        let kind = SFlag::from_bits_truncate(mode) & SFlag::S_IFMT;
        let kind = if kind.is_empty() { SFlag::S_IFREG } else { kind };
        if ![SFlag::S_IFREG, SFlag::S_IFIFO, SFlag::S_IFSOCK].contains(&kind) {
            return self.refuse_at(call, directory, path, DEVICE);
        }
        if mode & SET_ID != 0 {
            return self.refuse_at(call, directory, path, SET_ID_REFUSED);
        }
        let target = match self.name(call, Wish::Make, directory, path)? {
            Ok(target) => target,
            Err(reply) => return Ok(reply),
        };
        let mode = Mode::from_bits_truncate(mode & 0o1777 & !self.umask(call));
        let place = &target.place;
        let is_file = kind == SFlag::S_IFREG;
        if !is_file && let Some(reply) = self.refuse_pending(call, &target.spelled, &place.path())? {
            return Ok(reply);
        }
        let before = self.before_made(&place.path());
        let made = if is_file { self.make_pending_file(&place.path(), mode)? } else { None };
        let done = made.unwrap_or_else(|| {
            nix::sys::stat::mknodat(place.directory.file.as_fd(), place.name.as_os_str(), kind, mode, 0)
        });
        let event = Event::new(Kind::Observe, "fs.mknod").arg("mode", mode.bits());
        self.finish(call, &target, event, before, done)
    }

    pub(super) fn remove(
        &mut self,
        call: &Call,
        directory: i32,
        path: u64,
        flags: i32,
    ) -> Result<Reply, Stop> {
        if flags & !libc::AT_REMOVEDIR != 0 {
            return Ok(Reply::Errno(Errno::EINVAL));
        }
        let target = match self.name(call, Wish::Change, directory, path)? {
            Ok(target) => target,
            Err(reply) => return Ok(reply),
        };
        match View::is_mount_point(&target.place) {
            Ok(false) => {}
            Ok(true) => return self.refuse_mount(call, &target),
            Err(errno) => return Ok(Reply::Errno(errno)),
        }
        let path = target.place.path();
        if flags != 0 && self.access.holds_protected(&path) {
            // The trace has its name there from the start, though not yet its file.
            let decision = Decision::Own { reason: HOLDS_OWN };
            self.judge(call, PathAccess::Write, &target.spelled, &path, &decision)?;
            return Ok(Reply::Errno(Errno::EACCES));
        }
        let how = if flags == 0 { UnlinkatFlags::NoRemoveDir } else { UnlinkatFlags::RemoveDir };
        // A file that is open for writing has its last content recorded under its name.
        self.settle()?;
        let before = self.before_target(&target)?;
        let (place, linked) = (&target.place, self.linked(&target.place));
        let lost = self.written.loses_name(place);
        let done = nix::unistd::unlinkat(place.directory.file.as_fd(), place.name.as_os_str(), how);
        if done.is_ok() {
            if let Some(id) = lost {
                self.written.lost_name(id, place);
            }
            self.moved_file(place, None);
            linked.iter().for_each(|file| self.changed(&place.path(), file));
        }
        self.finish(call, &target, Event::new(Kind::Observe, "fs.delete"), before, done)
    }

    pub(super) fn make_link(
        &mut self,
        call: &Call,
        text: u64,
        directory: i32,
        path: u64,
    ) -> Result<Reply, Stop> {
        let text = match call.path(text) {
            Ok(text) if text.is_empty() => return Ok(Reply::Errno(Errno::ENOENT)),
            Ok(text) => text,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        let target = match self.name(call, Wish::Make, directory, path)? {
            Ok(target) => target,
            Err(reply) => return Ok(reply),
        };
        let place = &target.place;
        if let Some(reply) = self.refuse_pending(call, &target.spelled, &place.path())? {
            return Ok(reply);
        }
        if let Some(reply) = self.refuse_link(call, &target)? {
            return Ok(reply);
        }
        let text = OsStr::from_bytes(&text);
        let before = self.before_made(&place.path());
        let done = nix::unistd::symlinkat(text, place.directory.file.as_fd(), place.name.as_os_str());
        let event = Event::new(Kind::Observe, "fs.symlink").path("text", text);
        self.finish(call, &target, event, before, done)
    }

    pub(super) fn hard_link(
        &mut self,
        call: &Call,
        from: (i32, u64),
        to: (i32, u64),
        flags: i32,
    ) -> Result<Reply, Stop> {
        if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Ok(Reply::Errno(Errno::EINVAL));
        }
        let ((directory, path), follow) = (from, flags & libc::AT_SYMLINK_FOLLOW != 0);
        let which = match flags & libc::AT_EMPTY_PATH {
            0 => Which::Path { directory, path, follow },
            _ => Which::PathOrDescriptor { directory, path, follow },
        };
        let source = match self.file_of(call, which) {
            Ok((_, source)) => source,
            Err((errno @ Errno::ENOENT, Some(spelled))) => {
                return self.absent(call, Wish::Read, &spelled, errno);
            }
            Err((errno @ Errno::EACCES, Some(spelled))) => {
                return self.unreachable(call, PathAccess::Read, &spelled, errno);
            }
            Err((errno, _)) => return Ok(Reply::Errno(errno)),
        };
        // Whoever holds a second name holds the file: both names need the right to change it.
        let decision = self.decide_file(PathAccess::Write, &source);
        let spelled = Spelled::of_file(&source.path);
        if self.judge(call, PathAccess::Write, &spelled, &source.path, &decision)?.is_none() {
            return Ok(Reply::Errno(Errno::EACCES));
        }
        let target = match self.name(call, Wish::Make, to.0, to.1)? {
            Ok(target) => target,
            Err(reply) => return Ok(reply),
        };
        let is_link = SFlag::from_bits_truncate(source.status.st_mode) & SFlag::S_IFMT == SFlag::S_IFLNK;
        if is_link && let Some(reply) = self.refuse_link(call, &target)? {
            return Ok(reply);
        }
        let place = &target.place;
        let before = self.before_made(&place.path());
        let done = nix::unistd::linkat(
            nix::fcntl::AT_FDCWD,
            source.own_path().as_str(),
            place.directory.file.as_fd(),
            place.name.as_os_str(),
            LinkatFlags::AT_SYMLINK_FOLLOW,
        );
        let event = Event::new(Kind::Observe, "fs.link").path("of", &source.path);
        let reply = self.finish(call, &target, event, before, done)?;
        if let (Area::Rule(rule), Ok(()), 0) = (target.area, done, source.status.st_nlink) {
            // Made without a name (O_TMPFILE): its content counts from now on.
            let label = self.access.grant_label(rule);
            let named = Found { path: target.place.path(), ..source };
            self.written.watch(named, &call.task.lineage, label, true, true).map_err(Stop::Watch)?;
        }
        Ok(reply)
    }

    /// The answer to a call that would put a symbolic link on the way to a denied place: what is there would be shown
    /// under another path, which the rule does not know.
    pub(super) fn refuse_link(&mut self, call: &Call, target: &Target) -> Result<Option<Reply>, Stop> {
        let path = target.place.path();
        // What is the run's own, the host does not see.
        if target.area == Area::Private || !self.access.policy.denies_below(&path) {
            return Ok(None);
        }
        let decision = Decision::Deny { rule: None, reason: DENIED_BELOW.to_owned() };
        let allowed = self.judge(call, PathAccess::Write, &target.spelled, &path, &decision)?;
        Ok(allowed.is_none().then_some(Reply::Errno(Errno::EACCES)))
    }

    /// Judges a change of the name at `path`.
    pub(super) fn name(
        &mut self,
        call: &Call,
        wish: Wish,
        directory: i32,
        path: u64,
    ) -> Result<Judged, Stop> {
        let spelled = self.path_of(call, path).and_then(|path| View::absolute(&call.task, directory, &path));
        let spelled = match spelled {
            Ok(spelled) => spelled,
            Err(errno) => return Ok(Err(Reply::Errno(errno))),
        };
        let place = match self.view.place(&spelled.absolute) {
            Ok(place) => place,
            Err(errno @ (Errno::ENOENT | Errno::ENOTDIR)) => {
                return Ok(Err(self.absent(call, wish, &spelled, errno)?));
            }
            Err(errno) => return Ok(Err(self.unreachable(call, PathAccess::Write, &spelled, errno)?)),
        };
        let path = place.path();
        let status = status_of(&place);
        if let Some(status) = &status {
            self.saw_at(&place, status);
        }
        let id = status.map(|status| self.view.id_at(&path, &status));
        let is_new = wish == Wish::Make && status.is_none();
        let decision = if is_new && !makes_directory(call) {
            self.access.decide_new(&path)
        } else {
            self.access.decide(PathAccess::Write, &path, id)
        };
        if let Decision::Deny { rule: None, .. } | Decision::Own { .. } = &decision
            && creates(call)
            && status.is_some()
        {
            // `mkdir -p` and its like make every directory above; what exists already is no wish
            // to change it.
            return Ok(Err(Reply::Errno(Errno::EEXIST)));
        }
        if wish == Wish::Change && status.is_none() && !self.host_has(&path) {
            // `rm -f` and its like are content with what is absent.
            return Ok(Err(Reply::Errno(Errno::ENOENT)));
        }
        match self.judge(call, PathAccess::Write, &spelled, &path, &decision)? {
            Some(area) => {
                if matches!(area, Area::Rule(_)) {
                    self.note_change(&place)?;
                }
                Ok(Ok(Target { spelled, place, area }))
            }
            None => Ok(Err(Reply::Errno(Errno::EACCES))),
        }
    }

    /// What is at a name that will be changed, where that is recorded.
    pub(super) fn before_target(&mut self, target: &Target) -> Result<Option<Before>, Stop> {
        if matches!(target.area, Area::Rule(_)) { self.before_at(&target.place) } else { Ok(None) }
    }

    pub(super) fn finish(
        &mut self,
        call: &Call,
        target: &Target,
        event: Event,
        before: Option<Before>,
        done: nix::Result<()>,
    ) -> Result<Reply, Stop> {
        if done.is_ok() {
            self.changed_at(&target.place);
        }
        if let (Area::Rule(rule), Ok(())) = (target.area, done) {
            let label = self.access.grant_label(rule);
            let event = self.with_before(event, "before", before);
            let event = target.spelled.add_to(event, "path", &target.place.path());
            self.recorder.record(event.proc(call.task.lineage.clone()).rule(label))?;
        }
        Ok(done.into())
    }
}

pub(super) fn status_of(place: &Place) -> Option<FileStat> {
    fstatat(place.directory.file.as_fd(), place.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()
}

fn makes_directory(call: &Call) -> bool {
    [libc::SYS_mkdir, libc::SYS_mkdirat].contains(&i64::from(call.number))
}

fn creates(call: &Call) -> bool {
    let makers = [
        libc::SYS_mkdir,
        libc::SYS_mkdirat,
        libc::SYS_mknod,
        libc::SYS_mknodat,
        libc::SYS_symlink,
        libc::SYS_symlinkat,
    ];
    makers.contains(&i64::from(call.number))
}
