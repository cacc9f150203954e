//! The addresses of this machine's interfaces (rtnetlink(7), RTM_GETADDR).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;

use nix::sys::socket::SockProtocol;

use super::message::{Encoder, field};
use super::{exchange, open};

const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;
const FAMILY_INET: u8 = 2;
const FAMILY_INET6: u8 = 10;
/// `sizeof(struct ifaddrmsg)`, which begins with the family.
const HEADER: usize = 8;
/// The far end of a point-to-point link, and everywhere else the address itself.
const ADDRESS: u16 = 1;
/// The address itself; IPv6 has none on ordinary links.
const LOCAL: u16 = 2;

/// Asks the kernel for them, in the caller's network namespace. getifaddrs(3) asks for the links
/// as well, which takes five times as long. Each family by itself: for all at once the kernel waits for whoever
/// makes or ends a network namespace meanwhile (the rtnl lock).
///
/// # Errors
/// The errno of the netlink call; EBADMSG for an answer that cannot be read.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let socket = open(SockProtocol::NetlinkRoute)?;
    let mut found = Vec::new();
    for family in [FAMILY_INET, FAMILY_INET6] {
        let mut encoder = Encoder::default();
        let mut header = [0; HEADER];
        header[0] = family;
        encoder.message(libc::RTM_GETADDR, REQUEST | DUMP, 1, |message| message.put(&header));
        exchange(socket.as_fd(), &encoder.into_bytes(), |message| {
            if let Some(refusal) = message.acknowledgement()? {
                return refusal;
            }
            if message.kind == libc::RTM_NEWADDR {
                found.extend(address(message.payload)?);
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn address(payload: &[u8]) -> io::Result<Option<IpAddr>> {
    let [family] = field(payload, 0)?;
    let mut rest = payload.get(HEADER..).unwrap_or_default();
    let mut found = None;
    while !rest.is_empty() {
        let length = usize::from(u16::from_ne_bytes(field(rest, 0)?));
        let kind = u16::from_ne_bytes(field(rest, 2)?);
        let value = rest.get(4..length).ok_or(nix::errno::Errno::EBADMSG)?;
        if kind == LOCAL || (kind == ADDRESS && found.is_none()) {
            found = match family {
                FAMILY_INET => Some(Ipv4Addr::from(field::<4>(value, 0)?).into()),
                FAMILY_INET6 => Some(Ipv6Addr::from(field::<16>(value, 0)?).into()),
                _ => None,
            };
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_them_and_all_are_as_the_library_says() {
        let own = own_addresses().expect("netlink");
        let listed: Vec<IpAddr> = nix::ifaddrs::getifaddrs()
            .expect("interfaces")
            .filter_map(|interface| {
                let address = interface.address?;
                let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
            })
            .collect();
        assert_eq!(own, listed);
    }

    #[test]
    fn a_point_to_point_link_has_its_own_end() {
        let mut payload = vec![FAMILY_INET, 32, 0, 0, 1, 0, 0, 0];
        payload.extend([8, 0, 1, 0, 10, 0, 0, 2, 8, 0, 2, 0, 10, 0, 0, 1]);
        assert_eq!(address(&payload).expect("whole"), Some(Ipv4Addr::new(10, 0, 0, 1).into()));
        assert!(address(&payload[..18]).is_err());
    }
}
