//! Opens that make the file.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::Mode;

use super::absent::Wish;
use super::access::Area;
use super::call::{Call, Reply};
use super::request::Request;
use super::task::Task;
use super::view::{Found, Place, Spelled, found};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;

impl From<&Request> for Wish {
    fn from(request: &Request) -> Self {
        match request.access() {
            PathAccess::Read => Self::Read,
            PathAccess::Write if request.flags.contains(OFlag::O_CREAT) => Self::Make,
            PathAccess::Write => Self::Change,
        }
    }
}

impl Request {
    /// The same, if `task` has room for what it asks for. The kernel looks for that first of all: nothing is made or
    /// made empty for an open that fails then.
    pub(super) fn with_room(self, task: &Task) -> nix::Result<Self> {
        let changes = self.flags.intersects(OFlag::O_CREAT | OFlag::O_TRUNC);
        if changes && task.is_full() { Err(Errno::EMFILE) } else { Ok(self) }
    }
}

impl Supervisor {
    /// Creates the file, in a directory that cannot be swapped any more.
    pub(super) fn create(
        &mut self,
        call: &Call,
        request: &Request,
        spelled: &Spelled,
        links: usize,
    ) -> Result<Reply, Stop> {
        let place = match self.view.place(&spelled.absolute) {
            Ok(place) => place,
            Err(errno @ (Errno::ENOENT | Errno::ENOTDIR)) => {
                return self.absent(call, Wish::Make, spelled, errno);
            }
            Err(errno) => return self.unreachable(call, PathAccess::Write, spelled, errno),
        };
        if place.trailing_slash {
            return Ok(Reply::Errno(Errno::EISDIR));
        }
        if let Ok(target) = readlinkat(&place.directory.file, place.name.as_os_str()) {
            if request.flags.intersects(OFlag::O_EXCL | OFlag::O_NOFOLLOW) || links == 0 {
                return Ok(Reply::Errno(if links == 0 { Errno::ELOOP } else { Errno::EEXIST }));
            }
            let next = place.directory.path.join(target);
            let absolute = next.into_os_string().into_encoded_bytes();
            let spelled = Spelled { typed: spelled.typed.clone(), absolute };
            return self.open_resolved(call, request, &spelled, links - 1);
        }
        let path = place.path();
        let decision = self.access.decide_new(&path);
        let Some(area) = self.judge(call, PathAccess::Write, spelled, &path, &decision)? else {
            return Ok(Reply::Errno(Errno::EACCES));
        };
        self.create_at(call, request, spelled, (&place, area), links)
    }

    fn create_at(
        &mut self,
        call: &Call,
        request: &Request,
        spelled: &Spelled,
        (place, area): (&Place, Area),
        links: usize,
    ) -> Result<Reply, Stop> {
        let path = place.path();
        let mode = Mode::from_bits_truncate(request.mode & !self.umask(call));
        // It was absent when it was judged: what has come since (a FIFO would hold us) is looked at anew.
        let flags = request.flags | OFlag::O_EXCL | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW;
        if matches!(area, Area::Rule(_)) {
            self.note_change(place)?;
        }
        match self.make_pending_file(&path, mode)? {
            Some(Ok(())) => {
                self.note_made(&path);
                let request = Request { flags: request.flags & !OFlag::O_EXCL, ..request.clone() };
                return self.open_resolved(call, &request, spelled, 0);
            }
            Some(Err(errno)) => return Ok(Reply::Errno(errno)),
            None => {}
        }
        let opened =
            match nix::fcntl::openat(place.directory.file.as_fd(), place.name.as_os_str(), flags, mode) {
                Ok(opened) => opened,
                Err(Errno::EEXIST) if !request.flags.contains(OFlag::O_EXCL) && links > 0 => {
                    return self.open_resolved(call, request, spelled, links - 1);
                }
                Err(errno) => return Ok(Reply::Errno(errno)),
            };
        self.opened_to_write(&path, &opened, area);
        self.changed_in(place);
        if let Area::Rule(rule) = area {
            let file = match reopened(&opened) {
                Ok(file) => file,
                Err(errno) => return Ok(Reply::Errno(errno)),
            };
            let before = self.before_made(&path);
            self.record_write(call, request, spelled, (file, before), &opened, rule)?;
        }
        Ok(Reply::Descriptor { file: opened, close_on_exec: request.flags.contains(OFlag::O_CLOEXEC) })
    }
}

/// An O_PATH twin of an open file.
fn reopened(file: &OwnedFd) -> nix::Result<Found> {
    let path = super::view::own_path(file.as_fd());
    found(nix::fcntl::open(path.as_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
}
