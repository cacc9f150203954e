//! Kinds of refusals, in the order in which they are told, each with what changes it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::Instant;

use crate::policy::{self, PathAccess, Policy, RuleId};
use crate::run::Outcome;
use crate::supervisor::{Counted, is_probe};
use crate::trace::{Denial, escape};

/// Names that stand in one line.
const MOST_NAMES: usize = 3;
/// Files of one directory that are told as one kind.
const MANY_FILES: usize = 3;

/// What changes a refusal.
#[derive(Clone)]
pub(super) enum Hint<'a> {
    /// The rule that allows it has yet to be written.
    Allow(&'a policy::Denied),
    /// The same, as the proxy wrote it.
    Remedy(&'a str),
    /// The same, where something else is better: what, and the rule.
    Else(&'a str, &'a str),
    /// The rule itself.
    Rule(String),
    /// This rule denies it, which no other rule changes.
    DeniedBy(RuleId),
    /// No rule has power over it, for this reason, such as a malformed request.
    Reason(&'a str),
}

impl Hint<'_> {
    pub(super) fn text(&self, policy: &Policy) -> String {
        match self {
            Self::Allow(denied) => {
                let rule = policy.suggestion(denied);
                let caution = policy.caution(denied).map(|why| format!("; {why}")).unwrap_or_default();
                // A comment says why there is none.
                let rule = rule.strip_prefix("# ").map(ToOwned::to_owned).ok_or(rule);
                rule.unwrap_or_else(|rule| format!("to allow it: {rule}{caution}"))
            }
            Self::Remedy(remedy) => format!("to allow it: {remedy}"),
            Self::Else(better, remedy) => format!("{}; else: {remedy}", escape::text(better)),
            Self::Rule(rule) => format!("to allow it: {rule}"),
            Self::DeniedBy(id) => {
                let label = policy.rule_label(*id);
                let text = policy.rules.get(id.0).map(|rule| format!(" `{}`", escape::text(&rule.text)));
                // Several values on one line have one label.
                let text = text.filter(|_| policy.denying(&label).count() == 1).unwrap_or_default();
                format!("denied by {label}{text}")
            }
            Self::Reason(reason) => escape::text(reason),
        }
    }

    fn of<'a>(denial: &'a Denial, policy: &Policy) -> Option<Hint<'a>> {
        if let Some(remedy) = &denial.remedy {
            // A rule allows it, and the client would have none of it.
            let is_allowed = denial.rule.as_deref().is_some_and(|rule| !rule.starts_with("no rule"));
            let better = denial.reason.as_deref().filter(|_| is_allowed);
            return Some(better.map_or(Hint::Remedy(remedy), |better| Hint::Else(better, remedy)));
        }
        let rule = denial.rule.as_deref()?;
        let reason = || denial.reason.as_deref().or_else(|| rule.strip_prefix("no rule: ")).map(Hint::Reason);
        policy.denying(rule).next().map(Hint::DeniedBy).or_else(reason)
    }

    /// What a rule can mend is told before what none can.
    pub(super) fn is_beyond(&self) -> bool {
        matches!(self, Self::Reason(_))
    }
}

/// One kind of refusal.
pub(super) struct Refused<'a> {
    /// It is told last: programs look for it and go on.
    pub(super) is_last: bool,
    /// Nothing depends on it.
    pub(super) is_idle: bool,
    is_read: bool,
    pub(super) count: u64,
    pub(super) first: Instant,
    pub(super) what: String,
    pub(super) hint: Hint<'a>,
}

/// Each kind of refusal once, in the order in which they are told.
pub(super) fn refused(outcome: &Outcome) -> Vec<Refused<'_>> {
    let others = outcome.other_denials.iter().filter_map(|denial| {
        let what = format!("{} {}", denial.op, escape::text(&denial.target));
        let hint = Hint::of(denial, &outcome.policy)?;
        let (count, first, is_read) = (denial.count, denial.first, denial.op == "read");
        Some(Refused { is_last: false, is_idle: false, is_read, count, first, what, hint })
    });
    let places = changed(outcome);
    let is_apart = |kind: &Counted| kind.rule.is_none() && apart(&kind.denied, &outcome.policy).is_some();
    let own = outcome.denials.most_frequent().into_iter().filter(|kind| !is_apart(kind));
    let (files, own): (Vec<_>, Vec<_>) = own.partition(|kind| directory_of(kind, outcome, &places).is_some());
    let own = own.into_iter().map(of_one).chain(by_directory(&files, outcome, &places));
    let apart = [Apart::Optional, Apart::Secret, Apart::Sys, Apart::Bytecode];
    let apart = apart.into_iter().filter_map(|kind| folded(kind, outcome));
    let mut refused: Vec<_> = own.chain(others).chain(apart).collect();
    // What else was refused is mostly why files were looked for.
    let place = |one: &Refused<'_>| (one.is_last, one.hint.is_beyond(), one.is_read, Reverse(one.count));
    refused.sort_by_key(place);
    // Refused both before a connection and in it: the trace's count holds both.
    let mut told = HashSet::new();
    refused.retain(|refused| told.insert(refused.what.clone()));
    by_port(&mut refused);
    refused.sort_by_key(place);
    refused
}

