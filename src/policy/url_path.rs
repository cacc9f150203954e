//! Paths of URLs: the one form in which they are judged and sent, and the patterns of `net:` rules.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pattern::Pattern;

/// Why a path cannot be judged: some server would read it in another way than we do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlPathFault {
    /// It does not begin with a slash.
    #[error("its path does not begin with `/`")]
    Relative,
    /// `%` without two hexadecimal digits.
    #[error("its path holds a `%` that begins no escape")]
    BrokenEscape,
    /// `%2F`, at any depth of escaping.
    #[error("its path holds an escaped slash (`%2F`)")]
    Slash,
    /// A backslash or `%5C`: some servers take it for a slash.
    #[error("its path holds a backslash")]
    Backslash,
    /// A control character or NUL, plain or escaped.
    #[error("its path holds a control character")]
    Control,
    /// A byte above 127, not escaped.
    #[error("its path holds a byte that is not ASCII and not escaped")]
    NotAscii,
    /// Escaped bytes that are no UTF-8: overlong forms of `/` and `.` are such.
    #[error("its path holds escapes that are no UTF-8")]
    NotUtf8,
    /// `//`: some servers merge the two. `/;x/` is the same for those that cut parameters off first.
    #[error("its path holds an empty segment (`//` or `/;x/`)")]
    EmptySegment,
    /// `.` or `..`, plain, escaped, or before `;`.
    #[error("its path holds a dot segment (`.` or `..`)")]
    DotSegment,
    /// Escapes of escapes of escapes.
    #[error("its path is escaped too many times over")]
    Depth,
}

/// How often escapes may stand for escapes; no honest client comes near.
const MOST_LAYERS: usize = 4;

/// The form in which a path is judged and sent on: escapes of unreserved characters are decoded, all others in upper
/// case (RFC 3986, 6.2.2.1 and 6.2.2.2). `*` alone is the target of `OPTIONS *`.
///
/// # Errors
/// What two servers could read in two ways.
pub fn normal_path(path: &str) -> Result<String, UrlPathFault> {
    if path == "*" {
        return Ok(path.to_owned());
    }
    let below = path.strip_prefix('/').ok_or(UrlPathFault::Relative)?;
    let normal = unreserved_decoded(path)?;
    let mut layer = path.as_bytes().to_vec();
    for _ in 0..=MOST_LAYERS {
        let Some(next) = decoded(&layer)? else {
            check_segments(below)?;
            return Ok(normal);
        };
        layer = next;
    }
    Err(UrlPathFault::Depth)
}

fn unreserved_decoded(path: &str) -> Result<String, UrlPathFault> {
    let mut normal = String::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let (high, low) = (bytes.next().and_then(digit), bytes.next().and_then(digit));
                let (Some(high), Some(low)) = (high, low) else { return Err(UrlPathFault::BrokenEscape) };
                let value = high << 4 | low;
                match value {
                    value if is_unreserved(value) => normal.push(char::from(value)),
                    value => normal.push_str(&format!("%{value:02X}")),
                }
            }
            b'\\' => return Err(UrlPathFault::Backslash),
            0..=0x20 | 0x7f => return Err(UrlPathFault::Control),
            0x80.. => return Err(UrlPathFault::NotAscii),
            byte => normal.push(char::from(byte)),
        }
    }
    Ok(normal)
}

/// One layer of escapes taken off and looked at; `None` when there was none.
fn decoded(bytes: &[u8]) -> Result<Option<Vec<u8>>, UrlPathFault> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = (byte == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let value = escape.and_then(|digits| Some(digit(digits[0])? << 4 | digit(digits[1])?));
        match value {
            Some(b'/') => return Err(UrlPathFault::Slash),
            Some(b'\\') => return Err(UrlPathFault::Backslash),
            Some(0..=0x1f | 0x7f) => return Err(UrlPathFault::Control),
            Some(value) => plain.push(value),
            None => plain.push(byte),
        }
        at += if value.is_some() { 3 } else { 1 };
    }
    if plain.len() == bytes.len() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&plain).map_err(|_| UrlPathFault::NotUtf8)?;
    check_segments(text.strip_prefix('/').unwrap_or(text))?;
    Ok(Some(plain))
}

