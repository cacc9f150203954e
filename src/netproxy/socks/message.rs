//! The client's messages of SOCKS 5 (RFC 1928, RFC 1929), SOCKS 4 and 4A, read strictly.
//!
//! Each function looks at the bytes so far: `Ok(None)` means that more are needed, and a number
//! beside a message how many bytes it takes. What follows belongs to the stream that was asked for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::netproxy::authority::Host;

/// The first byte of SOCKS 4.
pub const VERSION_4: u8 = 4;
/// The first byte of SOCKS 5.
pub const VERSION_5: u8 = 5;
/// No authentication (RFC 1928 section 3).
pub const NO_AUTHENTICATION: u8 = 0;
/// User name and password (RFC 1929).
pub const PASSWORD: u8 = 2;

/// The longest user name or host name of SOCKS 4, which has no length field.
const MAX_TEXT: usize = 255;

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// CONNECT is the only one that is served.
    pub command: u8,
    /// Whom to reach; the text of a name that no host can have otherwise.
    pub host: Result<Host, String>,
    /// At which port.
    pub port: u16,
}

/// The command CONNECT, in both versions.
pub const CONNECT: u8 = 1;

/// Bytes that are no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong with them.
    pub reason: &'static str,
    /// An address of a kind that the client's version does not know.
    pub address_kind: bool,
}

/// A message and its length, or "more bytes are needed".
pub type Read<T> = Result<Option<(T, usize)>, Malformed>;

fn malformed(reason: &'static str) -> Malformed {
    Malformed { reason, address_kind: false }
}

/// The methods of authentication that a client of SOCKS 5 offers.
///
/// # Errors
/// The first byte is not 5.
pub fn methods(bytes: &[u8]) -> Read<Vec<u8>> {
    let Some(&version) = bytes.first() else { return Ok(None) };
    if version != VERSION_5 {
        return Err(malformed("a SOCKS greeting of another version"));
    }
    let Some(&count) = bytes.get(1) else { return Ok(None) };
    let end = 2 + usize::from(count);
    Ok(bytes.get(2..end).map(|methods| (methods.to_vec(), end)))
}

/// User name and password, which are not looked at.
///
/// # Errors
/// The first byte is not that of RFC 1929.
pub fn password(bytes: &[u8]) -> Read<()> {
    let Some(&version) = bytes.first() else { return Ok(None) };
    if version != 1 {
        return Err(malformed("a SOCKS password message of another version"));
    }
    let Some(&length) = bytes.get(1) else { return Ok(None) };
    let name_end = 2 + usize::from(length);
    let Some(&length) = bytes.get(name_end) else { return Ok(None) };
    let end = name_end + 1 + usize::from(length);
    Ok((bytes.len() >= end).then_some(((), end)))
}

/// The request of SOCKS 5.
///
/// # Errors
/// Another version, or an address of an unknown kind.
pub fn request_5(bytes: &[u8]) -> Read<Request> {
    let Some((&[version, command, _reserved, kind], rest)) = bytes.split_first_chunk() else {
        return match bytes.first() {
            Some(&version) if version != VERSION_5 => Err(malformed("a SOCKS request of another version")),
            _ => Ok(None),
        };
    };
    if version != VERSION_5 {
        return Err(malformed("a SOCKS request of another version"));
    }
    let (host, taken) = match kind {
        1 => match rest.first_chunk::<4>() {
            Some(octets) => (Ok(address(Ipv4Addr::from(*octets).into())), 4),
            None => return Ok(None),
        },
        4 => match rest.first_chunk::<16>() {
            Some(octets) => (Ok(address(Ipv6Addr::from(*octets).into())), 16),
            None => return Ok(None),
        },
        3 => {
            let Some((&length, rest)) = rest.split_first() else { return Ok(None) };
            let Some(name) = rest.get(..usize::from(length)) else { return Ok(None) };
            (host(name), 1 + name.len())
        }
        _ => return Err(Malformed { reason: "a SOCKS address of an unknown kind", address_kind: true }),
    };
    let port = rest[taken..].first_chunk::<2>().map(|port| u16::from_be_bytes(*port));
    Ok(port.map(|port| (Request { command, host, port }, 4 + taken + 2)))
}

