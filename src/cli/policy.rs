//! `agentbox policy`: what a policy means on this host.

mod meaning;
mod survey;
mod table;

use std::ffi::OsString;
use std::io::{BufWriter, Write as _};

use super::Failure;
use super::output::written;
use super::run::{PolicyArgument, Prepared, prepare};
use super::secrets;
use crate::command::Command;
use crate::plan::{LaunchPlan, Request, intercepts};
use crate::trace::escape;
use survey::Survey;

/// Show what a policy means on this host.
#[derive(Debug, clap::Args)]
pub(super) struct PolicyCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print every rule, and everything that is visible without one, each with its reason
    Show(ShowPolicy),
}

/// Print every rule, and everything that is visible without one, each with its reason.
///
/// With a command, what that command needs to start is shown as well.
#[derive(Debug, clap::Args)]
struct ShowPolicy {
    #[command(flatten)]
    policy: PolicyArgument,
    /// Say in words what each rule grants, what would mend each warning, and each reason on a line of its own
    #[arg(long)]
    explain: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// A command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    words: Vec<OsString>,
}

impl PolicyCommand {
    /// Prints what was asked for.
    pub(super) fn run(self) -> Result<u8, Failure> {
        match self.action {
            Action::Show(show) => show.run(),
        }
    }
}

impl ShowPolicy {
    fn run(self) -> Result<u8, Failure> {
        let survey = self.survey()?;
        let print = || {
            let mut out = BufWriter::new(std::io::stdout().lock());
            if self.json {
                // Line breaks outside of strings stay; within them JSON has none.
                for line in serde_json::to_string_pretty(&survey)?.lines() {
                    writeln!(out, "{}", escape::json(line))?;
                }
            } else {
                table::write(&survey, self.explain, &mut out)?;
            }
            out.flush()
        };
        written(0, print())
    }

    fn survey(&self) -> Result<Survey, Failure> {
        let asked = !self.words.is_empty();
        let words = if asked { self.words.clone() } else { vec![any_program()?] };
        let Prepared { policy, command, facts, host, looks: _looks } = prepare(&self.policy, &words)?;
        let needs = if asked { None } else { Some(command.clone()) };
        let authority = intercepts(&policy, true).then_some("");
        let (facts, protected) = (&facts, Vec::new());
        let placeholders = secrets::shown(&policy, facts);
        let request = Request {
            policy,
            command,
            typed: words,
            facts,
            protected,
            enforce: true,
            authority,
            placeholders,
            replay: false,
        };
        let mut plan = LaunchPlan::new(request, &host);
        if let Some(command) = needs {
            leave_out(&mut plan, &command);
        }
        Ok(Survey::of(&plan, facts))
    }
}

/// A plan needs a command. This one is there.
fn any_program() -> Result<OsString, Failure> {
    let own = std::env::current_exe();
    own.map(Into::into).map_err(|error| Failure::launcher(format!("the path of agentbox itself: {error}")))
}

/// Takes out what only `command` needs.
fn leave_out(plan: &mut LaunchPlan, command: &Command) {
    use crate::plan::Why;
    plan.roots.retain(|root| {
        let Why::Runtime(reason) = &root.why else { return true };
        !command.runtime.iter().any(|needed| needed.path == root.path && needed.reason == *reason)
    });
    let set: Vec<&str> = command.env.iter().map(|(name, _)| name.as_str()).collect();
    plan.process.env.retain(|(name, _)| *name == "PATH" || !set.iter().any(|own| name == *own));
}
