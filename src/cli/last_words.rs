//! What is said at the end of a run: on stderr, for stdout is the agent's alone.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::plan::PRIVATE_HOME;
use crate::policy::{self, PathAccess, Policy, RuleId};
use crate::run::Outcome;
use crate::supervisor::{Counted, is_probe};
use crate::trace::Denial;

/// Kinds of refusals that are told; the trace holds all of them.
const MOST: usize = 3;

/// What changes a refusal.
#[derive(Clone)]
enum Hint<'a> {
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
    fn text(&self, policy: &Policy) -> String {
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
    fn is_beyond(&self) -> bool {
        matches!(self, Self::Reason(_))
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The lines.
pub(super) fn of(outcome: &Outcome, enforce: bool) -> Vec<String> {
    let totals = outcome.totals;
    let (denial, denied) =
        if enforce { ("denial", "denied") } else { ("would-be denial", "would be denied") };
    let mut lines = vec![format!(
        "agentbox: recorded {}, {}, {} -> {}",
        counted(totals.effects, "effect"),
        counted(totals.observations, "observation"),
        counted(totals.denials, denial),
        outcome.trace.placed().path.display()
    )];
    if let Some(awaited_at) = &outcome.trace.placed().awaited_at {
        let place = awaited_at.display();
        lines.push(format!(
            "agentbox: another run sees {place}: the trace is put there when that has ended, and -t {place} finds it until then"
        ));
    }
    if let Some(aside) = &outcome.trace.placed().moved_aside {
        lines.push(format!("agentbox: what stood there meanwhile is now {}", aside.display()));
    }
    lines.extend(outcome.denials.held.iter().map(|(port, rule)| {
        format!(
            "agentbox: port {port} is held inside for the host's own ({rule}): no server inside can have it"
        )
    }));
    if outcome.code != 0 && enforce {
        lines.extend(shown_in_part(outcome));
        lines.extend(private_home(outcome));
    }
    let refused = refused(outcome);
    // Runtimes size themselves by these; a command that has done its work needed none.
    let needed = |refused: &&Refused<'_>| outcome.code != 0 || !refused.is_of_sys;
    let told: Vec<_> = refused.iter().filter(needed).take(MOST).collect();
    let words = |refused: &Refused<'_>| format!("{} ({})", refused.what, refused.hint.text(&outcome.policy));
    lines.extend(told.iter().map(|kind| format!("agentbox: {denied} {}x: {}", kind.count, words(kind))));
    match refused.len() - told.len() {
        0 => {}
        kinds if told.is_empty() => lines.push(format!(
            "agentbox: {denied}: files below /sys that programs do without, {kinds} of them: agentbox show --denied"
        )),
        1 => lines.push("agentbox: and 1 more kind: agentbox show --denied".to_owned()),
        more => lines.push(format!("agentbox: and {more} more kinds: agentbox show --denied")),
    }
    // What failed first is most often why the rest did: nothing comes after it.
    let first = refused
        .iter()
        .filter(needed)
        .min_by_key(|refused| (refused.is_probe, refused.hint.is_beyond(), refused.first));
    if let Some(first) =
        first.map(words).filter(|first| !lines.last().is_some_and(|line| line.ends_with(first)))
    {
        lines.push(format!("agentbox: {denied} first: {first}"));
    }
    lines
}

/// What a command may have missed that listed a directory of which rules name only parts.
fn shown_in_part(outcome: &Outcome) -> Option<String> {
    let rule = |directory: &PathBuf| {
        let path = directory.clone();
        outcome.policy.suggestion(&policy::Denied::Path { access: PathAccess::Read, path })
    };
    let mut own = outcome.denials.partial.iter().map(|directory| (directory, rule(directory)));
    // Not those above, nor the system's, which hardly anybody wants to see whole.
    let (directory, rule) = own.find(|(_, rule)| rule.starts_with("read: ."))?;
    let directory = directory.display();
    Some(format!(
        "agentbox: {directory} was listed, and shows only what rules name in it (to show all of it: {rule})"
    ))
}

/// That HOME was private, where something was looked for in it.
fn private_home(outcome: &Outcome) -> Option<String> {
    let mut missed = outcome.denials.missed.iter().filter_map(|path| path.strip_prefix(PRIVATE_HOME).ok());
    let plain = |name: &&Path| {
        name.to_str()
            .is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)))
    };
    let name = missed.find(plain)?.display();
    Some(format!(
        "agentbox: HOME was private and empty, and ~/{name} was looked for (to show it: env: HOME and read: ~/{name})"
    ))
}

/// One kind of refusal.
struct Refused<'a> {
    is_probe: bool,
    is_of_sys: bool,
    count: u64,
    first: Instant,
    what: String,
    hint: Hint<'a>,
}

/// Each kind of refusal once, in the order in which they are told.
fn refused(outcome: &Outcome) -> Vec<Refused<'_>> {
    let others = outcome.other_denials.iter().filter_map(|denial| {
        let what = format!("{} {}", denial.op, denial.target.escape_debug());
        let hint = Hint::of(denial, &outcome.policy)?;
        Some(Refused {
            is_probe: false,
            is_of_sys: false,
            count: denial.count,
            first: denial.first,
            what,
            hint,
        })
    });
    let own = outcome.denials.most_frequent().into_iter();
    let own = own.filter(|kind| kind.rule.is_some() || dot_file(&kind.denied, &outcome.policy).is_none());
    let own = own.map(|Counted { count, denied, rule, reason, first }| {
        let otherwise = || reason.as_deref().map_or(Hint::Allow(denied), Hint::Reason);
        let hint = rule.map_or_else(otherwise, Hint::DeniedBy);
        let is_of_sys = matches!(denied, policy::Denied::Path { path, .. } if path.starts_with("/sys"));
        let (is_probe, what) = (is_probe(denied), describe(denied));
        Refused { is_probe, is_of_sys, count: *count, first: *first, what, hint }
    });
    let mut refused: Vec<_> = own.chain(others).chain(optional_files(outcome)).collect();
    refused.sort_by_key(|refused| (refused.is_probe, refused.hint.is_beyond(), Reverse(refused.count)));
    // Refused both before a connection and in it: the trace's count holds both.
    let mut told = HashSet::new();
    refused.retain(|refused| told.insert(refused.what.clone()));
    refused
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
    let named = files.join(", ");
    let hint = Hint::Rule(format!("read: {named}"));
    let what = format!("{what} {named}");
    Some(Refused { is_probe: false, is_of_sys: false, count, first: first?, what, hint })
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
