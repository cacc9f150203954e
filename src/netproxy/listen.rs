//! The accept loops, one for each socket that was handed over.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client::Client;
use super::datagram::{self, Trap};
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::Door;
use super::idle::IdleClock;
use super::publish::Publisher;
use super::reader::Reader;
use super::sessions::Sessions;
use super::unix::{self, HostSocket};
use super::{Listeners, dns_stream, socks, stream};
use crate::policy::Policy;

/// Streams that may be open at once, all kinds together; further ones wait to be accepted.
const MAX_STREAMS: usize = 1024;

/// How long to wait after accept has failed: it fails for want of descriptors or memory.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// All sockets, ready for the runtime.
pub(crate) struct Bound {
    streams: Vec<(TcpListener, Kind)>,
    names_udp: Vec<UdpSocket>,
    traps: Vec<Trap>,
    sessions: Arc<Sessions>,
    publisher: Publisher,
    unix: Vec<(HostSocket, UnixListener)>,
}

/// What a listener of streams stands for.
#[derive(Clone, Copy)]
enum Kind {
    Transparent,
    Loopback(SocketAddr),
    Proxy,
    Names,
}

impl Bound {
    /// Takes the sockets over. Must be called within the runtime.
    pub(crate) fn new(listeners: Listeners, policy: &Policy) -> Result<Self, NetproxyError> {
        let mut streams = Vec::new();
        for fd in listeners.transparent.into_iter().chain(listeners.ports) {
            streams.push((tcp(fd, "transparent")?, Kind::Transparent));
        }
        for fd in listeners.proxy {
            streams.push((tcp(fd, "proxy")?, Kind::Proxy));
        }
        for fd in listeners.dns_tcp {
            streams.push((tcp(fd, "name server (TCP)")?, Kind::Names));
        }
        for (inside, fd) in listeners.loopback {
            streams.push((tcp(fd, "loopback")?, Kind::Loopback(inside)));
        }
        let names_udp = listeners.dns_udp.into_iter().map(datagram::name_server);
        let traps = listeners.udp_trap.into_iter().map(datagram::trap);
        let loopback = listeners.udp_loopback.into_iter();
        let traps = traps.chain(loopback.map(|(inside, fd)| datagram::loopback(inside, fd)));
        let unix = listeners
            .unix
            .into_iter()
            .map(|(path, fd)| Ok((HostSocket::new(path, policy), unix_listener(fd)?)));
        Ok(Self {
            streams,
            names_udp: names_udp.collect::<Result<_, _>>()?,
            traps: traps.collect::<Result<_, _>>()?,
            sessions: Arc::new(Sessions::new(listeners.answers)),
            publisher: Publisher::new(listeners.published, listeners.inside)?,
            unix: unix.collect::<Result<_, NetproxyError>>()?,
        })
    }

    /// Starts a task for each socket.
    pub(crate) fn spawn(self, egress: &Arc<Egress>) {
        let places = Arc::new(Semaphore::new(MAX_STREAMS));
        for (listener, kind) in self.streams {
            tokio::spawn(accept_streams(Arc::clone(egress), listener, kind, Arc::clone(&places)));
        }
        self.publisher.spawn(egress);
        for socket in self.names_udp {
            tokio::spawn(datagram::serve_names(Arc::clone(egress), socket));
        }
        for socket in self.traps {
            tokio::spawn(datagram::serve_trap(Arc::clone(egress), Arc::clone(&self.sessions), socket));
        }
        for (host, listener) in self.unix {
            let (egress, places) = (Arc::clone(egress), Arc::clone(&places));
            tokio::spawn(accept_unix(egress, host.into(), listener, places));
        }
    }
}

async fn accept_streams(egress: Arc<Egress>, listener: TcpListener, kind: Kind, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => serve(&egress, (stream, client), kind, place),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn serve(
    egress: &Arc<Egress>,
    (stream, peer): (TcpStream, SocketAddr),
    kind: Kind,
    place: OwnedSemaphorePermit,
) {
    // What is gone again is not served.
    let Ok(own) = stream.local_addr() else { return };
    let destination = match kind {
        Kind::Loopback(inside) => inside,
        _ => egress.outside.destination(own),
    };
    let proc = egress.proc_of(peer, own);
    let reader = Reader::of(&egress.unread, &egress.has_left, peer, own);
    let egress = Arc::clone(egress);
    let idle = IdleClock::start(egress.idle_timeout);
    let client = Client::new(stream, reader, proc, idle.clone(), place);
    match kind {
        Kind::Transparent => {
            let door = if destination.ip().is_loopback() { Door::Loopback } else { Door::Transparent };
            idle.spawn(stream::accept(egress, client, destination, door));
        }
        Kind::Loopback(_) => {
            idle.spawn(stream::accept(egress, client, destination, Door::Loopback));
        }
        Kind::Proxy => {
            idle.spawn(socks::serve(egress, client));
        }
        Kind::Names => {
            tokio::spawn(dns_stream::serve(egress, client));
        }
    }
}

async fn accept_unix(
    egress: Arc<Egress>,
    host: Arc<HostSocket>,
    listener: UnixListener,
    places: Arc<Semaphore>,
) {
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let idle = IdleClock::start(egress.idle_timeout);
                let (egress, host) = (Arc::clone(&egress), Arc::clone(&host));
                idle.clone().spawn(unix::carry(egress, host, stream, idle, place));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn tcp(fd: OwnedFd, kind: &'static str) -> Result<TcpListener, NetproxyError> {
    let listener = std::net::TcpListener::from(fd);
    // What is accepted comes from the run, on this machine.
    send_unpaced(&listener);
    let ready = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    ready.map_err(|source| NetproxyError::Listener { kind, source })
}

/// For what never leaves the machine: what measures a path and paces for it, as BBR, has nothing to do there. The
/// kernel has this one always, and where it may not be taken, the other does as well.
pub(crate) fn send_unpaced(socket: &impl AsFd) {
    let _ = setsockopt(socket, sockopt::TcpCongestion, &OsString::from("reno"));
}

fn unix_listener(fd: OwnedFd) -> Result<UnixListener, NetproxyError> {
    let listener = std::os::unix::net::UnixListener::from(fd);
    let ready = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
    ready.map_err(|source| NetproxyError::Listener { kind: "unix", source })
}
