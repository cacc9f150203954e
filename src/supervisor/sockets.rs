//! Sockets: connections and binds are carried out by us, on a copy of the socket that was
//! judged and a copy of the address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::time::{TimeVal, TimeValLike as _};
use serde_json::json;

use super::call::{Call, Reply};
use super::sockaddr::{Address, parse};
use super::{Loopback, RefusedConnection, Stop, Supervisor};
use crate::policy::{Denied, Transport, Verdict};
use crate::sys::{address, alarm, memory, sockopt};
use crate::trace::{Event, Kind};

/// `struct sockaddr_storage`.
const ADDRESS: usize = 128;
/// So long the guard itself may wait for a connection.
const MOMENT: Duration = Duration::from_millis(2);

impl Supervisor {
    pub(super) fn connect(&mut self, call: &Call) -> Result<Reply, Stop> {
        let (socket, raw) = match self.socket_and_address(call) {
            Ok(both) => both,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        match parse(&raw) {
            Address::UnixPath(path) => self.connect_unix(call, socket, &path),
            Address::Inet(to) => self.connect_inet(call, socket, raw, to),
            Address::UnixAbstract | Address::Other => Ok(connect_now(socket, raw, None)),
        }
    }

    fn connect_inet(
        &mut self,
        call: &Call,
        socket: OwnedFd,
        raw: Vec<u8>,
        to: SocketAddr,
    ) -> Result<Reply, Stop> {
        self.note_owner(call, &socket);
        // Datagram sockets are contained by the topology, and programs "connect" them only to
        // learn which source address they would have (RFC 6724 sorting in getaddrinfo).
        if !sockopt::is_stream(socket.as_fd()) {
            return Ok(connect_now(socket, raw, None));
        }
        // The unspecified address too leads to the run's own loopback (ip(7)).
        let own = to.ip().to_canonical();
        let loopback = own.is_loopback() || own.is_unspecified();
        if !loopback && let Some(refused) = (self.judge_connection)(to) {
            self.refuse_connection(call, to, refused)?;
            if self.access.enforce {
                return Ok(Reply::Errno(Errno::EACCES));
            }
        }
        if !loopback {
            return Ok(connect_now(socket, raw, None));
        }
        let served = self.served.contains(&to.port());
        let label = match (self.lead_loopback)(socket.as_fd(), to, served) {
            Loopback::Free => return Ok(connect_now(socket, raw, None)),
            // A server inside that listens on another loopback address (a client that tries ::1 first,
            // RFC 8305) is the run's own matter: nothing is kept from it.
            Loopback::Inside(_) | Loopback::Nobody(_) if served => return Ok(connect_now(socket, raw, None)),
            Loopback::Nobody(rule) => return Ok(self.connect_nobody(call, socket, raw, to, rule)),
            Loopback::Closed(rule) => {
                self.recorder.record(nobody_at(call, to, rule))?;
                return Ok(Reply::Errno(Errno::ECONNREFUSED));
            }
            Loopback::Inside(label) => label,
        };
        let nobody = RefusedConnection { target: to.to_string(), names: Vec::new(), label };
        self.connect_loopback(call, socket, raw, (to, nobody))
    }

    /// A rule leads to a port of the host's, where nobody listens: that it was tried is recorded.
    fn connect_nobody(
        &self,
        call: &Call,
        socket: OwnedFd,
        raw: Vec<u8>,
        to: SocketAddr,
        rule: String,
    ) -> Reply {
        let Ok(watched) = socket.try_clone() else { return Reply::Errno(Errno::ENOBUFS) };
        let event = nobody_at(call, to, rule);
        let recorder = self.recorder.clone();
        let record = move |reply: Reply| {
            // One by one: a replay refuses as many before one that is accepted. A writer that failed stops the run at
            // its next call.
            let unrecorded = refused(&reply, &watched) && recorder.record(event).is_err();
            if unrecorded { Reply::Errno(Errno::EIO) } else { reply }
        };
        match connect_now(socket, raw, None) {
            Reply::Later(connect) => Reply::Later(Box::new(move || record(connect()))),
            reply => record(reply),
        }
    }

    /// Where nothing listens inside and no rule names the host's port, the kernel refuses: that is
    /// recorded as well, also by the thread that waits in a blocking task's place.
    fn connect_loopback(
        &mut self,
        call: &Call,
        socket: OwnedFd,
        raw: Vec<u8>,
        (to, nobody): (SocketAddr, RefusedConnection),
    ) -> Result<Reply, Stop> {
        let Ok(watched) = socket.try_clone() else { return Ok(Reply::Errno(Errno::ENOBUFS)) };
        match connect_now(socket, raw, None) {
            Reply::Later(connect) => {
                let (event, denied) = self.refusal_of(call, to, nobody);
                let event = self.with_remedy(event, &denied);
                let recorder = self.recorder.clone();
                Ok(Reply::Later(Box::new(move || {
                    let reply = connect();
                    // A writer that failed stops the run at its next call.
                    let unrecorded = refused(&reply, &watched) && recorder.deny(event).is_err();
                    if unrecorded { Reply::Errno(Errno::EIO) } else { reply }
                })))
            }
            reply => {
                if refused(&reply, &watched) {
                    self.refuse_connection(call, to, nobody)?;
                }
                Ok(reply)
            }
        }
    }

    /// Has the proxy know whose socket it is.
    fn note_owner(&self, call: &Call, socket: &OwnedFd) {
        if let Ok(cookie) = sockopt::socket_cookie(socket.as_fd()) {
            self.connections.opened(cookie, &call.task.lineage);
        }
    }

    fn refuse_connection(
        &mut self,
        call: &Call,
        to: SocketAddr,
        refused: RefusedConnection,
    ) -> Result<(), Stop> {
        let rule = self.access.policy.denying(&refused.label).next();
        let (event, denied) = self.refusal_of(call, to, refused);
        self.deny(event, denied, rule)
    }

    /// What a refused connection is in the trace and in the last words.
    fn refusal_of(&self, call: &Call, to: SocketAddr, refused: RefusedConnection) -> (Event, Denied) {
        let event = Event::new(Kind::Deny, "net")
            .arg("target", refused.target)
            .arg("address", to.ip().to_string())
            .arg("port", to.port())
            .arg("enforced", self.access.enforce)
            .arg("pid", call.task.inner_tgid())
            .proc(call.task.lineage.clone())
            .rule(refused.label);
        let (names, address, port) = (refused.names, to.ip(), to.port());
        (event, Denied::Connect { names, address, port, transport: Transport::Tcp })
    }

    pub(super) fn bind(&mut self, call: &Call) -> Result<Reply, Stop> {
        let (socket, raw) = match self.socket_and_address(call) {
            Ok(both) => both,
            Err(errno) => return Ok(Reply::Errno(errno)),
        };
        let at = match parse(&raw) {
            Address::UnixPath(path) => return self.bind_unix(call, &socket, &raw, &path),
            Address::Inet(at) => at,
            Address::UnixAbstract | Address::Other => {
                return Ok(address::bind(socket.as_fd(), &raw).map_err(errno_of).into());
            }
        };
        // What sends without a connect mostly binds, and is not seen otherwise.
        if sockopt::is_datagram(socket.as_fd()) {
            self.note_owner(call, &socket);
        }
        let done = self.bind_inet(call.task.tid, &socket, raw, at);
        if done == Err(Errno::EADDRINUSE) {
            self.record_held(call, &socket, at)?;
        }
        Ok(done.into())
    }

    /// Says why a port is taken that nothing inside has: a rule has it stand for the host's.
    fn record_held(&mut self, call: &Call, socket: &OwnedFd, at: SocketAddr) -> Result<(), Stop> {
        let (port, policy) = (at.port(), &self.access.policy);
        let (transport, held) = if sockopt::is_stream(socket.as_fd()) {
            (Transport::Tcp, policy.loopback_ports().contains(&Some(port)))
        } else {
            (Transport::Udp, policy.loopback_datagram_ports().contains(&port))
        };
        if !held {
            return Ok(());
        }
        let host = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let names = ["localhost".to_owned()];
        let rule = host.into_iter().find_map(|host| {
            match self.access.policy.decide_connect(&names, host, port, transport) {
                Verdict::Allow { rule } => Some(rule),
                Verdict::Deny { .. } => None,
            }
        });
        let label = self.access.label(rule, "a rule has this port stand for the host's");
        let event = Event::new(Kind::Deny, "net")
            .arg("target", format!("listen:{at}"))
            .arg("port", port)
            .arg("enforced", true)
            .arg("pid", call.task.inner_tgid())
            .arg("reason", "the port is held inside for the host's own")
            .proc(call.task.lineage.clone())
            .rule(label.clone());
        self.denials.held.insert(port, label);
        Ok(self.recorder.deny(event)?)
    }

    /// Records what listens; the kernel confines it to the run's own network.
    pub(super) fn listen(&mut self, call: &Call) -> Result<Reply, Stop> {
        let socket = call.task.fetch(call.int(call.arguments[0]));
        if let Ok(socket) = socket
            && let Some(at) = address::local(socket.as_fd())
        {
            self.served.insert(at.port());
            let event = Event::new(Kind::Observe, "net.listen").arg("address", at.ip().to_string());
            self.recorder.record_folded(event.arg("port", at.port()).proc(call.task.lineage.clone()))?;
        }
        Ok(Reply::Continue)
    }

    fn socket_and_address(&self, call: &Call) -> nix::Result<(OwnedFd, Vec<u8>)> {
        let [number, at, length, ..] = call.arguments;
        let socket = call.task.fetch(call.int(number))?;
        let length = usize::try_from(call.int(length)).map_err(|_| Errno::EINVAL)?;
        if length > ADDRESS {
            return Err(Errno::EINVAL);
        }
        let mut raw = vec![0; length];
        if length != 0 {
            memory::read_exact(call.task.tid, at, &mut raw).map_err(|_| Errno::EFAULT)?;
        }
        self.check_waiting(call)?;
        Ok((socket, raw))
    }
}

fn nobody_at(call: &Call, to: SocketAddr, rule: String) -> Event {
    Event::new(Kind::Observe, "net.connect")
        .arg("names", Vec::<String>::new())
        .arg("address", to.ip().to_canonical().to_string())
        .arg("port", to.port())
        .arg("via", "loopback")
        .result(json!({"failure": {"kind": "refused", "side": "upstream", "received": 0}}))
        .proc(call.task.lineage.clone())
        .rule(rule)
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Connects at once where nobody has to wait, else in a thread of its own; `held` is kept open until that is done.
pub(super) fn connect_now(socket: OwnedFd, raw: Vec<u8>, held: Option<OwnedFd>) -> Reply {
    if may_be_quick(socket.as_fd())
        && let Some(done) = alarm::within(MOMENT, || address::connect(socket.as_fd(), &raw).map_err(errno_of))
        // Under way, or not begun: a second call waits for its end.
        && done != Err(Errno::EINTR)
    {
        return done.into();
    }
    Reply::Later(Box::new(move || {
        let done = address::connect(socket.as_fd(), &raw);
        drop(held);
        done.map_err(errno_of).into()
    }))
}

/// Whether to connect it mostly takes no time, as between two of one machine. Whoever has the socket as well can change
/// all of that meanwhile.
fn may_be_quick(socket: BorrowedFd<'_>) -> bool {
    let waits_for_ever = || getsockopt(&socket, SendTimeout) == Ok(TimeVal::zero());
    sockopt::is_nonblocking(socket)
        || sockopt::is_datagram(socket)
        // Where the time is up, a second call says otherwise.
        || (sockopt::is_tcp(socket) && waits_for_ever())
}

fn refused(reply: &Reply, socket: &OwnedFd) -> bool {
    match reply {
        Reply::Errno(Errno::ECONNREFUSED) => true,
        Reply::Errno(Errno::EINPROGRESS) => {
            let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
            // Looking leaves the pending error for the task (SO_ERROR would take it).
            poll(&mut watched, PollTimeout::ZERO).is_ok()
                && watched[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
        }
        _ => false,
    }
}
