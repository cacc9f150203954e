//! `net:` rules: names, addresses, ranges, ports and suffixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::address;
use super::name::{NameFault, NamePattern};
use super::udp_rule;
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

/// What a `net:` value is.
pub(super) enum NetValue {
    Host(NetRule),
    /// The path behind `unix:`.
    Unix(Value),
}

/// Why a `net:` value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostFault {
    #[error("{what} not enforced by this version yet, so the policy is refused")]
    NotYet { what: String, help: &'static str },
    #[error("{message}")]
    Syntax { message: String, help: String },
    #[error("{0}")]
    Name(#[from] NameFault),
}

impl HostFault {
    pub(super) fn help(&self) -> String {
        match self {
            Self::NotYet { help, .. } => (*help).to_owned(),
            Self::Syntax { help, .. } => help.clone(),
            Self::Name(fault) => fault.help(),
        }
    }
}

pub(super) fn syntax(message: impl Into<String>, help: impl Into<String>) -> HostFault {
    HostFault::Syntax { message: message.into(), help: help.into() }
}

/// Reads the value of a `net:` rule.
pub(super) fn parse(value: &Value) -> Result<NetValue, HostFault> {
    if value.text.starts_with("unix:") {
        return unix(value);
    }
    if value.text.starts_with("udp:") {
        return udp_rule::parse(value).map(NetValue::Host);
    }
    let mut words: Vec<&str> =
        if value.quoted { vec![&value.text] } else { value.text.split_whitespace().collect() };
    words.extend(value.tail.split_whitespace());
    let Some((first, mut suffixes)) = words.split_first() else {
        return Err(syntax("empty host", "write a name or an address"));
    };
    refuse_later_forms(first, suffixes)?;
    let (target, port) = target(first)?;
    let mut rule = NetRule { target, port, transport: Transport::Tcp, private: false, tunnel: false };
    while let Some((suffix, rest)) = suffixes.split_first() {
        match *suffix {
            "private" => rule.private = true,
            "tunnel" => rule.tunnel = true,
            other => return Err(unknown_suffix(other)),
        }
        suffixes = rest;
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
    if text.starts_with('"') {
        return Err(syntax("quotes count at the start of the value only", "write `net: \"unix:PATH\"`"));
    }
    Ok(NetValue::Unix(Value { text, ..value.clone() }))
}

/// Forms that a later version will enforce; accepting them now would grant more than they say.
fn refuse_later_forms(first: &str, rest: &[&str]) -> Result<(), HostFault> {
    let not_yet = |what: &str, help| Err(HostFault::NotYet { what: what.to_owned(), help });
    if !rest.is_empty() && is_methods(first) {
        return not_yet("HTTP methods in `net:` are", "write the host alone: `net: HOST`");
    }
    if let Some(scheme) = first.find("://") {
        let host = first[scheme + 3..].split('/').next().unwrap_or("");
        return Err(syntax("a URL is no host", format!("write `net: {host}`")));
    }
    if rest.iter().any(|word| word.starts_with('@')) {
        return not_yet("a rate in `net:` is", "remove the rate (`@N/UNIT`)");
    }
    if first.starts_with("cidr/") || !first.contains('/') {
        return Ok(());
    }
    let (host, path) = first.split_once('/').unwrap_or((first, ""));
    let is_range = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        && path.starts_with(|c: char| c.is_ascii_digit());
    if is_range {
        return Err(syntax("an address range begins with `cidr/`", format!("write `net: cidr/{first}`")));
    }
    not_yet("a URL path in `net:` is", "write the host alone: `net: HOST`")
}

fn is_methods(word: &str) -> bool {
    const METHODS: [&str; 10] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "UPGRADE"];
    word.contains('|') || METHODS.contains(&word)
}

fn unknown_suffix(word: &str) -> HostFault {
    let near = ["private", "tunnel"]
        .into_iter()
        .find(|known| super::key::distance(&word.to_lowercase(), known) <= 2);
    match near {
        Some(near) => {
            syntax(format!("unknown suffix `{word}`, did you mean `{near}`?"), format!("write `{near}`"))
        }
        None => syntax(
            format!("`{word}` follows the host"),
            "write a comma between two hosts; the suffixes are `private` and `tunnel`",
        ),
    }
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
