//! A strict scanner for one line: finds the members that the chain needs, without building a tree.
//!
//! It takes canonical lines only: no space between tokens, keys of every object in ascending order, one spelling of
//! every letter and number. So what another reader would understand in another way, or not at all, is no entry.

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::event::hex;
use super::mentions::is_sha256;

mod lexer;

use lexer::Lexer;

/// The deepest nesting that is followed: what serde_json takes as well.
const DEEPEST: usize = 120;

/// A SHA-256 in hex. The hashes of an entry are compared with right ones, so that only their length matters here.
const SHA256_DIGITS: usize = 64;

/// Whether a file that begins with these bytes is meant to be a trace.
pub fn looks_like_a_trace(start: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"{\"args\":";
    start.starts_with(BEGINNING)
}

/// Why a line is no entry.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    /// The bytes are not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The text is not canonical JSON.
    #[error("it is not canonical JSON at byte {at}")]
    Syntax {
        /// Offset in the line.
        at: usize,
    },
    /// A key stands twice in one object.
    #[error("a key is repeated at byte {at}")]
    RepeatedKey {
        /// Offset in the line.
        at: usize,
    },
    /// The keys of an object are not in ascending order.
    #[error("the keys are not in order at byte {at}")]
    UnorderedKeys {
        /// Offset in the line.
        at: usize,
    },
    /// The nesting is too deep.
    #[error("it is nested too deeply")]
    TooDeep,
    /// A member that every entry has is missing or of the wrong type.
    #[error("the field {name} is missing or wrong")]
    Field {
        /// Name of the member.
        name: &'static str,
    },
}

/// A reference to a blob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlobMention {
    /// SHA-256 of the content, in lower-case hex.
    pub sha256: String,
    /// Bytes of the content, where the reference says so.
    pub size: Option<u64>,
    /// Whether the reference says that its content is a secret of the run.
    pub private: bool,
}

/// The members of one entry, as they stand in the line.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// Number of the entry.
    pub index: u64,
    /// The kind, as `deny`.
    pub kind: &'a str,
    /// The operation, as `fs.open_read`; JSON escapes left as they are.
    pub op: &'a str,
    /// The canonical text of the arguments.
    pub args: &'a str,
    /// Hash of the entry before.
    pub prev: &'a str,
    /// Hash of this entry.
    pub sha: &'a str,
    /// The text before the `sha` member.
    pub before_sha: &'a str,
    /// The text after the `sha` member.
    pub after_sha: &'a str,
}

/// Scans lines; keeps what it allocated from one to the next.
#[derive(Debug, Default)]
pub struct Scanner {
    blobs: Vec<BlobMention>,
    wrong_text: Option<String>,
}

impl Scanner {
    /// Scans one line without its newline.
    pub fn scan<'a>(&mut self, line: &'a [u8]) -> Result<Fields<'a>, Malformed> {
        self.blobs.clear();
        self.wrong_text = None;
        let text = std::str::from_utf8(line).map_err(|_| Malformed::NotUtf8)?;
        let mut cursor =
            Cursor { lexer: Lexer::new(text), blobs: &mut self.blobs, wrong_text: &mut self.wrong_text };
        let fields = cursor.entry()?;
        if cursor.lexer.at != line.len() {
            return Err(cursor.lexer.syntax());
        }
        Ok(fields)
    }

    /// Returns the references to blobs in the line that was scanned last, in the order of its text.
    pub fn blobs(&self) -> &[BlobMention] {
        &self.blobs
    }

    /// Returns the SHA-256 that stands beside a body in the line that was scanned last and is not that body's.
    pub fn wrong_text(&self) -> Option<&str> {
        self.wrong_text.as_deref()
    }
}

struct Cursor<'a, 'b> {
    lexer: Lexer<'a>,
    blobs: &'b mut Vec<BlobMention>,
    wrong_text: &'b mut Option<String>,
}

