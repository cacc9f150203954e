//! `net:` rules: names, addresses, ranges, ports and suffixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::address;
use super::host_fault::{HostFault, syntax, unknown_suffix};
use super::name::NamePattern;
use super::rate::{self, Rate};
use super::request_rule::{split_methods, split_path};
use super::url_path::UrlPattern;
use super::value::Value;
use super::verdict::Transport;

/// A rule about a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetRule {
    /// Who may be spoken to.
    pub target: NetTarget,
    /// At which port; `None` is any.
    pub port: Option<u16>,
    /// What carries it. A `deny:` for streams takes datagrams away as well.
    #[serde(default)]
    pub transport: Transport,
    /// The name may resolve into ranges that are not the open internet.
    pub private: bool,
    /// TLS to it is relayed and never intercepted.
    pub tunnel: bool,
    /// The methods that it is about, sorted; none is any.
    #[serde(default)]
    pub methods: Vec<String>,
    /// The paths that it is about; `None` is any.
    #[serde(default)]
    pub path: Option<UrlPattern>,
    /// How often: requests where HTTP is read, else connections.
    #[serde(default)]
    pub rate: Option<Rate>,
}

/// Whom a `net:` rule names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetTarget {
    /// A name or names.
    Name(NamePattern),
    /// One address, in canonical form.
    Address(IpAddr),
    /// `cidr/…`
    Range(IpNet),
    /// `localhost`, `127.0.0.1` or `[::1]`: the loopback of the host.
    Loopback,
}

impl NetRule {
    /// A rule for streams without any suffix.
    pub(super) fn new(target: NetTarget, port: Option<u16>) -> Self {
        Self {
            target,
            port,
            transport: Transport::Tcp,
            private: false,
            tunnel: false,
            methods: Vec::new(),
            path: None,
            rate: None,
        }
    }

    /// Whether it is about some requests only, so that they have to be read.
    pub fn is_conditional(&self) -> bool {
        !self.methods.is_empty() || self.path.is_some()
    }

    /// Whether a word stands behind the host that only a grant can have.
    pub(super) fn has_suffix(&self) -> bool {
        self.private || self.tunnel || self.rate.is_some()
    }
}

impl fmt::Display for NetRule {
    /// As it would be written, in one order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, "{} ", self.methods.join("|"))?;
        }
        if self.transport == Transport::Udp {
            f.write_str("udp:")?;
        }
        match &self.target {
            NetTarget::Name(name) => write!(f, "{name}")?,
            NetTarget::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            NetTarget::Address(address) => write!(f, "{address}")?,
            NetTarget::Range(range) => write!(f, "cidr/{range}")?,
            NetTarget::Loopback => f.write_str("localhost")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if let Some(path) = &self.path {
            write!(f, "{path}")?;
        }
        for (is_set, suffix) in [(self.private, " private"), (self.tunnel, " tunnel")] {
            f.write_str(if is_set { suffix } else { "" })?;
        }
        match &self.rate {
            Some(rate) => write!(f, " {rate}"),
            None => Ok(()),
        }
    }
}

/// What a `net:` value is.
pub(super) enum NetValue {
    Host(NetRule),
    /// The path behind `unix:`.
    Unix(Value),
}

/// Reads the value of a `net:` rule.
pub(super) fn parse(value: &Value) -> Result<NetValue, HostFault> {
    if value.text.starts_with("unix:") {
        return unix(value);
    }
    let mut words = words_of(value);
    words.extend(value.tail.split_whitespace());
    let (methods, words) = split_methods(&words)?;
    let Some((first, suffixes)) = words.split_first() else {
        return Err(syntax("empty host", "write a name or an address"));
    };
    refuse_other_forms(first)?;
    let (host, path) = split_path(first)?;
    let (target, port) = target(host)?;
    let mut rule = NetRule { methods, path, ..NetRule::new(target, port) };
    for suffix in suffixes {
        match *suffix {
            "private" => rule.private = true,
            "tunnel" => rule.tunnel = true,
            word if word.starts_with('@') && rule.rate.is_none() => rule.rate = Some(rate::parse(word)?),
            word if word.starts_with('@') => {
                return Err(syntax("a rule has one rate", "write a rule for each rate: they add up"));
            }
            other => return Err(unknown_suffix(other)),
        }
    }
    if rule.tunnel && rule.is_conditional() {
        return Err(syntax(
            "`tunnel` leaves unread what methods and paths are looked for in",
            "leave out `tunnel`, or the methods and the path",
        ));
    }
    if rule.private && !matches!(rule.target, NetTarget::Name(_)) {
        return Err(syntax(
            "`private` belongs to a name",
            "leave it out: a rule that names an address allows that address",
        ));
    }
    Ok(NetValue::Host(rule))
}

