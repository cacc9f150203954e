//! The chain: numbers each event, binds it to the entry before it, and gives the bytes of its line.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::canonical;
use super::effect::Effect;
use super::event::{Event, Kind, hex, write_hex};
use super::layout::ZERO_SHA;
use super::mentions::{find_blobs, find_blobs_in_value};
use super::observation::{Observation, Text};

/// Room for most results.
const RESULT: usize = 1 << 10;

/// An event whose values are canonical text already: made by the producer, so that the writer only hashes.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) kind: Kind,
    pub(super) op: &'static str,
    args: String,
    result: Option<String>,
    proc: Option<Arc<str>>,
    rule: Option<Arc<str>>,
    blobs: Vec<String>,
}

impl Body {
    pub(super) fn new(event: &Event) -> Self {
        let mut args = String::with_capacity(256);
        canonical::write_object(&mut args, &event.args);
        let mut blobs = Vec::new();
        find_blobs(&event.args, &mut blobs);
        if let Some(result) = &event.result {
            find_blobs_in_value(result, &mut blobs);
        }
        Self {
            kind: event.kind,
            op: event.op,
            args,
            result: event.result.as_ref().filter(|result| !result.is_null()).map(|result| {
                let mut text = String::with_capacity(RESULT);
                canonical::write_value(&mut text, result);
                text
            }),
            proc: event.proc.as_deref().map(string),
            rule: event.rule.as_deref().map(string),
            blobs,
        }
    }

    /// The same of an effect that is written already.
    pub(super) fn of_effect(effect: Effect<'_>) -> Self {
        let mut blobs = Vec::new();
        Self {
            kind: Kind::Effect,
            op: effect.op,
            args: effect.args.object(&mut blobs),
            result: Some(effect.result.object(&mut blobs)),
            proc: effect.proc.map(string),
            rule: Some(string(effect.rule)),
            blobs,
        }
    }

    /// The same of an observation that is written already.
    pub(super) fn of_observation(seen: Observation<'_>) -> Self {
        let mut blobs = Vec::new();
        Self {
            kind: Kind::Observe,
            op: seen.op,
            args: seen.args.object(&mut blobs),
            result: None,
            proc: Some(Arc::clone(&seen.proc.0)),
            rule: Some(Arc::clone(&seen.rule.0)),
            blobs,
        }
    }

    /// Returns the most bytes that its line may take.
    pub(super) fn line_bound(&self) -> u64 {
        let texts = [self.result.as_deref(), self.proc.as_deref(), self.rule.as_deref()];
        let variable =
            self.args.len() + self.op.len() + texts.into_iter().flatten().map(str::len).sum::<usize>();
        // Two hashes, three numbers, the names of all fields.
        u64::try_from(variable).unwrap_or(u64::MAX).saturating_add(336)
    }

    /// Whether both say the same.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.said() == other.said()
    }

    fn said(&self) -> impl PartialEq + Hash + '_ {
        (self.kind, self.op, &self.args, &self.result, &self.proc, &self.rule)
    }
}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.said().hash(state);
    }
}

/// The state that the next entry continues from.
#[derive(Debug)]
pub(super) struct Chain {
    next: u64,
    head: String,
    blob_root: String,
    last_micros: u64,
    /// What stands behind the hash of the entry that is made.
    end: String,
}

impl Chain {
    pub(super) fn new() -> Self {
        let (head, blob_root) = (ZERO_SHA.to_owned(), ZERO_SHA.to_owned());
        Self { next: 0, head, blob_root, last_micros: 0, end: String::new() }
    }

    /// Number of entries so far.
    pub(super) fn entries(&self) -> u64 {
        self.next
    }

    /// Hash of the last entry.
    pub(super) fn head(&self) -> &str {
        &self.head
    }

    /// Time of the last entry, in microseconds since the epoch.
    pub(super) fn last_micros(&self) -> u64 {
        self.last_micros
    }

