//! Unix sockets by path: connections go to sockets that were made in this run, and to sockets of
//! ours that stand for those of the host that rules name; never to the host's own.
//!
//! A mount does not close such a door: connect(2) works through a read-only one, and Landlock has
//! no right for it. What is decided here is the only wall.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{SockFlag, SockType};
use nix::sys::stat::{SFlag, fstat, stat};
use nix::unistd::AccessFlags;

use super::absent::is_on_host;
use super::access::AccessTable;
use super::call::{Call, Reply};
use super::sockets::connect_now;
use super::view::{Found, View, own_path};
use super::{Stop, Supervisor};
use crate::policy::{Denied, FileId, Verdict};
use crate::sys::{address, memory, seccomp};
use crate::trace::{Event, Kind};

/// Sockets of this run that may exist at once in places of the host.
const MOST_MADE: usize = 256;
/// From so many on those are forgotten that no name leads to any more: each costs two descriptors.
const MANY_MADE: usize = 64;

/// The sockets that may be connected to.
#[derive(Debug)]
pub(super) struct Sockets {
    /// File systems that only this run has.
    private: HashSet<u64>,
    /// Bound in this run, by the node that stands for each.
    made: HashMap<FileId, Made>,
    doors: Vec<Door>,
}

/// A socket that the run has bound, and the node that it is known by.
#[derive(Debug)]
pub(super) struct Made {
    id: FileId,
    /// O_PATH: it keeps the inode, so that no later socket of the host can have its number.
    node: OwnedFd,
    /// O_PATH: what is connected to.
    socket: OwnedFd,
}

impl Made {
    /// Of two files (O_PATH).
    pub(super) fn new(node: OwnedFd, socket: OwnedFd) -> nix::Result<Self> {
        let status = fstat(&node)?;
        Ok(Self { id: FileId { dev: status.st_dev, ino: status.st_ino }, node, socket })
    }
}

/// A socket of ours that stands for one of the host.
#[derive(Debug)]
struct Door {
    host: PathBuf,
    id: FileId,
    file: OwnedFd,
}

impl Sockets {
    pub(super) fn new(
        view: &View,
        access: &AccessTable,
        relayed: Vec<(PathBuf, OwnedFd)>,
    ) -> nix::Result<Self> {
        // Under `--observe` these places are the host's.
        let private = access.private.iter().filter(|_| access.enforce);
        let private = private.filter_map(|path| view.find(path.as_os_str().as_encoded_bytes(), false).ok());
        let mut doors = Vec::with_capacity(relayed.len());
        for (host, file) in relayed {
            let status = fstat(&file)?;
            doors.push(Door { host, id: FileId { dev: status.st_dev, ino: status.st_ino }, file });
        }
        Ok(Self { private: private.map(|place| place.id().dev).collect(), made: HashMap::new(), doors })
    }

    /// The door that `target` is, or that stands in its place.
    fn door(&self, target: &Found) -> Option<&Door> {
        self.doors.iter().find(|door| door.id == target.id() || door.host == target.path)
    }

    fn is_door(&self, id: FileId) -> bool {
        self.doors.iter().any(|door| door.id == id)
    }

    /// Whether `id` is of a file system that only this run has.
    pub(super) fn is_private(&self, id: FileId) -> bool {
        self.private.contains(&id.dev)
    }

    /// Whether one more can be remembered.
    pub(super) fn has_room(&mut self) -> bool {
        if self.made.len() >= MANY_MADE {
            self.made.retain(|_, made| fstat(&made.node).is_ok_and(|status| status.st_nlink > 0));
        }
        self.made.len() < MOST_MADE
    }

    /// From now on the node leads to the socket.
    pub(super) fn remember(&mut self, made: Made) {
        self.made.insert(made.id, made);
    }
}

