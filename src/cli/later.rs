//! Commands and options that this version does not have: each says so in one line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Failure;

const COMMANDS: &[&str] = &["why", "learn", "check", "export", "undo", "apply", "keygen", "prove", "doctor"];
const OF_POLICY: &[&str] = &["test", "diff"];
const OPTIONS: &[&str] = &[
    "--sign",
    "--key",
    "--checkpoint",
    "--dry-run",
    "--record",
    "--level",
    "--accept-unenforced",
    "--trace-runtime",
    "--wait-all",
    "--user",
    "--learn",
    "--tree",
    "--html",
    "-f",
];

/// The answer, if the words after the program's name begin with such a command.
pub(super) fn refuse(words: impl IntoIterator<Item = OsString>) -> Option<Failure> {
    let mut words = words.into_iter();
    let first = words.next()?.into_string().ok()?;
    let name = if first == "policy" {
        let second = words.next()?.into_string().ok()?;
        OF_POLICY.contains(&second.as_str()).then(|| format!("policy {second}"))
    } else {
        COMMANDS.contains(&first.as_str()).then_some(first)
    };
    name.map(|name| Failure::usage(format!("this version does not have `{name}` yet")))
}

/// The answer to an option, if it is one of those.
pub(super) fn refuse_option(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = option.split('=').next()?;
    (error.kind() == ErrorKind::UnknownArgument && OPTIONS.contains(&option))
        .then(|| Failure::usage(format!("this version does not have `{option}` yet")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_commands_count() {
        let refused = |words: &[&str]| refuse(words.iter().map(OsString::from)).is_some();
        assert!(refused(&["why", "x"]) && refused(&["doctor"]) && refused(&["policy", "test"]));
        assert!(!refused(&["run", "replay"]) && !refused(&["policy", "show"]) && !refused(&["policy"]));
        assert!(!refused(&[]) && !refused(&["--help"]) && !refused(&["test"]));
    }
}
