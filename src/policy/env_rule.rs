//! `env:` rules: which variables are passed on, which are set.

use serde::{Deserialize, Serialize};

use super::parse::Effect;
use super::pattern::{GlobError, Pattern, has_glob};
use super::value::Value;

/// A rule about variables of the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnvRule {
    /// Passes variables of the launcher on: a name, or a pattern of names.
    Pass(Pattern),
    /// Sets a variable.
    Assign {
        /// Its name.
        name: String,
        /// Its value, possibly empty.
        value: String,
    },
}

/// Why an `env:` value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EnvFault {
    #[error("{0}")]
    Glob(#[from] GlobError),
    #[error("`{0}` is no name of a variable")]
    Name(String),
    #[error("quotes count at the start of the value only, so these would be part of the variable")]
    InnerQuotes,
    #[error("`{0}` follows the closing quote")]
    Tail(String),
    #[error("`deny: env` takes a name, not a value")]
    DeniedValue,
}

impl EnvFault {
    pub(super) fn help(&self) -> String {
        match self {
            Self::Glob(_) => "close the bracket: `[A-Z]`".to_owned(),
            Self::Name(text) if text.starts_with('$') => {
                format!("write `{}`", text.trim_start_matches('$'))
            }
            Self::Name(_) => "write `NAME`, `PREFIX_*` or `NAME=VALUE`, with a comma between two".to_owned(),
            Self::InnerQuotes => "put the quotes around the whole: `env: \"NAME=VALUE\"`".to_owned(),
            Self::Tail(_) => "put the whole in the quotes, or write a comma between two".to_owned(),
            Self::DeniedValue => "write `deny: env NAME`".to_owned(),
        }
    }
}

impl EnvRule {
    pub(super) fn parse(value: &Value, effect: Effect) -> Result<Self, EnvFault> {
        if !value.tail.is_empty() {
            return Err(EnvFault::Tail(value.tail.clone()));
        }
        let Some((name, assigned)) = value.text.split_once('=') else {
            let is_pattern = !value.quoted && has_glob(&value.text);
            let outside: String =
                value.text.chars().filter(|c| !is_pattern || !"*?[]!-^".contains(*c)).collect();
            if !outside.chars().all(is_name_char) || begins_with_digit(&value.text) {
                return Err(EnvFault::Name(value.text.clone()));
            }
            return Ok(Self::Pass(Pattern::new(&value.text)?));
        };
        if effect == Effect::Deny {
            return Err(EnvFault::DeniedValue);
        }
        if name.is_empty() || !name.chars().all(is_name_char) || begins_with_digit(name) {
            return Err(EnvFault::Name(name.to_owned()));
        }
        if !value.quoted && assigned.starts_with(['"', '\'']) {
            return Err(EnvFault::InnerQuotes);
        }
        Ok(Self::Assign { name: name.to_owned(), value: assigned.to_owned() })
    }

    /// Whether it speaks of this variable.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Pass(pattern) => pattern.matches(name.as_bytes()),
            Self::Assign { name: assigned, .. } => assigned == name,
        }
    }

    /// Orders rules that match the same variable: an assignment first, then by the letters that are pinned.
    pub(super) fn specificity(&self) -> (bool, bool, usize) {
        match self {
            Self::Pass(pattern) => (false, !has_glob(pattern.as_str()), pattern.pinned()),
            Self::Assign { name, .. } => (true, true, name.len()),
        }
    }
}

/// No program has one (POSIX, base definitions, 8.1): what is meant was misspelt.
fn begins_with_digit(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_digit())
}

/// Shells know letters, digits and `_`; other programs use `.`, `-`, parentheses and `%` too (`BASH_FUNC_f%%`).
fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || "_.-()%:/+".contains(c)
}
