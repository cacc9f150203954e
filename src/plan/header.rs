//! What a trace begins with: what is allowed, what is in force, what the file proves.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::HostFacts;
use crate::command::Command;
use crate::policy::Policy;
use crate::trace::display_bytes;

/// What the launch found to be in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enforcement {
    /// Landlock restricts the command.
    pub landlock: bool,
    /// `tproxy`, or `ports` where nf_tables is refused.
    pub capture: String,
    /// Whether TLS is read; if not, it is relayed, and its server names alone are judged.
    pub reads_tls: bool,
    /// How long a stream may be silent, if not for ever.
    pub idle_timeout: Option<Duration>,
    /// Names whose values are redacted besides the well-known ones.
    pub redacted: Vec<String>,
    /// Whether all randomness comes from a seed.
    pub seeded: bool,
    /// For each of `stdin`, `stdout` and `stderr`: whether it is digested, and if not, why.
    pub stdio: Map<String, Value>,
}

/// The arguments of `run.start`, but for what the launch finds out.
pub(super) fn build(
    policy: &Policy,
    command: &Command,
    typed: &[OsString],
    facts: &HostFacts,
    enforce: bool,
) -> Map<String, Value> {
    let text = |path: &Path| display_bytes(path.as_os_str().as_encoded_bytes());
    let argv: Vec<String> = typed.iter().map(|word| display_bytes(word.as_encoded_bytes())).collect();
    let rules: Vec<&str> = policy.rules.iter().map(|rule| rule.text.as_str()).collect();
    let header = json!({
        "agentbox": env!("CARGO_PKG_VERSION"),
        "argv": argv,
        "checkpoint": false,
        "policy_sha256": policy.digest(),
        "python": Value::Null,
        "policy": policy.text,
        "policy_name": policy.name,
        "policy_rules": rules,
        "executable": text(&command.resolved),
        "cwd": text(&facts.cwd),
        "uid": facts.uid,
        "gid": facts.gid,
        "kernel": facts.kernel,
        "architecture": facts.architecture,
        "enforced": enforce,
        "level": "namespaces",
    });
    match header {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl Enforcement {
    /// The mechanisms in force and, for each channel, what this file proves.
    pub fn add_to(&self, header: &mut Map<String, Value>, full_mediation: bool, enforce: bool) {
        let judged = if enforce { "enforced, recorded" } else { "recorded" };
        // A path that the kernel opens by itself may mean another file by then, which Landlock withholds.
        let racy = !self.landlock && !full_mediation;
        let read = if racy { format!("{judged}, racy") } else { judged.to_owned() };
        // Instructions cannot be withheld from programs (arch_prctl(2), ARCH_SET_CPUID: not on every processor).
        let randomness = if self.seeded { "replayable, RDRAND excepted" } else { "not covered" };
        let tls = if self.reads_tls { judged } else { "server names judged, bytes recorded unread" };
        let system = if full_mediation {
            "injected descriptors"
        } else {
            "injected descriptors; system files by the kernel"
        };
        header.insert(
            "mechanisms".to_owned(),
            json!({
                "namespaces": ["user", "mount", "pid", "net", "ipc", "uts", "cgroup"],
                "seccomp": "notification",
                "exec": "notification and exec event",
                "files": system,
                "landlock": self.landlock,
                "network": self.capture,
            }),
        );
        if let Some(limit) = self.idle_timeout {
            header.insert("idle_timeout".to_owned(), limit.as_secs_f64().into());
        }
        if !self.redacted.is_empty() {
            header.insert("redact".to_owned(), self.redacted.clone().into());
        }
        // What transcripts and segments look like: see docs/trace.md.
        header.insert("formats".to_owned(), json!({"streams": 1}));
        header.insert(
            "capture".to_owned(),
            json!({
                "files read": read,
                "files written": judged,
                "exec": judged,
                "tcp": judged,
                "udp": judged,
                "http": judged,
                "tls": tls,
                "dns": judged,
                "unix sockets": judged,
                "environment": "enforced, recorded",
                "clock": "not covered",
                "randomness": randomness,
                "stdio": self.stdio,
            }),
        );
    }
}