/// `unix:PATH`; the path may hold blanks and takes no suffix.
fn unix(value: &Value) -> Result<NetValue, HostFault> {
    let text = value.text["unix:".len()..].trim_start().to_owned();
    if text.is_empty() {
        return Err(syntax("`unix:` needs a path", "write `net: unix:/run/NAME.sock`"));
    }
    if text.starts_with('@') || text.starts_with('\0') {
        return Err(syntax(
            "abstract sockets cannot be granted",
            "write the path of a socket, or `./@…` for a file of that name",
        ));
    }
    let last = text.rsplit_once(char::is_whitespace).map_or("", |(_, last)| last);
    if !value.quoted && (matches!(last, "private" | "tunnel") || rate::parse(last).is_ok()) {
        return Err(syntax(
            format!("`unix:` takes no suffix such as `{last}`"),
            "leave it out, or put the value in quotes if it belongs to the path",
        ));
    }
    if text.starts_with('"') {
        return Err(syntax("quotes count at the start of the value only", "write `net: \"unix:PATH\"`"));
    }
    Ok(NetValue::Unix(Value { text, ..value.clone() }))
}

/// The words of a value. Quotes keep blanks together, but for the one behind methods.
fn words_of(value: &Value) -> Vec<&str> {
    if !value.quoted {
        return value.text.split_whitespace().collect();
    }
    match value.text.split_once(' ') {
        Some((methods, rest)) if methods.bytes().all(|b| b.is_ascii_uppercase() || b == b'|') => {
            vec![methods, rest]
        }
        _ => vec![&value.text],
    }
}

/// Forms that mean something else than a host with a path.
fn refuse_other_forms(first: &str) -> Result<(), HostFault> {
    if let Some(scheme) = first.find("://") {
        let place = first[scheme + 3..].split(['?', '#']).next().unwrap_or("");
        let place = place.strip_suffix('/').unwrap_or(place);
        let host = place.split('/').next().unwrap_or("");
        let help = match place == host {
            true => format!("write `net: {host}`"),
            false => format!("write `net: {place}`, or `net: {host}` for all of that host"),
        };
        return Err(syntax("a URL is no host", help));
    }
    if first.starts_with("unix:") {
        return Err(syntax("methods do not go with `unix:`", "write `net: unix:PATH`"));
    }
    if first.starts_with("udp:") {
        return Err(syntax("methods do not go with `udp:`", "write `net: udp:HOST:PORT`"));
    }
    for prefix in ["unix:", "udp:"] {
        if first.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)) {
            return Err(syntax(
                format!("`{prefix}` is written in small letters"),
                format!("write `net: {prefix}…`"),
            ));
        }
    }
    let Some((host, path)) = first.split_once('/') else { return Ok(()) };
    let length = path.split(':').next().unwrap_or("");
    let is_range = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        && !length.is_empty()
        && length.bytes().all(|byte| byte.is_ascii_digit());
    if is_range {
        return Err(syntax("an address range begins with `cidr/`", format!("write `net: cidr/{first}`")));
    }
    Ok(())
}

