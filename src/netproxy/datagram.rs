//! UDP sockets of the confined program: the name server's, and the trap for all other datagrams.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::consume_budget;

use super::dns::{self, Carrier};
use super::egress::Egress;
use super::error::NetproxyError;
use super::sessions::Sessions;

/// The largest datagram of IP (RFC 768).
const LARGEST: usize = 65_535;

/// How long to wait after an error of the socket itself.
const PAUSE: Duration = Duration::from_millis(50);

/// One datagram and what the kernel says about it.
struct Datagram {
    bytes: Vec<u8>,
    client: SocketAddr,
    /// The address that the client sent to, as a control message for the reply.
    asked: Option<Asked>,
    /// The original destination, where the socket tells it.
    destination: Option<SocketAddr>,
}

impl Datagram {
    /// The address and port that a query was sent to.
    fn asked_at(&self, socket: &UdpSocket) -> Option<SocketAddr> {
        let ip = match self.asked? {
            Asked::V4(info) => IpAddr::from(info.ipi_addr.s_addr.to_ne_bytes()),
            Asked::V6(info) => IpAddr::from(info.ipi6_addr.s6_addr),
        };
        Some(SocketAddr::new(ip, socket.local_addr().ok()?.port()))
    }
}

/// The local address of a datagram (IP_PKTINFO, man 7 ip). A reply must come from it, or clients
/// that asked another name server than 127.0.0.1 drop it.
#[derive(Clone, Copy)]
enum Asked {
    V4(nix::libc::in_pktinfo),
    V6(nix::libc::in6_pktinfo),
}

/// Makes the name server's socket ready.
pub(crate) fn name_server(fd: OwnedFd) -> Result<UdpSocket, NetproxyError> {
    let kind = "name server (UDP)";
    let socket = socket(fd, kind)?;
    let v4 = setsockopt(&socket, sockopt::Ipv4PacketInfo, &true);
    let v6 = setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true);
    v4.or(v6).map_err(|errno| NetproxyError::Listener { kind, source: errno.into() })?;
    Ok(socket)
}

/// A socket that takes datagrams to other destinations than its own address.
pub(crate) struct Trap {
    socket: UdpSocket,
    /// The one destination that it stands for, if it does.
    inside: Option<SocketAddr>,
}

/// Makes the socket ready that stands for a loopback address of the host.
pub(crate) fn loopback(inside: SocketAddr, fd: OwnedFd) -> Result<Trap, NetproxyError> {
    Ok(Trap { socket: socket(fd, "loopback (UDP)")?, inside: Some(inside) })
}

/// Makes a trap's socket ready.
pub(crate) fn trap(fd: OwnedFd) -> Result<Trap, NetproxyError> {
    let kind = "datagram trap";
    let socket = socket(fd, kind)?;
    let v4 = setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true);
    let v6 = setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true);
    v4.or(v6).map_err(|errno| NetproxyError::Listener { kind, source: errno.into() })?;
    Ok(Trap { socket, inside: None })
}

/// Answers queries until the run ends.
pub(crate) async fn serve_names(egress: Arc<Egress>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    loop {
        let Ok(permit) = Arc::clone(&egress.lookups).acquire_owned().await else { return };
        let Ok(datagram) = socket.async_io(Interest::READABLE, || receive(&socket)).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (egress, socket) = (Arc::clone(&egress), Arc::clone(&socket));
        tokio::spawn(async move {
            let proc = datagram.asked_at(&socket).and_then(|at| egress.sender(datagram.client, at));
            let bytes = &datagram.bytes;
            let reply = dns::answer(&egress, bytes, Carrier::Udp, proc.as_deref()).await;
            if let Ok(Some(reply)) = reply {
                // A client that has gone away, or a full buffer, loses a reply as UDP does.
                let send = || reply_to(&socket, &datagram, &reply);
                let _ = socket.async_io(Interest::WRITABLE, send).await;
            }
            drop(permit);
        });
    }
}

/// Takes the program's datagrams to anywhere until the run ends.
pub(crate) async fn serve_trap(egress: Arc<Egress>, sessions: Arc<Sessions>, trap: Trap) {
    let Trap { socket, inside } = trap;
    loop {
        let Ok(datagram) = socket.async_io(Interest::READABLE, || receive(&socket)).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let destination = inside.or(datagram.destination).or_else(|| socket.local_addr().ok());
        let Some(destination) = destination else { continue };
        let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
        sessions.take(&egress, datagram.client, destination, datagram.bytes);
        consume_budget().await;
    }
}

fn socket(fd: OwnedFd, kind: &'static str) -> Result<UdpSocket, NetproxyError> {
    let socket = std::net::UdpSocket::from(fd);
    let ready = socket.set_nonblocking(true).and_then(|()| UdpSocket::from_std(socket));
    ready.map_err(|source| NetproxyError::Listener { kind, source })
}

fn receive(socket: &UdpSocket) -> io::Result<Datagram> {
    let mut bytes = [0; LARGEST];
    let mut control = cmsg_space!(
        nix::libc::in_pktinfo,
        nix::libc::in6_pktinfo,
        nix::libc::sockaddr_in,
        nix::libc::sockaddr_in6
    );
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let client = message.address.as_ref().and_then(socket_address);
    let client = client.ok_or(io::ErrorKind::InvalidData)?;
    let (mut asked, mut destination) = (None, None);
    for control in message.cmsgs()? {
        match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => asked = Some(Asked::V4(info)),
            ControlMessageOwned::Ipv6PacketInfo(info) => asked = Some(Asked::V6(info)),
            ControlMessageOwned::Ipv4OrigDstAddr(address) => {
                let ip = IpAddr::from(address.sin_addr.s_addr.to_ne_bytes());
                destination = Some(SocketAddr::new(ip, u16::from_be(address.sin_port)));
            }
            ControlMessageOwned::Ipv6OrigDstAddr(address) => {
                let ip = IpAddr::from(address.sin6_addr.s6_addr);
                destination = Some(SocketAddr::new(ip, u16::from_be(address.sin6_port)));
            }
            _ => {}
        }
    }
    let length = message.bytes;
    Ok(Datagram { bytes: bytes[..length].to_vec(), client, asked, destination })
}

fn reply_to(socket: &UdpSocket, datagram: &Datagram, reply: &[u8]) -> io::Result<usize> {
    let client = SockaddrStorage::from(datagram.client);
    let control = match &datagram.asked {
        Some(Asked::V4(info)) => vec![ControlMessage::Ipv4PacketInfo(info)],
        Some(Asked::V6(info)) => vec![ControlMessage::Ipv6PacketInfo(info)],
        None => Vec::new(),
    };
    let slices = [IoSlice::new(reply)];
    let flags = MsgFlags::MSG_DONTWAIT;
    Ok(sendmsg(socket.as_raw_fd(), &slices, &control, flags, Some(&client))?)
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4(SocketAddrV4::from(*v4)));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6(SocketAddrV6::from(*v6))))
}
