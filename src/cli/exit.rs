//! Failures at the edge: what is printed, and which exit code it has.

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use crate::command::CommandError;
use crate::plan::PlanError;
use crate::policy::{Diagnostic, Report};
use crate::run::RunError;
use crate::sys::refused::Named;
use crate::trace::{TraceError, escape};

/// A failure and its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// A mistake in the command line or the policy: 2.
    #[must_use]
    pub fn usage(text: impl Into<String>) -> Self {
        Self { code: 2, text: harmless(&text.into()) }
    }

    /// The launcher could not do what was promised: 125.
    #[must_use]
    pub fn launcher(text: impl Into<String>) -> Self {
        Self { code: 125, text: harmless(&text.into()) }
    }

    /// A replay that did something else, or was not begun because it would: 1.
    #[must_use]
    pub fn diverged(text: impl Into<String>) -> Self {
        Self { code: 1, text: harmless(&text.into()) }
    }

    /// What a command says could not be written to standard output. `code` is what it answers: one that says
    /// something worse than success is kept.
    pub(super) fn unwritten(code: u8, error: &std::io::Error) -> Self {
        let text = format!(
            "standard output: {}: what was to be said there is lost, write it elsewhere",
            Named(error)
        );
        Self { code: if code == 0 { 2 } else { code }, text }
    }

    /// Prints it on stderr under our name, and gives its code.
    pub fn report(self) -> ExitCode {
        let mut stderr = std::io::stderr().lock();
        // A closed stderr has no reader to tell.
        let _ = writeln!(stderr, "agentbox: {}", self.text.trim_end());
        ExitCode::from(self.code)
    }
}

/// One line: paths and words that a user, a trace or a program names do nothing to a terminal.
fn harmless(text: &str) -> String {
    escape::text(text.trim_end())
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        // Of a file that cannot be read there is nothing to draw.
        if let [Diagnostic { origin: None, message, help: Some(help), .. }] = report.diagnostics.as_slice() {
            return Self::usage(format!("{message}: {help}"));
        }
        // It escapes what it quotes, and has colors of its own.
        Self { code: 2, text: format!("the policy is refused\n{}", report.render(super::run::colored())) }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        Self { code: error.exit_code(), text: harmless(&error.to_string()) }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        // Another name would help, or would not.
        let chosen = match &error {
            TraceError::NoFileName { .. }
            | TraceError::NotReplaceable { .. }
            | TraceError::Occupied { .. }
            | TraceError::Busy { .. }
            | TraceError::ClosedDirectory { .. }
            | TraceError::OpenDirectory { .. } => true,
            TraceError::Create { source, .. } => matches!(
                source.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::InvalidFilename
            ),
            _ => false,
        };
        if chosen { Self::usage(error.to_string()) } else { Self::launcher(error.to_string()) }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::launcher(error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self { code: error.exit_code(), text: harmless(&error.to_string()) }
    }
}
