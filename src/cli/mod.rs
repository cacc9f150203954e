//! The command line: one file a subcommand.

mod diff;
mod duration;
mod exit;
pub mod init;
mod keys;
mod last_words;
mod later;
mod output;
mod pack;
mod places;
mod policy;
mod replay;
mod replayable;
mod run;
mod secrets;
pub mod show;
mod spec;
mod tls;
mod until;
mod usage;
pub mod verify;
mod voice;
mod worktree;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub use exit::Failure;

/// What `--help` says after the commands.
const AFTER_HELP: &str = "\
Examples:
  agentbox init                          write a starter policy, agentbox.policy
  agentbox run -- python3 agent.py       run it, confined and recorded in trace.jsonl
  agentbox show --denied                 what was refused, and by which rule
  agentbox verify                        is the record whole and unaltered?
  agentbox replay                        the same run again, offline: does it do the same?
  agentbox diff a.jsonl b.jsonl          what did these two runs do differently?
  agentbox run --observe -- ./agent      refuse nothing, record what would be refused

Exit codes of run: the command's own; 128+n for signal n; 2 usage or policy; 125 agentbox could not \
do what it promises; 126 the command cannot be executed; 127 it was not found. \
`agentbox COMMAND --help` has those of the others.";

/// Runs an untrusted agent so that it touches only what one policy file says, and records what it did.
#[derive(Debug, Parser)]
#[command(name = "agentbox", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Say what two runs did differently
    Diff(diff::DiffCommand),
    /// Write a starter policy; never overwrites one
    Init(init::InitCommand),
    /// Make one file of a trace, its bodies and its policy
    Pack(pack::PackCommand),
    /// Show what a policy means on this host
    Policy(policy::PolicyCommand),
    /// Run a command, confined by a policy and recorded
    Run(Box<run::RunCommand>),
    /// Run a recorded run again, offline, and say whether it did the same
    Replay(replay::ReplayCommand),
    /// Read a trace
    Show(show::ShowCommand),
    /// Print what `run` would do as an OCI runtime specification
    Spec(spec::SpecCommand),
    /// Restore a packed trace
    Unpack(pack::UnpackCommand),
    /// Check a trace: 0 intact and sealed, 1 tampered, 3 intact but unsealed or torn
    Verify(verify::VerifyCommand),
}

/// The command line of a plain `run`, read without the other subcommands: a run is to start at once.
/// `None` where it is another one, wrong, or asks for help.
fn run_alone() -> Option<Subcommands> {
    let mut words = std::env::args_os().skip(1).peekable();
    words.next_if(|word| word == "run").map(|_| ())?;
    let words: Vec<_> = words.collect();
    // The run's first process goes on by itself, beside the reading of the words.
    let early = run::Early::begin(&words);
    let alone = run::RunCommand::augment_args(clap::Command::new("run").no_binary_name(true));
    let matches = alone.try_get_matches_from(words).ok()?;
    let command = run::RunCommand::from_arg_matches(&matches).ok()?;
    Some(Subcommands::Run(Box::new(command.begun(early))))
}

/// Help and version go to stdout with 0; mistakes, and the help that stands for one, to stderr with 2.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            output::written(0, printed).map_or_else(Failure::report, ExitCode::from)
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            // A closed stderr has no reader to tell.
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => usage::explain(error, &Cli::command(), std::env::args_os().skip(1)).report(),
    }
}

/// Reads the command line, does what it says, and gives the exit code.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(failure) = later::refuse(std::env::args_os().skip(1)) {
        return failure.report();
    }
    let command = match run_alone().map_or_else(|| Cli::try_parse().map(|cli| cli.command), Ok) {
        Ok(command) => command,
        Err(error) => {
            if let Some(failure) = later::refuse_option(&error) {
                return failure.report();
            }
            return refuse(&error);
        }
    };
    let done = match command {
        Subcommands::Diff(command) => command.run(),
        Subcommands::Init(command) => command.run(),
        Subcommands::Pack(command) => command.run(),
        Subcommands::Policy(command) => command.run(),
        Subcommands::Run(command) => command.run(),
        Subcommands::Replay(command) => command.run(),
        Subcommands::Show(command) => command.run(),
        Subcommands::Spec(command) => command.run(),
        Subcommands::Unpack(command) => command.run(),
        Subcommands::Verify(command) => command.run(),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}
