//! Text to rules with their places: lines, comments, keys, continued values and quotes.

use std::ops::Range;

use super::key::{self, Key};
use super::report::{Diagnostic, Severity};
use super::source::{Source, is_forbidden};
use super::value::{Fault, Line, Value, segment_end};

/// Whether a rule gives or takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Effect {
    /// Grants.
    Grant,
    /// Takes away from what other rules grant.
    Deny,
}

/// A rule as it stands in the text; its value is not looked into yet.
#[derive(Clone, Debug)]
pub(super) struct SpannedRule {
    pub(super) key: Key,
    pub(super) effect: Effect,
    pub(super) value: Value,
    /// Counted from 0.
    pub(super) line: usize,
}

/// What was read; `diagnostics` holds errors and warnings.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) rules: Vec<SpannedRule>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// Reads a whole text; never stops at the first error.
pub(super) fn parse(source: &Source<'_>) -> Parsed {
    let mut parser = Parser { source, context: Context::None, parsed: Parsed::default() };
    for number in 0..source.lines.len() {
        parser.line(number);
    }
    parser.parsed
}

/// What a bare value would continue.
#[derive(Clone, Copy)]
enum Context {
    None,
    Rule(Key, Effect),
    /// The key before it was wrong and has been reported: its values are not reported again.
    Broken,
}

struct Parser<'s, 'a> {
    source: &'s Source<'a>,
    context: Context,
    parsed: Parsed,
}

impl<'s, 'a> Parser<'s, 'a> {
    fn at(&self, number: usize) -> Line<'s, 'a> {
        Line { source: self.source, number, text: self.source.lines[number] }
    }

