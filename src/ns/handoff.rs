//! Hands sockets that were made inside the sandbox to the supervisor, each with the role it plays.
//!
//! Everything is sent in frames of one size, so that a stream socket serves as well as one that
//! keeps messages apart.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use crate::sys::scm;

/// What a socket made inside is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// TCP listener for every destination: the accepted socket's own address is what the client dialled.
    Transparent,
    /// TCP listener on this port of every address: the same, where only named ports can be had.
    Port(u16),
    /// TCP listener for clients that were told of an HTTP proxy.
    Proxy,
    /// UDP port 53 of every address; the destination comes with each datagram (IP_PKTINFO).
    DnsUdp,
    /// TCP port 53 of every address.
    DnsTcp,
    /// Every other UDP datagram; the destination comes with it (IP_ORIGDSTADDR).
    UdpTrap,
    /// TCP listener at this loopback address, standing for the same one of the host.
    Loopback(SocketAddr),
    /// Socket that tells whose connection it is.
    Diag,
    /// Unix listener that stands for the socket of the host with this number in the plan.
    Unix(u16),
    /// The file of that listener, as O_PATH.
    UnixFile(u16),
    /// UDP at this loopback address, standing for the same one of the host.
    UdpLoopback(SocketAddr),
    /// Raw IPv4: sends datagrams that come from any address (raw(7), IP_HDRINCL).
    AnswersV4,
    /// The same for IPv6.
    AnswersV6,
    /// What was changed of the diverted place with this number in the plan.
    Upper(u16),
    /// The directory that holds the place with this number that does not exist yet.
    Holder(u16),
}

impl Role {
    /// Length of an encoded role in bytes.
    pub const ENCODED: usize = 20;

    /// Tag, address family, port or number (network order), address padded to 16 bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::ENCODED] {
        let (tag, family, port, address) = match self {
            Self::Transparent => (0, 0, 0, [0; 16]),
            Self::Port(port) => (1, 0, port, [0; 16]),
            Self::Proxy => (2, 0, 0, [0; 16]),
            Self::DnsUdp => (3, 0, 0, [0; 16]),
            Self::DnsTcp => (4, 0, 0, [0; 16]),
            Self::UdpTrap => (5, 0, 0, [0; 16]),
            Self::Diag => (6, 0, 0, [0; 16]),
            Self::Unix(index) => (8, 0, index, [0; 16]),
            Self::UnixFile(index) => (9, 0, index, [0; 16]),
            Self::AnswersV4 => (11, 0, 0, [0; 16]),
            Self::AnswersV6 => (12, 0, 0, [0; 16]),
            Self::Upper(index) => (13, 0, index, [0; 16]),
            Self::Holder(index) => (14, 0, index, [0; 16]),
            Self::Loopback(at) | Self::UdpLoopback(at) => {
                let tag = if matches!(self, Self::Loopback(_)) { 7 } else { 10 };
                match at.ip() {
                    IpAddr::V4(ip) => (tag, 4, at.port(), ip.to_ipv6_compatible().octets()),
                    IpAddr::V6(ip) => (tag, 6, at.port(), ip.octets()),
                }
            }
        };
        let mut bytes = [0; Self::ENCODED];
        bytes[0] = tag;
        bytes[1] = family;
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes[4..].copy_from_slice(&address);
        bytes
    }

    /// The role that [`Role::encode`] wrote; `None` for any other bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::ENCODED]) -> Option<Self> {
        let [tag, family, high, low, address @ ..] = bytes;
        let port = u16::from_be_bytes([*high, *low]);
        let role = match tag {
            0 => Self::Transparent,
            1 => Self::Port(port),
            2 => Self::Proxy,
            3 => Self::DnsUdp,
            4 => Self::DnsTcp,
            5 => Self::UdpTrap,
            6 => Self::Diag,
            7 | 10 => {
                let [.., a, b, c, d] = *address;
                let ip = match family {
                    4 => Ipv4Addr::new(a, b, c, d).into(),
                    6 => Ipv6Addr::from(*address).into(),
                    _ => return None,
                };
                let at = SocketAddr::new(ip, port);
                if *tag == 7 { Self::Loopback(at) } else { Self::UdpLoopback(at) }
            }
            8 => Self::Unix(port),
            9 => Self::UnixFile(port),
            11 => Self::AnswersV4,
            12 => Self::AnswersV6,
            13 => Self::Upper(port),
            14 => Self::Holder(port),
            _ => return None,
        };
        // One spelling for each role.
        (role.encode() == *bytes).then_some(role)
    }
}

/// Count of roles, "more frames follow", then room for the most roles.
const FRAME: usize = 2 + scm::MOST * Role::ENCODED;

/// Sends every socket with its role, at most 64 in a frame. The sockets stay open here.
pub fn send_fds(channel: impl AsFd, fds: &[(Role, OwnedFd)]) -> io::Result<()> {
    let channel = channel.as_fd();
    let mut rest = fds;
    loop {
        let (now, later) = rest.split_at(rest.len().min(scm::MOST));
        let mut frame = [0u8; FRAME];
        frame[0] = u8::try_from(now.len()).map_err(|_| Errno::EMSGSIZE)?;
        frame[1] = u8::from(!later.is_empty());
        let slots = frame[2..].chunks_exact_mut(Role::ENCODED);
        for (slot, (role, _)) in slots.zip(now) {
            slot.copy_from_slice(&role.encode());
        }
        let sent: Vec<_> = now.iter().map(|(_, fd)| fd.as_fd()).collect();
        send_exact(channel, &frame, &sent)?;
        if later.is_empty() {
            return Ok(());
        }
        rest = later;
    }
}

