//! `agentbox verify`: says whether a trace is what was recorded.

use std::io::{self, Write};
use std::path::PathBuf;

use super::voice::Voice;
use crate::trace::{self, Expectation, Outcome, Tamper, Verification};

/// Exit code for an intact and sealed trace.
const INTACT: u8 = 0;
/// Exit code for a trace that is not what was recorded.
const TAMPERED: u8 = 1;
/// Exit code for what cannot be read or is no trace.
const UNREADABLE: u8 = 2;
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

    /// The public key that must have signed the seal
    #[arg(long, value_name = "PUB")]
    key: Option<PathBuf>,

    #[command(flatten)]
    voice: Voice,
}

impl VerifyCommand {
    /// Runs the command and returns its exit code.
    pub fn run(self) -> anyhow::Result<u8> {
        if self.key.is_some() {
            writeln!(
                io::stderr(),
                "agentbox: this version has no signatures yet: use --head instead of --key"
            )?;
            return Ok(UNREADABLE);
        }
        let pinned = self.head.is_some();
        let expected = Expectation { head: self.head };
        let opened = trace::open(&self.file.unwrap_or(self.trace));
        match opened.and_then(|opened| trace::verify(opened.path(), &expected)) {
            Ok(found) => {
                let is_told = found.outcome != Outcome::Sealed || !self.voice.is_quiet();
                // Who closes the pipe early still learns the answer from the exit code.
                let _ = is_told.then(|| report(&mut io::stdout().lock(), &found, pinned));
                Ok(exit_code(&found.outcome))
            }
            Err(error) => {
                writeln!(io::stderr(), "agentbox: {error}")?;
                Ok(UNREADABLE)
            }
        }
    }
}

fn exit_code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Sealed => INTACT,
        Outcome::Tampered { .. } => TAMPERED,
        Outcome::Unsealed | Outcome::Torn { .. } => UNSEALED,
    }
}

fn report(out: &mut impl Write, found: &Verification, pinned: bool) -> io::Result<()> {
    let Verification { entries, head, left_out, outcome } = found;
    match outcome {
        Outcome::Tampered { entry, reason } => {
            let what = match reason {
                Tamper::BlobMissing { .. }
                | Tamper::BlobsMissing { .. }
                | Tamper::BlobAltered { .. }
                | Tamper::OtherHead => "found",
                _ => "hash chain breaks",
            };
            writeln!(out, "agentbox: TAMPERED — {what} at entry {entry}: {reason}")?;
            return writeln!(out, "agentbox: head {head} after {entries} intact entries");
        }
        Outcome::Sealed => writeln!(out, "agentbox: trace ok — {entries} entries, hash chain verified")?,
        Outcome::Unsealed | Outcome::Torn { .. } => {
            writeln!(out, "agentbox: trace intact — {entries} entries, hash chain verified")?;
        }
    }
    writeln!(out, "agentbox: head {head}")?;
    if *left_out > 0 {
        writeln!(out, "agentbox: without its private parts: {left_out} private bodies were left out")?;
    }
    match outcome {
        Outcome::Torn { bytes } => {
            writeln!(
                out,
                "agentbox: torn — the last line was not finished ({bytes} bytes): the run was interrupted"
            )
        }
        Outcome::Unsealed => {
            writeln!(out, "agentbox: not sealed — the run was interrupted, or its end was cut off")
        }
        _ if pinned => writeln!(out, "agentbox: sealed, and the head is the expected one"),
        _ => writeln!(
            out,
            "agentbox: sealed, unsigned — this proves consistency, not origin: keep the head elsewhere and pin it by --head"
        ),
    }
}

fn parse_sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a SHA-256 has 64 hex digits".to_owned())
    }
}