/// The request of SOCKS 4, and of 4A, in which an address 0.0.0.x stands for a name that follows.
///
/// # Errors
/// Another version, or a text without an end.
pub fn request_4(bytes: &[u8]) -> Read<Request> {
    let Some((&[version, command, high, low, a, b, c, d], rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    if version != VERSION_4 {
        return Err(malformed("a SOCKS request of another version"));
    }
    let port = u16::from_be_bytes([high, low]);
    let Some((_user, after_user)) = text(rest)? else { return Ok(None) };
    if [a, b, c] != [0; 3] || d == 0 {
        let host = Ok(address(Ipv4Addr::new(a, b, c, d).into()));
        return Ok(Some((Request { command, host, port }, 8 + after_user)));
    }
    let Some((name, after_name)) = text(&rest[after_user..])? else { return Ok(None) };
    let request = Request { command, host: host(name), port };
    Ok(Some((request, 8 + after_user + after_name)))
}

/// The bytes up to a zero, and how many there are with it.
fn text(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    match bytes.iter().position(|&byte| byte == 0) {
        Some(end) if end <= MAX_TEXT => Ok(Some((&bytes[..end], end + 1))),
        None if bytes.len() <= MAX_TEXT => Ok(None),
        _ => Err(malformed("a SOCKS name that is too long")),
    }
}

fn address(address: IpAddr) -> Host {
    Host::Address(address.to_canonical())
}

/// A name, or an address in the form of one, as some clients send it.
fn host(name: &[u8]) -> Result<Host, String> {
    let text = std::str::from_utf8(name).ok();
    let bare =
        text.map(|text| text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text));
    bare.and_then(Host::parse).ok_or_else(|| name.escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Result<Host, String> {
        Ok(Host::Name(text.to_owned()))
    }

    fn literal(text: &str) -> Result<Host, String> {
        Ok(Host::Address(text.parse().unwrap()))
    }

    #[test]
    fn every_form_of_address() {
        let named = [&b"\x05\x01\x00\x03\x0b"[..], b"Example.ORG\x01\xbb", b"after"].concat();
        let v6 = [&b"\x05\x01\x00\x04\x20\x01\x0d\xb8"[..], &[0; 11], &[1, 0, 80]].concat();
        let mapped = [&b"\x05\x01\x00\x04"[..], &[0; 10], b"\xff\xff\x7f\x00\x00\x01\x00\x50"].concat();
        let cases: [(&[u8], _, _, _); 7] = [
            (b"\x05\x01\x00\x01\xc0\x00\x02\x07\x00\x50", literal("192.0.2.7"), 80, 10),
            (&named, name("example.org"), 443, 18),
            (&v6, literal("2001:db8::1"), 80, 22),
            (&mapped, literal("127.0.0.1"), 80, 22),
            (b"\x05\x01\x00\x03\x09127.0.0.1\x00\x50", literal("127.0.0.1"), 80, 16),
            (b"\x05\x01\x00\x03\x05[::1]\x00\x50", literal("::1"), 80, 12),
            (b"\x05\x01\x00\x03\x05127.1\x00\x50", Err("127.1".to_owned()), 80, 12),
        ];
        for (bytes, host, port, length) in cases {
            let request = Request { command: CONNECT, host, port };
            assert_eq!(request_5(bytes), Ok(Some((request, length))), "{}", bytes.escape_ascii());
            for end in 0..length {
                assert_eq!(request_5(&bytes[..end]), Ok(None), "{}", bytes[..end].escape_ascii());
            }
        }
        assert!(request_5(b"\x05\x01\x00\x02").unwrap_err().address_kind);
        assert!(!request_5(b"\x04").unwrap_err().address_kind);
    }

    #[test]
    fn version_4_with_an_address_and_with_a_name() {
        let address = b"\x04\x01\x00\x50\xc0\x00\x02\x07user\0after";
        let request = Request { command: CONNECT, host: literal("192.0.2.7"), port: 80 };
        assert_eq!(request_4(address), Ok(Some((request, 13))));
        let named = b"\x04\x01\x01\xbb\0\0\0\x01\0example.org\0";
        let request = Request { command: CONNECT, host: name("example.org"), port: 443 };
        assert_eq!(request_4(named), Ok(Some((request, named.len()))));
        for end in 0..named.len() {
            assert_eq!(request_4(&named[..end]), Ok(None));
        }
        let endless = [&b"\x04\x01\x00\x50\xc0\x00\x02\x07"[..], &[b'u'; 256]].concat();
        assert!(request_4(&endless).is_err());
    }

    #[test]
    fn greetings() {
        assert_eq!(methods(b"\x05\x02\x00\x02after"), Ok(Some((vec![0, 2], 4))));
        assert_eq!(methods(b"\x05\x00"), Ok(Some((vec![], 2))));
        assert_eq!(methods(b"\x05\x02\x00"), Ok(None));
        assert!(methods(b"G").is_err());
        assert_eq!(password(b"\x01\x01u\x02pwafter"), Ok(Some(((), 6))));
        assert_eq!(password(b"\x01\x00\x00"), Ok(Some(((), 3))));
        assert_eq!(password(b"\x01\x01u"), Ok(None));
        assert!(password(b"\x05").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            for length in [methods(&bytes).map(|it| it.map(|it| it.1)),
                           password(&bytes).map(|it| it.map(|it| it.1)),
                           request_5(&bytes).map(|it| it.map(|it| it.1)),
                           request_4(&bytes).map(|it| it.map(|it| it.1))].into_iter().flatten().flatten() {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
