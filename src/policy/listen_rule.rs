//! `listen: PORT`: a port that a server inside may offer on the host's loopback.

use super::host_rule::NetTarget;
use super::parse::Effect;
use super::placed::Placed;
use super::report::{Diagnostic, Severity};
use super::udp_rule::DNS;
use super::value::Value;
use super::verdict::{RuleId, Transport};
use super::{Policy, RuleBody};

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ListenFault {
    #[error("`{0}` is no port")]
    NoPort(String),
    #[error("`listen:` takes a port alone")]
    Host,
    #[error("port 53 inside is that of the launcher's own name server")]
    NameServer,
}

impl ListenFault {
    pub(super) fn help(&self) -> String {
        match self {
            Self::NoPort(_) => "write a number from 1 to 65535".to_owned(),
            Self::Host => {
                "write `listen: 3000`: the host's loopback offers it, and no other address".to_owned()
            }
            Self::NameServer => "name another port: no server inside can have that one".to_owned(),
        }
    }
}

/// Reads the value.
pub(super) fn parse(value: &Value) -> Result<u16, ListenFault> {
    let text = format!("{}{}", value.text, value.tail);
    if text.contains([':', '.', '[']) {
        return Err(ListenFault::Host);
    }
    // `parse` alone would take `+80`.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(DNS) if digits => Err(ListenFault::NameServer),
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err(ListenFault::NoPort(text)),
    }
}

/// One error for each port that another rule holds inside for the host's.
pub(super) fn conflicts(rules: &[Placed]) -> Vec<Diagnostic> {
    let conflict = |placed: &Placed| {
        let RuleBody::Listen(port) = placed.rule.body else { return None };
        let holds = |other: &&Placed| match &other.rule.body {
            RuleBody::Net(net) => {
                other.rule.effect == Effect::Grant
                    && net.transport == Transport::Tcp
                    && net.port == Some(port)
                    && (net.target == NetTarget::Loopback || net.private)
            }
            _ => false,
        };
        let other = &rules.iter().find(holds)?.rule;
        let message = format!(
            "port {port} is held inside for the host's by `{}` ({}:{})",
            other.text, other.origin.file, other.origin.line
        );
        let help = Some("a server inside cannot have that port too: name another for it".to_owned());
        Some(Diagnostic { severity: Severity::Error, message, help, ..placed.at.clone() })
    };
    rules.iter().filter_map(conflict).collect()
}

impl Policy {
    /// The ports that servers inside may offer, each once, with the first rule that says so.
    pub fn published_ports(&self) -> Vec<(u16, RuleId)> {
        let mut ports: Vec<(u16, RuleId)> = Vec::new();
        for (at, rule) in self.rules.iter().enumerate() {
            if let RuleBody::Listen(port) = rule.body
                && !ports.iter().any(|(known, _)| *known == port)
            {
                ports.push((port, RuleId(at)));
            }
        }
        ports
    }
}
