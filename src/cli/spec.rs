//! `agentbox spec`: the launch plan of a run, printed as an OCI runtime specification.

use std::ffi::OsString;
use std::io::Write as _;

use super::Failure;
use super::output::written;
use super::run::{PolicyArgument, Prepared, colored, prepare};
use super::secrets;
use super::voice::tell;
use crate::plan::{LaunchPlan, PlanError, Request, intercepts};

/// Print what `run` would do as an OCI runtime specification; run nothing.
#[derive(Debug, clap::Args)]
pub(super) struct SpecCommand {
    #[command(flatten)]
    policy: PolicyArgument,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    words: Vec<OsString>,
}

impl SpecCommand {
    /// Prints the document.
    pub(super) fn run(self) -> Result<u8, Failure> {
        let Prepared { policy, command, facts, host, looks: _looks } = prepare(&self.policy, &self.words)?;
        tell(policy.warnings.iter().map(|warning| warning.render(colored())));
        let authority = intercepts(&policy, true).then_some("");
        let placeholders = secrets::shown(&policy, &facts);
        let request = Request {
            policy,
            command,
            typed: self.words,
            facts: &facts,
            protected: Vec::new(),
            enforce: true,
            authority,
            placeholders,
            replay: false,
        };
        let text = print(&LaunchPlan::new(request, &host))?;
        let mut stdout = std::io::stdout().lock();
        written(0, stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
    }
}

fn print(plan: &LaunchPlan) -> Result<String, PlanError> {
    let malformed = |source| PlanError::Json { source };
    // Through a value: members come in the order of their names, the same every time.
    let document = serde_json::to_value(plan.to_portable_spec()?).map_err(malformed)?;
    let mut text = serde_json::to_string_pretty(&document).map_err(malformed)?;
    text.push('\n');
    Ok(text)
}