fn of_one(counted: &Counted) -> Refused<'_> {
    let Counted { count, denied, rule, reason, first } = counted;
    let otherwise = || reason.as_deref().map_or(Hint::Allow(denied), Hint::Reason);
    Refused {
        is_last: is_probe(denied),
        is_idle: false,
        is_read: matches!(denied, policy::Denied::Path { access: PathAccess::Read, .. }),
        count: *count,
        first: *first,
        what: describe(denied),
        hint: rule.map_or_else(otherwise, Hint::DeniedBy),
    }
}

/// Directories in which names were to be changed, and for which a rule can be proposed.
fn changed(outcome: &Outcome) -> BTreeSet<&Path> {
    let kinds = outcome.denials.most_frequent().into_iter().filter(|kind| is_own(kind));
    let places = kinds.filter_map(|kind| match &kind.denied {
        denied @ policy::Denied::Entry { directory, .. } => {
            (!outcome.policy.suggestion(denied).starts_with('#')).then_some(directory.as_path())
        }
        _ => None,
    });
    places.collect()
}

/// Whether a rule is all that is missing.
fn is_own(kind: &Counted) -> bool {
    kind.rule.is_none() && kind.reason.is_none() && !is_probe(&kind.denied)
}

/// The directory that a rule for it would open, if one can be proposed: to read, never for what holds the home or the
/// working directory.
fn directory_of<'a>(
    kind: &'a Counted,
    outcome: &Outcome,
    places: &BTreeSet<&Path>,
) -> Option<(PathAccess, &'a Path)> {
    let (access, directory) = match &kind.denied {
        policy::Denied::Entry { directory, .. } => (PathAccess::Write, directory.as_path()),
        policy::Denied::Path { access, path } => (*access, path.parent()?),
        _ => return None,
    };
    let is_changed = access == PathAccess::Write && places.contains(directory);
    let policy = &outcome.policy;
    let is_wide =
        directory.components().count() < 3 || directory == policy.cwd() || policy.is_too_wide(directory);
    let is_entry = matches!(kind.denied, policy::Denied::Entry { .. });
    let is_known = is_changed || !(is_wide || is_entry);
    (is_own(kind) && is_known).then_some((access, directory))
}

/// Files of one directory are one kind where they are many, or names in it were to be changed.
fn by_directory<'a>(
    files: &[&'a Counted],
    outcome: &'a Outcome,
    places: &BTreeSet<&Path>,
) -> Vec<Refused<'a>> {
    let mut directories: BTreeMap<(bool, &Path), Vec<&'a Counted>> = BTreeMap::new();
    for file in files {
        let Some((access, directory)) = directory_of(file, outcome, places) else { continue };
        directories.entry((access == PathAccess::Write, directory)).or_default().push(file);
    }
    let kinds = directories.into_iter().flat_map(|((writes, directory), files)| {
        let many = if writes && places.contains(directory) { 2 } else { MANY_FILES };
        if files.len() < many {
            return files.into_iter().map(of_one).collect();
        }
        let access = if writes { PathAccess::Write } else { PathAccess::Read };
        let denied = policy::Denied::Path { access, path: directory.to_owned() };
        let rule = outcome.policy.suggestion(&denied);
        let what = describe(&denied).replacen(' ', &format!(" {} files of ", files.len()), 1);
        let (count, first) = sum(&files);
        let caution = outcome.policy.caution(&denied).map(|why| format!("; {why}")).unwrap_or_default();
        let is_none = rule.starts_with('#');
        let hint = if is_none { Hint::Allow(&files[0].denied) } else { Hint::Rule(rule + &caution) };
        vec![Refused { is_last: false, is_idle: false, is_read: !writes, count, first, what, hint }]
    });
    kinds.collect()
}

fn sum(kinds: &[&Counted]) -> (u64, Instant) {
    let first = kinds.iter().map(|kind| kind.first).min();
    (kinds.iter().map(|kind| kind.count).sum(), first.unwrap_or_else(Instant::now))
}

/// A port of the host's loopback that was tried at both of its addresses is one kind.
fn by_port(refused: &mut Vec<Refused<'_>>) {
    let port = |one: &Refused<'_>| {
        let place = one.what.strip_prefix("net ")?;
        let port = ["127.0.0.1:", "[::1]:", "localhost:"].iter().find_map(|host| place.strip_prefix(host))?;
        let is_open = matches!(one.hint, Hint::Allow(_) | Hint::Remedy(_));
        port.parse::<u16>().ok().filter(|_| is_open)
    };
    let mut ports: BTreeMap<u16, Vec<(u64, Instant)>> = BTreeMap::new();
    for one in refused.iter() {
        if let Some(port) = port(one) {
            ports.entry(port).or_default().push((one.count, one.first));
        }
    }
    for (number, tried) in ports.into_iter().filter(|(_, tried)| tried.len() > 1) {
        refused.retain(|one| port(one) != Some(number));
        let (count, first) =
            (tried.iter().map(|(count, _)| count).sum(), tried.iter().map(|(_, first)| *first).min());
        let what = format!("net localhost:{number}");
        let (first, hint) =
            (first.unwrap_or_else(Instant::now), Hint::Rule(format!("net: localhost:{number}")));
        refused.push(Refused { is_last: false, is_idle: false, is_read: false, count, first, what, hint });
    }
}

