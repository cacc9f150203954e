//! The policy file: what an agent may touch, and the pure functions that decide.
//!
//! [`load`] reads a file and what it includes ([`parse()`] a text), reports every error at once, and gives a
//! [`Policy`]: rules with their places, resolved against the launch directory. Every mechanism then asks the same
//! functions: [`Policy::decide_path`], [`Policy::decide_exec`], [`Policy::decide_name`],
//! [`Policy::decide_connect`], [`Policy::decide_request`], [`Policy::decide_unix`] and [`Policy::decide_env`].
//!
//! For every kind the precedence is: a matching `deny` wins; else any matching grant allows, and the most specific
//! one is named; else the access is denied. The order of lines never matters.
//!
//! A policy can be serialised and decides alike afterwards.

mod address;
mod caution;
mod check;
mod credentials;
mod digest;
mod env_rule;
mod exec_decision;
mod exec_rule;
mod glob;
mod host;
mod host_fault;
mod host_rule;
mod index;
mod intersection;
mod key;
mod listen_rule;
pub mod looks;
pub(crate) mod lossless;
mod name;
mod net_decision;
mod parse;
mod path_decision;
mod path_rule;
mod pattern;
mod placed;
mod planted;
mod rate;
mod remarks;
mod report;
mod request_decision;
mod request_rule;
mod secret_check;
mod secret_rule;
mod source;
mod suggestion;
#[cfg(test)]
mod tests;
mod udp_rule;
mod unread;
mod url_path;
mod value;
mod verdict;

use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use address::{canonical as canonical_address, is_loopback, is_special};
pub use caution::is_bytecode;
pub use check::{load, parse};
pub use env_rule::EnvRule;
pub use exec_rule::{ExecProgram, ExecRule, ProgramFile};
pub use glob::Glob;
pub use host::{Finder, Host, LaunchHost};
pub use host_rule::{NetRule, NetTarget};
pub use looks::FileId;
pub use name::{NamePattern, canonical as canonical_name};
pub use net_decision::Ports;
pub use parse::Effect;
pub use path_rule::{PathPattern, is_within};
pub use pattern::{GlobError, Pattern};
pub use rate::{Exhausted, Rate, RateMeter, RateUnit};
pub use report::{Diagnostic, Origin, Report, Severity};
pub use request_decision::{Asked, Conditions};
pub use secret_rule::SecretRule;
pub use url_path::{UrlPathFault, UrlPattern, normal_path};
pub use verdict::{Denied, PathAccess, RuleId, Transport, Verdict};

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Where it stands.
    pub origin: Origin,
    /// In its canonical form: `read: ./src`, `deny: read **/.env`.
    pub text: String,
    /// The value alone: without quotes, and as written for `exec:`.
    pub value: String,
    /// Whether it gives or takes away.
    pub effect: Effect,
    /// What it is about.
    pub body: RuleBody,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleBody {
    /// `read:` and `write:`; granting `Write` grants `Read`, denying `Read` denies `Write`.
    Path {
        /// Which of the two.
        access: PathAccess,
        /// Where.
        pattern: PathPattern,
    },
    /// `runtime:`, a tree that is readable and not recorded file by file.
    Runtime {
        /// Where; always a literal.
        path: PathPattern,
    },
    /// `net:`
    Net(NetRule),
    /// `net: unix:PATH`
    UnixSocket(PathPattern),
    /// `exec:`
    Exec(ExecRule),
    /// `env:`
    Env(EnvRule),
    /// `secret:`
    Secret(SecretRule),
    /// `listen:`
    Listen(u16),
}

/// A policy that has been read and checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// The file as the user named it.
    pub name: String,
    /// Its text, without the files that it includes.
    pub text: String,
    /// All rules, those of included files in the place of their `include:`.
    pub rules: Vec<Rule>,
    /// What probably means more or less than was intended.
    pub warnings: Vec<Diagnostic>,
    /// What is worth knowing.
    pub notes: Vec<Diagnostic>,
    /// The files that `include:` brought in, by the names under which labels speak of them.
    pub included: Vec<String>,
    /// Addresses of this machine: a name passes to none of them, whatever their range. Set by the launcher.
    pub local_addresses: Vec<IpNet>,
    #[serde(with = "lossless::path")]
    cwd: PathBuf,
    #[serde(with = "lossless::optional_path")]
    home: Option<PathBuf>,
    /// Policies that have to allow as well whatever this one does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    limits: Vec<Self>,
    #[serde(skip)]
    index: index::Index,
}

