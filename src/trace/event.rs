//! An event: what one part of the run has to say, before it is numbered, chained and stored.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value};

/// What sort of statement an entry makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// About the run itself.
    Meta,
    /// An outcome that replay serves.
    Effect,
    /// An outcome that replay checks.
    Observe,
    /// Refused, or would have been under `--observe`.
    Deny,
}

impl Kind {
    /// Returns the word that stands in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Effect => "effect",
            Self::Observe => "observe",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One statement about the run.
///
/// Keys of `args` and `result` are ours and never come from the agent: an object member named `blob` that holds
/// a SHA-256 is a reference to a blob, and `verify` looks for that blob.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// What sort of statement this is.
    pub kind: Kind,
    /// The operation, as `fs.open_read`.
    pub op: &'static str,
    /// What the operation was applied to.
    pub args: Map<String, Value>,
    /// What came of it; null is the same as none.
    pub result: Option<Value>,
    /// The lineage of the process, as `0.2`.
    pub proc: Option<String>,
    /// Which rule allowed it, or why it was refused.
    pub rule: Option<String>,
}

impl Event {
    /// Starts an event without arguments.
    pub fn new(kind: Kind, op: &'static str) -> Self {
        Self { kind, op, args: Map::new(), result: None, proc: None, rule: None }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.args.insert(key.into(), value.into());
        self
    }

    /// Adds a path or another string of bytes as an argument, without loss: see [`path_value`].
    #[must_use]
    pub fn path(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        for (key, value) in path_value(key, value.as_ref().as_bytes()) {
            self.args.insert(key, value);
        }
        self
    }

    /// Adds a list of strings of bytes as an argument (an argv), without loss: where one of them is not UTF-8,
    /// the exact bytes of all of them stand in `<key>_hex`.
    #[must_use]
    pub fn words<T: AsRef<OsStr>>(mut self, key: &str, words: impl IntoIterator<Item = T>) -> Self {
        let mut texts = Vec::new();
        let mut exact = Vec::new();
        let mut lossy = false;
        for word in words {
            let bytes = word.as_ref().as_bytes();
            lossy |= std::str::from_utf8(bytes).is_err();
            texts.push(Value::from(display_bytes(bytes)));
            exact.push(Value::from(hex(bytes)));
        }
        self.args.insert(key.to_owned(), Value::from(texts));
        if lossy {
            self.args.insert(format!("{key}_hex"), Value::from(exact));
        }
        self
    }

    /// Sets the outcome.
    #[must_use]
    pub fn result(mut self, value: impl Into<Value>) -> Self {
        self.result = Some(value.into());
        self
    }

    /// Sets the lineage of the process.
    #[must_use]
    pub fn proc(mut self, lineage: impl Into<String>) -> Self {
        self.proc = Some(lineage.into());
        self
    }

    /// Sets the rule that allowed it, or the reason of the denial.
    #[must_use]
    pub fn rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }
}

/// Returns the members that hold `bytes` under `key` without loss: the text, and where the bytes are not UTF-8
/// the text with `\xNN` for each bad byte, with the exact bytes beside it in `<key>_hex`.
pub fn path_value(key: &str, bytes: &[u8]) -> Vec<(String, Value)> {
    let mut members = vec![(key.to_owned(), Value::from(display_bytes(bytes)))];
    if std::str::from_utf8(bytes).is_err() {
        members.push((format!("{key}_hex"), Value::from(hex(bytes))));
    }
    members
}

/// Returns `bytes` as text, each byte that is not part of UTF-8 as `\xNN`.
pub fn display_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns `bytes` in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    write_hex(&mut text, bytes);
    text
}

/// Appends the same to `text`.
pub(super) fn write_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0x0f)]));
    }
}

/// Reads hex of either case; `None` when it is not hex.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_utf8_path_stands_as_it_is() {
        let event = Event::new(Kind::Observe, "fs.open_read").path("path", "out/é\\xff.txt");
        assert_eq!(event.args["path"], "out/é\\xff.txt");
        assert!(!event.args.contains_key("path_hex"));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_kept_exactly() {
        let name = OsStr::from_bytes(b"a\xff\xfeb\xc3");
        let event = Event::new(Kind::Observe, "fs.open_read").path("path", name);
        assert_eq!(event.args["path"], "a\\xff\\xfeb\\xc3");
        assert_eq!(event.args["path_hex"], "61fffe62c3");
        assert_eq!(unhex("61fffe62c3").as_deref(), Some(name.as_bytes()));
    }

    #[test]
    fn one_bad_word_keeps_all_words_exactly() {
        let words = [OsStr::from_bytes(b"cat"), OsStr::from_bytes(b"\xff")];
        let event = Event::new(Kind::Observe, "proc.spawn").words("argv", words);
        assert_eq!(event.args["argv"], serde_json::json!(["cat", "\\xff"]));
        assert_eq!(event.args["argv_hex"], serde_json::json!(["636174", "ff"]));
    }

    #[test]
    fn hex_that_is_none_is_refused() {
        assert_eq!(unhex("abc"), None);
        assert_eq!(unhex("zz"), None);
        assert_eq!(unhex(""), Some(Vec::new()));
    }
}
