//! Loopback up, and local routes for every address, so that nothing has a way out (rtnetlink(7)).

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use nix::sys::socket::SockProtocol;

use super::super::refused::Refused;
use super::message::Encoder;
use super::{SOCKET, open, transact};

/// Loopback is made first in every network namespace and always has this index.
const LOOPBACK_INDEX: i32 = 1;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE: u16 = 0x400;
const UP: u32 = 0x1;
const ROUTE: &str = "netlink RTM_NEWROUTE";
const FAMILY_INET: u8 = 2;
const FAMILY_INET6: u8 = 10;

/// Whether this kernel speaks IPv6 in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6 {
    /// It does.
    Present,
    /// It does not, for this errno: IPv6 destinations are unreachable there, which needs no guarding.
    Absent {
        /// What the kernel said.
        errno: i32,
    },
}

/// Sets loopback up in the caller's network namespace. Needs CAP_NET_ADMIN there.
pub fn link_up_loopback() -> Result<(), Refused> {
    let mut encoder = Encoder::default();
    encoder.message(libc::RTM_NEWLINK, REQUEST | ACKNOWLEDGE, 1, |message| {
        // struct ifinfomsg: family, pad, type, index, flags, which flags to change
        message.put(&[0; 4]);
        message.put(&LOOPBACK_INDEX.to_ne_bytes());
        message.put(&UP.to_ne_bytes());
        message.put(&UP.to_ne_bytes());
    });
    let socket = open(SockProtocol::NetlinkRoute).map_err(Refused::by(SOCKET))?;
    transact(socket.as_fd(), &encoder.into_bytes(), 1).map_err(Refused::by("netlink RTM_NEWLINK"))
}

/// Makes every IPv4 and IPv6 address a local one of loopback ("AnyIP"): `ip route add local 0.0.0.0/0 dev lo src 127.0.0.1`.
///
/// A connection to any address then ends at a listener of this namespace, or is refused.
/// Clients dial from 127.0.0.1 and ::1: without that an IPv4 client gets the address that it dials,
/// programs that look for their own address that way advertise a stranger's, and the ports of closed
/// connections rest for a minute (tcp_tw_reuse=2 spares loopback addresses alone).
/// Needs CAP_NET_ADMIN. A kernel without IPv6 is reported, not an error.
pub fn add_anyip_routes() -> Result<Ipv6, Refused> {
    let socket = open(SockProtocol::NetlinkRoute).map_err(Refused::by(SOCKET))?;
    let scope = libc::RT_SCOPE_HOST;
    let source = Ipv4Addr::LOCALHOST.octets();
    let request = local_default(FAMILY_INET, scope, Some(source));
    transact(socket.as_fd(), &request, 1).map_err(Refused::by(ROUTE))?;
    // IPv6 knows no scope of routes. Whatever the refusal, there is no way out by IPv6 without a route.
    match transact(socket.as_fd(), &local_default(FAMILY_INET6, 0, None), 1) {
        Ok(()) => Ok(Ipv6::Present),
        Err(error) => match error.raw_os_error() {
            Some(errno) => Ok(Ipv6::Absent { errno }),
            None => Err(Refused::by(ROUTE)(error)),
        },
    }
}

fn local_default(family: u8, scope: u8, source: Option<[u8; 4]>) -> Vec<u8> {
    let mut encoder = Encoder::default();
    let flags = REQUEST | ACKNOWLEDGE | CREATE;
    encoder.message(libc::RTM_NEWROUTE, flags, 1, |message| {
        // struct rtmsg: family, two prefix lengths, tos, table, protocol, scope, type, flags
        let table = libc::RT_TABLE_LOCAL;
        message.put(&[family, 0, 0, 0, table, libc::RTPROT_BOOT, scope, libc::RTN_LOCAL]);
        message.put(&[0; 4]);
        message.attribute(libc::RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes());
        if let Some(source) = source {
            message.attribute(libc::RTA_PREFSRC, &source);
        }
    });
    encoder.into_bytes()
}
