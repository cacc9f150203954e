//! The source files, and their code without comments and the content of literals.

use std::fs;
use std::path::{Path, PathBuf};

/// A source file.
pub(super) struct Source {
    /// Relative to the root of the repository.
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// The text with comments, strings and characters blanked; lines stay where they are.
    pub(super) code: String,
}

impl Source {
    /// The file's place as module names: `src/trace/scan/tests.rs` is `trace`, `scan`, `tests`.
    pub(super) fn modules(&self) -> Vec<String> {
        let inner = self.path.strip_prefix("src").unwrap_or(&self.path).with_extension("");
        let mut names: Vec<_> = inner.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        if names.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
            names.pop();
        }
        names
    }

    pub(super) fn is_test(&self) -> bool {
        self.path.starts_with("tests") || self.modules().iter().any(|name| name == "tests")
    }

    /// The code before the unit tests that stand in the same file.
    pub(super) fn product(&self) -> &str {
        self.code.split("#[cfg(test)]\nmod tests {").next().unwrap_or(&self.code)
    }
}

/// Every Rust file below a directory of the repository, in order.
pub(super) fn sources(directory: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut waiting = vec![root.join(directory)];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let inside = fs::read_dir(&path).expect("a directory");
            waiting.extend(inside.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a text");
            let path = path.strip_prefix(root).expect("a path below the root").to_owned();
            found.push(Source { path, code: code_only(&text), text });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Blanks what is not code.
fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = literal(rest, code.chars().next_back());
        let (part, after) = rest.split_at(length.unwrap_or_else(|| next.len_utf8()));
        if length.is_some() {
            code.extend(part.chars().map(|char| if char == '\n' { '\n' } else { ' ' }));
        } else {
            code.push(next);
        }
        rest = after;
    }
    code
}

/// Length of the comment or literal that begins here, if one does.
fn literal(text: &str, before: Option<char>) -> Option<usize> {
    let in_word = before.is_some_and(|char| char.is_alphanumeric() || char == '_');
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if let Some(inner) = text.strip_prefix("/*") {
        return Some(inner.find("*/").map_or(text.len(), |end| end + 4));
    }
    if !in_word || before == Some('b') {
        let raw = text.trim_start_matches('b');
        if let Some(hashes) = raw.strip_prefix('r').map(|raw| raw.len() - raw.trim_start_matches('#').len()) {
            let fence = "#".repeat(hashes);
            let open = format!("r{fence}\"");
            if let Some(inner) = raw.strip_prefix(&open) {
                let prefix = text.len() - inner.len();
                let close = format!("\"{fence}");
                return Some(inner.find(&close).map_or(text.len(), |end| prefix + end + close.len()));
            }
        }
    }
    match text.as_bytes()[0] {
        b'"' => Some(quoted(text, b'"')),
        // A lifetime has no closing quote after one character.
        b'\'' if text[1..].starts_with('\\') => Some(quoted(text, b'\'')),
        b'\'' if text[1..].chars().nth(1) == Some('\'') => Some(quoted(text, b'\'')),
        _ => None,
    }
}

/// Length of a quoted literal with backslash escapes.
fn quoted(text: &str, quote: u8) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn literals_and_comments_are_no_code() {
    let text = "a \"}\\\"\" b '{' c '\\'' d r#\"}\"\"# e b\"{\" f<'x> // {\ng /* { */ h b'{'";
    let code: String = code_only(text).split_whitespace().collect();
    assert_eq!(code, "abcdebf<'x>ghb");
}
