//! What this machine takes for itself by its routing table (rtnetlink(7), RTM_GETROUTE): more than its addresses, where a
//! route of type `local` leads there (ip-route(8)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;

use ipnet::IpNet;
use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::message::{Encoder, field};
use super::{exchange, open};
use crate::sys::sockopt;

const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;
const FAMILY_INET: u8 = 2;
const FAMILY_INET6: u8 = 10;
/// `sizeof(struct rtmsg)`: family, two prefix lengths, tos, table, protocol, scope, type, flags.
const HEADER: usize = 12;

/// Asks the kernel for the routes of the table `local` that are of its type, in the caller's network namespace.
///
/// # Errors
/// The errno of the netlink call; EBADMSG for an answer that cannot be read.
pub fn local_routes() -> io::Result<Vec<IpNet>> {
    let socket = open(SockProtocol::NetlinkRoute)?;
    // Without it the kernel lists the other tables as well (before Linux 4.20).
    let _ = sockopt::check_dumps(&socket);
    let mut found = Vec::new();
    for family in [FAMILY_INET, FAMILY_INET6] {
        let mut encoder = Encoder::default();
        let mut header = [0; HEADER];
        (header[0], header[4], header[7]) = (family, libc::RT_TABLE_LOCAL, libc::RTN_LOCAL);
        encoder.message(libc::RTM_GETROUTE, REQUEST | DUMP, 1, |message| message.put(&header));
        let listed = exchange(socket.as_fd(), &encoder.into_bytes(), |message| {
            if let Some(refusal) = message.acknowledgement()? {
                return refusal;
            }
            if message.kind == libc::RTM_NEWROUTE {
                found.extend(route(message.payload)?);
            }
            Ok(())
        });
        match listed {
            // There is no such table, and so no route.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            listed => listed?,
        }
    }
    Ok(found)
}

fn route(payload: &[u8]) -> io::Result<Option<IpNet>> {
    let [family, length] = field(payload, 0)?;
    let ([table], [kind]) = (field(payload, 4)?, field(payload, 7)?);
    if (table, kind) != (libc::RT_TABLE_LOCAL, libc::RTN_LOCAL) {
        return Ok(None);
    }
    // A route to everything names no destination.
    let mut address = match family {
        FAMILY_INET => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        FAMILY_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(None),
    };
    let mut rest = payload.get(HEADER..).unwrap_or_default();
    while !rest.is_empty() {
        let length = usize::from(u16::from_ne_bytes(field(rest, 0)?));
        let value = rest.get(4..length).ok_or(Errno::EBADMSG)?;
        if u16::from_ne_bytes(field(rest, 2)?) == libc::RTA_DST {
            address = match address {
                IpAddr::V4(_) => Ipv4Addr::from(field::<4>(value, 0)?).into(),
                IpAddr::V6(_) => Ipv6Addr::from(field::<16>(value, 0)?).into(),
            };
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Some(IpNet::new(address, length).map_err(|_| Errno::EBADMSG)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_the_type_are_listed() {
        let own = local_routes().expect("netlink");
        assert!(own.contains(&"127.0.0.0/8".parse().expect("a range")), "{own:?}");
        assert!(own.iter().all(|range| range.addr().is_loopback() || range.prefix_len() > 0), "{own:?}");
    }

    #[test]
    fn a_route_has_its_range() {
        let head = |family, length| vec![family, length, 0, 0, 255, 0, 254, 2, 0, 0, 0, 0];
        let mut payload = head(FAMILY_INET, 24);
        payload.extend([8, 0, 15, 0, 255, 0, 0, 0, 8, 0, 1, 0, 93, 184, 1, 0]);
        assert_eq!(route(&payload).expect("whole"), Some("93.184.1.0/24".parse().expect("a range")));
        assert!(route(&payload[..22]).is_err());
        assert_eq!(route(&head(FAMILY_INET6, 0)).expect("whole"), Some("::/0".parse().expect("a range")));
        payload[7] = 3; // RTN_BROADCAST
        assert_eq!(route(&payload).expect("whole"), None);
    }
}
