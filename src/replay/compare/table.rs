//! What counts: for each operation, the members that are compared and how its entries are matched.
//!
//! Never compared: `i`, `ts`, `prev`, `sha`, `rule`, times, sizes of pieces, addresses beside a name, process
//! numbers, CPU time, memory, pre-images (`before`), and how often an entry was folded.

use serde_json::Value;

use super::cause::Cause;

/// How entries of one sort are matched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Lane {
    /// In their order, each thread by itself: the supervisor makes these entries while the thread waits.
    Ordered,
    /// As a set, each process by itself: the proxy makes these entries, in the order in which it gets to them.
    Any,
    /// Requests and their answers, which are recorded when they end: by content, with an order only between
    /// those that did not overlap.
    Request,
    /// Files as they were left: the last entry of each path before it is renamed or deleted.
    Settled,
    /// One of a kind, by its name.
    End,
}

/// How an operation is compared. Members are those of `args`, each with its `_hex` beside it.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) lane: Lane,
    /// Identical entries of a stream are one step, however often they come: the recorder may have folded them.
    pub(super) folds: bool,
    /// Of the launcher, not of a process.
    pub(super) of_run: bool,
    /// What it is about: entries that agree in this are the same step, whatever else differs.
    pub(super) about: &'static [&'static str],
    /// What else must be the same.
    pub(super) more: &'static [&'static str],
    /// Members of `result` that must be the same.
    pub(super) outcome: &'static [&'static str],
    /// What it is called where something differs.
    pub(super) cause: Cause,
    /// Any other member counts as well: an operation that this table does not know.
    pub(super) open: bool,
}

const ORDERED: Rule = Rule {
    lane: Lane::Ordered,
    folds: false,
    of_run: false,
    about: &["path"],
    more: &["resolved"],
    outcome: &[],
    cause: Cause::MissingEffect,
    open: false,
};

const ANY: Rule = Rule { lane: Lane::Any, more: &[], ..ORDERED };

/// `to` stands for the names of a destination, or for its address where it was reached without a name.
static TABLE: &[(&str, Rule)] = &[
    (
        "fs.open_read",
        Rule {
            folds: true,
            more: &["resolved", "type", "sha256", "size", "exists", "partial"],
            cause: Cause::InputChanged,
            ..ORDERED
        },
    ),
    ("fs.open_write", Rule { more: &["resolved", "type", "mode"], ..ORDERED }),
    ("fs.delete", ORDERED),
    ("fs.mkdir", Rule { more: &["resolved", "mode"], ..ORDERED }),
    ("fs.mknod", Rule { more: &["resolved", "type", "mode"], ..ORDERED }),
    ("fs.symlink", Rule { more: &["resolved", "text"], ..ORDERED }),
    ("fs.rename", Rule { about: &["path", "to"], more: &["resolved", "exchange"], ..ORDERED }),
    ("fs.link", Rule { about: &["path", "of"], ..ORDERED }),
    (
        "fs.meta",
        Rule {
            folds: true,
            about: &["path", "change", "name"],
            more: &["resolved", "mode", "size", "value_sha256"],
            cause: Cause::OutputChanged,
            ..ORDERED
        },
    ),
    (
        "proc.spawn",
        Rule {
            about: &["exe"],
            more: &["argv", "argv_whole", "script"],
            cause: Cause::CommandChanged,
            ..ORDERED
        },
    ),
    ("net.listen", Rule { folds: true, about: &["address", "listening"], more: &[], ..ORDERED }),
    (
        "fs.write",
        Rule {
            lane: Lane::Settled,
            more: &["sha256", "size", "unreadable"],
            cause: Cause::OutputChanged,
            ..ORDERED
        },
    ),
    (
        "proc.image",
        Rule { of_run: true, folds: true, more: &["sha256", "size"], cause: Cause::InputChanged, ..ANY },
    ),
    ("net.connect", Rule { folds: true, about: &["to", "port", "path", "via"], ..ANY }),
    ("net.accept", Rule { folds: true, about: &["port"], ..ANY }),
    (
        "dns.lookup",
        Rule {
            about: &["name", "type"],
            outcome: &["code", "addresses"],
            cause: Cause::ResponseChanged,
            ..ANY
        },
    ),
    ("limit.hit", Rule { folds: true, about: &["limit", "target"], cause: Cause::DenialChanged, ..ANY }),
    (
        "http.exchange",
        Rule {
            lane: Lane::Request,
            about: &["method", "url"],
            more: &["version", "headers", "trailers", "body"],
            outcome: &["status", "headers", "trailers", "body", "withheld", "upgraded", "failure"],
            cause: Cause::ResponseChanged,
            ..ORDERED
        },
    ),
    (
        "net.stream",
        Rule {
            lane: Lane::Request,
            about: &["to", "port", "path", "via"],
            more: &[],
            outcome: &["up", "down", "said", "heard", "failure"],
            cause: Cause::ResponseChanged,
            ..ORDERED
        },
    ),
    (
        "net.datagram",
        Rule {
            folds: true,
            about: &["to", "port"],
            outcome: &["failure"],
            cause: Cause::ResponseChanged,
            ..ANY
        },
    ),
    (
        "proc.exit",
        Rule {
            lane: Lane::End,
            about: &[],
            more: &["code", "signal"],
            cause: Cause::ExitStatusChanged,
            ..ORDERED
        },
    ),
    (
        "stdio",
        Rule {
            lane: Lane::End,
            of_run: true,
            about: &["stream"],
            more: &["sha256", "size", "same_as", "complete", "changed", "error"],
            cause: Cause::OutputChanged,
            ..ORDERED
        },
    ),
];

