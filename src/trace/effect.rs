//! An effect whose entry is written as text from the start: what comes by the thousand takes no tree of values.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};

use super::canonical;
use super::chain::find_blobs_in_value;
use super::event::{Event, Kind};

/// Something that came from outside, before it is numbered, chained and stored.
#[derive(Debug)]
pub struct Effect<'a> {
    /// The operation, as `http.exchange`.
    pub op: &'static str,
    /// What the operation was applied to.
    pub args: Members,
    /// What came of it.
    pub result: Members,
    /// The lineage of the process.
    pub proc: Option<&'a str>,
    /// Which rule allowed it.
    pub rule: &'a str,
}

/// The members of an object, each as canonical text.
#[derive(Debug, Default)]
pub struct Members {
    text: String,
    list: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    key: Cow<'static, str>,
    text: Range<usize>,
    blobs: Vec<String>,
}

/// Room for what most hold.
const TEXT: usize = 1 << 10;
const LIST: usize = 12;

impl Members {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self { text: String::with_capacity(TEXT), list: Vec::with_capacity(LIST) }
    }

    /// Adds one that is a string.
    pub fn string(&mut self, key: &'static str, text: &str) {
        self.write(key, |out| canonical::write_string(out, text));
    }

    /// Adds one. A later one of the same name counts.
    pub fn value(&mut self, key: impl Into<Cow<'static, str>>, value: &Value) {
        let from = self.text.len();
        canonical::write_value(&mut self.text, value);
        let mut blobs = Vec::new();
        find_blobs_in_value(value, &mut blobs);
        self.list.push(Member { key: key.into(), text: from..self.text.len(), blobs });
    }

    /// Adds one whose canonical text, without references to blobs, is written by `write`.
    pub fn write(&mut self, key: &'static str, write: impl FnOnce(&mut String)) {
        let from = self.text.len();
        write(&mut self.text);
        self.list.push(Member { key: key.into(), text: from..self.text.len(), blobs: Vec::new() });
    }

    /// The object, and the blobs that it refers to in the order of its text.
    pub(super) fn object(mut self, blobs: &mut Vec<String>) -> String {
        self.list.sort_by(|one, other| one.key.cmp(&other.key));
        let mut out = String::with_capacity(self.text.len() + 32 * self.list.len() + 2);
        out.push('{');
        let mut list = self.list.into_iter().peekable();
        while let Some(member) = list.next() {
            if list.peek().is_some_and(|next| next.key == member.key) {
                continue;
            }
            if out.len() > 1 {
                out.push(',');
            }
            canonical::write_string(&mut out, &member.key);
            out.push(':');
            out.push_str(&self.text[member.text]);
            blobs.extend(member.blobs);
        }
        out.push('}');
        out
    }
}

impl From<Effect<'_>> for Event {
    fn from(effect: Effect<'_>) -> Self {
        let read = |members: Members| -> Map<String, Value> {
            // What was written here is JSON.
            serde_json::from_str(&members.object(&mut Vec::new())).unwrap_or_default()
        };
        let mut event = Self::new(Kind::Effect, effect.op);
        event.args = read(effect.args);
        event.result = Some(Value::Object(read(effect.result)));
        event.proc = effect.proc.map(str::to_owned);
        event.rule(effect.rule)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::chain::{Body, Chain};
    use super::*;

    #[test]
    fn its_line_is_that_of_the_same_event() {
        let (first, second) = ("a".repeat(64), "b".repeat(64));
        let effect = || {
            let (mut args, mut result) = (Members::new(), Members::new());
            args.string("url", "http://a.test/\"x\"");
            args.value("body", &json!({"blob": first, "size": 1}));
            result.value("z", &json!([1.5, {"blob": first, "size": 3}]));
            result.string("status", "overwritten");
            result.value("body".to_owned(), &json!({"blob": second, "size": 2}));
            result.write("status", |out| out.push_str("200"));
            Effect { op: "http.exchange", args, result, proc: Some("0.1"), rule: "a.policy:1" }
        };
        let event = Event::new(Kind::Effect, "http.exchange")
            .arg("body", json!({"blob": first, "size": 1}))
            .arg("url", "http://a.test/\"x\"")
            .result(json!({
                "status": 200, "body": {"blob": second, "size": 2}, "z": [1.5, {"blob": first, "size": 3}],
            }))
            .proc("0.1")
            .rule("a.policy:1");
        assert_eq!(Event::from(effect()), event);
        let (mut line, mut other) = (String::new(), String::new());
        let (mut one, mut two) = (Chain::new(), Chain::new());
        one.append(&Body::of_effect(effect()), None, 1, &mut line);
        two.append(&Body::new(&event), None, 1, &mut other);
        assert_eq!(line, other);
        assert_eq!(one.checkpoint("run.seal"), two.checkpoint("run.seal"));
    }
}