/// What is looked for by many programs, which do without: each is one kind, told last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// Dot files of HOME, such as `~/.npmrc`.
    Optional,
    /// In a place of secrets.
    Secret,
    /// Runtimes size themselves by them.
    Sys,
    Bytecode,
}

fn apart(denied: &policy::Denied, policy: &Policy) -> Option<Apart> {
    if policy::is_bytecode(denied) {
        Some(Apart::Bytecode)
    } else if policy.place_of_secrets(denied).is_some() {
        Some(Apart::Secret)
    } else if matches!(denied, policy::Denied::Path { path, .. } if path.starts_with("/sys")) {
        Some(Apart::Sys)
    } else {
        dot_file(denied, policy).map(|_| Apart::Optional)
    }
}

fn folded(kind: Apart, outcome: &Outcome) -> Option<Refused<'_>> {
    let policy = &outcome.policy;
    let is_such = |one: &&Counted| one.rule.is_none() && apart(&one.denied, policy) == Some(kind);
    let all: Vec<_> = outcome.denials.most_frequent().into_iter().filter(is_such).collect();
    let one = all.first()?;
    let is_read = all.iter().all(|one| describe(&one.denied).starts_with("read "));
    let (count, first) = sum(&all);
    let (what, hint) = match kind {
        Apart::Optional => {
            let names: Vec<_> = all.iter().filter_map(|one| dot_file(&one.denied, policy)).collect();
            let (named, more) = first_of(&names);
            let of = if names.len() > 1 { "read files of HOME:" } else { "read" };
            (format!("{of} {named}{more}"), Hint::Rule(format!("read: {named}")))
        }
        Apart::Secret => {
            let names: Vec<_> = all.iter().map(|one| describe(&one.denied)).collect();
            let (named, more) = first_of(&names);
            let hint =
                if names.len() > 1 { Hint::Reason("places of secrets") } else { Hint::Allow(&one.denied) };
            (format!("{named}{more}"), hint)
        }
        Apart::Sys if all.len() == 1 => (describe(&one.denied), Hint::Allow(&one.denied)),
        Apart::Sys => (format!("read {} files below /sys", all.len()), Hint::Reason("programs do without")),
        Apart::Bytecode => ("write __pycache__".to_owned(), Hint::Reason("programs do without")),
    };
    let is_idle = matches!(kind, Apart::Sys | Apart::Bytecode);
    Some(Refused { is_last: true, is_idle, is_read, count, first, what, hint })
}

/// The first names, and how many more there are.
fn first_of(names: &[String]) -> (String, String) {
    let more = names.len().saturating_sub(MOST_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (names[..names.len().min(MOST_NAMES)].join(", "), more)
}

/// Its name as a rule says it.
fn dot_file(denied: &policy::Denied, policy: &Policy) -> Option<String> {
    let policy::Denied::Path { access: PathAccess::Read, .. } = denied else { return None };
    let rule = policy.suggestion(denied);
    rule.strip_prefix("read: ").filter(|name| name.starts_with("~/.")).map(ToOwned::to_owned)
}

fn describe(denied: &policy::Denied) -> String {
    use policy::Denied;
    let escaped = |text: &std::ffi::OsStr| escape::text(&text.to_string_lossy());
    match denied {
        Denied::Path { access: PathAccess::Read, path } => format!("read {}", escaped(path.as_os_str())),
        Denied::Path { access: PathAccess::Write, path } | Denied::Entry { path, .. } => {
            format!("write {}", escaped(path.as_os_str()))
        }
        Denied::Exec { exe, .. } => format!("exec {}", escaped(exe.as_os_str())),
        Denied::Name(name) => format!("net {}", escape::text(name)),
        Denied::Connect { names, address, port, .. } => match names.first() {
            Some(name) => format!("net {}:{port}", escape::text(name)),
            None => format!("net {}", std::net::SocketAddr::new(*address, *port)),
        },
        Denied::Request { names, address, port, method, path } => {
            let host = names.first().cloned().unwrap_or_else(|| address.to_string());
            format!("net {} {}:{port}{}", escape::text(method), escape::text(&host), escape::text(path))
        }
        Denied::Unix(path) => format!("net unix:{}", escaped(path.as_os_str())),
        Denied::Env(name) => format!("env {}", escape::text(name)),
    }
}
