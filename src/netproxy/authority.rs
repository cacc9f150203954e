//! The host and port that a client claims, read strictly.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::policy::canonical_name;

/// What stands for a host in a request, a CONNECT line, a Host field or a ClientHello.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name: lower case, without the root's dot.
    Name(String),
    /// An address literal.
    Address(IpAddr),
}

/// A host and perhaps a port (RFC 3986 section 3.2, without user information).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Who is meant.
    pub host: Host,
    /// None where the text names none: the scheme's own port is meant.
    pub port: Option<u16>,
}

impl Authority {
    /// Reads `host`, `host:port`, `address:port` or `[address]:port`. None for everything else:
    /// what we read in one way must not be read in another way by the origin.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (inside, rest) = rest.split_once(']')?;
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':')?),
            };
            (Host::Address(IpAddr::V6(inside.parse().ok()?)), port)
        } else {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            (Host::parse(host)?, port)
        };
        let port = match port {
            None | Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
            Some(_) => return None,
        };
        Some(Self { host, port })
    }
}

impl Host {
    /// Reads a name or an IPv4 literal.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        normalize(text).map(Self::Name)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// A name as the policy compares it. None when it holds what no host name on the wire holds.
#[must_use]
pub fn normalize(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.bytes().all(plain) {
        return None;
    }
    canonical_name(name)
}

/// `name:port`, or `address:port` as the standard library writes it.
pub(crate) fn target(name: Option<&str>, destination: SocketAddr) -> String {
    match name {
        Some(name) => format!("{name}:{}", destination.port()),
        None => destination.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Host {
        Host::Name(text.to_owned())
    }

    #[test]
    fn reads_the_forms_of_rfc_3986() {
        let cases = [
            ("example.org", name("example.org"), None),
            ("EXAMPLE.org.:80", name("example.org"), Some(80)),
            ("example.org:", name("example.org"), None),
            ("192.0.2.1:8080", Host::Address("192.0.2.1".parse().unwrap()), Some(8080)),
            ("[2001:db8::1]:443", Host::Address("2001:db8::1".parse().unwrap()), Some(443)),
            ("[::1]", Host::Address("::1".parse().unwrap()), None),
        ];
        for (text, host, port) in cases {
            assert_eq!(Authority::parse(text), Some(Authority { host, port }), "{text}");
        }
    }

    #[test]
    fn refuses_what_could_be_read_in_two_ways() {
        let cases = [
            "",
            ":80",
            "user@example.org",
            "a b",
            "a/b",
            "example.org:80:80",
            "example.org:+80",
            "example.org:99999",
            "[::1",
            "[::1]80",
            "::1",
            "a..b",
            "exa\u{6d}ple.org\u{0}",
            "a,b",
            "a%2eb",
            ".",
            "127.1",
            "0x7f000001",
        ];
        for text in cases {
            assert_eq!(Authority::parse(text), None, "{text:?}");
        }
    }
}
