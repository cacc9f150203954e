//! Patterns for one name, over bytes: `*`, `?` and `[set]`.
//!
//! Names of files are bytes: a name that is no UTF-8, or holds a newline, must not slip past a `deny:`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// A bracket is open to the end.
    #[error("`[` is never closed")]
    OpenSet,
    /// The end of a range comes before its beginning.
    #[error("the range `{0}-{1}` runs backwards")]
    BackwardRange(char, char),
    /// `a**` or `**b`.
    #[error("`**` must stand alone between two slashes")]
    JoinedStars,
    /// `*/..` names no certain place.
    #[error("`..` cannot follow a glob")]
    ParentAfterGlob,
    /// More components than a machine word has bits.
    #[error("a pattern has too many components")]
    TooLong,
}

/// A pattern for one component or one name.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    One,
    Many,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, GlobError> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '*' if tokens.last() == Some(&Token::Many) => {}
                '*' => tokens.push(Token::Many),
                '?' => tokens.push(Token::One),
                '[' => {
                    let (set, after) = parse_set(rest)?;
                    tokens.push(set);
                    rest = after;
                }
                _ => tokens.extend(c.encode_utf8(&mut [0; 4]).bytes().map(Token::Byte)),
            }
        }
        Ok(Self { text: text.to_owned(), tokens })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many bytes of a name it pins: more is more specific.
    pub(super) fn pinned(&self) -> usize {
        self.tokens.iter().filter(|token| matches!(token, Token::Byte(_))).count()
    }

    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let (mut token, mut at) = (0, 0);
        // The last `*` and how far it has swallowed: going back to it alone is enough.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let step = match self.tokens.get(token) {
                None if at == name.len() => return true,
                None => None,
                Some(Token::Many) => {
                    retry = Some((token, at));
                    token += 1;
                    continue;
                }
                Some(single) => single.step(&name[at..]),
            };
            match (step, retry) {
                (Some(length), _) => {
                    token += 1;
                    at += length;
                }
                (None, Some((star, from))) if from < name.len() => {
                    retry = Some((star, from + 1));
                    token = star + 1;
                    at = from + 1;
                }
                (None, _) => return false,
            }
        }
    }
}

impl Token {
    /// How many bytes it takes from the front, if it matches there.
    fn step(&self, name: &[u8]) -> Option<usize> {
        let first = *name.first()?;
        match self {
            Self::Byte(byte) => (*byte == first).then_some(1),
            Self::Many => None,
            Self::One => Some(first_char(name).1),
            Self::Set { negated, ranges } => {
                let (c, length) = first_char(name);
                let inside = c.is_some_and(|c| ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)));
                (inside != *negated).then_some(length)
            }
        }
    }
}

/// The first character and its length; a byte that begins none counts as one unknown character.
fn first_char(name: &[u8]) -> (Option<char>, usize) {
    let front = &name[..name.len().min(4)];
    let valid = match std::str::from_utf8(front) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&front[..error.valid_up_to()]).unwrap_or(""),
    };
    match valid.chars().next() {
        Some(c) => (Some(c), c.len_utf8()),
        None => (None, 1),
    }
}

/// `rest` follows the opening bracket; returns what follows the closing one.
fn parse_set(rest: &str) -> Result<(Token, &str), GlobError> {
    let negated = rest.starts_with(['!', '^']);
    let body = if negated { &rest[1..] } else { rest };
    // A `]` right after the opening stands for itself, as in fnmatch(3).
    let first = body.chars().next().ok_or(GlobError::OpenSet)?;
    let close = body[first.len_utf8()..].find(']').ok_or(GlobError::OpenSet)? + first.len_utf8();
    let members: Vec<char> = body[..close].chars().collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < members.len() {
        let low = members[at];
        if at + 2 < members.len() && members[at + 1] == '-' {
            let high = members[at + 2];
            if high < low {
                return Err(GlobError::BackwardRange(low, high));
            }
            ranges.push((low, high));
            at += 3;
        } else {
            ranges.push((low, low));
            at += 1;
        }
    }
    Ok((Token::Set { negated, ranges }, &body[close + 1..]))
}

impl TryFrom<String> for Pattern {
    type Error = GlobError;

    fn try_from(text: String) -> Result<Self, GlobError> {
        Self::new(&text)
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

/// Whether a text holds a character that a pattern reads as more than itself.
pub(super) fn has_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(pattern: &str, name: &[u8]) -> bool {
        Pattern::new(pattern).expect("a pattern").matches(name)
    }

    #[test]
    fn names() {
        assert!(name("AWS_*", b"AWS_"));
        assert!(!name("AWS_*", b"AWS"));
        assert!(name("*.p?", b"a.b.py"));
        assert!(!name("*.p?", b"a.p"));
        assert!(name("[a-c!]x[!0-9]", b"!xy"));
        assert!(!name("[a-c]x[!0-9]", b"ax7"));
        assert!(name("[]]", b"]"));
        assert!(name("?", "é".as_bytes()));
        assert!(name("*.env", b"\xff\n.env"));
        assert!(name("a?b", b"a\xffb"));
        assert!(name("*a*b*a", b"xxaybza"));
        assert!(!name("*a*b*a", b"xxaybz"));
    }

    #[test]
    fn faults() {
        assert_eq!(Pattern::new("a[b"), Err(GlobError::OpenSet));
        assert_eq!(Pattern::new("[z-a]"), Err(GlobError::BackwardRange('z', 'a')));
    }
}
