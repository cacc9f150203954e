//! What is wrong with the value of a `net:` rule.

use super::key::distance;
use super::name::NameFault;

/// Why a `net:` value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostFault {
    #[error("{message}")]
    Syntax { message: String, help: String },
    #[error("{0}")]
    Name(#[from] NameFault),
}

impl HostFault {
    pub(super) fn help(&self) -> String {
        match self {
            Self::Syntax { help, .. } => help.clone(),
            Self::Name(fault) => fault.help(),
        }
    }
}

pub(super) fn syntax(message: impl Into<String>, help: impl Into<String>) -> HostFault {
    HostFault::Syntax { message: message.into(), help: help.into() }
}

/// The words behind a host, other than a rate.
const SUFFIXES: [&str; 2] = ["private", "tunnel"];

/// Whether a word is a suffix, or was meant as one.
pub(super) fn is_suffix(word: &str) -> bool {
    word.starts_with('@') || near_suffix(word).is_some()
}

fn near_suffix(word: &str) -> Option<&'static str> {
    SUFFIXES.into_iter().find(|known| distance(&word.to_lowercase(), known) <= 2)
}

/// A word that follows the host and is no suffix.
pub(super) fn unknown_suffix(word: &str) -> HostFault {
    match near_suffix(word) {
        Some(near) => {
            syntax(format!("unknown suffix `{word}`, did you mean `{near}`?"), format!("write `{near}`"))
        }
        None => syntax(
            format!("`{word}` follows the host"),
            "write a comma between two hosts; the suffixes are `private`, `tunnel` and `@N/UNIT`",
        ),
    }
}
