//! One entry as one row: number, kind, operation, what it is about, and who and why.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::{meta, outcome};
use crate::trace::brief::{brief, shorten};
use crate::trace::escape;

/// Characters of anything else that are shown.
const LONGEST_BRIEF: usize = 400;

/// `place` is the directory of the run.
pub(super) fn write(
    entry: &Map<String, Value>,
    place: Option<&str>,
    color: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).map(escape::text);
    let index = entry.get("i").map(|index| escape::text(&index.to_string())).unwrap_or_default();
    let (kind, op) = (text("kind").unwrap_or_default(), text("op").unwrap_or_default());
    let brief = meta::brief(entry).unwrap_or_else(|| brief(entry) + &resolved(entry, place));
    let brief = escape::text(&shorten(&brief, LONGEST_BRIEF));
    let outcome = outcome::brief(entry).map(|outcome| escape::text(&shorten(&outcome, LONGEST_BRIEF)));
    let outcome = outcome.map(|outcome| format!(" -> {outcome}")).unwrap_or_default();
    let row = format!("{index:>4}  {kind:<8} {op:<15} {brief}{outcome}");
    let times = entry.get("count").and_then(Value::as_u64).map(|count| match count {
        1 => "1 time".to_owned(),
        count => format!("{count} times"),
    });
    let (reason, remedy) = why(entry);
    // `no rule` says less than the reason does.
    let rule = text("rule").filter(|rule| rule != "no rule" || reason.is_none());
    let notes: Vec<String> = [text("proc"), rule, reason, remedy, times].into_iter().flatten().collect();
    let notes = if notes.is_empty() { String::new() } else { format!("  [{}]", notes.join(", ")) };
    match color_of(&kind).filter(|_| color) {
        Some(code) => writeln!(out, "\x1b[{code}m{row}\x1b[0m\x1b[2m{notes}\x1b[0m"),
        None => writeln!(out, "{row}{notes}"),
    }
}

/// Where a path led, from the directory of the run, where that says more than how it was spelled.
fn resolved(entry: &Map<String, Value>, place: Option<&str>) -> String {
    let told = |name: &str| entry.get("args")?.get(name)?.as_str();
    let Some(resolved) = told("resolved") else { return String::new() };
    let below = place.and_then(|place| resolved.strip_prefix(place)?.strip_prefix('/'));
    let spelled = told("path").or_else(|| told("target")).unwrap_or_default();
    let plain = spelled.strip_prefix("./").unwrap_or(spelled);
    let is_same = below == Some(plain) || (Some(resolved) == place && plain == ".");
    if is_same { String::new() } else { format!(" ({})", below.unwrap_or(resolved)) }
}

/// Of a refusal: why, and the rule that would allow it.
fn why(entry: &Map<String, Value>) -> (Option<String>, Option<String>) {
    let told = |name: &str| {
        let text = entry.get("args")?.get(name)?.as_str()?;
        Some(escape::text(&shorten(text, LONGEST_BRIEF)))
    };
    if entry.get("kind").is_none_or(|kind| kind != "deny") {
        return (None, None);
    }
    let remedy = told("remedy").map(|rule| format!("to allow it: {rule}"));
    let advice = [remedy, told("caution")].into_iter().flatten().collect::<Vec<_>>().join("; ");
    (told("reason"), Some(advice).filter(|advice| !advice.is_empty()))
}

fn color_of(kind: &str) -> Option<&'static str> {
    match kind {
        "deny" => Some("31"),
        "effect" => Some("36"),
        "meta" => Some("2"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(entry: &Value) -> String {
        let mut out = Vec::new();
        write(entry.as_object().expect("an object"), Some("/w"), false, &mut out).expect("written");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn rows_are_aligned() {
        let entry = json!({"i": 14, "kind": "deny", "op": "read", "args": {"target": "secret.txt"}});
        assert_eq!(row(&entry), "  14  deny     read            secret.txt\n");
        let entry = json!({"i": 0, "kind": "meta", "op": "run.start", "args": {"argv": ["a b", "c'd", ""]}});
        assert_eq!(row(&entry), "   0  meta     run.start       'a b' 'c'\"'\"'d' ''\n");
        let entry = json!({"i": 2, "kind": "deny", "op": "net", "args": {"target": "h:1"}, "proc": "0.2", "rule": "no rule", "count": 3});
        assert_eq!(row(&entry), "   2  deny     net             h:1  [0.2, no rule, 3 times]\n");
        let entry = json!({"i": 2, "kind": "deny", "op": "net", "args": {"target": "h:1", "reason": "a `%2F` stands there", "remedy": "net: h:1"}, "rule": "no rule", "count": 1});
        assert_eq!(
            row(&entry),
            "   2  deny     net             h:1  [a `%2F` stands there, to allow it: net: h:1, 1 time]\n"
        );
        let entry =
            json!({"i": 2, "kind": "deny", "op": "net", "args": {"address": "2001:db8::1", "port": 80}});
        assert_eq!(row(&entry), "   2  deny     net             [2001:db8::1]:80\n");
        let entry = json!({"i": 2, "kind": "deny", "op": "net", "args": {"target": "h:1", "reason": "the rate"}, "rule": "p:1"});
        assert_eq!(row(&entry), "   2  deny     net             h:1  [p:1, the rate]\n");
    }

    #[test]
    fn a_path_is_told_from_the_directory_of_the_run() {
        let read = |path: &str, resolved: &str| {
            row(
                &json!({"i": 3, "kind": "observe", "op": "fs.open_read", "args": {"path": path, "resolved": resolved}}),
            )
        };
        assert_eq!(read("config", "/w/.git/config"), "   3  observe  fs.open_read    config (.git/config)\n");
        assert_eq!(read("./a", "/w/a"), "   3  observe  fs.open_read    ./a\n");
        assert_eq!(read(".", "/w"), "   3  observe  fs.open_read    .\n");
        assert_eq!(read("42", "/etc/x"), "   3  observe  fs.open_read    42 (/etc/x)\n");
    }

    #[test]
    fn arguments_without_a_main_one_are_shown_as_json() {
        let entry = json!({"i": 1, "kind": "meta", "op": "run.odd", "args": {"returncode": 0, "z": [1, 2]}});
        assert_eq!(row(&entry), "   1  meta     run.odd         {\"returncode\": 0, \"z\": [1,2]}\n");
    }

    #[test]
    fn no_text_begins_a_row() {
        let forged = "x\n  99  effect   net.get         http://evil\u{1b}[2K\u{202e}";
        for entry in [
            json!({"i": forged, "kind": forged, "op": forged, "args": {"path": forged}, "proc": forged, "rule": forged}),
            json!({"i": 1, "kind": "effect", "op": "x", "args": {"argv": [forged, {"x": forged}]}}),
            json!({"i": 1, "kind": "effect", "op": "x", "args": {forged: forged}}),
            json!({"i": 1, "kind": "deny", "op": "net", "args": {"reason": forged, "remedy": forged}}),
            json!({"i": 1, "op": "http.exchange", "args": {}, "result": {"error": forged, "status": forged}}),
            json!({"i": 1, "op": "dns.lookup", "args": {}, "result": {"answers": [forged], "code": forged}}),
        ] {
            let row = row(&entry);
            assert_eq!(row.matches('\n').count(), 1, "{row}");
            assert!(!row.contains(['\u{1b}', '\u{202e}']), "{row:?}");
        }
    }
}