fn check_segments(below: &str) -> Result<(), UrlPathFault> {
    // The last segment is empty where the path ends with a slash.
    let (inner, _) = below.rsplit_once('/').unwrap_or_default();
    if below.contains('/') && inner.split('/').any(|segment| without_parameters(segment).is_empty()) {
        return Err(UrlPathFault::EmptySegment);
    }
    check_dots(below)
}

/// `..;x` is `..` for servers that cut parameters off first.
fn check_dots(below: &str) -> Result<(), UrlPathFault> {
    let is_dot = |segment: &str| matches!(without_parameters(segment), "." | "..");
    if below.split('/').any(is_dot) { Err(UrlPathFault::DotSegment) } else { Ok(()) }
}

fn without_parameters(segment: &str) -> &str {
    segment.split(';').next().unwrap_or(segment)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// RFC 3986, 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The path of a `net:` rule: `*` within a segment, `**` for any number of segments.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UrlPattern {
    text: String,
    /// As granted: letter for letter in the normal form.
    exact: Vec<Part>,
    /// As denied: all escaped alike, without parameters and a last slash.
    loose: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    AnyDepth,
    Literal(String),
    Pattern(Pattern),
}

/// Why the path of a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UrlPatternFault {
    #[error("the query is not matched, so no rule can name it")]
    Query,
    #[error("`**` must stand alone between two slashes")]
    JoinedStars,
    #[error("`{0}` does not stand in a path as it is")]
    Character(char),
    #[error("no request can match this: {0}")]
    Never(UrlPathFault),
}

impl UrlPatternFault {
    pub(super) fn help(&self) -> String {
        match self {
            Self::Query => "leave out what begins at `?`".to_owned(),
            Self::JoinedStars => "write `/**/`, or one `*` for letters of one segment".to_owned(),
            Self::Character(c) => {
                let bytes = c.to_string().into_bytes();
                let escaped: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
                format!("write `{escaped}`; `*` and `**` are the only patterns")
            }
            Self::Never(_) => "write the path as `/a/b`, `/a/*` or `/a/**`".to_owned(),
        }
    }
}

impl UrlPattern {
    /// `text` begins with a slash.
    pub(super) fn parse(text: &str) -> Result<Self, UrlPatternFault> {
        if text.contains('?') {
            return Err(UrlPatternFault::Query);
        }
        if let Some(odd) = text.chars().find(|c| !is_path_character(*c)) {
            return Err(UrlPatternFault::Character(odd));
        }
        let text = normal_path(text).map_err(UrlPatternFault::Never)?;
        let below: Vec<&str> = text.trim_start_matches('/').split('/').collect();
        if below.iter().any(|segment| *segment != "**" && segment.contains("**")) {
            return Err(UrlPatternFault::JoinedStars);
        }
        let exact = below.iter().map(|segment| Part::new((*segment).to_owned())).collect();
        let loose = loosened(&below, true).into_iter().map(Part::new).collect();
        Ok(Self { text, exact, loose })
    }

    /// Whether it stands for every path.
    pub(super) fn is_everything(&self) -> bool {
        self.exact.iter().all(|part| *part == Part::AnyDepth)
    }

    /// Whether a path in normal form is what the rule says, letter for letter.
    pub(super) fn matches(&self, path: &str) -> bool {
        // A literal `*` of a request is not the `*` of a pattern.
        let path = path.replace('*', "%2A");
        let Some(below) = path.strip_prefix('/') else { return false };
        let segments: Vec<&str> = below.split('/').collect();
        match_parts(&self.exact, &segments)
    }

