//! `exec:` rules: the words of a shell, the program that the first of them means, and the arguments.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::host::Host;
use super::looks::FileId;
use super::lossless;
use super::path_rule::{PathFault, PathPattern};
use super::pattern::has_glob;

/// A rule about a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRule {
    /// Which files.
    pub program: ExecProgram,
    /// What the arguments must begin with.
    pub arguments: Vec<String>,
}

/// What the first word of an `exec:` rule stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecProgram {
    /// A word without a slash.
    Word {
        /// As written.
        word: String,
        /// What it meant along `PATH` when the policy was read; may be empty.
        files: Vec<ProgramFile>,
    },
    /// A path without glob characters: a program, or a directory with every program below it.
    Path {
        /// The path.
        pattern: PathPattern,
        /// The file at load, if there was one.
        id: Option<FileId>,
        /// Whether a directory stood there, or the path ends in a slash.
        directory: bool,
    },
    /// A path with glob characters.
    Glob(PathPattern),
}

/// A program found when the policy was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFile {
    /// As found along `PATH`.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// Links followed.
    #[serde(with = "lossless::path")]
    pub resolved: PathBuf,
    /// The file itself.
    pub id: Option<FileId>,
}

/// Why an `exec:` value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExecFault {
    #[error("{0}")]
    Path(#[from] PathFault),
    #[error("a glob in `exec:` is a path, and `{0}` holds no slash")]
    GlobWithoutSlash(String),
    #[error("the name of the program is empty")]
    Empty,
    #[error("this quote is never closed")]
    OpenQuote,
}

impl ExecFault {
    pub(super) fn help(&self) -> String {
        match self {
            Self::Path(fault) => fault.help().to_owned(),
            Self::GlobWithoutSlash(word) if word == "*" => {
                "write `exec: /**` for every program, `exec: ./*` for those of the launch directory"
                    .to_owned()
            }
            Self::GlobWithoutSlash(word) => {
                format!("write `exec: /usr/bin/{word}` or `exec: ./{word}`")
            }
            Self::Empty => "write the program first".to_owned(),
            Self::OpenQuote => "close it on the same line".to_owned(),
        }
    }
}

impl ExecRule {
    /// Reads the value of an `exec:` rule; relative paths start at `base`.
    pub(super) fn parse(text: &str, base: &std::path::Path, host: &dyn Host) -> Result<Self, ExecFault> {
        let words = split_words(text)?;
        let (first, rest) = words.split_first().ok_or(ExecFault::Empty)?;
        if first.text.is_empty() {
            return Err(ExecFault::Empty);
        }
        Ok(Self {
            program: program(first, base, host)?,
            arguments: rest.iter().map(|word| word.text.clone()).collect(),
        })
    }
}

fn program(first: &Word, base: &std::path::Path, host: &dyn Host) -> Result<ExecProgram, ExecFault> {
    let is_path = first.text.contains('/') || first.text.starts_with('~');
    if first.is_glob {
        if !is_path {
            return Err(ExecFault::GlobWithoutSlash(first.text.clone()));
        }
        return Ok(ExecProgram::Glob(PathPattern::glob(&first.pattern, base, host)?));
    }
    if is_path {
        let pattern = PathPattern::literal(&first.text, base, host)?;
        let PathPattern::Literal { resolved, .. } = &pattern else {
            return Ok(ExecProgram::Glob(pattern));
        };
        let directory = first.text.ends_with('/') || host.is_dir(resolved);
        let id = host.identity(resolved);
        return Ok(ExecProgram::Path { pattern, id, directory });
    }
    let found = host.find_program(&first.text).into_iter();
    let files = found.map(|path| {
        let resolved = host.resolve(&path);
        ProgramFile { id: host.identity(&resolved), path, resolved }
    });
    Ok(ExecProgram::Word { word: first.text.clone(), files: files.collect() })
}

/// A word of a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Quotes and escapes taken out.
    pub(super) text: String,
    /// The same as a pattern: glob characters that stood in quotes are sets of one.
    pattern: String,
    /// Whether a glob character stood outside quotes.
    is_glob: bool,
}

impl Word {
    fn push(&mut self, c: char, is_quoted: bool) {
        self.text.push(c);
        let is_special = has_glob(c.encode_utf8(&mut [0; 4]));
        if is_special && is_quoted {
            self.pattern.extend(['[', c, ']']);
        } else {
            self.pattern.push(c);
            self.is_glob |= is_special;
        }
    }
}

/// Splits as a POSIX shell does, without expansions: in double quotes a backslash escapes `"` and `\` alone.
pub(super) fn split_words(text: &str) -> Result<Vec<Word>, ExecFault> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(ExecFault::OpenQuote)? {
                        '\'' => break,
                        c => word.push(c, true),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(ExecFault::OpenQuote)? {
                        '"' => break,
                        '\\' if matches!(chars.peek(), Some('"' | '\\')) => {
                            word.push(chars.next().unwrap_or('\\'), true)
                        }
                        c => word.push(c, true),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next().ok_or(ExecFault::OpenQuote)?, true),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c, false),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        split_words(text).expect("words").into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        assert_eq!(words("sh -c 'a, b'"), ["sh", "-c", "a, b"]);
        assert_eq!(words(r#"a "b \" \\ \n" c\ d ''"#), ["a", r#"b " \ \n"#, "c d", ""]);
        assert_eq!(split_words("a 'b"), Err(ExecFault::OpenQuote));
        assert_eq!(split_words("a \\"), Err(ExecFault::OpenQuote));
    }

    #[test]
    fn quoted_glob_characters_are_literal() {
        let words = split_words(r#""./a*"/*"#).expect("words");
        assert_eq!((words[0].pattern.as_str(), words[0].is_glob), ("./a[*]/*", true));
        assert!(!split_words("'./*'").expect("words")[0].is_glob);
    }
}
