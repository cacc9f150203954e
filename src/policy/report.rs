//! Diagnostics of a policy file: where, what is wrong, what would mend it, drawn with the line and a caret.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet, renderer::DecorStyle};
use serde::{Deserialize, Serialize};

/// How much a diagnostic weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy is used, but probably says more or less than was meant.
    Warning,
    /// Worth knowing: a program that was not found, a target that does not exist.
    Note,
}

/// Where a rule or a fault stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The file as the user named it, or `profile/NAME`.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One fault or remark, complete in itself: it carries the line that it speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// How much it weighs.
    pub severity: Severity,
    /// What is wrong and why, in one line.
    pub message: String,
    /// Where; `None` when the file could not be read at all.
    pub origin: Option<Origin>,
    /// What would mend it, in one line.
    pub help: Option<String>,
    /// The line as it stands in the file.
    pub line: String,
    /// The bytes of `line` that are meant.
    pub span: Range<usize>,
}

impl Diagnostic {
    /// A diagnostic about a file as a whole.
    pub(super) fn of_file(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            origin: None,
            help: Some(help.into()),
            line: String::new(),
            span: 0..0,
        }
    }

    /// The same with a proposal.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same with another weight.
    pub(super) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Line and column.
    pub(super) fn place(&self) -> Option<(usize, usize)> {
        self.origin.as_ref().map(|origin| (origin.line, origin.column))
    }

    /// The picture for a terminal: title, `file:line:column`, the line, a caret and the proposal.
    pub fn render(&self, color: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let message = visible(&self.message);
        let help = self.help.as_deref().map(visible);
        let mut group = Group::with_title(level.primary_title(message));
        if let Some(origin) = &self.origin {
            let span = drawable(&self.line, &self.span);
            let is_whole = self.line[..span.start].chars().count() + 1 == origin.column;
            let mut snippet = Snippet::source(self.line.as_str()).line_start(origin.line);
            if is_whole {
                snippet = snippet.path(visible(&origin.file));
            } else {
                // Of a very long line only a piece is kept, and the column would be counted in that.
                let place = annotate_snippets::Origin::path(visible(&origin.file));
                group = group.element(place.line(origin.line).char_column(origin.column));
            }
            group = group.element(snippet.annotation(AnnotationKind::Primary.span(span)));
        }
        if let Some(help) = help {
            group = group.element(Level::HELP.message(help));
        }
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        renderer.decor_style(DecorStyle::Ascii).render(&[group])
    }
}

impl fmt::Display for Diagnostic {
    /// The one-line form: `file:line:column: message (help)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        write!(f, "{}", visible(&self.message))?;
        match &self.help {
            Some(help) => write!(f, " ({})", visible(help)),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a policy, all files and all lines at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// In the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// All pictures, one below the other.
    pub fn render(&self, color: bool) -> String {
        let parts: Vec<String> = self.diagnostics.iter().map(|d| d.render(color)).collect();
        parts.join("\n\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

/// Control characters of a hostile file must not reach the terminal as such.
fn visible(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// A span that lies in the line at character boundaries and is not empty where it need not be.
fn drawable(line: &str, span: &Range<usize>) -> Range<usize> {
    let start = boundary(line, span.start);
    let after_start = line[start..].chars().next().map_or(start, |c| start + c.len_utf8());
    start..boundary(line, span.end).max(after_start)
}

/// The last place where a character begins that is not behind `at`.
pub(super) fn boundary(line: &str, at: usize) -> usize {
    (0..=at.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0)
}