    /// Returns the arguments of a checkpoint or seal that follows the last entry.
    pub(super) fn checkpoint(&self, op: &'static str) -> Event {
        Event::new(Kind::Meta, op)
            .arg("entries", self.next)
            .arg("head", self.head.as_str())
            .arg("blobs", self.blob_root.as_str())
    }

    /// Appends one entry: leaves its line, with the newline, in `line`.
    ///
    /// `count` is how many identical events this one entry stands for, where that is not one by itself.
    pub(super) fn append(&mut self, body: &Body, count: Option<u64>, micros: u64, line: &mut String) {
        self.last_micros = self.last_micros.max(micros);
        line.clear();
        line.push_str("{\"args\":");
        line.push_str(&body.args);
        if let Some(count) = count {
            let _ = write!(line, ",\"count\":{count}");
        }
        let _ = write!(
            line,
            ",\"i\":{},\"kind\":\"{}\",\"op\":\"{}\",\"prev\":\"{}\"",
            self.next, body.kind, body.op, self.head
        );
        let (proc, result, rule) = (body.proc.as_deref(), body.result.as_deref(), body.rule.as_deref());
        let others = [(",\"proc\":", proc), (",\"result\":", result), (",\"rule\":", rule)];
        for (name, text) in others {
            if let Some(text) = text {
                line.push_str(name);
                line.push_str(text);
            }
        }
        self.end.clear();
        self.end.push_str(",\"ts\":");
        write_seconds(&mut self.end, self.last_micros);
        self.end.push('}');
        let sha = entry_sha(self.head.as_bytes(), line.as_bytes(), self.end.as_bytes());
        self.head.clear();
        write_hex(&mut self.head, &sha);
        for part in [",\"sha\":\"", &self.head, "\"", &self.end, "\n"] {
            line.push_str(part);
        }
        for blob in &body.blobs {
            self.blob_root = next_blob_root(&self.blob_root, blob);
        }
        self.next += 1;
    }
}

/// Returns the hash of an entry: over the hash of the entry before it, then the entry's own text without its `sha`
/// member (given in two parts, before and after where that stands).
pub(super) fn entry_sha(prev: &[u8], before: &[u8], after: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(prev);
    hash.update(before);
    hash.update(after);
    hash.finalize().into()
}

/// Returns the root after one more reference to a blob, in the order in which references stand in the file.
pub(super) fn next_blob_root(root: &str, sha256: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(root.as_bytes());
    hash.update(sha256.as_bytes());
    hex(&hash.finalize())
}

/// Writes seconds with at most six decimals: what Python's `repr` gives for such a time, whole seconds as an integer.
fn write_seconds(line: &mut String, micros: u64) {
    if (1..100).contains(&micros) {
        return canonical::write_float(line, Duration::from_micros(micros).as_secs_f64());
    }
    let _ = write!(line, "{}", micros / 1_000_000);
    let fraction = micros % 1_000_000;
    if fraction != 0 {
        let _ = write!(line, ".{fraction:06}");
        line.truncate(line.trim_end_matches('0').len());
    }
}

