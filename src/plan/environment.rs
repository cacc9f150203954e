//! The environment of the command: what rules pass, what every program needs, what we set.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::generated::HOSTNAME;
use super::{HostFacts, PRIVATE_HOME};
use crate::command::Command;
use crate::policy::Policy;

/// Variables that are passed without a rule.
const PASSED: &[&str] = &["PATH", "LANG", "LANGUAGE", "TERM", "TZ"];

/// Builds it, sorted by name.
pub(super) fn build(
    policy: &Policy,
    command: &Command,
    facts: &HostFacts,
    enforce: bool,
    placeholders: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> =
        facts.environment.iter().filter(|(name, _)| passes(policy, name)).cloned().collect();
    let mut set = |name: &str, value: &OsStr| {
        env.retain(|(key, _)| key != name);
        env.push((name.into(), value.to_owned()));
    };
    for (name, value) in &command.env {
        set(name, OsStr::new(value));
    }
    if !policy.decide_env("HOME").is_allow() {
        let home = if enforce {
            Path::new(PRIVATE_HOME)
        } else {
            facts.home.as_deref().unwrap_or_else(|| Path::new("/"))
        };
        set("HOME", home.as_os_str());
    }
    if !policy.decide_env("TMPDIR").is_allow() {
        for name in ["TMPDIR", "TMP", "TEMP"] {
            set(name, OsStr::new("/tmp"));
        }
    }
    let proxy = OsString::from(format!("http://127.0.0.1:{}", super::net(policy).proxy_port));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        set(name, &proxy);
    }
    for name in ["NO_PROXY", "no_proxy"] {
        // What is served inside is reached without the proxy, under the run's own name too.
        set(name, OsStr::new(&format!("localhost,{HOSTNAME},127.0.0.1,0.0.0.0,::1")));
    }
    for (name, value) in policy.assigned_env() {
        set(&name, OsStr::new(&value));
    }
    for (name, placeholder) in placeholders {
        set(name, OsStr::new(placeholder));
    }
    // A secret whose variable is not set has no placeholder, and its variable is nobody's.
    let is_hidden = |name: &OsStr| policy.secrets().any(|(_, secret)| secret.name.as_str() == name);
    env.retain(|(name, _)| !is_hidden(name) || placeholders.iter().any(|(known, _)| known.as_str() == name));
    env.sort();
    env
}

fn passes(policy: &Policy, name: &OsStr) -> bool {
    // A name that is not UTF-8 is no name that a rule could mean.
    let Some(name) = name.to_str() else { return false };
    if policy.decide_env(name).is_allow() {
        return true;
    }
    let denied = policy.decide_env(name).rule().is_some();
    !denied && (PASSED.contains(&name) || name.starts_with("LC_"))
}

/// The value of `name` in `env`.
pub(super) fn value(env: &[(OsString, OsString)], name: &str) -> Option<OsString> {
    env.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}