    /// Whether some server could take a path in normal form for what the rule says.
    pub(super) fn may_match(&self, path: &str) -> bool {
        let Some(below) = path.strip_prefix('/') else { return false };
        // A server behind another one may take off a further layer of escapes.
        let layers = std::iter::successors(Some(below.to_owned()), |layer| {
            let next = decoded(layer.as_bytes()).ok().flatten()?;
            String::from_utf8(next).ok()
        });
        layers.take(MOST_LAYERS + 1).any(|layer| {
            let segments = loosened(&layer.split('/').collect::<Vec<_>>(), false);
            match_parts(&self.loose, &segments.iter().map(String::as_str).collect::<Vec<_>>())
        })
    }

    /// Segments that are named, and bytes that are pinned: more is more specific.
    pub(super) fn specificity(&self) -> (usize, usize) {
        let pinned = self.exact.iter().map(|part| match part {
            Part::AnyDepth => 0,
            Part::Literal(text) => text.len(),
            Part::Pattern(pattern) => pattern.pinned(),
        });
        (self.exact.iter().filter(|part| **part != Part::AnyDepth).count(), pinned.sum())
    }
}

impl Part {
    fn new(segment: String) -> Self {
        match segment.as_str() {
            "**" => Self::AnyDepth,
            // The characters `?` and `[` are no path characters, so `*` is the only pattern here.
            text if text.contains('*') => Pattern::new(text).map_or(Self::Literal(segment), Self::Pattern),
            _ => Self::Literal(segment),
        }
    }

    fn is(&self, segment: &str) -> bool {
        match self {
            Self::AnyDepth => false,
            Self::Literal(text) => text == segment,
            Self::Pattern(pattern) => pattern.matches(segment.as_bytes()),
        }
    }
}

/// Segments in lower case, without parameters and without the empty one of a last slash; whatever is not unreserved is
/// escaped.
fn loosened(segments: &[&str], stars: bool) -> Vec<String> {
    let mut segments: Vec<String> = segments.iter().map(|segment| escaped(segment, stars)).collect();
    if segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    segments
}

fn escaped(segment: &str, stars: bool) -> String {
    let mut plain = Vec::new();
    let mut rest = segment.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let value = match (byte, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        rest = if value.is_some() { &after[2..] } else { after };
        // A star that a rule spells `%2A` is a letter.
        plain.push((value.unwrap_or(byte), value.is_none() && stars && byte == b'*'));
    }
    let end = plain.iter().position(|(byte, _)| *byte == b';').unwrap_or(plain.len());
    plain[..end].iter().fold(String::new(), |mut text, (byte, is_star)| {
        match *byte {
            byte if *is_star || is_unreserved(byte) => text.push(char::from(byte.to_ascii_lowercase())),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

/// Going back to the last `**` alone is enough.
fn match_parts(parts: &[Part], segments: &[&str]) -> bool {
    let (mut part, mut at) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let matched = match (parts.get(part), segments.get(at)) {
            (None, None) => return true,
            (Some(Part::AnyDepth), _) => {
                retry = Some((part, at));
                part += 1;
                continue;
            }
            (Some(wanted), Some(segment)) => wanted.is(segment),
            _ => false,
        };
        match retry {
            _ if matched => (part, at) = (part + 1, at + 1),
            Some((star, from)) if from < segments.len() => {
                retry = Some((star, from + 1));
                (part, at) = (star + 1, from + 1);
            }
            _ => return false,
        }
    }
}

/// pchar and `/` of RFC 3986, 3.3.
fn is_path_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~%!$&'()*+,;=:@/".contains(c)
}

impl TryFrom<String> for UrlPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|fault| fault.to_string())
    }
}

impl From<UrlPattern> for String {
    fn from(pattern: UrlPattern) -> Self {
        pattern.text
    }
}

impl fmt::Display for UrlPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for UrlPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UrlPattern({:?})", self.text)
    }
}
