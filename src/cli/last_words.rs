//! What is said at the end of a run: on stderr, for stdout is the agent's alone.

mod refused;

use std::path::{Path, PathBuf};

use crate::plan::PRIVATE_HOME;
use crate::policy::{self, PathAccess};
use crate::run::Outcome;
use crate::trace::escape;
use refused::{Refused, refused};

/// Kinds of refusals that are told; the trace holds all of them.
const MOST: usize = 3;

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
    lines.extend(unverified(outcome));
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
    // A command that has done its work needed none of these.
    let needed = |refused: &&Refused<'_>| outcome.code != 0 || !refused.is_idle;
    let told: Vec<_> = refused.iter().filter(needed).take(MOST).collect();
    let words = |refused: &Refused<'_>| format!("{} ({})", refused.what, refused.hint.text(&outcome.policy));
    lines.extend(told.iter().map(|kind| format!("agentbox: {denied} {}x: {}", kind.count, words(kind))));
    let above = told.last().map(|kind| words(kind));
    match refused.len() - told.len() {
        0 => {}
        _ if told.is_empty() => lines.push(format!(
            "agentbox: {denied}: what programs do without, below /sys or bytecode: agentbox show --denied"
        )),
        1 => lines.push("agentbox: and 1 more kind: agentbox show --denied".to_owned()),
        more => lines.push(format!("agentbox: and {more} more kinds: agentbox show --denied")),
    }
    // What failed first is most often why the rest did: nothing comes after it.
    let first = refused
        .iter()
        .filter(needed)
        .min_by_key(|refused| (refused.is_last, refused.hint.is_beyond(), refused.first));
    if let Some(first) = first.map(words).filter(|first| above.as_ref() != Some(first)) {
        lines.push(format!("agentbox: {denied} first: {first}"));
    }
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
