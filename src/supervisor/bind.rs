//! Binds of Unix sockets to paths.
//!
//! Whoever connects to a socket by its file can pass it descriptors (unix(7), SCM_RIGHTS). So in a place of the host a
//! bind makes a node that leads to no socket: a process of the host is refused there (ECONNREFUSED). The socket is
//! bound where no path leads, and connections of the run by any name of the node are led to it ([`super::unix`]).

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, mknodat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::access::Area;
use super::call::{Call, Reply};
use super::unix::Made;
use super::view::{Place, Spelled, View};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;
use crate::trace::{Event, Kind};

impl Supervisor {
    pub(super) fn bind_unix(
        &mut self,
        call: &Call,
        socket: &OwnedFd,
        raw: &[u8],
        path: &[u8],
    ) -> Result<Reply, Stop> {
        let place = View::absolute(&call.task, libc::AT_FDCWD, path)
            .and_then(|spelled| self.view.place(&spelled.absolute).map(|place| (spelled, place)));
        let (spelled, place) = match place {
            Ok(place) => place,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        let target = place.path();
        let decision = self.access.decide_new(&target);
        let Some(area) = self.judge(call, PathAccess::Write, &spelled, &target, &decision)? else {
            return Ok(Reply::Errno(Errno::EACCES));
        };
        if let Some(reply) = self.refuse_pending(call, &spelled, &target)? {
            return Ok(reply);
        }
        if !self.sockets.has_room() {
            return Ok(Reply::Errno(Errno::ENOBUFS));
        }
        if matches!(area, Area::Rule(_)) {
            self.note_change(&place)?;
        }
        // Such a path means something else to pid 1. Not as it was typed: `//proc/self/fd/3/x` would lead it through
        // its own descriptors.
        let misleads = [&b"/proc/"[..], b"/dev/"].iter().any(|tree| spelled.absolute.starts_with(tree));
        let made = if self.sockets.is_private(place.directory.id()) && !misleads {
            self.bind_inside(call, socket, raw, &spelled)?.map(|()| None)
        } else {
            self.bind_apart(call, socket, raw, &place)?.map(Some)
        };
        match made {
            Ok(made) => {
                self.changed_at(&place);
                self.record_socket(call, &spelled, &target, area)?;
                // Nobody reaches it before that.
                made.into_iter().for_each(|made| self.sockets.remember(made));
                Ok(Reply::Value(0))
            }
            Err(errno) => Ok(Reply::Errno(errno)),
        }
    }

    /// Has pid 1 bind the socket to the address as it is spelled, which getsockname(2) gives back.
    /// The path that was judged cannot change meanwhile: renames and links wait for us.
    fn bind_inside(
        &mut self,
        call: &Call,
        socket: &OwnedFd,
        raw: &[u8],
        spelled: &Spelled,
    ) -> Result<nix::Result<()>, Stop> {
        let start =
            if spelled.typed.starts_with(b"/") { Ok("/".into()) } else { call.task.working_directory() };
        let directory = match start.and_then(|start| self.view.find(start.as_bytes(), true)) {
            Ok(directory) => directory.file,
            Err(errno) => return Ok(Err(errno)),
        };
        let request = (self.words.bind)(self.umask(call), raw);
        self.ask_init(&request, &[socket.as_fd(), directory.as_fd()])
    }

    /// Makes the node at `place`, and has pid 1 bind the socket elsewhere to the address as it is spelled.
    fn bind_apart(
        &mut self,
        call: &Call,
        socket: &OwnedFd,
        raw: &[u8],
        place: &Place,
    ) -> Result<nix::Result<Made>, Stop> {
        if let Err(errno) = make_node(socket, self.umask(call), place) {
            return Ok(Err(errno));
        }
        let (directory, name) = (&place.directory.file, place.name.as_os_str());
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let made = match openat(directory, name, flags, Mode::empty()) {
            Ok(node) => self.bind_elsewhere(socket.as_fd(), raw)?.and_then(|socket| Made::new(node, socket)),
            Err(errno) => Err(errno),
        };
        if made.is_err() {
            // As `unix_bind_bsd` of the kernel does.
            let _ = unlinkat(directory, name, UnlinkatFlags::NoRemoveDir);
        }
        Ok(made)
    }

    fn record_socket(
        &mut self,
        call: &Call,
        spelled: &Spelled,
        target: &Path,
        area: Area,
    ) -> Result<(), Stop> {
        if let Area::Rule(rule) = area {
            let label = self.access.grant_label(rule);
            let before = self.before_made(target);
            let event = spelled.add_to(Event::new(Kind::Observe, "fs.mknod"), "path", target);
            let event = self.with_before(event, "before", before);
            self.recorder.record(event.arg("type", "socket").proc(call.task.lineage.clone()).rule(label))?;
        }
        Ok(())
    }
}

fn make_node(socket: &OwnedFd, umask: u32, place: &Place) -> nix::Result<()> {
    if place.trailing_slash {
        return Err(Errno::ENOENT);
    }
    // fchmod(2) of the socket before says what its file is to have.
    let mode = Mode::from_bits_truncate(fstat(socket)?.st_mode & 0o1777 & !umask);
    match mknodat(&place.directory.file, place.name.as_os_str(), SFlag::S_IFSOCK, mode, 0) {
        Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
        done => done,
    }
}
