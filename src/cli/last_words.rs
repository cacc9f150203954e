//! What is said at the end of a run: on stderr, for stdout is the agent's alone.

mod refused;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::keys;
use crate::plan::PRIVATE_HOME;
use crate::policy::{self, PathAccess, Verdict};
use crate::run::Outcome;
use crate::trace::escape;
use refused::{Refused, refused};

/// The variables of the launcher.
type Environment = [(OsString, OsString)];

/// Kinds of refusals that are told; the trace holds all of them.
const MOST: usize = 3;

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The lines.
pub(super) fn of(outcome: &Outcome, enforce: bool, environment: &Environment) -> Vec<String> {
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
    lines.extend(unverified(outcome));
    lines.extend(outcome.denials.held.iter().map(|(port, rule)| {
        format!(
            "agentbox: port {port} is held inside for the host's own ({rule}): no server inside can have it"
        )
    }));
    if outcome.code != 0 && enforce {
        lines.extend(shown_in_part(outcome));
        lines.extend(private_home(outcome));
        lines.extend(not_passed(outcome, environment));
    } else if enforce && totals.denials == 0 {
        // A listing of nothing is no failure of `ls`.
        lines.extend(shown_in_part(outcome).filter(|_| shows_nothing(outcome)));
    }
    lines.extend(refusals(outcome, denied));
    lines
}

/// What was refused.
fn refusals(outcome: &Outcome, denied: &str) -> Vec<String> {
    let refused = refused(outcome);
    // They are told where nothing else was refused, and not of a command that has done its work.
    let all_idle = refused.iter().all(|kind| kind.is_idle);
    let needed = |kind: &&Refused<'_>| !kind.is_idle || (all_idle && outcome.code != 0);
    // What failed first is most often why the rest did: nothing comes after it.
    let first = refused
        .iter()
        .filter(needed)
        .min_by_key(|refused| (refused.is_last, refused.hint.is_beyond(), refused.first));
    let words = |refused: &Refused<'_>| format!("{} ({})", refused.what, refused.hint.text(&outcome.policy));
    let counted = |kind: &Refused<'_>| format!("agentbox: {denied} {}x: {}", kind.count, words(kind));
    let told: Vec<_> = refused.iter().filter(needed).take(MOST).collect();
    let is_first = |kind: &Refused<'_>| first.is_some_and(|first| std::ptr::eq(first, kind));
    let others = told.iter().filter(|kind| !is_first(kind));
    let mut lines: Vec<_> = others.map(|kind| counted(kind)).collect();
    match refused.len() - told.len() {
        0 => {}
        _ if told.is_empty() => lines.push(format!(
            "agentbox: {denied}: what programs do without, below /sys or bytecode: agentbox show --denied"
        )),
        1 => lines.push("agentbox: and 1 more kind: agentbox show --denied".to_owned()),
        more => lines.push(format!("agentbox: and {more} more kinds: agentbox show --denied")),
    }
    lines.extend(first.map(|first| match told.iter().any(|kind| is_first(kind)) {
        true => counted(first),
        false => format!("agentbox: {denied} first: {}", words(first)),
    }));
    lines
}

/// Origins whose certificates could not be verified, each with what would change that.
fn unverified(outcome: &Outcome) -> Vec<String> {
    let told = outcome.unverified.iter().take(MOST);
    let mut lines: Vec<_> = told.map(|failure| format!("agentbox: {}", escape::text(failure))).collect();
    match outcome.unverified.len().saturating_sub(MOST) {
        0 => {}
        more => lines.push(format!("agentbox: and {more} more such certificates: agentbox show")),
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

/// Whether no rule names anything in the working directory.
fn shows_nothing(outcome: &Outcome) -> bool {
    let policy = &outcome.policy;
    outcome.denials.partial.contains(policy.cwd())
        && !policy.shown().any(|place| place.starts_with(policy.cwd()))
}

/// Keys that are set and that the command did not get.
fn not_passed(outcome: &Outcome, environment: &Environment) -> Option<String> {
    let policy = &outcome.policy;
    let is_given = |name: &String| {
        let set = policy.assigned_env();
        policy.secrets().any(|(_, secret)| secret.name == *name) || set.iter().any(|(other, _)| other == name)
    };
    let is_missing = |name: &String| matches!(policy.decide_env(name), Verdict::Deny { rule: None, .. });
    let mut names: Vec<_> =
        keys::set(environment).into_iter().filter(|name| is_missing(name) && !is_given(name)).collect();
    let more = if names.len() > MOST { ", …" } else { "" };
    names.truncate(MOST);
    (!names.is_empty()).then(|| format!("agentbox: not passed: {}{more} (env: NAME)", names.join(", ")))
}

/// That HOME was private, where something was looked for in it.
fn private_home(outcome: &Outcome) -> Option<String> {
    let missed = outcome.denials.missed.iter().filter_map(|path| path.strip_prefix(PRIVATE_HOME).ok());
    let plain = |name: &&Path| {
        name.to_str()
            .is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)))
    };
    let secret = |name: &Path| {
        let path = outcome.policy.home()?.join(name);
        outcome.policy.place_of_secrets(&policy::Denied::Path { access: PathAccess::Read, path })
    };
    let names: Vec<_> = missed.filter(plain).collect();
    let harmless = names.iter().find(|name| secret(name).is_none());
    let name = harmless.or_else(|| names.first())?;
    let shown = name.display();
    let hint = match secret(name) {
        Some(place) => format!("{place} is a place of secrets"),
        None => format!("to show it: env: HOME and read: ~/{shown}"),
    };
    Some(format!("agentbox: HOME was private and empty, and ~/{shown} was looked for ({hint})"))
}