pub(super) fn target(text: &str) -> Result<(NetTarget, Option<u16>), HostFault> {
    if let Some(range) = text.strip_prefix("cidr/") {
        return cidr(range);
    }
    if text.starts_with('[') {
        return bracketed(text);
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(syntax(
            "an IPv6 address stands in brackets",
            format!("write `net: [{text}]` or `net: [{text}]:443`"),
        ));
    }
    let (host, port) = split_port(text)?;
    if host.contains(':') {
        return Err(syntax(
            format!("`{host}` is no host"),
            "write `HOST`, `HOST:PORT`, `[IPv6]:PORT` or `unix:PATH`",
        ));
    }
    if let Ok(v4) = host.parse::<Ipv4Addr>() {
        return Ok((from_address(IpAddr::V4(v4)), port));
    }
    let name = NamePattern::parse(host)?;
    let target = if name.is_localhost() { NetTarget::Loopback } else { NetTarget::Name(name) };
    Ok((target, port))
}

fn from_address(address: IpAddr) -> NetTarget {
    let address = address::canonical(address);
    if address::is_loopback(address) { NetTarget::Loopback } else { NetTarget::Address(address) }
}

/// `[2001:db8::1]` with or without `:PORT`.
fn bracketed(text: &str) -> Result<(NetTarget, Option<u16>), HostFault> {
    let example = "write `[2001:db8::1]` or `[2001:db8::1]:443`";
    let Some((inside, after)) = text[1..].split_once(']') else {
        return Err(syntax("`[` is never closed", example));
    };
    let Ok(v6) = inside.parse::<Ipv6Addr>() else {
        return Err(syntax(format!("`{inside}` is no IPv6 address, and sets are no host patterns"), example));
    };
    let port = match after.strip_prefix(':') {
        Some(digits) => Some(port(digits)?),
        None if after.is_empty() => None,
        None => return Err(syntax(format!("`{after}` follows the address"), example)),
    };
    Ok((from_address(IpAddr::V6(v6)), port))
}

/// `ADDRESS/PREFIX` with or without `:PORT`.
fn cidr(text: &str) -> Result<(NetTarget, Option<u16>), HostFault> {
    let example = "write `cidr/10.0.0.0/8`, `cidr/10.0.0.0/8:443` or `cidr/2001:db8::/32`";
    let Some((base, after)) = text.rsplit_once('/') else {
        return Err(syntax("a range needs the length of its prefix", example));
    };
    let (length, port) = match after.split_once(':') {
        Some((length, digits)) => (length, Some(port(digits)?)),
        None => (after, None),
    };
    let base = base.strip_prefix('[').and_then(|base| base.strip_suffix(']')).unwrap_or(base);
    let Ok(address) = base.parse::<IpAddr>() else {
        return Err(syntax(format!("`{base}` is no address"), example));
    };
    let parsed =
        number(length).and_then(|length| u8::try_from(length).ok()).and_then(|l| IpNet::new(address, l).ok());
    let Some(range) = parsed else {
        let most = if address.is_ipv4() { 32 } else { 128 };
        return Err(syntax(
            format!("`{length}` is no prefix length"),
            format!("write a number from 0 to {most}"),
        ));
    };
    if range.trunc() != range {
        let help =
            format!("write `cidr/{}` for the range, or `net: {address}` for one address", range.trunc());
        return Err(syntax(format!("`{range}` has bits set behind its prefix"), help));
    }
    if address::is_translated(&range) {
        return Err(syntax(
            "addresses of this range are judged as the IPv4 addresses in them",
            "write the IPv4 range",
        ));
    }
    Ok((NetTarget::Range(range), port))
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), HostFault> {
    match text.rsplit_once(':') {
        None => Ok((text, None)),
        Some(("", _)) => Err(syntax("a port without a host", "write `HOST:PORT`; `*:PORT` is every name")),
        Some((host, digits)) => Ok((host, Some(port(digits)?))),
    }
}

fn port(digits: &str) -> Result<u16, HostFault> {
    match number(digits).and_then(|port| u16::try_from(port).ok()) {
        Some(port) if port > 0 => Ok(port),
        _ => Err(syntax(
            format!("`{digits}` is no port"),
            "write a number from 1 to 65535, or leave the colon and the port out for any",
        )),
    }
}

/// Plain decimal digits; `parse` alone would take `+80`.
fn number(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}
