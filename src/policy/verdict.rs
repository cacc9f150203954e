//! What is asked of a policy and what it answers.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a process wants to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathAccess {
    /// Content or listing.
    Read,
    /// Any change: content, name, mode, times, attributes.
    Write,
}

/// What carries the bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// A stream.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

/// The place of a rule in `Policy::rules`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleId(pub usize);

/// The answer to one access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Some rule grants it and none denies it.
    Allow {
        /// The most specific of the rules that grant it.
        rule: RuleId,
    },
    /// Refused.
    Deny {
        /// The `deny:` rule that decided; `None` when no rule grants the access.
        rule: Option<RuleId>,
        /// Why, in one line.
        reason: String,
    },
}

impl Verdict {
    /// Whether the access may happen.
    pub fn is_allow(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    /// The rule that decided.
    pub fn rule(&self) -> Option<RuleId> {
        match self {
            Self::Allow { rule } => Some(*rule),
            Self::Deny { rule, .. } => *rule,
        }
    }

    pub(super) fn no_rule(reason: impl Into<String>) -> Self {
        Self::Deny { rule: None, reason: reason.into() }
    }
}

/// A denied access, for which `Policy::suggestion` writes the rule that would allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A file or directory, absolute, in the final view.
    Path {
        /// What was wanted.
        access: PathAccess,
        /// Where.
        path: PathBuf,
    },
    /// A name in a directory that was to be made, removed or renamed, which a rule for that very name does not allow
    /// for long: it is a mount, and stays (EBUSY).
    Entry {
        /// The name, absolute, in the final view.
        path: PathBuf,
        /// The directory for which a rule would allow it.
        directory: PathBuf,
    },
    /// A program start.
    Exec {
        /// The file that the kernel would run.
        exe: PathBuf,
        /// With these words.
        argv: Vec<OsString>,
    },
    /// The resolution of a name.
    Name(String),
    /// A connection.
    Connect {
        /// The names that stand for the address in this run; empty for a literal address.
        names: Vec<String>,
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
        /// What carries it.
        transport: Transport,
    },
    /// An HTTP request.
    Request {
        /// The names that stand for the address in this run; empty for a literal address.
        names: Vec<String>,
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
        /// Its method, or `UPGRADE` for a change of protocol.
        method: String,
        /// Its path in normal form.
        path: String,
    },
    /// A Unix socket of the host, absolute.
    Unix(PathBuf),
    /// A variable of the environment.
    Env(String),
}
