//! Whole packets for the program's own network: datagrams in the name of whoever it sent one to, and
//! the word that nobody takes its datagrams there (RFC 768, RFC 792, RFC 4443).
//!
//! A raw socket sends them, so that the answer comes from the address that was asked without one
//! more socket for each address (raw(7), IP_HDRINCL).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{MsgFlags, SockaddrIn, SockaddrIn6, sendto};

const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// Hops that a packet may take; ours takes none.
const HOPS: u8 = 64;

/// The raw sockets of the program's network.
#[derive(Debug, Default)]
pub struct Answers {
    /// For IPv4.
    pub v4: Option<OwnedFd>,
    /// For IPv6.
    pub v6: Option<OwnedFd>,
}

impl Answers {
    /// Sends `payload` to `client` as if `from` had. False: it is lost, as datagrams may be.
    pub(crate) fn datagram(&self, from: SocketAddr, client: SocketAddr, payload: &[u8]) -> bool {
        self.send(client.ip(), datagram(from, client, payload))
    }

    /// Tells `client` that nobody takes its datagrams to `to`: ECONNREFUSED on a connected socket.
    pub(crate) fn unreachable(&self, to: SocketAddr, client: SocketAddr) -> bool {
        self.send(client.ip(), unreachable(to, client))
    }

    fn send(&self, to: IpAddr, packet: Option<Vec<u8>>) -> bool {
        let Some(packet) = packet else { return false };
        // The kernel reads the receiver from the packet; the port must be 0 (raw(7)).
        let sent = match (to, &self.v4, &self.v6) {
            (IpAddr::V4(ip), Some(socket), _) => {
                let to = SockaddrIn::from(std::net::SocketAddrV4::new(ip, 0));
                sendto(socket.as_raw_fd(), &packet, &to, MsgFlags::MSG_DONTWAIT)
            }
            (IpAddr::V6(ip), _, Some(socket)) => {
                let to = SockaddrIn6::from(std::net::SocketAddrV6::new(ip, 0, 0, 0));
                sendto(socket.as_raw_fd(), &packet, &to, MsgFlags::MSG_DONTWAIT)
            }
            _ => return false,
        };
        sent.is_ok()
    }
}

fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(8 + payload.len()).ok()?;
    let mut body = udp_header(from.port(), to.port(), length).to_vec();
    body.extend_from_slice(payload);
    let sum = match checksum(&body, Some((from.ip(), to.ip(), UDP))) {
        // Zero means that there is none.
        0 => u16::MAX,
        sum => sum,
    };
    body[6..8].copy_from_slice(&sum.to_be_bytes());
    packet(UDP, from.ip(), to.ip(), &body)
}

fn unreachable(to: SocketAddr, client: SocketAddr) -> Option<Vec<u8>> {
    // The beginning of the packet that is refused, by which the kernel finds the client's socket.
    let quoted = packet(UDP, client.ip(), to.ip(), &udp_header(client.port(), to.port(), 8))?;
    let (protocol, kind) = match to.ip() {
        IpAddr::V4(_) => (ICMP, [3, 3]),
        IpAddr::V6(_) => (ICMP_V6, [1, 4]),
    };
    let mut body = [&kind[..], &[0; 6], &quoted].concat();
    let pseudo = (protocol == ICMP_V6).then_some((to.ip(), client.ip(), protocol));
    let sum = checksum(&body, pseudo);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(protocol, to.ip(), client.ip(), &body)
}

fn udp_header(from: u16, to: u16, length: u16) -> [u8; 8] {
    let ([a, b], [c, d], [e, f]) = (from.to_be_bytes(), to.to_be_bytes(), length.to_be_bytes());
    [a, b, c, d, e, f, 0, 0]
}

/// None for addresses of two families, and for what is too long.
fn packet(protocol: u8, from: IpAddr, to: IpAddr, body: &[u8]) -> Option<Vec<u8>> {
    let mut packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let [high, low] = u16::try_from(20 + body.len()).ok()?.to_be_bytes();
            let mut header = [0x45, 0, high, low, 0, 0, 0, 0, HOPS, protocol, 0, 0].to_vec();
            header.extend(from.octets());
            header.extend(to.octets());
            let sum = checksum(&header, None);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let [high, low] = u16::try_from(body.len()).ok()?.to_be_bytes();
            let mut header = [0x60, 0, 0, 0, high, low, protocol, HOPS].to_vec();
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        _ => return None,
    };
    packet.extend_from_slice(body);
    Some(packet)
}

/// RFC 1071, over a pseudo-header too where the protocol has one.
fn checksum(bytes: &[u8], pseudo: Option<(IpAddr, IpAddr, u8)>) -> u16 {
    let mut sum = words(bytes);
    if let Some((from, to, protocol)) = pseudo {
        for ip in [from, to] {
            sum += match ip {
                IpAddr::V4(ip) => words(&ip.octets()),
                IpAddr::V6(ip) => words(&ip.octets()),
            };
        }
        sum += u64::from(protocol) + bytes.len() as u64;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // At most 16 bits are left.
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

fn words(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let whole: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    whole + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_checksums_add_up() {
        for (from, to) in [("192.0.2.1:53", "198.51.100.2:4660"), ("[2001:db8::1]:53", "[2001:db8::2]:4660")]
        {
            for payload in [&b""[..], b"x", b"even", &[0xff; 1001]] {
                let packet = datagram(at(from), at(to), payload).unwrap();
                let header = if at(from).is_ipv4() { 20 } else { 40 };
                let (head, body) = packet.split_at(header);
                if header == 20 {
                    assert_eq!(checksum(head, None), 0);
                }
                assert_eq!(checksum(body, Some((at(from).ip(), at(to).ip(), UDP))), 0);
                assert_eq!(&body[8..], payload);
            }
        }
    }

    #[test]
    fn two_families_and_long_payloads_make_no_packet() {
        assert!(datagram(at("192.0.2.1:1"), at("[2001:db8::1]:1"), b"x").is_none());
        assert!(datagram(at("192.0.2.1:1"), at("192.0.2.2:1"), &[0; 65_508]).is_none());
        assert!(datagram(at("192.0.2.1:1"), at("192.0.2.2:1"), &[0; 65_507]).is_some());
        assert!(unreachable(at("192.0.2.1:1"), at("[2001:db8::1]:1")).is_none());
    }
}
