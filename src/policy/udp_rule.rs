//! `net: udp:HOST:PORT`: datagrams, which need their port named.

use super::host_fault::{HostFault, syntax};
use super::host_rule::{NetRule, NetTarget, target};
use super::value::Value;
use super::verdict::Transport;

/// The launcher's own name server answers here, whatever the address.
pub(super) const DNS: u16 = 53;

const FORM: &str = "write `net: udp:HOST:PORT`, `udp:[2001:db8::1]:PORT` or `udp:cidr/10.0.0.0/8:PORT`";

/// Reads the value, which begins with `udp:`.
pub(super) fn parse(value: &Value) -> Result<NetRule, HostFault> {
    let text = &value.text["udp:".len()..];
    let mut words: Vec<&str> = if value.quoted { vec![text] } else { text.split_whitespace().collect() };
    words.extend(value.tail.split_whitespace());
    if text.starts_with(char::is_whitespace) || words.first().is_none_or(|first| first.is_empty()) {
        return Err(syntax("`udp:` needs a host", FORM));
    }
    let (host, suffixes) = words.split_first().unwrap_or((&"", &[]));
    let (target, port) = target(host)?;
    let Some(port) = port else {
        return Err(syntax(
            "datagrams need a port",
            format!("write `net: udp:{host}:PORT`; without `udp:` the rule is for streams, at any port"),
        ));
    };
    if port == DNS {
        return Err(syntax(
            "port 53 is answered by the launcher's own name server, whatever the address",
            "remove the rule: names need none but the `net:` rule of the host itself",
        ));
    }
    let private = match suffixes {
        [] => false,
        ["private"] if matches!(target, NetTarget::Name(_)) => true,
        ["private"] => {
            return Err(syntax(
                "`private` belongs to a name",
                "leave it out: a rule that names an address allows that address",
            ));
        }
        [other, ..] => {
            return Err(syntax(format!("`{other}` does not go with `udp:`"), "the only suffix is `private`"));
        }
    };
    Ok(NetRule { transport: Transport::Udp, private, ..NetRule::new(target, Some(port)) })
}
