//! Values as they stand in a line: plain, in double quotes, or the words of a shell.

use std::ops::Range;

use super::report::Diagnostic;
use super::source::Source;

/// What stands behind a key.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// Without quotes and escapes; of an `exec:` rule as written.
    pub(super) text: String,
    /// Whether `text` stood in quotes, so that no character in it means more than itself.
    pub(super) quoted: bool,
    /// What follows the closing quote, trimmed.
    pub(super) tail: String,
    /// As written.
    pub(super) raw: String,
    /// The bytes of the line.
    pub(super) span: Range<usize>,
}

/// A line whose values are cut out.
#[derive(Clone, Copy)]
pub(super) struct Line<'s, 'a> {
    pub(super) source: &'s Source<'a>,
    /// Counted from 0.
    pub(super) number: usize,
    pub(super) text: &'a str,
}

impl Line<'_, '_> {
    pub(super) fn error(&self, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        self.source.error(self.number, span, message)
    }

    /// A value without quotes: up to a comma or a comment.
    pub(super) fn plain(&self, start: usize) -> (Value, usize) {
        let line = self.text;
        let end = segment_end(line, start);
        let raw = line[start..end].trim_end().to_owned();
        let span = start..start + raw.len();
        (Value { text: raw.clone(), quoted: false, tail: String::new(), raw, span }, end)
    }

    /// A value in double quotes; `start` is at the opening one.
    pub(super) fn quoted(&self, start: usize) -> Result<(Value, usize), Fault> {
        let line = self.text;
        let mut text = String::new();
        let mut chars = line[start + 1..].char_indices().map(|(at, c)| (start + 1 + at, c));
        let close = loop {
            match chars.next() {
                None => return Err(self.unclosed(start)),
                Some((at, '"')) => break at,
                Some((at, '\\')) => match chars.next() {
                    Some((_, c @ ('"' | '\\'))) => text.push(c),
                    Some((_, c)) => {
                        let span = at..at + 1 + c.len_utf8();
                        let message = format!("`\\{c}` is no escape");
                        let help = "in quotes, a backslash stands before `\"` or another backslash; write `\\\\` for one";
                        let resume = close_of(line, start + 1);
                        return Err(Fault::new(self.error(span, message).help(help), resume));
                    }
                    None => return Err(self.unclosed(start)),
                },
                Some((_, c)) => text.push(c),
            }
        };
        let end = segment_end(line, close + 1);
        let tail = &line[close + 1..end];
        if !tail.trim().is_empty() && !tail.starts_with(char::is_whitespace) {
            let diagnostic =
                self.error(close + 1..close + 1 + tail.trim_end().len(), "text follows the closing quote");
            return Err(Fault::new(diagnostic.help("put the whole value in the quotes"), end));
        }
        let span = start..start + line[start..end].trim_end().len();
        if text.is_empty() {
            let diagnostic = self.error(span, "empty value in quotes");
            return Err(Fault::new(diagnostic.help("write what the rule is about"), end));
        }
        let raw = line[span.clone()].to_owned();
        Ok((Value { text, quoted: true, tail: tail.trim().to_owned(), raw, span }, end))
    }

    /// The words of `exec:`: both kinds of quotes count anywhere, as in a shell.
    pub(super) fn shell_words(&self, start: usize) -> Result<(Value, usize), Fault> {
        let line = self.text;
        let mut open: Option<(usize, char)> = None;
        let mut end = line.len();
        let mut chars = line[start..].char_indices().map(|(at, c)| (start + at, c));
        while let Some((at, c)) = chars.next() {
            match (open, c) {
                (None, ',' | '#') => {
                    end = at;
                    break;
                }
                (None, '\'' | '"') => open = Some((at, c)),
                (Some((_, quote)), c) if c == quote => open = None,
                (None | Some((_, '"')), '\\') => {
                    chars.next();
                }
                _ => {}
            }
        }
        if let Some((at, _)) = open {
            return Err(self.unclosed(at));
        }
        let raw = line[start..end].trim_end().to_owned();
        let span = start..start + raw.len();
        Ok((Value { text: raw.clone(), quoted: false, tail: String::new(), raw, span }, end))
    }

    fn unclosed(&self, at: usize) -> Fault {
        let line = self.text;
        let diagnostic = self.error(at..at + 1, "this quote is never closed");
        Fault::new(diagnostic.help("close it on the same line"), line.len())
    }
}

/// An error and where the line goes on after it.
pub(super) struct Fault {
    pub(super) diagnostic: Box<Diagnostic>,
    pub(super) resume: usize,
}

impl Fault {
    pub(super) fn new(diagnostic: Diagnostic, resume: usize) -> Self {
        Self { diagnostic: Box::new(diagnostic), resume }
    }
}

pub(super) fn segment_end(line: &str, start: usize) -> usize {
    line[start..].find([',', '#']).map_or(line.len(), |found| start + found)
}

/// The end of a segment whose quotes hold a fault: behind the closing quote that an editor would show.
fn close_of(line: &str, start: usize) -> usize {
    let mut escaped = false;
    for (at, c) in line[start..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return segment_end(line, start + at + 1),
            _ => {}
        }
    }
    line.len()
}
