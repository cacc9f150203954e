//! A policy text by its name, cut in lines, and how bytes become one.

use std::ops::Range;

use super::report::{Diagnostic, Origin, Severity, boundary};

/// A policy text by its name, cut in lines.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    pub(super) name: String,
    pub(super) lines: Vec<&'a str>,
}

impl<'a> Source<'a> {
    pub(super) fn new(name: &str, text: &'a str) -> Self {
        Self { name: name.to_owned(), lines: split_lines(text) }
    }

    /// An error at these bytes of a line (counted from 0).
    pub(super) fn error(&self, line: usize, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        let text = self.lines.get(line).copied().unwrap_or("");
        let before = text.get(..span.start).unwrap_or(text);
        let window = window(text, span.start);
        Diagnostic {
            severity: Severity::Error,
            message: message.into(),
            origin: Some(self.origin(line, before.chars().count() + 1)),
            help: None,
            span: span.start.saturating_sub(window.start)..span.end.saturating_sub(window.start),
            line: text[window].to_owned(),
        }
    }

    pub(super) fn origin(&self, line: usize, column: usize) -> Origin {
        Origin { file: self.name.clone(), line: line + 1, column }
    }
}

/// A diagnostic keeps no more of a line than this, in bytes: a hostile line may be megabytes long.
const LONGEST_LINE: usize = 1_000;
const BEFORE_SPAN: usize = 100;

/// The part of a line that is kept for a picture of what begins at `at`.
fn window(line: &str, at: usize) -> Range<usize> {
    if line.len() <= LONGEST_LINE {
        return 0..line.len();
    }
    let start = boundary(line, at.saturating_sub(BEFORE_SPAN));
    start..boundary(line, start + LONGEST_LINE)
}

/// Checks that a file is text.
pub(super) fn decode(name: &str, bytes: Vec<u8>) -> Result<String, Box<Diagnostic>> {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let valid = bytes.utf8_error().valid_up_to();
    let all = bytes.into_bytes();
    let before = String::from_utf8_lossy(&all[..valid]).into_owned();
    let line = split_lines(&format!("{before}x")).len() - 1;
    let text = String::from_utf8_lossy(&all).into_owned();
    let source = Source::new(name, &text);
    let shown = source.lines.get(line).copied().unwrap_or("");
    let start = shown.find('\u{fffd}').unwrap_or(0);
    let end = start + shown[start..].chars().next().map_or(0, char::len_utf8);
    Err(Box::new(source.error(line, start..end, "this is no UTF-8").help("save the file as UTF-8")))
}

/// Characters that no editor shows and no rule needs; they make a line read other than it looks.
pub(super) fn is_forbidden(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{feff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Lines end at every boundary that Unicode knows, CRLF counting as one.
fn split_lines(text: &str) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(at) = rest.find(is_end) else {
            lines.push(rest);
            break;
        };
        lines.push(&rest[..at]);
        let end = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        rest = &rest[at + end..];
    }
    lines
}

/// Whether a text can stand inside one line of a policy.
pub(super) fn is_line_safe(text: &str) -> bool {
    !text.chars().any(|c| is_forbidden(c) || matches!(c, '\u{2028}' | '\u{2029}'))
}
