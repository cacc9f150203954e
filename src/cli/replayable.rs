//! The options of `run` about replaying it later.

use std::ffi::{OsStr, OsString};

use super::Failure;
use crate::plan::{HostFacts, LaunchPlan};
use crate::policy::{Policy, RuleBody};
use crate::run::{Private, Repeat, Start, User};
use crate::supervisor::Seed;

/// Whether the run can be replayed.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayArguments {
    /// Leave clocks, randomness and addresses as they are: quicker, and for debuggers; such a run cannot be replayed
    #[arg(long)]
    no_replay: bool,
    /// Keep the content of every file it reads, so that it can be replayed where those files are not
    #[arg(long, conflicts_with = "no_replay")]
    capture: bool,
    /// For tests alone: 64 hexadecimal digits that all randomness comes from. Whoever knows them knows
    /// every key that the run makes.
    #[arg(long, hide = true, value_name = "HEX", conflicts_with = "no_replay")]
    seed: Option<String>,
}

impl ReplayArguments {
    /// Whether the run can be replayed.
    pub(super) fn wanted(&self) -> bool {
        !self.no_replay
    }

    /// What is kept of the run, so that it can be replayed.
    pub(super) fn repeat(
        &self,
        plan: &LaunchPlan,
        facts: &HostFacts,
        argv: &[OsString],
        placeholders: Vec<(String, String)>,
    ) -> Result<Repeat, Failure> {
        if !plan.replay {
            return Ok(Repeat::Never);
        }
        let policy = &plan.access.policy;
        let seed = match &self.seed {
            None => None,
            // What somebody else knows protects no connection.
            Some(_) if reaches_out(policy) => {
                return Err(Failure::usage("--seed: not with `net:` rules: whoever knows it can read them"));
            }
            Some(text) => match Seed::from_hex(text) {
                None => return Err(Failure::usage("--seed: 64 hexadecimal digits are wanted")),
                seed => seed,
            },
        };
        let environment = needed(plan, facts);
        let start =
            Start { argv, cwd: facts.cwd.clone(), environment, placeholders, seed, user: user(facts) };
        let private = Box::new(Private::new(start)?);
        Ok(Repeat::Recorded { private, captures: self.capture })
    }
}

fn user(facts: &HostFacts) -> User {
    let HostFacts { uid, gid, user, group, .. } = facts;
    User { uid: *uid, gid: *gid, name: user.clone(), group: group.clone() }
}

/// The variables of the launcher that the plan was made from: those that the command gets, and where programs and
/// the home are looked for. Values of secrets are not among them.
fn needed(plan: &LaunchPlan, facts: &HostFacts) -> Vec<(OsString, OsString)> {
    let is_secret =
        |name: &OsStr| plan.access.policy.secrets().any(|(_, secret)| secret.name.as_str() == name);
    let is_needed = |name: &OsStr| {
        name == "PATH" || name == "HOME" || plan.process.env.iter().any(|(known, _)| known == name)
    };
    let variables = facts.environment.iter();
    variables.filter(|(name, _)| is_needed(name) && !is_secret(name)).cloned().collect()
}

fn reaches_out(policy: &Policy) -> bool {
    policy.rules.iter().any(|rule| matches!(rule.body, RuleBody::Net(_) | RuleBody::UnixSocket(_)))
}
