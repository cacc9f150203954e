//! Kinds of refusals, in the order in which they are told, each with what changes it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::Instant;

use crate::policy::{self, PathAccess, Policy, RuleId};
use crate::run::Outcome;
use crate::supervisor::{Counted, is_probe};
use crate::trace::Denial;

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
                // A comment says why there is none.
                rule.strip_prefix("# ").map_or_else(|| format!("to allow it: {rule}"), ToOwned::to_owned)
            }
            Self::Remedy(remedy) => format!("to allow it: {remedy}"),
            Self::Rule(rule) => format!("to allow it: {rule}"),
            Self::DeniedBy(id) => {
                let label = policy.rule_label(*id);
                let text = policy.rules.get(id.0).map(|rule| format!(" `{}`", rule.text.escape_debug()));
                // Several values on one line have one label.
                let text = text.filter(|_| policy.denying(&label).count() == 1).unwrap_or_default();
                format!("denied by {label}{text}")
            }
            Self::Reason(reason) => reason.escape_debug().to_string(),
        }
    }

    fn of<'a>(denial: &'a Denial, policy: &Policy) -> Option<Hint<'a>> {
        if let Some(remedy) = &denial.remedy {
            return Some(Hint::Remedy(remedy));
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
    /// Programs do without it.
    pub(super) is_last: bool,
    pub(super) is_of_sys: bool,
    is_read: bool,
    pub(super) count: u64,
    pub(super) first: Instant,
    pub(super) what: String,
    pub(super) hint: Hint<'a>,
}

/// Each kind of refusal once, in the order in which they are told.
pub(super) fn refused(outcome: &Outcome) -> Vec<Refused<'_>> {
    let others = outcome.other_denials.iter().filter_map(|denial| {
        let what = format!("{} {}", denial.op, denial.target.escape_debug());
        let hint = Hint::of(denial, &outcome.policy)?;
        let (count, first, is_read) = (denial.count, denial.first, denial.op == "read");
        Some(Refused { is_last: false, is_of_sys: false, is_read, count, first, what, hint })
    });
    let (files, own): (Vec<_>, Vec<_>) =
        outcome.denials.most_frequent().into_iter().partition(|kind| directory_of(kind, outcome).is_some());
    let own = own.into_iter();
    let own = own.filter(|kind| kind.rule.is_some() || dot_file(&kind.denied, &outcome.policy).is_none());
    let own = own.map(of_one).chain(by_directory(&files, outcome));
    let mut refused: Vec<_> = own.chain(others).chain(optional_files(outcome)).collect();
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
        is_of_sys: matches!(denied, policy::Denied::Path { path, .. } if path.starts_with("/sys")),
        is_read: matches!(denied, policy::Denied::Path { access: PathAccess::Read, .. }),
        count: *count,
        first: *first,
        what: describe(denied),
        hint: rule.map_or_else(otherwise, Hint::DeniedBy),
    }
}

/// The directory of a file that a rule would allow, if one for the directory can be proposed: never for what holds
/// the home or the working directory.
fn directory_of<'a>(kind: &'a Counted, outcome: &Outcome) -> Option<(PathAccess, &'a Path)> {
    let policy::Denied::Path { access, path } = &kind.denied else { return None };
    let (policy, directory) = (&outcome.policy, path.parent()?);
    let holds = |place: &Path| place.starts_with(directory);
    let is_wide =
        directory.components().count() < 3 || holds(policy.cwd()) || policy.home().is_some_and(holds);
    let is_own = kind.rule.is_none() && kind.reason.is_none() && !is_probe(&kind.denied);
    (is_own && !is_wide && dot_file(&kind.denied, policy).is_none()).then_some((*access, directory))
}

