//! The report of a comparison, for people and for machines.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::cause::Cause;
use super::comparison::{Ancestor, Comparison, Divergence};
use super::fields::Field;
use crate::trace::brief::{brief, shell_words, shorten};
use crate::trace::escape;

/// Characters that are shown of a value.
const LONGEST: usize = 200;
/// Differences that are shown to people.
const MOST_SHOWN: usize = 40;
/// Fields that are shown of each.
const MOST_FIELDS: usize = 12;

/// What the two runs are called, and whether to use colours.
#[derive(Clone, Copy, Debug)]
pub struct Style<'a> {
    /// The recorded run.
    pub recorded: &'a str,
    /// The other one.
    pub live: &'a str,
    /// Whether a terminal shows it.
    pub color: bool,
}

/// The report in lines: each difference, then what else is to be said. Nothing of a run that is the same.
#[must_use]
pub fn text(comparison: &Comparison, style: &Style<'_>) -> String {
    let mut out = String::new();
    for divergence in comparison.divergences.iter().take(MOST_SHOWN) {
        self::divergence(divergence, style, &mut out);
    }
    let hidden = comparison.divergences.len().saturating_sub(MOST_SHOWN);
    if hidden > 0 {
        line(&mut out, &format!("and {hidden} more streams: see --json"));
    }
    notes(comparison, style, &mut out);
    out
}

/// The last line: what it all comes to. `same` and `different` begin it.
#[must_use]
pub fn verdict(comparison: &Comparison, same: &str, different: &str) -> String {
    let (matched, recorded) = (comparison.matched, comparison.recorded);
    let accepted = total(&comparison.accepted);
    let accepted = if accepted > 0 { format!(", {accepted} differences accepted") } else { String::new() };
    let accepted = accepted + &unseen_outputs(comparison);
    if comparison.is_same() {
        return format!("{same} — {matched}/{recorded} recorded steps matched{accepted}");
    }
    let differences = match comparison.differences() {
        1 => "1 difference".to_owned(),
        many => format!("{many} differences"),
    };
    format!("{different} — {matched}/{recorded} recorded steps matched, {differences}{accepted}")
}

/// What was printed is what people look at: whether it was is said at once.
fn unseen_outputs(comparison: &Comparison) -> String {
    let names = ["stdout", "stderr"].into_iter();
    let is_unseen =
        |name: &&str| comparison.unseen.iter().any(|one| one.strip_prefix("stdio ") == Some(*name));
    let names: Vec<_> = names.filter(is_unseen).collect();
    if names.is_empty() { String::new() } else { format!(", {} not compared", names.join(" and ")) }
}

fn total(counts: &std::collections::BTreeMap<(Cause, String), u64>) -> u64 {
    counts.values().sum()
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn divergence(divergence: &Divergence, style: &Style<'_>, out: &mut String) {
    let Divergence { step, cause, op, recorded, live, fields, chain, .. } = divergence;
    let head = format!("{}  {cause}  {}", escape::text(step), escape::text(op));
    line(out, &if style.color { format!("\x1b[31m{head}\x1b[0m") } else { head });
    let width = style.recorded.len().max(style.live.len()).max(6);
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(out, "    {name:<width$}  {}", escape::text(&shorten(text, LONGEST)));
    };
    for (name, entry) in [(style.recorded, recorded), (style.live, live)] {
        match entry {
            Some(entry) => row(name, &about(entry)),
            None if recorded.is_some() || live.is_some() => row(name, "nothing like it"),
            None => {}
        }
    }
    for Field { name, recorded, live } in fields.iter().take(MOST_FIELDS) {
        row("", &format!("{name}: {} -> {}", value(recorded), value(live)));
    }
    if fields.len() > MOST_FIELDS {
        row("", &format!("and {} more fields", fields.len() - MOST_FIELDS));
    }
    if let Some(live) = live {
        missed(live).into_iter().for_each(|(name, text)| row(name, &text));
    }
    if !chain.is_empty() {
        row("in", &chain.iter().map(ancestor).collect::<Vec<_>>().join(" > "));
    }
}

