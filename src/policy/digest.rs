//! The digest of a policy: what it says, whatever its order and comments.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::env_rule::EnvRule;
use super::exec_rule::ExecProgram;
use super::host_rule::{NetRule, NetTarget};
use super::parse::Effect;
use super::path_rule::PathPattern;
use super::verdict::{PathAccess, Transport};
use super::{Policy, Rule, RuleBody};

impl Policy {
    /// Lower-case hexadecimal SHA-256 of the base rules in the order read, write, net, exec, env, sorted within a
    /// key, followed by the lines of all other rules, sorted. Read and write count by their resolved path.
    pub fn digest(&self) -> String {
        let mut base: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut added: Vec<Vec<u8>> = Vec::new();
        for rule in &self.rules {
            match base_line(rule) {
                Some(line) => base.push(line),
                None => added.push(added_line(rule)),
            }
        }
        base.sort();
        added.sort();
        let lines: Vec<Vec<u8>> = base.into_iter().map(|(_, line)| line).chain(added).collect();
        let mut hash = Sha256::new();
        hash.update(lines.join(&b'\n'));
        hash.update(b"\n");
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
            text
        })
    }
}

const KEYS: [&str; 5] = ["read", "write", "net", "exec", "env"];

/// The place of the key and the line of a rule that has the form of the five base rules.
fn base_line(rule: &Rule) -> Option<(usize, Vec<u8>)> {
    if rule.effect == Effect::Deny {
        return None;
    }
    let value = rule.value.as_bytes();
    let (key, value) = match &rule.body {
        RuleBody::Path { access, pattern: PathPattern::Literal { resolved, .. } } => {
            (usize::from(*access == PathAccess::Write), resolved.as_os_str().as_bytes())
        }
        RuleBody::Net(net) if net.is_conditional() || net.rate.is_some() => return None,
        RuleBody::Net(NetRule {
            target: NetTarget::Name(_) | NetTarget::Loopback,
            transport: Transport::Tcp,
            private: false,
            tunnel: false,
            ..
        }) if !rule.value.contains('[') => (2, value),
        RuleBody::Net(NetRule {
            target: NetTarget::Address(address),
            transport: Transport::Tcp,
            tunnel: false,
            ..
        }) if address.is_ipv4() && !rule.value.contains('[') => (2, value),
        RuleBody::UnixSocket(_) => (2, value),
        RuleBody::Exec(exec) if !matches!(exec.program, ExecProgram::Glob(_)) => (3, value),
        RuleBody::Env(EnvRule::Pass(_)) => (4, value),
        _ => return None,
    };
    Some((key, [KEYS[key].as_bytes(), b": ", value].concat()))
}

/// The line of any other rule. A pattern says so: a file may be called `*`.
fn added_line(rule: &Rule) -> Vec<u8> {
    let effect = if rule.effect == Effect::Deny { "deny: " } else { "" };
    let (key, rest) = match &rule.body {
        RuleBody::Path { access, pattern } => {
            let key = if *access == PathAccess::Write { "write" } else { "read" };
            (key, path_line(pattern))
        }
        RuleBody::Runtime { path } => ("runtime", path_line(path)),
        RuleBody::Net(net) if net.is_conditional() || net.rate.is_some() => {
            ("net", net.to_string().into_bytes())
        }
        RuleBody::Net(_) => ("net", rule.value.as_bytes().to_vec()),
        RuleBody::UnixSocket(pattern) => ("net unix", path_line(pattern)),
        RuleBody::Exec(_) => ("exec", rule.value.as_bytes().to_vec()),
        RuleBody::Env(_) => ("env", rule.value.as_bytes().to_vec()),
        RuleBody::Secret(secret) => ("secret", secret.to_string().into_bytes()),
        RuleBody::Listen(port) => ("listen", port.to_string().into_bytes()),
    };
    [effect.as_bytes(), key.as_bytes(), b": ", &rest].concat()
}

fn path_line(pattern: &PathPattern) -> Vec<u8> {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    match pattern {
        PathPattern::Literal { resolved, .. } => bytes(resolved),
        PathPattern::Glob { base, glob, .. } => {
            let parts: Vec<String> = glob.clone().into();
            [b"glob ", bytes(base).as_slice(), b" ", parts.join("/").as_bytes()].concat()
        }
    }
}