/// Files of one directory are one kind where they are many.
fn by_directory<'a>(files: &[&'a Counted], outcome: &'a Outcome) -> Vec<Refused<'a>> {
    let mut directories: BTreeMap<(bool, &Path), Vec<&'a Counted>> = BTreeMap::new();
    for file in files {
        let Some((access, directory)) = directory_of(file, outcome) else { continue };
        directories.entry((access == PathAccess::Write, directory)).or_default().push(file);
    }
    let kinds = directories.into_iter().flat_map(|((writes, directory), files)| {
        if files.len() < MANY_FILES {
            return files.into_iter().map(of_one).collect();
        }
        let access = if writes { PathAccess::Write } else { PathAccess::Read };
        let denied = policy::Denied::Path { access, path: directory.to_owned() };
        let rule = outcome.policy.suggestion(&denied);
        let what = describe(&denied).replacen(' ', &format!(" {} files of ", files.len()), 1);
        let (count, first) =
            (files.iter().map(|file| file.count).sum(), files.iter().map(|file| file.first).min());
        let first = first.unwrap_or_else(Instant::now);
        let hint = if rule.starts_with('#') { Hint::Allow(&files[0].denied) } else { Hint::Rule(rule) };
        vec![Refused { is_last: false, is_of_sys: false, is_read: !writes, count, first, what, hint }]
    });
    kinds.collect()
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
        refused.push(Refused { is_last: false, is_of_sys: false, is_read: false, count, first, what, hint });
    }
}

/// Files of HOME that programs read where they have them, such as `~/.npmrc`: all of them are one kind.
fn optional_files(outcome: &Outcome) -> Option<Refused<'_>> {
    let denials = outcome.denials.most_frequent().into_iter().filter(|kind| kind.rule.is_none());
    let (mut count, mut files, mut first) = (0, Vec::new(), None::<Instant>);
    for kind in denials {
        if let Some(file) = dot_file(&kind.denied, &outcome.policy) {
            count += kind.count;
            files.push(file);
            first = Some(first.map_or(kind.first, |first| first.min(kind.first)));
        }
    }
    let what = match files.len() {
        0 => return None,
        1 => "read",
        _ => "read files of HOME:",
    };
    let more = files.len().saturating_sub(MOST_NAMES);
    files.truncate(MOST_NAMES);
    let named = files.join(", ");
    let hint = Hint::Rule(format!("read: {named}"));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = format!("{what} {named}{more}");
    let first = first?;
    Some(Refused { is_last: true, is_of_sys: false, is_read: true, count, first, what, hint })
}

/// Its name as a rule says it.
fn dot_file(denied: &policy::Denied, policy: &Policy) -> Option<String> {
    let policy::Denied::Path { access: PathAccess::Read, .. } = denied else { return None };
    let rule = policy.suggestion(denied);
    rule.strip_prefix("read: ").filter(|name| name.starts_with("~/.")).map(ToOwned::to_owned)
}

fn describe(denied: &policy::Denied) -> String {
    use policy::Denied;
    let escaped = |text: &std::ffi::OsStr| text.to_string_lossy().escape_debug().to_string();
    match denied {
        Denied::Path { access: PathAccess::Read, path } => format!("read {}", escaped(path.as_os_str())),
        Denied::Path { access: PathAccess::Write, path } => format!("write {}", escaped(path.as_os_str())),
        Denied::Exec { exe, .. } => format!("exec {}", escaped(exe.as_os_str())),
        Denied::Name(name) => format!("net {}", name.escape_debug()),
        Denied::Connect { names, address, port, .. } => match names.first() {
            Some(name) => format!("net {}:{port}", name.escape_debug()),
            None => format!("net {}", std::net::SocketAddr::new(*address, *port)),
        },
        Denied::Request { names, address, port, method, path } => {
            let host = names.first().cloned().unwrap_or_else(|| address.to_string());
            format!("net {} {}:{port}{}", method.escape_debug(), host.escape_debug(), path.escape_debug())
        }
        Denied::Unix(path) => format!("net unix:{}", escaped(path.as_os_str())),
        Denied::Env(name) => format!("env {}", name.escape_debug()),
    }
}