/// A connection whose requests are entries of their own: that there was one is all that counts.
static CARRIER: Rule = Rule {
    folds: true,
    about: &["to", "port", "path", "via"],
    outcome: &["failure"],
    cause: Cause::ResponseChanged,
    ..ANY
};

const REFUSED: Rule = Rule {
    folds: true,
    about: &["target"],
    more: &["enforced", "resolved", "exe", "method", "url", "name", "killed"],
    cause: Cause::DenialChanged,
    ..ORDERED
};
static DENIED: Rule = REFUSED;
/// The proxy refuses too, beside the supervisor.
static DENIED_NET: Rule = Rule { lane: Lane::Any, ..REFUSED };

static INPUT: Rule = Rule { open: true, cause: Cause::InputChanged, about: &[], more: &[], ..ORDERED };
static ANSWER: Rule = Rule { cause: Cause::ResponseChanged, about: &[], more: &[], open: true, ..ORDERED };
static TIME: Rule = Rule { cause: Cause::TimeOnly, about: &[], more: &[], open: true, ..ORDERED };
static CHANCE: Rule = Rule { cause: Cause::UncontrolledSource, about: &[], more: &[], open: true, ..ORDERED };
static OTHER: Rule = Rule { cause: Cause::OutputChanged, about: &[], more: &[], open: true, ..ORDERED };

/// How an entry is compared; `None` where it is not.
pub(super) fn rule(kind: &str, op: &str, result: &Value) -> Option<&'static Rule> {
    match (kind, op) {
        ("deny", "net") => return Some(&DENIED_NET),
        ("deny", _) => return Some(&DENIED),
        ("effect", "net.stream") if carried_nothing(result) => return None,
        ("effect", "net.stream") if result.get("transcript").is_none() => return Some(&CARRIER),
        ("meta", "limit.hit") | ("effect" | "observe", _) => {}
        _ => return None,
    }
    let known = TABLE.iter().find(|(name, _)| *name == op).map(|(_, rule)| rule);
    Some(known.unwrap_or_else(|| match op.split('.').next() {
        Some("clock") => &TIME,
        Some("rand" | "hook") => &CHANCE,
        Some("net" | "http" | "llm") => &ANSWER,
        Some("fs") if op.starts_with("fs.read") => &INPUT,
        _ => &OTHER,
    }))
}

/// Whether it is the rule of a connection that carried requests.
pub(super) fn is_carrier(rule: &Rule) -> bool {
    std::ptr::eq(rule, &CARRIER)
}

/// Whether nothing came on a connection that did not fail, and nothing was said but in requests: it was opened to have
/// one. Whether it is, and how often, is a matter of chance; that it was allowed to be is `net.connect`.
fn carried_nothing(stream: &Value) -> bool {
    let is_zero = |name: &str| stream.get(name).is_some_and(|bytes| bytes == 0);
    stream.get("failure").is_none()
        && is_zero("down")
        && (stream.get("transcript").is_none() || is_zero("up"))
}

/// Arguments that say what an operation is about which the table does not know.
pub(super) const PRINCIPAL: &[&str] =
    &["path", "url", "method", "argv", "from", "to", "host", "name", "port", "target", "tool"];

/// Members that never count, of any operation.
pub(super) const NEVER: &[&str] =
    &["pid", "before", "timing", "seconds", "cpu_us", "peak_kib", "address", "segments", "replayed"];