/// Receives what one [`send_fds`] sent, close-on-exec. EBADMSG: what came was not sent by it;
/// UnexpectedEof: the other end closed before all had come.
pub fn recv_fds(channel: impl AsFd) -> io::Result<Vec<(Role, OwnedFd)>> {
    let channel = channel.as_fd();
    let mut received = Vec::new();
    loop {
        let mut frame = [0u8; FRAME];
        let fds = receive_exact(channel, &mut frame)?;
        if fds.len() != usize::from(frame[0]) || frame[1] > 1 {
            return Err(Errno::EBADMSG.into());
        }
        let (slots, _) = frame[2..].as_chunks();
        for (slot, fd) in slots.iter().zip(fds) {
            received.push((Role::decode(slot).ok_or(Errno::EBADMSG)?, fd));
        }
        if frame[1] == 0 {
            return Ok(received);
        }
    }
}

/// Sends all of `bytes`; `fds` go with the first of them.
pub(super) fn send_exact(channel: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = scm::send(channel, bytes, fds)?;
    while sent < bytes.len() {
        sent += scm::send(channel, &bytes[sent..], &[])?;
    }
    Ok(())
}

/// Fills `bytes` and returns the descriptors that came with them.
pub(super) fn receive_exact(channel: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    let mut fds = Vec::new();
    let mut filled = 0;
    while filled < bytes.len() {
        let (length, more) = scm::receive(channel, &mut bytes[filled..])?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += length;
        fds.extend(more);
    }
    Ok(fds)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn roles() -> Vec<Role> {
        let loopback = |text: &str| Role::Loopback(text.parse().expect("socket address"));
        vec![
            Role::Transparent,
            Role::Port(443),
            Role::Proxy,
            Role::DnsUdp,
            Role::DnsTcp,
            Role::UdpTrap,
            Role::Diag,
            Role::Unix(3),
            Role::UnixFile(300),
            loopback("127.0.0.1:5432"),
            loopback("[::1]:5432"),
            Role::UdpLoopback("127.0.0.1:123".parse().expect("socket address")),
            Role::UdpLoopback("[::1]:123".parse().expect("socket address")),
            Role::AnswersV4,
            Role::AnswersV6,
            Role::Upper(2),
            Role::Holder(0),
        ]
    }

    #[test]
    fn roles_survive_encoding() {
        for role in roles() {
            assert_eq!(Role::decode(&role.encode()), Some(role));
        }
    }

    #[test]
    fn bytes_that_encode_no_role_are_refused() {
        let mut unknown = [0; Role::ENCODED];
        unknown[0] = 15;
        let mut second_spelling = Role::Proxy.encode();
        second_spelling[19] = 1;
        let mut no_family = roles()[9].encode();
        no_family[1] = 5;
        for bytes in [unknown, second_spelling, no_family] {
            assert_eq!(Role::decode(&bytes), None);
        }
    }

    /// More than two frames, each descriptor another file, over both kinds of socket.
    #[test]
    fn descriptors_arrive_in_order_with_their_roles() {
        let (a, b) = UnixStream::pair().expect("socket pair");
        let packets = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .expect("socket pair");
        for (a, b) in [(a.into(), b.into()), packets] {
            let fds: Vec<_> = (0..150u16)
                .map(|port| (Role::Port(port), tempfile::tempfile().expect("file").into()))
                .collect();
            send_fds(&a, &fds).expect("send");
            send_exact(a.as_fd(), b"next", &[]).expect("send");
            let got = recv_fds(&b).expect("receive");

            assert_eq!(got.len(), fds.len());
            for ((sent_role, sent), (role, fd)) in fds.into_iter().zip(got) {
                assert_eq!(sent_role, role);
                let inode = |fd: OwnedFd| File::from(fd).metadata().expect("stat").ino();
                assert_eq!(inode(sent), inode(fd));
            }
            let mut next = [0; 4];
            receive_exact(b.as_fd(), &mut next).expect("what follows is untouched");
            assert_eq!(&next, b"next");
        }
    }

    #[test]
    fn no_descriptors_and_a_closed_end() {
        let (a, b) = UnixStream::pair().expect("socket pair");
        send_fds(&a, &[]).expect("send");
        assert!(recv_fds(&b).expect("receive").is_empty());
        drop(a);
        let error = recv_fds(&b).expect_err("closed");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn roles_without_descriptors_are_refused() {
        let (mut a, b) = UnixStream::pair().expect("socket pair");
        let mut frame = [0u8; FRAME];
        frame[0] = 1;
        a.write_all(&frame).expect("write");
        let error = recv_fds(&b).expect_err("no descriptor");
        assert_eq!(error.raw_os_error(), Some(Errno::EBADMSG as i32));
    }
}