impl Supervisor {
    pub(super) fn connect_unix(&mut self, call: &Call, socket: OwnedFd, path: &[u8]) -> Result<Reply, Stop> {
        let absolute = match View::absolute(&call.task, libc::AT_FDCWD, path) {
            Ok(spelled) => spelled.absolute,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        let target = match self.view.find(&absolute, true) {
            Ok(target) => target,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return self.unix_absent(call, &absolute),
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        if target.kind() != SFlag::S_IFSOCK {
            return Ok(Reply::Errno(Errno::ECONNREFUSED));
        }
        if let Some(made) = self.sockets.made.get(&target.id()) {
            let file = made.socket.try_clone().map_err(Stop::Descriptor)?;
            // Who may connect is up to the mode of the node (unix(7)).
            let may = target.may(AccessFlags::W_OK);
            return Ok(may.map_or_else(Reply::Errno, |()| connect_to(socket, file)));
        }
        if self.sockets.is_private(target.id()) && !self.sockets.is_door(target.id()) {
            return Ok(connect_to(socket, target.file));
        }
        if let Some(door) = self.sockets.door(&target) {
            if door.host.symlink_metadata().is_err() {
                return Ok(Reply::Errno(Errno::ECONNREFUSED));
            }
            let file = door.file.try_clone().map_err(Stop::Descriptor)?;
            return Ok(connect_to(socket, file));
        }
        self.refuse_unix(call, &target.path)?;
        if self.access.enforce {
            return Ok(Reply::Errno(Errno::EACCES));
        }
        Ok(connect_to(socket, target.file))
    }

    fn unix_absent(&mut self, call: &Call, absolute: &[u8]) -> Result<Reply, Stop> {
        let path = self.view.leads_to(absolute);
        let parent = path.parent().unwrap_or(&path);
        let inside =
            self.view.find(parent.as_os_str().as_encoded_bytes(), true).map(|found| self.view.id_of(&found));
        let outside = stat(parent).map(|status| FileId { dev: status.st_dev, ino: status.st_ino });
        // The host's own directory shows what there is.
        let shown = inside.is_ok() && inside == outside;
        if shown || !is_on_host(&path) {
            return Ok(Reply::Errno(Errno::ENOENT));
        }
        self.refuse_unix(call, &path)?;
        Ok(Reply::Errno(Errno::EACCES))
    }

    fn refuse_unix(&mut self, call: &Call, path: &Path) -> Result<(), Stop> {
        let verdict = self.access.policy.decide_unix(path);
        let rule = verdict.rule().filter(|_| !verdict.is_allow());
        let label = match verdict {
            Verdict::Deny { rule: Some(rule), reason } => self.access.label(Some(rule), &reason),
            Verdict::Deny { rule: None, .. } => {
                self.access.label(None, "no rule names the socket, which was not made in this run")
            }
            // A pattern stands for what matched it at the start.
            Verdict::Allow { .. } => self.access.label(None, "the socket was not there when the run started"),
        };
        let mut target = OsString::from("unix:");
        target.push(path);
        let event = Event::new(Kind::Deny, "net")
            .path("target", target)
            .arg("enforced", self.access.enforce)
            .arg("pid", call.task.inner_tgid())
            .proc(call.task.lineage.clone())
            .rule(label);
        self.deny(event, Denied::Unix(path.to_owned()), rule)
    }

    /// A pair of datagram sockets is one of packet sockets: they keep messages apart as well, and never
    /// look at the name in a call (`unix_seqpacket_sendmsg`), where a datagram socket that is connected
    /// sends to any pathname.
    pub(super) fn datagram_pair(&mut self, call: &Call) -> Result<Reply, Stop> {
        let [_, kind, protocol, at, ..] = call.arguments;
        if ![0, libc::AF_UNIX].contains(&call.int(protocol)) {
            return Ok(Reply::Errno(Errno::EPROTONOSUPPORT));
        }
        let flags = SockFlag::from_bits_retain(call.int(kind));
        // Before any descriptor is there, as in the kernel.
        let mut numbers = [0; 8];
        let writable = memory::read_exact(call.task.tid, at, &mut numbers)
            .and_then(|()| memory::write(call.task.tid, at, &numbers));
        if writable.is_err() {
            return Ok(Reply::Errno(Errno::EFAULT));
        }
        Ok(self
            .pair_inside(SockType::SeqPacket)?
            .and_then(|pair| self.give_pair(call, at, pair, flags))
            .into())
    }

    fn give_pair(
        &self,
        call: &Call,
        at: u64,
        (one, other): (OwnedFd, OwnedFd),
        flags: SockFlag,
    ) -> nix::Result<()> {
        let mut numbers = Vec::with_capacity(8);
        for socket in [&one, &other] {
            if flags.contains(SockFlag::SOCK_NONBLOCK) {
                fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            }
            let close_on_exec = flags.contains(SockFlag::SOCK_CLOEXEC);
            let number =
                seccomp::add_descriptor(self.listener.as_fd(), call.id, socket.as_fd(), close_on_exec);
            let number =
                number.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
            numbers.extend_from_slice(&call.int(number.cast_unsigned()).to_le_bytes());
        }
        memory::write(call.task.tid, at, &numbers).map_err(|_| Errno::EFAULT)
    }

    /// Datagrams between Unix sockets name their receiver in each call, where it could be
    /// exchanged after it was judged: there are none.
    pub(super) fn unix_datagram(&mut self, call: &Call) -> Result<Reply, Stop> {
        let event = Event::new(Kind::Deny, "net")
            .arg("target", "unix-datagram")
            .arg("enforced", true)
            .arg("pid", call.task.inner_tgid())
            .proc(call.task.lineage.clone())
            .rule("no rule: Unix datagram sockets are not offered");
        self.recorder.deny(event)?;
        Ok(Reply::Errno(Errno::EPROTONOSUPPORT))
    }
}

/// Connects through the descriptor that was judged, and keeps it until that is done: its number
/// would stand for another file else.
fn connect_to(socket: OwnedFd, file: OwnedFd) -> Reply {
    let address = address::unix(own_path(file.as_fd()).as_bytes());
    connect_now(socket, address, Some(file))
}
