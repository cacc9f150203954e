//! The sockets of a sandbox's network, each prepared for the role that it plays.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, bind,
    getsockname, listen, setsockopt, socket, sockopt,
};

use super::handoff::Role;
use crate::sys::netlink;
use crate::sys::refused::Refused;
use crate::sys::sockopt::enable_ipv6_transparent;

/// Connections that wait to be accepted, for each listener.
const BACKLOG: i32 = 512;

pub(super) fn open(role: Role, address: SocketAddr) -> Result<OwnedFd, Refused> {
    let family = match address.ip() {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let datagrams = matches!(role, Role::DnsUdp | Role::UdpTrap | Role::UdpLoopback(_));
    let kind = if datagrams { SockType::Datagram } else { SockType::Stream };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(family, kind, flags, None).map_err(Refused::by("socket"))?;
    // No SO_REUSEADDR or SO_REUSEPORT before it listens: a program inside must not be able to bind beside us.
    match address {
        SocketAddr::V4(address) => {
            prepare_v4(role, &made).map_err(Refused::by("setsockopt"))?;
            bind(made.as_raw_fd(), &SockaddrIn::from(address)).map_err(Refused::by("bind"))?;
        }
        SocketAddr::V6(address) => {
            prepare_v6(role, &made).map_err(Refused::by("setsockopt"))?;
            bind(made.as_raw_fd(), &SockaddrIn6::from(address)).map_err(Refused::by("bind"))?;
        }
    }
    if !datagrams {
        Backlog::new(BACKLOG).and_then(|backlog| listen(&made, backlog)).map_err(Refused::by("listen"))?;
    }
    if role == Role::Transparent {
        // An accepted socket has the port that was dialled: a server inside that starts later must get that
        // port all the same. Beside what listens nobody can bind (`inet_csk_bind_conflict`).
        setsockopt(&made, sockopt::ReuseAddr, &true).map_err(Refused::by("setsockopt"))?;
    }
    Ok(made)
}

/// A socket that sends whole packets, which no rule hands back to us.
pub(super) fn answers(role: Role) -> Result<OwnedFd, Refused> {
    let family = if role == Role::AnswersV4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // IPPROTO_RAW implies IP_HDRINCL and receives nothing (raw(7)).
    let made =
        socket(family, SockType::Raw, flags, SockProtocol::Raw).map_err(Refused::by("socket(SOCK_RAW)"))?;
    setsockopt(&made, sockopt::Mark, &netlink::ANSWER_MARK).map_err(Refused::by("setsockopt(SO_MARK)"))?;
    Ok(made)
}

fn prepare_v4(role: Role, made: &OwnedFd) -> io::Result<()> {
    if matches!(role, Role::Transparent | Role::UdpTrap) {
        setsockopt(made, sockopt::IpTransparent, &true)?;
    }
    match role {
        Role::UdpTrap => setsockopt(made, sockopt::Ipv4OrigDstAddr, &true)?,
        Role::DnsUdp => setsockopt(made, sockopt::Ipv4PacketInfo, &true)?,
        _ => {}
    }
    Ok(())
}

fn prepare_v6(role: Role, made: &OwnedFd) -> io::Result<()> {
    // Connections to mapped addresses belong to the IPv4 socket.
    setsockopt(made, sockopt::Ipv6V6Only, &true)?;
    // The DNS socket answers from the address that was asked: IPv4 takes a local route as leave for
    // that, IPv6 wants an address of the interface or this option.
    if matches!(role, Role::Transparent | Role::UdpTrap | Role::DnsUdp) {
        enable_ipv6_transparent(made)?;
    }
    match role {
        Role::UdpTrap => setsockopt(made, sockopt::Ipv6OrigDstAddr, &true)?,
        Role::DnsUdp => setsockopt(made, sockopt::Ipv6RecvPacketInfo, &true)?,
        _ => {}
    }
    Ok(())
}

pub(super) fn bound_port(made: &OwnedFd) -> io::Result<u16> {
    let address: SockaddrStorage = getsockname(made.as_raw_fd())?;
    let v4 = address.as_sockaddr_in().map(SockaddrIn::port);
    v4.or_else(|| address.as_sockaddr_in6().map(SockaddrIn6::port)).ok_or_else(|| Errno::EAFNOSUPPORT.into())
}