/// What a replay had no answer to, why, and what comes closest; or the durations that differ from what it answered to.
fn missed(live: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let member = |path: &str| live.get("result")?.pointer(path);
    if let Some(durations) = member("/replayed/durations") {
        return vec![("durations", differing(Some(durations)))];
    }
    let Some(kind @ ("not recorded" | "diverged")) = member("/failure/kind").and_then(Value::as_str) else {
        return Vec::new();
    };
    let place = member("/failure/at").and_then(Value::as_str).map(|at| format!(" at {at}"));
    let mut rows = vec![("failed", kind.to_owned() + &place.unwrap_or_default())];
    if let Some(closest) = member("/failure/closest").or_else(|| member("/closest")) {
        let entry = closest.get("entry").map(Value::to_string).unwrap_or_default();
        rows.push(("closest", format!("entry {entry}: {}", differing(closest.get("differs")))));
    }
    rows
}

/// As a replay names them.
fn differing(differs: Option<&Value>) -> String {
    let differs = differs.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let differ = |one: &Value| {
        let field = one.get("field").and_then(Value::as_str).unwrap_or_default();
        format!("{field}: {} -> {}", value(&one.get("recorded").cloned()), value(&one.get("live").cloned()))
    };
    differs.iter().take(MOST_FIELDS).map(differ).collect::<Vec<_>>().join("; ")
}

fn about(entry: &Map<String, Value>) -> String {
    let number = entry.get("i").map(Value::to_string).unwrap_or_default();
    let refused = entry.get("kind").is_some_and(|kind| kind == "deny");
    let args = entry.get("args");
    let stream = args.and_then(|args| args.get("stream")).and_then(Value::as_str);
    let said = match stream {
        Some(stream) => stream.to_owned(),
        None => brief(entry),
    };
    if !refused {
        return format!("entry {number}: {said}");
    }
    // Where no rule is the reason, it says another one.
    let reason = entry.get("rule").and_then(Value::as_str).and_then(|rule| rule.strip_prefix("no rule: "));
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("entry {number}: refused: {said}{reason}")
}

fn ancestor(ancestor: &Ancestor) -> String {
    let Ancestor { proc, argv } = ancestor;
    if argv.is_empty() { proc.clone() } else { format!("{proc} ({})", shorten(&shell_words(argv), 60)) }
}

fn value(value: &Option<Value>) -> String {
    let text = match value {
        None => "none".to_owned(),
        Some(Value::Array(words)) if words.is_empty() => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(words)) if words.iter().all(Value::is_string) => shell_words(words),
        Some(other) => other.to_string(),
    };
    shorten(&text, LONGEST / 2)
}