    fn line(&mut self, number: usize) {
        let line = self.source.lines[number];
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            self.context = Context::None;
            return;
        }
        if let Some(at) = line.find(is_forbidden) {
            return self.forbidden(number, at);
        }
        let mut at = 0;
        loop {
            at = skip_blanks(line, at);
            match line[at..].chars().next() {
                None | Some('#') => return,
                Some(',') => at += 1,
                Some(_) => match self.segment(number, at) {
                    Ok(end) => at = end,
                    Err(fault) => {
                        at = fault.resume;
                        self.parsed.diagnostics.push(*fault.diagnostic);
                    }
                },
            }
        }
    }

    /// One segment that begins at `start`; returns where it ends (at a comma, a comment or the end).
    fn segment(&mut self, number: usize, start: usize) -> Result<usize, Fault> {
        let line = self.source.lines[number];
        let stop = line[start..].find([':', ',', '#', '"']).map_or(line.len(), |found| start + found);
        let word = line[start..stop].trim_end();
        if !line[stop..].starts_with(':') {
            return self.continued(number, start);
        }
        match Key::from_word(word) {
            Some(key) => self.keyed(number, start..start + word.len(), stop + 1, key),
            None => {
                self.unknown_key(number, start..start + word.len(), stop + 1)?;
                self.continued(number, start)
            }
        }
    }

    fn keyed(&mut self, number: usize, word: Range<usize>, after: usize, key: Key) -> Result<usize, Fault> {
        let line = self.source.lines[number];
        let start = skip_blanks(line, after);
        let (key, effect, start) = match key {
            Key::Allow | Key::Deny => {
                self.context = Context::Broken;
                let (verb, start) = self.verb(number, word, start, key)?;
                (verb, if key == Key::Deny { Effect::Deny } else { Effect::Grant }, start)
            }
            key => (key, Effect::Grant, start),
        };
        self.context = Context::Rule(key, effect);
        self.value(number, start, key, effect, Place::AfterKey)
    }

    /// The verb of `allow:` and `deny:`, and where its value begins.
    fn verb(&self, number: usize, word: Range<usize>, start: usize, key: Key) -> Result<(Key, usize), Fault> {
        let line = self.source.lines[number];
        let end = segment_end(line, start);
        let segment = line[start..end].trim_end();
        let verb = segment.split(' ').next().unwrap_or("").trim_end();
        if let Some(found) = Key::from_word(verb).filter(|found| found.is_verb()) {
            return Ok((found, skip_blanks(line, start + verb.len())));
        }
        let shown = if verb.is_empty() { word } else { start..start + verb.len() };
        let bare = verb.trim_end_matches(':');
        // `.env` is no slip of `env`.
        let is_file = bare.starts_with(['.', '*']) && !bare.contains('/');
        let help = match Key::from_word(bare).filter(|found| found.is_verb()) {
            _ if is_file => {
                let rule = format!("{}: read", key.name());
                format!("write `{rule} {bare}`, or `{rule} **/{bare}` for each of that name")
            }
            Some(found) if bare != verb => {
                format!("leave out the second colon: `{}: {} …`", key.name(), found.name())
            }
            _ => match key::nearest(bare).filter(|near| Key::from_word(near).is_some_and(Key::is_verb)) {
                Some(near) => format!("did you mean `{}: {near} …`?", key.name()),
                None => {
                    format!("write `{}: read PATH`; the verbs are read, write, net, exec and env", key.name())
                }
            },
        };
        let message = format!("unknown verb `{verb}` after `{}:`", key.name());
        Err(Fault::new(self.source.error(number, shown, message).help(help), end))
    }

    /// A word and a colon that are no key. Fine as a value (`unix:/a`, `host:80`) unless it looks like a key.
    fn unknown_key(&mut self, number: usize, word: Range<usize>, after: usize) -> Result<(), Fault> {
        let line = self.source.lines[number];
        let text = &line[word.clone()];
        let is_word = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
        let blank = line[after..].chars().next().is_none_or(char::is_whitespace);
        let near = key::nearest(text);
        let misspelt = near.is_some_and(|near| key::distance(&text.to_lowercase(), near) == 1)
            && !matches!(self.context, Context::Rule(Key::Net, _));
        if !is_word || !(blank || misspelt || matches!(self.context, Context::None)) {
            return Ok(());
        }
        self.context = Context::Broken;
        let message = match near {
            Some(near) => format!("unknown rule `{text}`, did you mean `{near}`?"),
            None => format!("unknown rule `{text}`"),
        };
        let help = match near {
            Some(near) => format!("write `{near}: …`"),
            None => "the rules are read, write, net, exec, env, deny, allow, secret, listen, runtime and include; \
                     a value that begins like this one goes in quotes"
                .to_owned(),
        };
        let diagnostic = self.source.error(number, word, message).help(help);
        Err(Fault::new(diagnostic, segment_end(line, after)))
    }

    fn continued(&mut self, number: usize, start: usize) -> Result<usize, Fault> {
        let line = self.source.lines[number];
        match self.context {
            Context::Rule(key, effect) => self.value(number, start, key, effect, Place::Continued),
            Context::Broken => Ok(segment_end(line, start)),
            Context::None => {
                let end = segment_end(line, start);
                let text = line[start..end].trim_end();
                let message = format!("value `{text}` appears before any rule key");
                let first = text.split_whitespace().next().unwrap_or("");
                let help = match Key::from_word(first).map(Key::name).or_else(|| key::nearest(first)) {
                    Some(name) => format!("write the colon: `{name}: …`"),
                    None => "begin it with a key, such as `read:`; a blank or comment line ends the last one"
                        .to_owned(),
                };
                self.context = Context::Broken;
                let diagnostic = self.source.error(number, start..start + text.len(), message).help(help);
                Err(Fault::new(diagnostic, end))
            }
        }
    }

    fn value(
        &mut self,
        number: usize,
        start: usize,
        key: Key,
        effect: Effect,
        place: Place,
    ) -> Result<usize, Fault> {
        let line = self.source.lines[number];
        let (value, end) = match key {
            Key::Exec => self.at(number).shell_words(start)?,
            _ if line[start..].starts_with('"') => self.at(number).quoted(start)?,
            _ => self.at(number).plain(start),
        };
        if value.raw.is_empty() {
            let message = format!("empty value for `{}`", key.name());
            let shown = start.saturating_sub(1)..start;
            let help = format!("write what it is about: `{}: …`", key.name());
            return Err(Fault::new(self.source.error(number, shown, message).help(help), end));
        }
        if let Some(diagnostic) = self.missing_colon(number, &value, key, place) {
            return Err(Fault::new(diagnostic, end));
        }
        if line[end..].starts_with('#') && !line[..end].ends_with(char::is_whitespace) {
            let message = format!("`#` begins a comment here, so the value is `{}` alone", value.raw);
            let diagnostic = self.source.error(number, end..line.len(), message);
            self.parsed.diagnostics.push(
                diagnostic
                    .severity(Severity::Warning)
                    .help("put the value in quotes if it holds `#`; else write a blank before the comment"),
            );
        }
        self.parsed.rules.push(SpannedRule { key, effect, value, line: number });
        Ok(end)
    }

    /// `allow: read ./a, write ./b` would else be a file named `write ./b`.
    fn missing_colon(&self, number: usize, value: &Value, key: Key, place: Place) -> Option<Diagnostic> {
        // `exec: env python3` is a program that has the name of a key.
        let may_be_program = key == Key::Exec && matches!(place, Place::AfterKey);
        let (first, rest) = value.raw.split_once(char::is_whitespace)?;
        let misspelt = || {
            let is_path = matches!(key, Key::Read | Key::Write | Key::ReadOnce | Key::Runtime | Key::Env);
            key::misspelt(first).filter(|_| is_path && matches!(place, Place::Continued))
        };
        let is_key = Key::from_word(first).is_some();
        let meant = Key::from_word(first).or_else(misspelt).filter(|_| !value.quoted && !may_be_program)?;
        let span = value.span.start..value.span.start + first.len();
        let what = if is_key { "the key" } else { "what looks like a key," };
        let message = format!("this value of `{}:` begins with {what} `{first}`", key.name());
        let help =
            format!("write the colon: `{}: {}`, or quotes around the value", meant.name(), rest.trim_start());
        Some(self.source.error(number, span, message).help(help))
    }

    fn forbidden(&mut self, number: usize, at: usize) {
        let line = self.source.lines[number];
        let c = line[at..].chars().next().unwrap_or('\0');
        let (message, help) = match c {
            '\u{feff}' => (
                "a byte order mark stands here".to_owned(),
                "save the file as UTF-8 without a byte order mark",
            ),
            '\0' => ("a NUL byte stands here, which no name can hold".to_owned(), "remove it"),
            c => (format!("the control character {} stands here", c.escape_unicode()), "remove it"),
        };
        self.context = Context::Broken;
        self.parsed.diagnostics.push(self.source.error(number, at..at + c.len_utf8(), message).help(help));
    }
}

/// Where a value stands.
#[derive(Clone, Copy)]
enum Place {
    AfterKey,
    Continued,
}

fn skip_blanks(line: &str, at: usize) -> usize {
    line.len() - line[at..].trim_start().len()
}