/// A value that was passed over.
enum Passed<'a> {
    /// The text between the quotes, escapes left as they are.
    String(&'a str),
    Number(&'a str),
    Other(&'a str),
}

#[derive(Default)]
struct Found<'a> {
    index: Option<u64>,
    kind: Option<&'a str>,
    op: Option<&'a str>,
    args: Option<&'a str>,
    prev: Option<&'a str>,
    sha: Option<(usize, &'a str, usize)>,
    has_time: bool,
}

impl<'a> Cursor<'a, '_> {
    fn entry(&mut self) -> Result<Fields<'a>, Malformed> {
        let mut found = Found::default();
        let mut previous = None;
        self.lexer.expect(b'{')?;
        loop {
            let member_from = self.lexer.at;
            if previous.is_some() {
                self.lexer.expect(b',')?;
            }
            let key = self.key(previous)?;
            previous = Some(key);
            let passed = self.value(1)?;
            match (key, passed) {
                ("args", Passed::Other(text)) if text.starts_with('{') => found.args = Some(text),
                ("i", Passed::Number(text)) => found.index = text.parse().ok(),
                ("kind", Passed::String(text)) => found.kind = Some(text),
                ("op", Passed::String(text)) => found.op = Some(text),
                ("prev", Passed::String(text)) if text.len() == SHA256_DIGITS => found.prev = Some(text),
                ("sha", Passed::String(text)) if text.len() == SHA256_DIGITS => {
                    found.sha = Some((member_from, text, self.lexer.at));
                }
                ("ts", Passed::Number(_)) => found.has_time = true,
                _ => {}
            }
            if self.lexer.peek() == Some(b'}') {
                self.lexer.at += 1;
                break;
            }
        }
        found.fields(self.lexer.text)
    }

    fn value(&mut self, depth: usize) -> Result<Passed<'a>, Malformed> {
        let from = self.lexer.at;
        match self.lexer.peek() {
            Some(b'"') => return Ok(Passed::String(self.lexer.string()?)),
            Some(b'-' | b'0'..=b'9') => return Ok(Passed::Number(self.lexer.number()?)),
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            _ => self.lexer.word()?,
        }
        Ok(Passed::Other(&self.lexer.text[from..self.lexer.at]))
    }

    fn object(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth >= DEEPEST {
            return Err(Malformed::TooDeep);
        }
        self.lexer.expect(b'{')?;
        if self.lexer.peek() == Some(b'}') {
            self.lexer.at += 1;
            return Ok(());
        }
        let mut previous = None;
        let mut mention = None;
        let mut digest = None;
        loop {
            let key = self.key(previous)?;
            previous = Some(key);
            match (key, self.value(depth + 1)?) {
                ("blob", Passed::String(text)) if is_sha256(text) => {
                    mention = Some(self.blobs.len());
                    self.blobs.push(BlobMention { sha256: text.to_owned(), size: None, private: false });
                }
                ("private", Passed::Other("true")) => {
                    if let Some(mention) = mention.and_then(|position: usize| self.blobs.get_mut(position)) {
                        mention.private = true;
                    }
                }
                ("sha256", Passed::String(text)) => digest = Some(text),
                ("text", Passed::String(text)) => {
                    if let Some(digest) = digest.filter(|digest| !is_digest_of(digest, text)) {
                        self.wrong_text.get_or_insert_with(|| digest.to_owned());
                    }
                }
                ("size", Passed::Number(text)) => {
                    if let Some(mention) = mention.and_then(|position: usize| self.blobs.get_mut(position)) {
                        mention.size = text.parse().ok();
                    }
                }
                _ => {}
            }
            match self.lexer.next() {
                Some(b',') => {}
                Some(b'}') => return Ok(()),
                _ => return Err(self.lexer.syntax()),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth >= DEEPEST {
            return Err(Malformed::TooDeep);
        }
        self.lexer.expect(b'[')?;
        if self.lexer.peek() == Some(b']') {
            self.lexer.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            match self.lexer.next() {
                Some(b',') => {}
                Some(b']') => return Ok(()),
                _ => return Err(self.lexer.syntax()),
            }
        }
    }

    /// Takes a key with its colon, which must come after `previous` in code point order.
    fn key(&mut self, previous: Option<&str>) -> Result<&'a str, Malformed> {
        let at = self.lexer.at;
        let key = self.lexer.string()?;
        self.lexer.expect(b':')?;
        let Some(previous) = previous else {
            return Ok(key);
        };
        let order = if key.contains('\\') || previous.contains('\\') {
            decode(previous).cmp(&decode(key))
        } else {
            previous.cmp(key)
        };
        match order {
            std::cmp::Ordering::Less => Ok(key),
            std::cmp::Ordering::Equal => Err(Malformed::RepeatedKey { at }),
            std::cmp::Ordering::Greater => Err(Malformed::UnorderedKeys { at }),
        }
    }
}

impl<'a> Found<'a> {
    fn fields(self, text: &'a str) -> Result<Fields<'a>, Malformed> {
        let need = |name| move || Malformed::Field { name };
        let (sha_from, sha, sha_to) = self.sha.ok_or_else(need("sha"))?;
        if !self.has_time {
            return Err(Malformed::Field { name: "ts" });
        }
        Ok(Fields {
            index: self.index.ok_or_else(need("i"))?,
            kind: self.kind.ok_or_else(need("kind"))?,
            op: self.op.ok_or_else(need("op"))?,
            args: self.args.ok_or_else(need("args"))?,
            prev: self.prev.ok_or_else(need("prev"))?,
            sha,
            // `prev` comes before `sha`, so the member always has the comma before it.
            before_sha: &text[..sha_from],
            after_sha: &text[sha_to..],
        })
    }
}

/// Returns a key's own text.
fn decode(key: &str) -> String {
    serde_json::from_str(&format!("\"{key}\"")).unwrap_or_else(|_| key.to_owned())
}

/// Whether `sha256` is that of a string, which still has its escapes.
fn is_digest_of(sha256: &str, text: &str) -> bool {
    let text: Result<String, _> = serde_json::from_str(&format!("\"{text}\""));
    text.is_ok_and(|text| hex(&Sha256::digest(text)) == sha256)
}

#[cfg(test)]
mod tests;
