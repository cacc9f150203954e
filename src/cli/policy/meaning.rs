//! What one rule stands for on this host, and what it says in words.

use std::path::Path;

use super::survey::{exists, text};
use crate::plan::HostFacts;
use crate::policy::{
    Effect, EnvRule, ExecProgram, ExecRule, NetRule, NetTarget, PathAccess, PathPattern, Rule, RuleBody,
    SecretRule, Transport,
};

/// Files, directories, programs or variables of this host.
pub(super) fn stands_for(rule: &Rule, facts: &HostFacts) -> Vec<String> {
    match &rule.body {
        RuleBody::Path { pattern, .. }
        | RuleBody::UnixSocket(pattern)
        | RuleBody::Runtime { path: pattern } => {
            vec![place(pattern)]
        }
        RuleBody::Exec(exec) => programs(exec),
        RuleBody::Env(EnvRule::Assign { name, .. }) => vec![name.clone()],
        RuleBody::Env(env) => {
            let names = facts.environment.iter().map(|(name, _)| text(name));
            let mut names: Vec<String> = names.filter(|name| env.matches(name)).collect();
            names.sort();
            if names.is_empty() {
                names.push("no variable is set".to_owned());
            }
            names
        }
        RuleBody::Secret(secret) if facts.variable(&secret.name).is_none() => {
            vec![format!("{} is not set", secret.name)]
        }
        RuleBody::Secret(secret) => vec![secret.name.clone()],
        RuleBody::Net(_) | RuleBody::Listen(_) => Vec::new(),
    }
}

fn place(pattern: &PathPattern) -> String {
    match pattern {
        PathPattern::Literal { resolved, .. } => present(resolved),
        PathPattern::Glob { base, glob, .. } => {
            let parts: Vec<String> = glob.clone().into();
            let base = text(base);
            format!("{}/{}", base.trim_end_matches('/'), parts.join("/"))
        }
    }
}

fn present(path: &Path) -> String {
    let absent = if exists(path) { "" } else { " (not there)" };
    format!("{}{absent}", text(path))
}

fn programs(exec: &ExecRule) -> Vec<String> {
    match &exec.program {
        ExecProgram::Word { files, .. } if files.is_empty() => vec!["no program is found".to_owned()],
        ExecProgram::Word { files, .. } => {
            let mut found: Vec<String> = files.iter().map(|file| text(&file.resolved)).collect();
            found.dedup();
            found
        }
        ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => vec![place(pattern)],
    }
}

/// One sentence.
pub(super) fn in_words(rule: &Rule) -> String {
    let what = match &rule.body {
        RuleBody::Path { access: PathAccess::Read, .. } => "reading this, and what is below it".to_owned(),
        RuleBody::Path { access: PathAccess::Write, .. } if rule.effect == Effect::Grant => {
            "reading and changing this, and what is below it".to_owned()
        }
        RuleBody::Path { access: PathAccess::Write, .. } => "changing this, and what is below it".to_owned(),
        RuleBody::Runtime { .. } => {
            "reading what is below this, and starting programs there, without a record of each file"
                .to_owned()
        }
        RuleBody::UnixSocket(_) => "connecting to this Unix socket of the host".to_owned(),
        RuleBody::Exec(exec) => start(exec),
        RuleBody::Env(EnvRule::Assign { .. }) => return "sets the variable".to_owned(),
        RuleBody::Env(_) if rule.effect == Effect::Grant => return "passes the variable on".to_owned(),
        RuleBody::Env(_) => return "never passes the variable on".to_owned(),
        RuleBody::Secret(secret) => {
            let fields = match &secret.header {
                Some(field) => format!("the header field {field}"),
                None => "header fields for credentials".to_owned(),
            };
            let SecretRule { host, port, .. } = secret;
            return format!("shows a placeholder; the value goes to {host}, port {port}, in {fields} alone");
        }
        RuleBody::Net(net) => reach(net),
        RuleBody::Listen(port) => {
            format!("offering what listens at port {port} inside at the same port of the host's loopback")
        }
    };
    let verb = if rule.effect == Effect::Grant { "allows" } else { "refuses" };
    format!("{verb} {what}")
}

fn start(exec: &ExecRule) -> String {
    if exec.arguments.is_empty() {
        return "starting it with any arguments".to_owned();
    }
    format!("starting it with arguments that begin with `{}`", exec.arguments.join(" "))
}

fn reach(net: &NetRule) -> String {
    let rate = net.rate.map_or_else(String::new, |rate| {
        let unit = format!("{:?}", rate.unit).to_lowercase();
        format!(", {} times in a {unit} at most", rate.count)
    });
    format!("{}{rate}", whom(net))
}

/// Whom it is about, and which requests.
fn whom(net: &NetRule) -> String {
    let datagrams = net.transport == Transport::Udp;
    let target = match &net.target {
        _ if net.is_conditional() => {
            let methods = match net.methods.as_slice() {
                [] => "any method".to_owned(),
                methods => methods.join(" and "),
            };
            let path = net.path.as_ref().map_or_else(|| "any path".to_owned(), |path| format!("`{path}`"));
            let port = net.port.map_or_else(|| "any port".to_owned(), |port| format!("port {port}"));
            let private = if net.private { ", private addresses included" } else { "" };
            return format!("requests by {methods} to {path}, {port}{private}");
        }
        NetTarget::Name(_) if datagrams => "resolving the name and exchanging datagrams with it",
        NetTarget::Address(_) if datagrams => "exchanging datagrams with this address",
        NetTarget::Range(_) if datagrams => "exchanging datagrams with the addresses of this range",
        NetTarget::Loopback if datagrams => "exchanging datagrams with the host's own loopback",
        NetTarget::Name(_) => "resolving the name and connecting to it",
        NetTarget::Address(_) => "connecting to this address",
        NetTarget::Range(_) => "connecting to the addresses of this range",
        NetTarget::Loopback => "connecting to the host's own loopback",
    };
    let port = net.port.map_or_else(|| "any port".to_owned(), |port| format!("port {port}"));
    let private = if net.private { ", private addresses included" } else { "" };
    let tunnel = if net.tunnel { ", its TLS never read" } else { "" };
    format!("{target}, {port}{private}{tunnel}")
}
