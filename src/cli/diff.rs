//! `agentbox diff`: what two runs did differently.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::Failure;
use super::output::written;
use super::voice::tell;
use crate::replay::compare::{self, Cause, Comparison, report};
use crate::replay::{embedded_times, outputs};
use crate::trace::{self, Held, Opened, Outcome, TraceError, escape};

/// Exit codes: nothing differs; something does.
const SAME: u8 = 0;
const DIFFERENT: u8 = 1;

/// What `diff --help` says after the options.
const AFTER_HELP: &str = "\
Steps are compared process by process: files read and written, programs, requests and their answers, \
denials, output and exit status. Times, addresses, memory and process numbers are not.

Exit codes: 0 nothing differs; 1 something does, or a trace was altered; 2 usage, or a trace cannot be read.";

/// Say what two runs did differently
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct DiffCommand {
    /// The trace of one run
    #[arg(value_name = "A")]
    recorded: PathBuf,

    /// The trace of another run
    #[arg(value_name = "B")]
    live: PathBuf,

    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,

    /// Accept differences of this class, as time-only; they are counted
    #[arg(long, value_name = "CLASS", value_enum)]
    lenient: Vec<Cause>,
}

impl DiffCommand {
    /// Runs the command and returns its exit code.
    pub(super) fn run(self) -> Result<u8, Failure> {
        let (recorded, live) = (open(&self.recorded)?, open(&self.live)?);
        let [ours, theirs] = [&recorded, &live].map(|intact| intact.held.blobs());
        let timed = embedded_times::between(ours, theirs);
        let compared = recorded.held.read().and_then(|mut recorded| {
            let blobs = [Some(ours), Some(theirs)];
            compare::compare_with(&mut recorded, &mut live.held.read()?, blobs, &self.lenient, &timed)
        });
        let mut comparison =
            compared.map_err(|error| Failure::usage(format!("a trace cannot be read: {error}")))?;
        outputs::explain(&mut comparison, ours, theirs);
        let mut out = io::stdout().lock();
        let printed = print(&comparison, self.json, &mut out).and_then(|()| out.flush());
        written(if comparison.is_same() { SAME } else { DIFFERENT }, printed)
    }
}

/// A trace that is intact.
struct Intact {
    held: Held,
    /// What was packed lies there as long as it is read.
    _place: Opened,
}

/// Opens a trace that is intact.
fn open(asked: &Path) -> Result<Intact, Failure> {
    let say = |text: String| tell([format!("agentbox: {text}")]);
    let place = trace::open(asked).map_err(unreadable)?;
    let (held, found) = place.verify().map_err(unreadable)?;
    let shown = escape::text(&place.name().to_string_lossy());
    match found.outcome {
        Outcome::Tampered { entry, reason } => {
            return Err(Failure::diverged(format!("{shown}: TAMPERED at entry {entry}: {reason}")));
        }
        Outcome::Unsealed => say(format!("{shown} is not sealed: nothing says that this is all")),
        Outcome::Torn { bytes } => {
            say(format!("{shown}: the last line is torn ({bytes} bytes): the run was interrupted"));
        }
        Outcome::Sealed => {}
    }
    if found.lacking.is_some() {
        say(format!("{shown} is without its bodies: they are compared by their digests alone"));
    }
    Ok(Intact { held, _place: place })
}

fn unreadable(error: TraceError) -> Failure {
    Failure::usage(error.to_string())
}

fn print(comparison: &Comparison, json: bool, out: &mut impl Write) -> io::Result<()> {
    let terminal = io::stdout().is_terminal();
    if json {
        let text = report::json(comparison).to_string();
        return writeln!(out, "{}", if terminal { escape::json(&text) } else { text });
    }
    let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let style = report::Style { recorded: "A", live: "B", color };
    write!(out, "{}", report::text(comparison, &style))?;
    writeln!(out, "{}", report::verdict(comparison, "same", "different"))
}

impl ValueEnum for Cause {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}
