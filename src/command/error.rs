//! Why a command cannot be started.

use std::io;
use std::path::PathBuf;

/// A command that cannot be started, said in one line.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line is empty.
    #[error("no command given (use: agentbox run -p POLICY -- COMMAND ...)")]
    NoCommand,
    /// No file of that name, along `PATH` or at that path.
    #[error("{}: command not found: {why}", shown(word))]
    NotFound {
        /// The word as typed.
        word: String,
        /// Where it was looked for.
        why: String,
    },
    /// The file is there and cannot be executed.
    #[error("{}: cannot be executed: {reason}", shown(&program.to_string_lossy()))]
    NotExecutable {
        /// The file.
        program: PathBuf,
        /// What is wrong with it, and what would mend it.
        reason: String,
    },
    /// The file could not be examined.
    #[error("{}: cannot be examined: {source}", shown(&program.to_string_lossy()))]
    Examine {
        /// The file.
        program: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A `#!` line names an interpreter that cannot be started.
    #[error("{}: bad interpreter in its `#!` line: {}: {reason}", shown(&script.to_string_lossy()), shown(interpreter))]
    BadInterpreter {
        /// The script.
        script: PathBuf,
        /// The interpreter, as the line names it.
        interpreter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `env` in a `#!` line is asked for a program that is not on `PATH`.
    #[error("{}: its `#!` line asks env for `{}`, which is not on PATH", shown(&script.to_string_lossy()), shown(word))]
    EnvProgramMissing {
        /// The script.
        script: PathBuf,
        /// The program that env would look for.
        word: String,
    },
    /// More `#!` lines in a row than the kernel follows (execve(2): ELOOP).
    #[error("{}: too many interpreters in a row (the kernel follows 4)", shown(&script.to_string_lossy()))]
    TooManyInterpreters {
        /// The first script of the row.
        script: PathBuf,
    },
    /// A version manager would choose a program that is not installed.
    #[error("{}: {manager} has no such program here: {reason}", shown(&shim.to_string_lossy()))]
    ShimTargetMissing {
        /// The shim as found.
        shim: PathBuf,
        /// The version manager.
        manager: &'static str,
        /// The versions that were asked, and what would mend it.
        reason: String,
    },
    /// A wrapper whose program is known only to the wrapper.
    #[error("{}: is started by {manager}, which picks the real program at run time: {hint}", shown(&shim.to_string_lossy()))]
    OpaqueShim {
        /// The wrapper as found.
        shim: PathBuf,
        /// What it belongs to.
        manager: &'static str,
        /// What to give instead.
        hint: String,
    },
}

impl CommandError {
    /// The exit code a shell would give: 127 not found, 126 not executable, 2 no command at all.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoCommand => 2,
            Self::NotFound { .. } | Self::EnvProgramMissing { .. } | Self::ShimTargetMissing { .. } => 127,
            Self::NotExecutable { .. }
            | Self::Examine { .. }
            | Self::BadInterpreter { .. }
            | Self::TooManyInterpreters { .. }
            | Self::OpaqueShim { .. } => 126,
        }
    }
}

/// Text on one line: control characters are escaped, so that a file name cannot forge output.
fn shown(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