fn string(text: &str) -> Arc<str> {
    Text::from(text).0
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::effect::Members;
    use super::*;

    #[test]
    fn the_line_is_the_known_one() {
        // The first entry of a trace that the Python tool wrote.
        let expected = include_str!("../../tests/vectors/trace-python.jsonl").lines().next().expect("a line");
        let stored: Value = serde_json::from_str(expected).expect("JSON");
        let mut event = Event::new(Kind::Meta, "run.start");
        event.args = stored["args"].as_object().expect("an object").clone();
        let mut line = String::new();
        Chain::new().append(&Body::new(&event), None, 1_795_960_678_080_639, &mut line);
        assert_eq!(line.trim_end(), expected);
    }

    #[test]
    fn seconds_print_as_python_prints_them() {
        for (micros, text) in [
            (1_786_243_519_918_193, "1786243519.918193"),
            (1_786_243_519_900_000, "1786243519.9"),
            (1_786_243_519_000_001, "1786243519.000001"),
            (1_786_243_519_000_000, "1786243519"),
            (100, "0.0001"),
            (12, "1.2e-05"),
        ] {
            let mut line = String::new();
            write_seconds(&mut line, micros);
            assert_eq!(line, text);
            if let Some((_, fraction)) = text.split_once('.') {
                let value: f64 = text.parse().expect("a float");
                let mut printed = String::new();
                canonical::write_float(&mut printed, value);
                assert_eq!(printed, text, "{fraction}");
            }
        }
    }

    #[test]
    fn time_never_goes_backwards() {
        let body = Body::new(&Event::new(Kind::Effect, "clock.now"));
        let mut chain = Chain::new();
        let mut line = String::new();
        chain.append(&body, None, 5_000_000, &mut line);
        chain.append(&body, None, 4_000_000, &mut line);
        assert!(line.ends_with("\"ts\":5}\n"), "{line}");
    }

    #[test]
    fn the_bound_holds_for_the_longest_numbers() {
        let event = Event::new(Kind::Observe, "fs.open_read")
            .arg("path", "x")
            .proc("0.2")
            .rule("a.policy:3")
            .result(1);
        let body = Body::new(&event);
        let mut chain = Chain { next: u64::MAX - 1, ..Chain::new() };
        let mut line = String::new();
        chain.append(&body, Some(u64::MAX), u64::MAX, &mut line);
        assert!(u64::try_from(line.len()).expect("fits") <= body.line_bound(), "{}", line.len());
    }

    #[test]
    fn blobs_are_found_in_the_order_of_the_text() {
        let (first, second) = ("a".repeat(64), "b".repeat(64));
        let event = Event::new(Kind::Effect, "http.exchange")
            .arg("z", serde_json::json!([{"blob": second, "size": 1}]))
            .arg("a", serde_json::json!({"blob": first, "size": 1}))
            .arg("not", serde_json::json!({"blob": "short"}));
        assert_eq!(Body::new(&event).blobs, vec![first, second]);
    }

    #[test]
    fn its_line_is_that_of_the_same_event() {
        let (first, second) = ("a".repeat(64), "b".repeat(64));
        let (mut args, mut result) = (Members::new(), Members::new());
        let fill = |args: &mut Members, result: &mut Members| {
            args.clear();
            result.clear();
            args.string("url", "http://a.test/\"x\"");
            args.value("body", &serde_json::json!({"blob": first, "size": 1}));
            result.value("z", &serde_json::json!([1.5, {"blob": first, "size": 3}]));
            result.string("status", "overwritten");
            result.value("body".to_owned(), &serde_json::json!({"blob": second, "size": 2}));
            result.write("status", |out| out.push_str("200"));
        };
        fn effect<'a>(args: &'a mut Members, result: &'a mut Members) -> Effect<'a> {
            Effect { op: "http.exchange", args, result, proc: Some("0.1"), rule: "a.policy:1" }
        }
        let event = Event::new(Kind::Effect, "http.exchange")
            .arg("body", serde_json::json!({"blob": first, "size": 1}))
            .arg("url", "http://a.test/\"x\"")
            .result(serde_json::json!({
                "status": 200, "body": {"blob": second, "size": 2}, "z": [1.5, {"blob": first, "size": 3}],
            }))
            .proc("0.1")
            .rule("a.policy:1");
        fill(&mut args, &mut result);
        assert_eq!(Event::from(effect(&mut args, &mut result)), event);
        let (mut line, mut other) = (String::new(), String::new());
        let (mut one, mut two) = (Chain::new(), Chain::new());
        fill(&mut args, &mut result);
        one.append(&Body::of_effect(effect(&mut args, &mut result)), None, 1, &mut line);
        two.append(&Body::new(&event), None, 1, &mut other);
        assert_eq!(line, other);
        assert_eq!(one.checkpoint("run.seal"), two.checkpoint("run.seal"));
    }
}
