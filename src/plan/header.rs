//! What a trace begins with: what is allowed, what is in force, what the file proves.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::HostFacts;
use crate::command::Command;
use crate::policy::{Host, Policy, looks};
use crate::supervisor::sha256_of;
use crate::trace::{display_bytes, path_value};

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
    host: &dyn Host,
) -> Map<String, Value> {
    let text = |path: &Path| display_bytes(path.as_os_str().as_encoded_bytes());
    let argv: Vec<String> = typed.iter().map(|word| display_bytes(word.as_encoded_bytes())).collect();
    let (words, rules) = policy_in_words(policy);
    let header = json!({
        "agentbox": env!("CARGO_PKG_VERSION"),
        "argv": argv,
        "checkpoint": false,
        "policy_sha256": policy.digest(),
        "python": Value::Null,
        "policy": words,
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
    let Value::Object(mut header) = header else { return Map::new() };
    header.extend(script(command, host));
    header
}

/// The text of the policy, and that of each rule.
pub(super) fn policy_in_words(policy: &Policy) -> (Value, Value) {
    (policy.text.as_str().into(), policy.rules.iter().map(|rule| rule.text.as_str()).collect())
}

/// The script that the command runs, and its digest: the kernel opens it as one of the command's own files.
fn script(command: &Command, host: &dyn Host) -> Vec<(String, Value)> {
    let Some(path) = command.script.as_ref().map(|script| host.resolve(script)) else { return Vec::new() };
    let mut said: Vec<_> = path_value("script", path.as_os_str().as_encoded_bytes()).into_iter().collect();
    if looks::is_file(&path) {
        let digest = File::open(&path).and_then(|mut file| sha256_of(&mut file));
        said.extend(digest.ok().map(|digest| ("script_sha256".to_owned(), digest.into())));
    }
    said
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
        let (clock, again) = if self.seeded {
            (
                "replayable, durations in Go and Java programs near the recorded ones; CPU time and RDTSC excepted",
                ", replayable",
            )
        } else {
            ("not covered", "")
        };
        // Forks are followed in a run that can be replayed alone.
        let exits = if self.seeded { "recorded, replayable" } else { "of the command alone" };
        let tls = if self.reads_tls { judged } else { "server names judged, bytes recorded unread" };
        let (tls, answered) = (format!("{tls}{again}"), format!("{judged}{again}"));
        header.insert("mechanisms".to_owned(), self.mechanisms(full_mediation));
        if let Some(limit) = self.idle_timeout {
            header.insert("idle_timeout".to_owned(), limit.as_secs_f64().into());
        }
        if !self.redacted.is_empty() {
            header.insert("redact".to_owned(), self.redacted.clone().into());
        }
        // What transcripts and segments look like: see docs/trace.md.
        header.insert("formats".to_owned(), json!({"streams": 1, "changes": 1, "images": 1}));
        header.insert(
            "capture".to_owned(),
            json!({
                "files read": read,
                "files written": answered,
                "exec": answered,
                "exits": exits,
                "tcp": answered,
                "udp": answered,
                "http": answered,
                "tls": tls,
                "dns": answered,
                "unix sockets": answered,
                "environment": format!("enforced, recorded{again}"),
                "clock": clock,
                "randomness": randomness,
                "stdio": self.stdio,
            }),
        );
    }

    fn mechanisms(&self, full_mediation: bool) -> Value {
        let system = if full_mediation {
            "injected descriptors"
        } else {
            "injected descriptors; system files by the kernel"
        };
        json!({
            "namespaces": ["user", "mount", "pid", "net", "ipc", "uts", "cgroup"],
            "seccomp": "notification",
            "exec": "notification and exec event",
            "files": system,
            "landlock": self.landlock,
            "network": self.capture,
        })
    }
}