impl Policy {
    /// `file:line` of a rule, as records and messages name it.
    pub fn rule_label(&self, id: RuleId) -> String {
        match self.rules.get(id.0) {
            Some(rule) => format!("{}:{}", rule.origin.file, rule.origin.line),
            None => format!("{}:?", self.name),
        }
    }

    /// The `deny:` rules with this label.
    pub fn denying<'a>(&'a self, label: &'a str) -> impl Iterator<Item = RuleId> + 'a {
        let denying = self.rules.iter().enumerate().filter(|(_, rule)| rule.effect == Effect::Deny);
        denying.map(|(at, _)| RuleId(at)).filter(move |id| self.rule_label(*id) == label)
    }

    /// The places of the host that rules show, each with all that is in it.
    pub fn shown(&self) -> impl Iterator<Item = &std::path::Path> {
        let granted = self.rules.iter().filter(|rule| rule.effect == Effect::Grant);
        granted.filter_map(|rule| match &rule.body {
            RuleBody::Path { pattern, .. } | RuleBody::Runtime { path: pattern } => Some(pattern.base()),
            RuleBody::Exec(exec) => match &exec.program {
                ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => Some(pattern.base()),
                ExecProgram::Word { .. } => None,
            },
            _ => None,
        })
    }

    /// The directory at which relative paths start.
    pub fn cwd(&self) -> &std::path::Path {
        &self.cwd
    }

    /// The home directory of whom it was read for.
    pub fn home(&self) -> Option<&std::path::Path> {
        self.home.as_deref()
    }

    /// Whether this variable of the launcher's environment may be passed on.
    pub fn decide_env(&self, name: &str) -> Verdict {
        let matching = self.rules.iter().enumerate().filter_map(|(at, rule)| match &rule.body {
            RuleBody::Env(env) if env.matches(name) => Some((RuleId(at), rule.effect, env.specificity())),
            _ => None,
        });
        let verdict = self.settle(matching, || format!("no rule passes the variable `{name}` on"));
        self.limited(verdict, |limit| limit.decide_env(name))
    }

    /// The variables that `env: NAME=VALUE` sets; of two rules for one name the later in code-point order wins.
    pub fn assigned_env(&self) -> Vec<(String, String)> {
        let mut assigned: Vec<(String, String)> = self
            .rules
            .iter()
            .filter_map(|rule| match &rule.body {
                RuleBody::Env(EnvRule::Assign { name, value }) => Some((name.clone(), value.clone())),
                _ => None,
            })
            .filter(|(name, _)| self.decide_env(name).is_allow())
            .collect();
        assigned.sort();
        assigned.reverse();
        assigned.dedup_by(|later, kept| later.0 == kept.0);
        assigned.reverse();
        assigned
    }

    /// The precedence of every kind: deny, then the most specific grant, then nothing.
    fn settle<S: Ord>(
        &self,
        matching: impl Iterator<Item = (RuleId, Effect, S)>,
        reason: impl FnOnce() -> String,
    ) -> Verdict {
        let (mut grant, mut deny) = (None::<(S, RuleId)>, None);
        for (id, effect, specificity) in matching {
            let best = if effect == Effect::Deny { &mut deny } else { &mut grant };
            if best.as_ref().is_none_or(|(most, _)| specificity > *most) {
                *best = Some((specificity, id));
            }
        }
        match (deny, grant) {
            (Some((_, id)), _) => self.denied_by(id),
            (None, Some((_, rule))) => Verdict::Allow { rule },
            (None, None) => Verdict::no_rule(reason()),
        }
    }

    fn denied_by(&self, id: RuleId) -> Verdict {
        let text = self.rules.get(id.0).map_or("", |rule| rule.text.as_str());
        Verdict::Deny { rule: Some(id), reason: format!("`{text}` denies it") }
    }
}
