//! Mistakes on the command line: the words of clap in one line of ours, with the remedy.

use std::ffi::OsString;

use clap::error::ErrorKind;

use super::Failure;

/// What is said of a mistake in `words`, which follow the program's name.
pub(super) fn explain(
    error: &clap::Error,
    root: &clap::Command,
    words: impl IntoIterator<Item = OsString>,
) -> Failure {
    let said = one_line(&error.to_string());
    let command = command_of(root, words);
    let run = if error.kind() == ErrorKind::InvalidSubcommand && command == root.get_name() {
        "a program is run by `agentbox run -- PROGRAM`; "
    } else {
        ""
    };
    Failure::usage(format!("{said}: {run}see `{command} --help`"))
}

/// The command that the words name, as it is typed.
fn command_of(root: &clap::Command, words: impl IntoIterator<Item = OsString>) -> String {
    let mut path = root.get_name().to_owned();
    let mut command = root;
    for word in words {
        let Some(below) = command.find_subcommand(&word) else { break };
        path.push(' ');
        path.push_str(below.get_name());
        command = below;
    }
    path
}

/// What was wrong, without how the command is used; of the tips the first.
fn one_line(rendered: &str) -> String {
    let said = rendered.strip_prefix("error: ").unwrap_or(rendered);
    let end = ["\n\nUsage: ", "\n\nFor more information"].iter().filter_map(|mark| said.find(mark)).min();
    let said = said.get(..end.unwrap_or(said.len())).unwrap_or(said);
    let (said, tips) = said.split_once("\n\n  tip: ").unwrap_or((said, ""));
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match tips.lines().next().unwrap_or_default() {
        "" => words,
        tip => format!("{words} ({tip})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_wrong_is_one_line() {
        let said = one_line(
            "error: unexpected argument '--x' found\n\n  tip: a similar argument exists: '--xy'\n  tip: another\n\nUsage: a",
        );
        assert_eq!(said, "unexpected argument '--x' found (a similar argument exists: '--xy')");
        let said = one_line(
            "error: the following are missing:\n  <A>\n  <B>\n\nFor more information, try '--help'.\n",
        );
        assert_eq!(said, "the following are missing: <A> <B>");
    }
}
