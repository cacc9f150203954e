//! `agentbox verify`: says whether a trace is what was recorded.

use std::io::{self, Write as _};
use std::path::PathBuf;

use super::Failure;
use super::output::written;
use super::voice::Voice;
use crate::trace::{self, Expectation, Outcome, Tamper, Verification, escape};

/// Exit code for an intact and sealed trace.
const INTACT: u8 = 0;
/// Exit code for a trace that is not what was recorded.
const TAMPERED: u8 = 1;
/// Exit code for an intact trace of which nothing says that it is all.
const UNSEALED: u8 = 3;

/// Says whether a trace is what was recorded: 0 intact and sealed, 1 tampered, 2 unreadable, 3 intact but unsealed or torn
#[derive(clap::Args, Debug)]
pub struct VerifyCommand {
    /// The trace
    #[arg(value_name = "TRACE", conflicts_with = "trace")]
    file: Option<PathBuf>,

    /// The trace, where it is not given as an argument
    #[arg(short, long, default_value = trace::layout::DEFAULT_NAME)]
    trace: PathBuf,

    /// The hash that the last entry must have: finds a trace that was rewritten as a whole
    #[arg(long, value_name = "SHA", value_parser = parse_sha256)]
    head: Option<String>,

    #[command(flatten)]
    voice: Voice,
}

impl VerifyCommand {
    /// Runs the command and returns its exit code.
    ///
    /// # Errors
    /// The trace cannot be read, or its report not be written.
    pub fn run(self) -> Result<u8, Failure> {
        let pinned = self.head.is_some();
        let expected = Expectation { head: self.head };
        let opened = trace::open(&self.file.unwrap_or(self.trace));
        let found = opened
            .and_then(|opened| trace::verify(opened.path(), &expected))
            .map_err(|error| Failure::usage(error.to_string()))?;
        let code = exit_code(&found.outcome);
        if found.outcome == Outcome::Sealed && self.voice.is_quiet() {
            return Ok(code);
        }
        let said =
            report(&found, pinned).into_iter().map(|line| format!("agentbox: {}\n", escape::text(&line)));
        written(code, io::stdout().write_all(said.collect::<String>().as_bytes()))
    }
}

fn exit_code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Sealed => INTACT,
        Outcome::Tampered { .. } => TAMPERED,
        Outcome::Unsealed | Outcome::Torn { .. } => UNSEALED,
    }
}

fn report(found: &Verification, pinned: bool) -> Vec<String> {
    let Verification { entries, head, left_out, lacking, outcome } = found;
    let mut lines = match outcome {
        Outcome::Tampered { entry, reason } => {
            let what = match reason {
                Tamper::BlobMissing { .. }
                | Tamper::BlobsMissing { .. }
                | Tamper::BlobAltered { .. }
                | Tamper::OtherHead => "found",
                _ => "hash chain breaks",
            };
            return vec![
                format!("TAMPERED — {what} at entry {entry}: {reason}"),
                format!("head {head} after {entries} intact entries"),
            ];
        }
        Outcome::Sealed => vec![format!("trace ok — {entries} entries, hash chain verified")],
        Outcome::Unsealed | Outcome::Torn { .. } => {
            vec![format!("trace intact — {entries} entries, hash chain verified")]
        }
    };
    lines.push(format!("head {head}"));
    if *left_out > 0 {
        lines.push(format!("without its private parts: {left_out} private bodies were left out"));
    }
    lines.extend(lacking.as_ref().map(|lacking| format!("without its bodies, from entry {lacking}")));
    lines.push(match outcome {
        Outcome::Torn { bytes } => {
            format!("torn — the last line was not finished ({bytes} bytes): the run was interrupted")
        }
        Outcome::Unsealed => "not sealed — the run was interrupted, or its end was cut off".to_owned(),
        _ if pinned => "sealed, and the head is the expected one".to_owned(),
        _ => "sealed, unsigned — this proves consistency, not origin: keep the head elsewhere and pin it by --head"
            .to_owned(),
    });
    lines
}

fn parse_sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a SHA-256 has 64 hex digits".to_owned())
    }
}
