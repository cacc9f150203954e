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
use tokio::sync::Semaphore;

use super::decide::Refusal;
use super::dns::{self, Carrier};
use super::egress::Egress;
use super::error::NetproxyError;

/// Lookups that may wait for the outside at once; further queries wait in the socket's buffer.
const MAX_LOOKUPS: usize = 256;

/// The largest query that is read. Longer ones are cut, and so malformed.
const MAX_QUERY: usize = 4096;

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

/// Makes a trap's socket ready.
pub(crate) fn trap(fd: OwnedFd) -> Result<UdpSocket, NetproxyError> {
    let kind = "datagram trap";
    let socket = socket(fd, kind)?;
    let v4 = setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true);
    let v6 = setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true);
    v4.or(v6).map_err(|errno| NetproxyError::Listener { kind, source: errno.into() })?;
    Ok(socket)
}

/// Answers queries until the run ends.
pub(crate) async fn serve_names(egress: Arc<Egress>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
    loop {
        let Ok(permit) = Arc::clone(&lookups).acquire_owned().await else { return };
        let Ok(datagram) = socket.async_io(Interest::READABLE, || receive(&socket)).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (egress, socket) = (Arc::clone(&egress), Arc::clone(&socket));
        tokio::spawn(async move {
            let local = socket.local_addr().unwrap_or(datagram.client);
            let proc = egress.proc(datagram.client, local);
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

/// Records datagrams to anywhere until the run ends. Nothing is ever sent.
pub(crate) async fn serve_trap(egress: Arc<Egress>, socket: UdpSocket) {
    loop {
        let Ok(datagram) = socket.async_io(Interest::READABLE, || receive(&socket)).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let destination = datagram.destination.or_else(|| socket.local_addr().ok());
        let Some(destination) = destination else { continue };
        let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
        let proc = egress.proc(datagram.client, destination);
        let refusal = Refusal {
            target: format!("udp:{destination}"),
            name: egress.pins.names_for(destination.ip()).into_iter().next(),
            address: Some(destination.ip()),
            port: Some(destination.port()),
            reason: "datagrams are not carried".to_owned(),
            rule: None,
            remedy: None,
        };
        // When the trace fails the run stops, and nothing has been sent anyway.
        let _ = egress.refuse_always(&refusal, proc.as_deref());
    }
}

fn socket(fd: OwnedFd, kind: &'static str) -> Result<UdpSocket, NetproxyError> {
    let socket = std::net::UdpSocket::from(fd);
    let ready = socket.set_nonblocking(true).and_then(|()| UdpSocket::from_std(socket));
    ready.map_err(|source| NetproxyError::Listener { kind, source })
}

fn receive(socket: &UdpSocket) -> io::Result<Datagram> {
    let mut bytes = [0; MAX_QUERY];
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
