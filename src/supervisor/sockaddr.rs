//! Socket addresses as another process composed them, read as the kernel reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::sys::address;

/// What a socket address says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// AF_INET or AF_INET6.
    Inet(SocketAddr),
    /// The path of a Unix socket, without its zero byte.
    UnixPath(Vec<u8>),
    /// A Unix socket without a file (unix(7)).
    UnixAbstract,
    /// AF_UNSPEC, autobind and families that only the kernel knows.
    Other,
}

/// Reads the bytes of a `struct sockaddr`.
#[must_use]
pub fn parse(raw: &[u8]) -> Address {
    let Some((family, rest)) = raw.split_first_chunk::<2>() else { return Address::Other };
    let port = || rest.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes));
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let ip = rest.get(2..6).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
            match (ip, port()) {
                (Some(ip), Some(port)) => {
                    Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port))
                }
                _ => Address::Other,
            }
        }
        libc::AF_INET6 => {
            let ip = rest.get(6..22).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
            match (ip, port()) {
                (Some(ip), Some(port)) => {
                    Address::Inet(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port))
                }
                _ => Address::Other,
            }
        }
        // Longer than `struct sockaddr_un`: the kernel says EINVAL.
        libc::AF_UNIX if rest.is_empty() || rest.len() > address::UNIX_PATH => Address::Other,
        libc::AF_UNIX if rest[0] == 0 => Address::UnixAbstract,
        libc::AF_UNIX => Address::UnixPath(rest.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()),
        _ => Address::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(family: i32, rest: &[u8]) -> Vec<u8> {
        let family = u16::try_from(family).expect("a family");
        [&family.to_ne_bytes()[..], rest].concat()
    }

    #[test]
    fn internet_addresses() {
        let v4 = raw(libc::AF_INET, &[0x1f, 0x90, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse(&v4), Address::Inet("192.0.2.1:8080".parse().expect("an address")));
        assert_eq!(parse(&v4[..7]), Address::Other);
        let mut rest = vec![0; 26];
        rest[1] = 53;
        rest[21] = 1;
        let v6 = raw(libc::AF_INET6, &rest);
        assert_eq!(parse(&v6), Address::Inet("[::1]:53".parse().expect("an address")));
    }

    #[test]
    fn unix_sockets() {
        assert_eq!(parse(&raw(libc::AF_UNIX, b"/a\0b")), Address::UnixPath(b"/a".to_vec()));
        assert_eq!(parse(&raw(libc::AF_UNIX, b"\0a")), Address::UnixAbstract);
        assert_eq!(parse(&raw(libc::AF_UNIX, b"")), Address::Other);
        assert_eq!(parse(&raw(libc::AF_UNIX, &[b'a'; 109])), Address::Other);
        assert_eq!(parse(b"\x01"), Address::Other);
    }
}
