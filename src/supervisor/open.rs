//! Opens: judged on a copy of the path, answered with the descriptor that was judged.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, ResolveFlag, fcntl};
use nix::sys::stat::{Mode, SFlag};

use super::absent::LINKS;
use super::access::{Area, Decision};
use super::attributes::{SET_ID, SET_ID_REFUSED};
use super::call::{Call, Reply};
use super::first_change::{Before, Kept};
use super::request::Request;
use super::spelling::{is_terminal, lexical};
use super::view::{Found, Spelled, View};
use super::{Stop, Supervisor, devices};
use crate::policy::{PathAccess, RuleId};
use crate::trace::{Event, Kind};

/// Why what was listed alone is not opened.
const PLACEHOLDER: &str = "the recorded run listed it alone, so its content is not in the trace";

impl Supervisor {
    /// An open that was read before it was known who waits in it, and perhaps where its path starts.
    pub(super) fn open(
        &mut self,
        call: &Call,
        request: nix::Result<Request>,
        start: Option<OsString>,
    ) -> Result<Reply, Stop> {
        let request = match request.and_then(|request| request.with_room(&call.task)) {
            Ok(request) => request,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        if let Err(errno) = self.check_waiting(call) {
            return Ok(Reply::Errno(errno));
        }
        if request.flags.contains(OFlag::O_PATH) {
            // A handle without content: whatever it leads to is judged when it is used. The flags of openat2(2)
            // stand in memory, and we cannot give a handle (NOTIF_ADDFD, EBADF): programs fall back to openat(2).
            return Ok(if request.fixed { Reply::Continue } else { Reply::Errno(Errno::ENOSYS) });
        }
        let spelled = match View::absolute_from(&call.task, start, request.directory, &request.path) {
            Ok(spelled) => spelled,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        if request.mode & SET_ID != 0 && (request.flags.contains(OFlag::O_CREAT) || request.is_temporary()) {
            return self.refuse_always(call, &spelled, SET_ID_REFUSED);
        }
        if self.kernel_may_open(&request) && is_terminal(&spelled.absolute) {
            // Only the task itself has the controlling terminal that /dev/tty means.
            return Ok(Reply::Continue);
        }
        if self.is_system_by_spelling(&request, &spelled.absolute) {
            return Ok(Reply::Continue);
        }
        if request.resolve != 0 {
            return self.open_restricted(call, &request, spelled);
        }
        let reply = match request.flags.contains(OFlag::O_DIRECTORY) {
            true => self.open_directory(call, &request, &spelled)?,
            false => self.open_beside(call, &request, &spelled)?,
        };
        match reply {
            Some(reply) => Ok(reply),
            None => self.open_resolved(call, &request, &spelled, LINKS),
        }
    }

    /// openat2(2) with `resolve`: looked up under the same restrictions, then as any other.
    fn open_restricted(&mut self, call: &Call, request: &Request, spelled: Spelled) -> Result<Reply, Stop> {
        let follow = !request.flags.contains(OFlag::O_NOFOLLOW);
        let scoped = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_IN_ROOT;
        let resolve = ResolveFlag::from_bits_retain(request.resolve);
        let base = if resolve.intersects(scoped) { Some(request.directory) } else { None };
        let look = |path: &[u8], follow| self.view.find_restricted(&call.task, base, path, follow, resolve);
        let typed = if base.is_some() { request.path.as_slice() } else { spelled.absolute.as_slice() };
        let found = look(typed, follow);
        let creates = request.flags.contains(OFlag::O_CREAT);
        match found {
            Ok(found) => self.open_found(call, request, &spelled, found),
            Err(Errno::ENOENT) if creates => {
                let slash = typed.iter().rposition(|&byte| byte == b'/');
                let (above, name) =
                    slash.map_or((&b"."[..], typed), |at| (&typed[..at.max(1)], &typed[at + 1..]));
                match look(above, true) {
                    Ok(above) => {
                        let absolute =
                            above.path.join(OsStr::from_bytes(name)).into_os_string().into_encoded_bytes();
                        // No link at the end is followed any more: it could leave the restrictions.
                        let request = Request { flags: request.flags | OFlag::O_NOFOLLOW, ..request.clone() };
                        self.create(call, &request, &Spelled { typed: spelled.typed, absolute }, LINKS)
                    }
                    Err(errno) => Ok(Reply::Errno(errno)),
                }
            }
            Err(errno @ (Errno::ENOENT | Errno::ENOTDIR)) => self.absent(call, request, &spelled, errno),
            Err(errno) => Ok(Reply::Errno(errno)),
        }
    }

    pub(super) fn open_resolved(
        &mut self,
        call: &Call,
        request: &Request,
        spelled: &Spelled,
        links: usize,
    ) -> Result<Reply, Stop> {
        let follow = !request.flags.contains(OFlag::O_NOFOLLOW)
            && !request.flags.contains(OFlag::O_CREAT | OFlag::O_EXCL);
        match self.view.find(&spelled.absolute, follow) {
            Ok(found) => match self.open_machine_file(call, request, &found)? {
                Some(reply) => Ok(reply),
                None => self.open_found(call, request, spelled, found),
            },
            Err(Errno::ENOENT) if request.flags.contains(OFlag::O_CREAT) => {
                self.create(call, request, spelled, links)
            }
            Err(Errno::ENOENT) if self.look_again(&lexical(&spelled.absolute))? => {
                self.open_resolved(call, request, spelled, links)
            }
            Err(errno @ (Errno::ENOENT | Errno::ENOTDIR)) => {
                let reply = self.absent(call, request, spelled, errno)?;
                self.note_absent_of_system(request, &spelled.absolute, &reply);
                Ok(reply)
            }
            Err(errno) => self.unreachable(call, request.access(), spelled, errno),
        }
    }

    fn open_found(
        &mut self,
        call: &Call,
        request: &Request,
        spelled: &Spelled,
        found: Found,
    ) -> Result<Reply, Stop> {
        if request.flags.contains(OFlag::O_CREAT | OFlag::O_EXCL) {
            return Ok(Reply::Errno(Errno::EEXIST));
        }
        if found.kind() == SFlag::S_IFLNK {
            return Ok(Reply::Errno(Errno::ELOOP));
        }
        let source = self.source(request, &found);
        if source.is_none() && self.is_system_file(request, &spelled.absolute, &found) {
            return self.note_listed_own(&found).map(|()| Reply::Continue);
        }
        let access = request.access();
        self.saw_open(access, &found);
        let decision = self.decide_open(call, access, &found);
        let Some(area) = self.judge(call, access, spelled, &found.path, &decision)? else {
            return Ok(Reply::Errno(Errno::EACCES));
        };
        if source.is_some() || found.kind() == SFlag::S_IFIFO || found.kind() == SFlag::S_IFCHR {
            if let Area::Rule(rule) = area {
                self.record_special(call, access, spelled, &found, rule)?;
            }
            return match source {
                Some(source) => self.open_source(call, request, source),
                None => self.open_special(call, request, spelled, &found, area),
            };
        }
        let decided = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let flags = (request.flags & !decided) | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        let mode = if request.is_temporary() { request.mode & !self.umask(call) } else { 0 };
        let mode = Mode::from_bits_truncate(mode);
        let before = match (access, area) {
            // Opening may cut it short already.
            (PathAccess::Write, Area::Rule(_)) if found.kind() == SFlag::S_IFREG => {
                self.before_open(&found)?
            }
            _ => None,
        };
        let (opened, status) = match self.view.reopen(&found, &spelled.absolute, flags, mode) {
            Ok(opened) => opened,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        if access == PathAccess::Write && !request.is_temporary() {
            self.opened_to_write(&found.path, &opened, area);
        }
        match area {
            Area::Rule(rule) if access == PathAccess::Write => {
                self.record_write(call, request, spelled, (found, before), &opened, rule)?;
            }
            Area::Rule(rule) => self.record_reading(call, spelled, &found, (&opened, status), rule)?,
            Area::Partial => self.record_listing(call, spelled, &found)?,
            Area::System | Area::Private => {}
        }
        Ok(Reply::Descriptor { file: opened, close_on_exec: request.flags.contains(OFlag::O_CLOEXEC) })
    }

    /// A file is about to be opened for writing.
    fn before_open(&mut self, found: &Found) -> Result<Option<Before>, Stop> {
        if self.written.is_open(found.id()) {
            // A close that is heard later would be taken for that of the new descriptor.
            self.settle()?;
        }
        self.before_change(&found.path, &found.file, &found.status, Kept::Whole)
    }

    /// Records that a directory was listed that shows only what rules name in it.
    fn record_listing(&mut self, call: &Call, spelled: &Spelled, found: &Found) -> Result<(), Stop> {
        if self.access.shows_parts(&found.path) {
            self.denials.listed_in_part(&found.path);
            self.note_listed_own(found)?;
        } else {
            self.note_listed(found)?;
        }
        let event = Event::new(Kind::Observe, "fs.open_read").arg("type", "directory");
        let event = spelled.add_to(event.arg("partial", true), "path", &found.path);
        Ok(self.recorder.record_folded(event.proc(call.task.lineage.clone()))?)
    }

    fn decide_open(&mut self, call: &Call, access: PathAccess, found: &Found) -> Decision {
        if found.kind() == SFlag::S_IFIFO && found.is_named() && self.is_out_of_replay(&found.path) {
            return Decision::Own { reason: "the host's FIFO: a replay has what was recorded alone" };
        }
        if self.view.placeholders.contains(&found.id()) {
            return Decision::Own { reason: PLACEHOLDER };
        }
        match self.is_memory_of_start(call, &found.path) {
            true => Decision::Own { reason: "what that process starts was not looked at yet, or is refused" },
            false => self.decide_file(access, found),
        }
    }

    /// Decides on a file that was found. Pipes, memfds and sockets the process has already; a file
    /// whose name is gone is judged by the name that it had.
    pub(super) fn decide_file(&self, access: PathAccess, found: &Found) -> Decision {
        if access == PathAccess::Write && self.view.is_input(found) {
            return Decision::Deny { rule: None, reason: "standard input is for reading".to_owned() };
        }
        if let Some(reason) = devices::refusal(found) {
            return Decision::Own { reason };
        }
        let is_directory = found.kind() == SFlag::S_IFDIR;
        if !found.is_named() {
            return Decision::Allow(Area::Private);
        }
        match self.view.judged_path(found) {
            Ok(path) => self.access.decide_object(access, path, self.view.id_of(found), is_directory),
            Err(errno) => Decision::Deny { rule: None, reason: format!("whether its name is gone: {errno}") },
        }
    }

    fn record_special(
        &mut self,
        call: &Call,
        access: PathAccess,
        spelled: &Spelled,
        found: &Found,
        rule: Option<RuleId>,
    ) -> Result<(), Stop> {
        let op = if access == PathAccess::Read { "fs.open_read" } else { "fs.open_write" };
        let kind = if found.kind() == SFlag::S_IFIFO { "fifo" } else { "device" };
        let event = spelled.add_to(Event::new(Kind::Observe, op).arg("type", kind), "path", &found.path);
        let event = event.proc(call.task.lineage.clone()).rule(self.access.grant_label(rule));
        Ok(self.recorder.record_folded(event)?)
    }

    /// FIFOs and devices: opening has effects or waits, so the kernel does it where it may, and
    /// where not, a thread of ours waits in the task's stead.
    fn open_special(
        &mut self,
        call: &Call,
        request: &Request,
        spelled: &Spelled,
        found: &Found,
        area: Area,
    ) -> Result<Reply, Stop> {
        match self.terminal_of(call, found) {
            Ok(None) => {}
            Ok(Some(terminal)) => return self.open_found(call, request, spelled, terminal),
            Err(errno) => return Ok(Reply::Errno(errno)),
        }
        let fifo = found.kind() == SFlag::S_IFIFO && found.is_named();
        let own = matches!(area, Area::System | Area::Private) && !fifo;
        // Landlock knows the view alone, and not the launcher's terminal.
        if own && self.kernel_may_open(request) && !self.view.is_inherited(found) {
            return Ok(Reply::Continue);
        }
        let flags =
            (request.flags & !(OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_TRUNC)) | OFlag::O_CLOEXEC;
        let waits = found.kind() == SFlag::S_IFIFO && !request.flags.contains(OFlag::O_NONBLOCK);
        if waits {
            let close_on_exec = request.flags.contains(OFlag::O_CLOEXEC);
            let Ok(file) = found.file.try_clone() else { return Ok(Reply::Errno(Errno::EMFILE)) };
            return Ok(Reply::Later(Box::new(move || {
                // The number of the descriptor that this thread holds: another one could stand for
                // any other file by now.
                let path = super::view::own_path(file.as_fd());
                let opened = nix::fcntl::open(path.as_str(), flags, Mode::empty());
                match opened {
                    Ok(file) => Reply::Descriptor { file, close_on_exec },
                    Err(errno) => Reply::Errno(errno),
                }
            })));
        }
        let flags = flags | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        match nix::fcntl::open(found.own_path().as_str(), flags, Mode::empty()) {
            Ok(file) => {
                if !request.flags.contains(OFlag::O_NONBLOCK) {
                    let status = request.flags & (OFlag::O_APPEND | OFlag::O_DIRECT);
                    // Only costs the agent a flag that it did not ask for.
                    let _ = fcntl(&file, FcntlArg::F_SETFL(status));
                }
                let close_on_exec = request.flags.contains(OFlag::O_CLOEXEC);
                Ok(Reply::Descriptor { file, close_on_exec })
            }
            Err(errno) => Ok(Reply::Errno(errno)),
        }
    }

    /// Records a refusal; gives the area of what may happen.
    pub(super) fn judge(
        &mut self,
        call: &Call,
        access: PathAccess,
        spelled: &Spelled,
        resolved: &Path,
        decision: &Decision,
    ) -> Result<Option<Area>, Stop> {
        let (rule, reason, enforced) = match decision {
            Decision::Allow(area) => return Ok(Some(*area)),
            Decision::Deny { rule, reason } => (*rule, reason.as_str(), self.access.enforce),
            Decision::Own { reason } => (None, *reason, true),
        };
        let op = if access == PathAccess::Read { "read" } else { "write" };
        let event = Event::new(Kind::Deny, op).arg("enforced", enforced);
        let event = spelled.add_to(event, "target", resolved);
        let event = event.arg("pid", call.task.inner_tgid());
        let label = self.access.label(rule, reason);
        let event = event.proc(call.task.lineage.clone()).rule(label);
        if matches!(decision, Decision::Own { .. }) {
            // No rule opens it: the last words name none for it.
            self.recorder.deny(event)?;
        } else {
            self.deny(event, super::entry::refused(call, access, resolved), rule)?;
        }
        Ok((!enforced).then_some(Area::Private))
    }

    pub(super) fn record_write(
        &mut self,
        call: &Call,
        request: &Request,
        spelled: &Spelled,
        (found, before): (Found, Option<Before>),
        opened: &OwnedFd,
        rule: Option<RuleId>,
    ) -> Result<(), Stop> {
        let label = self.access.grant_label(rule);
        let event = spelled.add_to(Event::new(Kind::Observe, "fs.open_write"), "path", &found.path);
        let event = event.proc(call.task.lineage.clone()).rule(label.clone());
        let mut event = self.with_before(event, "before", before);
        // As it was asked for, whoever of several makes the file.
        if request.flags.contains(OFlag::O_CREAT) || request.is_temporary() {
            event = event.arg("mode", request.mode);
        }
        self.recorder.record(event)?;
        if found.kind() == SFlag::S_IFREG || !found.kind().contains(SFlag::S_IFDIR) {
            let flags = fcntl(opened, FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
            let shareable = flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR);
            let named = matches!(self.view.has_lost_its_name(&found), Ok(false));
            let watched = self.written.watch(found, &call.task.lineage, label, shareable, named);
            watched.map_err(Stop::Watch)?;
        }
        Ok(())
    }

    pub(super) fn umask(&self, call: &Call) -> u32 {
        // Gone meanwhile: nobody will see the file's mode.
        call.task.umask().unwrap_or(0o077)
    }
}
