//! What two policies both allow.
//!
//! It is a policy of its own: its `deny:` rules are those of both, its grants those of either that lie within one of
//! the other, and each of the two is asked as well before anything is allowed. So what is shown is what both show, and
//! what is allowed is what both allow, exactly: but for a program that one of them names by a link, and the other by a
//! directory that holds the file alone.

use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::exec_rule::ExecProgram;
use super::parse::Effect;
use super::path_rule::PathPattern;
use super::verdict::Verdict;
use super::{Policy, Rule, RuleBody};

impl Policy {
    /// What this policy and `other` both allow. Variables that rules set are this one's.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        let denied = |policy: &Self| {
            policy.rules.iter().filter(|rule| rule.effect == Effect::Deny).cloned().collect::<Vec<_>>()
        };
        let mut rules = denied(&self);
        rules.extend(denied(&other));
        rules.extend(granted(&self, &other, true));
        rules.extend(granted(&other, &self, false));
        Self { rules, limits: vec![self.clone(), other], index: super::index::Index::default(), ..self }
    }

    /// The first of the two that this one is made from; itself where it is made from none.
    #[must_use]
    pub fn first(&self) -> &Self {
        self.limits.first().unwrap_or(self)
    }

    /// Sets the addresses of this machine.
    pub fn set_local_addresses(&mut self, addresses: &[IpNet]) {
        self.local_addresses = addresses.to_vec();
        self.limits.iter_mut().for_each(|limit| limit.set_local_addresses(addresses));
    }

    /// A verdict of this policy's rules; where none of them denies, what limits them has to allow too.
    pub(super) fn limited(&self, verdict: Verdict, decide: impl Fn(&Self) -> Verdict) -> Verdict {
        if !verdict.is_allow() && verdict.rule().is_some() {
            return verdict;
        }
        let refusal = |limit: &Self| match decide(limit) {
            Verdict::Allow { .. } => None,
            Verdict::Deny { reason, .. } => Some(Verdict::no_rule(format!("{}: {reason}", limit.name))),
        };
        self.limits.iter().find_map(refusal).unwrap_or(verdict)
    }
}

/// The grants of `one` that lie within one of `other`.
fn granted<'a>(one: &'a Policy, other: &'a Policy, is_first: bool) -> impl Iterator<Item = Rule> + 'a {
    let grants = |policy: &'a Policy| policy.rules.iter().filter(|rule| rule.effect == Effect::Grant);
    let lies_within = move |rule: &&Rule| match &rule.body {
        RuleBody::Path { .. } | RuleBody::Runtime { .. } => {
            let place = places(&rule.body);
            grants(other)
                .filter_map(|rule| places(&rule.body))
                .any(|around| place.is_some_and(|place| place.starts_with(around)))
        }
        RuleBody::UnixSocket(PathPattern::Literal { resolved, .. }) => other.decide_unix(resolved).is_allow(),
        RuleBody::Exec(exec) => {
            let programs = programs(&exec.program);
            around(other).any(|rule| programs.iter().any(|program| holds(rule, program)))
        }
        // A port that is not offered by both, and a secret that not both give, is offered and given by none.
        RuleBody::Listen(_) | RuleBody::Secret(_) => {
            is_first && grants(other).any(|other| other.body == rule.body)
        }
        // A glob of sockets shows none; what a connection needs is asked of both.
        RuleBody::UnixSocket(_) | RuleBody::Net(_) => true,
        RuleBody::Env(_) => is_first,
    };
    grants(one).filter(lies_within).cloned().map(|mut rule| {
        if let RuleBody::Exec(exec) = &mut rule.body {
            narrow(&mut exec.program, other);
        }
        rule
    })
}

/// Takes away what `other` does not name. A program is shown with what lies around the name by which it is found (a
/// virtualenv): a name that is none of `other`'s shows the file alone.
fn narrow(program: &mut ExecProgram, other: &Policy) {
    let is_held = |path: &Path| around(other).any(|rule| holds(rule, path));
    let is_named = |path: &Path| other.names_program(path);
    match program {
        ExecProgram::Word { files, .. } => {
            files.retain(|file| is_held(&file.resolved));
            for file in files.iter_mut().filter(|file| !is_named(&file.path)) {
                file.path.clone_from(&file.resolved);
            }
        }
        ExecProgram::Path { pattern: PathPattern::Literal { spelled, resolved }, .. } => {
            if !is_named(spelled) {
                spelled.clone_from(resolved);
            }
        }
        ExecProgram::Path { .. } | ExecProgram::Glob(_) => {}
    }
}

/// The place that a rule about files shows.
fn places(body: &RuleBody) -> Option<&Path> {
    match body {
        RuleBody::Path { pattern, .. } | RuleBody::Runtime { path: pattern } => Some(pattern.base()),
        _ => None,
    }
}

/// The files that a rule about programs shows, or the directory with them.
fn programs(program: &ExecProgram) -> Vec<PathBuf> {
    match program {
        ExecProgram::Word { files, .. } => files.iter().map(|file| file.resolved.clone()).collect(),
        ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => vec![pattern.base().to_owned()],
    }
}

/// The programs that `policy` grants.
fn around(policy: &Policy) -> impl Iterator<Item = &ExecProgram> {
    policy.granted_programs().map(|(_, exec)| &exec.program)
}

/// Whether the file, or directory, `shown` is one of `around`, or in it where that is a directory.
fn holds(around: &ExecProgram, shown: &Path) -> bool {
    match around {
        ExecProgram::Word { files, .. } => files.iter().any(|file| file.resolved == shown),
        ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => shown.starts_with(pattern.base()),
    }
}
