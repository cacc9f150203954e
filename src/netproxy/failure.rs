//! What went wrong, in words that a replay can act on.

use std::error::Error;
use std::io;

use serde_json::{Value, json};

use super::error::{Blame, NetproxyError};
use super::recorded::Diverged;

/// The kind of what a replay has no answer to.
pub(crate) const NOT_RECORDED: &str = "not recorded";

/// Kinds of failures, besides those of a replay itself.
const KINDS: [&str; 15] = [
    "refused",
    "unreachable",
    "timeout",
    "reset",
    "truncated",
    "malformed",
    "certificate",
    "tls",
    "unresolved",
    "denied",
    "unrecorded",
    "abandoned",
    "ended",
    "idle",
    "failed",
];

/// The kind of a failure and the side that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: &'static str,
    blame: Blame,
}

impl Failure {
    pub(crate) fn new(kind: &'static str, blame: Blame) -> Self {
        Self { kind, blame }
    }

    /// One that an entry tells of; none where it tells of none.
    pub(crate) fn recorded(result: &Value) -> Option<Self> {
        let failure = result.get("failure")?;
        let kind = failure.get("kind").and_then(Value::as_str);
        let kind = KINDS.into_iter().find(|one| Some(*one) == kind).unwrap_or("failed");
        let blame = match failure.get("side").and_then(Value::as_str) {
            Some("agent") => Blame::Agent,
            Some("proxy") => Blame::Proxy,
            _ => Blame::Upstream,
        };
        Some(Self { kind, blame })
    }

    pub(crate) fn kind(self) -> &'static str {
        self.kind
    }

    pub(crate) fn blame(self) -> Blame {
        self.blame
    }

    /// A socket's error.
    pub(crate) fn io(error: &io::Error, blame: Blame) -> Self {
        Self::new(kind_of(error).unwrap_or("failed"), blame)
    }

    /// A failed exchange or stream.
    pub(crate) fn of(error: &NetproxyError) -> Self {
        let kind = match error {
            NetproxyError::Denied(_) | NetproxyError::Unclear(_) | NetproxyError::Exhausted { .. } => {
                "denied"
            }
            NetproxyError::Request { .. }
            | NetproxyError::Hello { .. }
            | NetproxyError::Switched
            | NetproxyError::Unsearchable { .. } => "malformed",
            NetproxyError::Resolve { .. } => "unresolved",
            NetproxyError::Trace { .. } => "unrecorded",
            NetproxyError::NotRecorded { .. } => NOT_RECORDED,
            NetproxyError::Abandoned => "abandoned",
            NetproxyError::Replayed { failure, .. } => failure.kind,
            other => other.source().and_then(kind_of).unwrap_or("failed"),
        };
        Self::new(kind, error.blame())
    }

    /// As an entry says it; `received` bytes had come from the origin before.
    pub(crate) fn value(self, received: u64) -> Value {
        let side = match self.blame {
            Blame::Agent => "agent",
            Blame::Upstream => "origin",
            Blame::Proxy => "proxy",
        };
        json!({"kind": self.kind, "side": side, "received": received})
    }
}

/// Whether the other side has ended the connection.
pub(super) fn is_end(error: &(dyn Error + 'static)) -> bool {
    matches!(kind_of(error), Some("reset" | "truncated"))
}

/// The kind of the innermost error that tells.
fn kind_of(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        let inner = error.get_ref().and_then(|inner| kind_of(inner));
        return inner.or_else(|| io_kind(error));
    }
    if let Some(diverged) = error.downcast_ref::<Diverged>() {
        return Some(diverged.kind());
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        let certificate = matches!(error, rustls::Error::InvalidCertificate(_));
        return Some(if certificate { "certificate" } else { "tls" });
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return error.get_io().and_then(|error| kind_of(error));
    }
    if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
        if hyper.is_incomplete_message() {
            return Some("truncated");
        }
        if hyper.is_parse() || hyper.is_parse_too_large() || is_unreadable(hyper) {
            return Some("malformed");
        }
    }
    error.source().and_then(kind_of)
}

/// Whether what frames a body could not be read: the library says so with an error of its own.
fn is_unreadable(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| {
        matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
            && source.get_ref().and_then(|inner| kind_of(inner)).is_none()
    })
}

fn io_kind(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused",
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            "reset"
        }
        io::ErrorKind::TimedOut => "timeout",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "unreachable",
        io::ErrorKind::UnexpectedEof => "truncated",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_error_tells() {
        let kind = |error: io::Error| Failure::io(&error, Blame::Upstream).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionReset.into()), "reset");
        assert_eq!(kind(io::Error::other(io::Error::from(io::ErrorKind::TimedOut))), "timeout");
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        assert_eq!(kind(io::Error::new(io::ErrorKind::InvalidData, expired)), "certificate");
        assert_eq!(kind(io::Error::other("what")), "failed");
    }

    #[test]
    fn a_failure_says_who_and_where() {
        let address = "192.0.2.1:80".parse().unwrap();
        let error = NetproxyError::Dial { address, source: io::ErrorKind::ConnectionRefused.into() };
        let expected = json!({"kind": "refused", "side": "origin", "received": 0});
        assert_eq!(Failure::of(&error).value(0), expected);
    }
}
