//! The options of `run` about replaying it later.

use super::Failure;
use crate::policy::{Policy, RuleBody};
use crate::supervisor::{Controls, Seed, Timeline};
use crate::sys::clock::ClockBase;

/// Whether the run can be replayed.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayArguments {
    /// Leave clocks, randomness and addresses as they are; such a run cannot be replayed
    #[arg(long, conflicts_with = "replayable")]
    no_replay: bool,
    /// Take clocks, randomness and addresses under control, so that the run can be replayed
    #[arg(long, hide = true)]
    replayable: bool,
    /// For tests alone: 64 hexadecimal digits that all randomness comes from. Whoever knows them knows
    /// every key that the run makes.
    #[arg(long, hide = true, value_name = "HEX", requires = "replayable")]
    seed: Option<String>,
}

impl ReplayArguments {
    /// The controls of the run; none when it is left as it is.
    pub(super) fn controls(&self, policy: &Policy) -> Result<Option<Controls>, Failure> {
        if self.no_replay || !self.replayable {
            return Ok(None);
        }
        let seed = match &self.seed {
            None => Seed::fresh()
                .map_err(|error| Failure::launcher(format!("getrandom: {error}: try again later")))?,
            // What somebody else knows protects no connection.
            Some(_) if reaches_out(policy) => {
                return Err(Failure::usage("--seed: not with `net:` rules: whoever knows it can read them"));
            }
            Some(text) => Seed::from_hex(text)
                .ok_or_else(|| Failure::usage("--seed: 64 hexadecimal digits are wanted"))?,
        };
        let base = ClockBase::now()
            .map_err(|error| Failure::launcher(format!("clock_gettime: {error}: try again later")))?;
        Ok(Some(Controls { seed, clock: Timeline { base, recorded: None } }))
    }
}

fn reaches_out(policy: &Policy) -> bool {
    policy.rules.iter().any(|rule| matches!(rule.body, RuleBody::Net(_) | RuleBody::UnixSocket(_)))
}
