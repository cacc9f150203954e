//! An effect whose entry is written as text from the start: what comes by the thousand takes no tree of values.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Map, Value};

use super::canonical;
use super::event::{Event, Kind, display_bytes, hex};
use super::mentions::find_blobs_in_value;

/// Something that came from outside, before it is numbered, chained and stored.
#[derive(Debug)]
pub struct Effect<'a> {
    /// The operation, as `http.exchange`.
    pub op: &'static str,
    /// What the operation was applied to.
    pub args: &'a mut Members,
    /// What came of it.
    pub result: &'a mut Members,
    /// The lineage of the process.
    pub proc: Option<&'a str>,
    /// Which rule allowed it.
    pub rule: &'a str,
}

/// The members of an object, each as canonical text. Whoever makes many clears it in between, and takes no new memory
/// for each.
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

/// Room that is kept for the next ones.
const KEPT: usize = 32 << 10;

impl Members {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self { text: String::with_capacity(TEXT), list: Vec::with_capacity(LIST) }
    }

    /// Takes all of them away.
    pub fn clear(&mut self) {
        self.list.clear();
        self.text.clear();
        if self.text.capacity() > KEPT {
            self.text.shrink_to(TEXT);
        }
    }

    /// Adds one that is a list of strings.
    pub fn strings<'a>(&mut self, key: &'static str, texts: impl IntoIterator<Item = &'a str>) {
        self.write(key, |out| {
            out.push('[');
            for (position, text) in texts.into_iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                canonical::write_string(out, text);
            }
            out.push(']');
        });
    }

    /// Adds one that is a string.
    pub fn string(&mut self, key: &'static str, text: &str) {
        self.write(key, |out| canonical::write_string(out, text));
    }

    /// Adds a path or another string of bytes without loss, as [`path_value`](super::event::path_value) does.
    pub fn bytes(&mut self, key: &'static str, bytes: &[u8]) {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return self.string(key, text);
        }
        self.string(key, &display_bytes(bytes));
        let from = self.text.len();
        canonical::write_string(&mut self.text, &hex(bytes));
        let key = Cow::Owned(format!("{key}_hex"));
        self.list.push(Member { key, text: from..self.text.len(), blobs: Vec::new() });
    }

    /// Adds one that is a number.
    pub fn number(&mut self, key: &'static str, number: u64) {
        // A string takes everything.
        self.write(key, |out| _ = write!(out, "{number}"));
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
        self.write_if(key, |out| {
            write(out);
            true
        });
    }

    /// The same where `write` has written it and says so; else it writes nothing.
    pub fn write_if(&mut self, key: &'static str, write: impl FnOnce(&mut String) -> bool) -> bool {
        let from = self.text.len();
        let is_written = write(&mut self.text);
        if is_written {
            self.list.push(Member { key: key.into(), text: from..self.text.len(), blobs: Vec::new() });
        }
        is_written
    }

    /// The object, and the blobs that it refers to in the order of its text. Once.
    pub(super) fn object(&mut self, blobs: &mut Vec<String>) -> String {
        self.list.sort_by(|one, other| one.key.cmp(&other.key));
        let mut out = String::with_capacity(self.text.len() + 32 * self.list.len() + 2);
        out.push('{');
        let mut list = self.list.iter_mut().peekable();
        while let Some(member) = list.next() {
            if list.peek().is_some_and(|next| next.key == member.key) {
                continue;
            }
            if out.len() > 1 {
                out.push(',');
            }
            canonical::write_string(&mut out, &member.key);
            out.push(':');
            out.push_str(&self.text[member.text.clone()]);
            blobs.append(&mut member.blobs);
        }
        out.push('}');
        out
    }

    /// The same as values. Once.
    pub(super) fn values(&mut self) -> Map<String, Value> {
        // What was written here is JSON.
        serde_json::from_str(&self.object(&mut Vec::new())).unwrap_or_default()
    }
}

impl From<Effect<'_>> for Event {
    fn from(effect: Effect<'_>) -> Self {
        let mut event = Self::new(Kind::Effect, effect.op);
        event.args = effect.args.values();
        event.result = Some(Value::Object(effect.result.values()));
        event.proc = effect.proc.map(str::to_owned);
        event.rule(effect.rule)
    }
}