fn notes(comparison: &Comparison, style: &Style<'_>, out: &mut String) {
    let mut note = |text: String| line(out, &escape::text(&text));
    if total(&comparison.further) > 0 {
        let further = total(&comparison.further);
        let differences = if further == 1 { "difference" } else { "differences" };
        note(format!("{further} further {differences}, behind these: {}", counted(&comparison.further)));
    }
    if total(&comparison.accepted) > 0 {
        note(format!("accepted: {}", counted(&comparison.accepted)));
    }
    let tiers = comparison.tiers;
    if tiers.normalised + tiers.elsewhere > 0 {
        let all = tiers.exact + tiers.normalised + tiers.elsewhere;
        let parts = [
            (tiers.exact, "exact"),
            (tiers.normalised, "normalised"),
            (tiers.elsewhere, "of another process or thread"),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts.map(|(count, name)| format!("{count} {name}")).collect();
        let requests = if all == 1 { "request" } else { "requests" };
        note(format!("{all} {requests}: {}", parts.join(", ")));
    }
    for (count, what) in
        [(comparison.elsewhere, "by another process or thread"), (comparison.repeats, "more or fewer times")]
    {
        match count {
            0 => {}
            1 => note(format!("1 step happened {what}")),
            _ => note(format!("{count} steps happened {what}")),
        }
    }
    for renamed in comparison.renamed.iter().take(MOST_FIELDS) {
        note(format!(
            "process {} of {} is {} of {}: it runs the same",
            renamed.recorded, style.recorded, renamed.live, style.live
        ));
    }
    if !comparison.unseen.is_empty() {
        note(format!(
            "not compared, because one of the runs did not see it: {}",
            comparison.unseen.join(", ")
        ));
    }
    if comparison.masked {
        note("secrets are not compared: each run names them by a key of its own".to_owned());
    }
    lists(comparison, &mut note);
    for (bytes, name) in comparison.torn.iter().zip([style.recorded, style.live]) {
        if let Some(bytes) = bytes {
            note(format!("the last line of {name} is torn ({bytes} bytes): that run was interrupted"));
        }
    }
}

/// Lists of which the first few are told.
fn lists(comparison: &Comparison, note: &mut impl FnMut(String)) {
    for (all, what) in [
        (&comparison.approximate, "times are approximate in"),
        (&comparison.unordered, "pools of threads or processes, whose order was not compared"),
        (&comparison.ended_otherwise, "ended by SIGTERM or SIGPIPE in one run, by themselves in the other"),
        (&comparison.unheld, "of the machine, not as it was"),
        (&comparison.cut, "killed at the end, before they did as much in both runs"),
    ] {
        if !all.is_empty() {
            note(format!("{what}: {}", first_of(all)));
        }
    }
}

/// The first few, and how many more there are.
fn first_of(lineages: &[String]) -> String {
    let first: Vec<_> = lineages.iter().take(MOST_FIELDS).map(String::as_str).collect();
    match lineages.len() - first.len() {
        0 => first.join(", "),
        more => format!("{}, … and {more} more", first.join(", ")),
    }
}

/// As `missing-effect 8 (fs.open_read 6, proc.spawn 2), output-changed 1 (stdio 1)`.
fn counted(counts: &std::collections::BTreeMap<(Cause, String), u64>) -> String {
    let mut parts = Vec::new();
    for cause in Cause::ALL {
        let of_cause: Vec<_> = counts.iter().filter(|((other, _), _)| *other == cause).collect();
        if of_cause.is_empty() {
            continue;
        }
        let sum: u64 = of_cause.iter().map(|(_, count)| **count).sum();
        let ops: Vec<_> = of_cause.iter().map(|((_, op), count)| format!("{op} {count}")).collect();
        parts.push(format!("{cause} {sum} ({})", ops.join(", ")));
    }
    parts.join(", ")
}

/// The report for a machine; its keys are described in `docs/replay.md`.
#[must_use]
pub fn json(comparison: &Comparison) -> Value {
    let counts = |counts: &std::collections::BTreeMap<(Cause, String), u64>| -> Vec<Value> {
        let row = |((cause, op), count): (&(Cause, String), &u64)| json!({"class": cause.name(), "op": op, "count": count});
        counts.iter().map(row).collect()
    };
    let renamed = comparison.renamed.iter();
    let mut said = json!({
        "same": comparison.is_same(),
        "recorded": comparison.recorded,
        "live": comparison.live,
        "matched": comparison.matched,
        "differences": comparison.differences(),
        "requests": {
            "exact": comparison.tiers.exact,
            "normalised": comparison.tiers.normalised,
            "elsewhere": comparison.tiers.elsewhere,
        },
        "elsewhere": comparison.elsewhere,
        "repeats": comparison.repeats,
        "renamed": renamed.map(|one| json!({"recorded": one.recorded, "live": one.live})).collect::<Vec<_>>(),
        "unordered": comparison.unordered,
        "unseen": comparison.unseen,
        "approximate": comparison.approximate,
        "cut": comparison.cut,
        "ended_otherwise": comparison.ended_otherwise,
        "unheld": comparison.unheld,
        "torn": {"recorded": comparison.torn[0], "live": comparison.torn[1]},
        "divergences": comparison.divergences.iter().map(one).collect::<Vec<_>>(),
        "further": counts(&comparison.further),
        "accepted": counts(&comparison.accepted),
    });
    if comparison.masked {
        said["secrets"] = "not compared".into();
    }
    said
}

fn one(divergence: &Divergence) -> Value {
    let Divergence { stream, step, cause, op, recorded, live, fields, chain } = divergence;
    let field = |field: &Field| json!({"name": field.name, "recorded": field.recorded, "live": field.live});
    json!({
        "stream": stream,
        "step": step,
        "class": cause.name(),
        "op": op,
        "recorded": recorded,
        "live": live,
        "fields": fields.iter().map(field).collect::<Vec<_>>(),
        "chain": chain.iter().map(|one| json!({"proc": one.proc, "argv": one.argv})).collect::<Vec<_>>(),
    })
}
