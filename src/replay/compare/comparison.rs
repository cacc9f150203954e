//! What a comparison says.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::cause::Cause;
use super::fields::Field;
use super::requests::Tiers;

/// The most that is told of the machine and is not held, of either trace.
pub(super) const MOST_UNHELD: usize = 1000;

/// Two runs, compared.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Recorded steps: events of kind effect, observe and deny, repeats counted.
    pub recorded: u64,
    /// Steps of the other run.
    pub live: u64,
    /// Recorded steps that happened again, as they were.
    pub matched: u64,
    /// How the requests matched.
    pub tiers: Tiers,
    /// Steps that another process or thread did than in the recorded run.
    pub elsewhere: u64,
    /// Different steps that happened more or fewer times than recorded.
    pub repeats: u64,
    /// Processes that were found by what they run, under another lineage.
    pub renamed: Vec<Renamed>,
    /// Processes in which no order was compared, for their threads or they themselves are workers of a pool.
    pub unordered: Vec<String>,
    /// Steps of which one of the runs did not see what would have to be compared, as `stdio stdout`.
    pub unseen: Vec<String>,
    /// Processes whose clock is only approximate.
    pub approximate: Vec<String>,
    /// Processes that were ended by a signal in one run alone, where that is no difference: workers of a pool, and
    /// writers of a pipe that nobody reads any more.
    pub ended_otherwise: Vec<String>,
    /// What the second run was told of the machine otherwise than as it was, or the first did not keep, and why.
    pub unheld: Vec<String>,
    /// Processes that were killed in one run, when the command had ended, before they did all that they did in the
    /// other.
    pub cut: Vec<String>,
    /// Each run names secrets by a key of its own, so that they are not compared.
    pub masked: bool,
    /// Bytes of an unfinished last line, of either trace.
    pub torn: [Option<usize>; 2],
    /// The first difference of each stream, in the order of the recorded run.
    pub divergences: Vec<Divergence>,
    /// How many more there are, by class and operation.
    pub further: BTreeMap<(Cause, String), u64>,
    /// How many were accepted, by class and operation.
    pub accepted: BTreeMap<(Cause, String), u64>,
}

impl Comparison {
    /// Whether nothing differs but what was accepted.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.divergences.is_empty() && self.further.is_empty()
    }

    /// Gives differences that are told another class, where the caller knows more than the traces say (that a
    /// written file differs in an embedded time alone). Those of an accepted class become accepted.
    pub fn reclassify(&mut self, lenient: &[Cause], class: impl Fn(&Divergence) -> Option<Cause>) {
        for mut divergence in std::mem::take(&mut self.divergences) {
            divergence.cause = class(&divergence).unwrap_or(divergence.cause);
            if lenient.contains(&divergence.cause) {
                *self.accepted.entry((divergence.cause, divergence.op)).or_default() += 1;
            } else {
                self.divergences.push(divergence);
            }
        }
    }

    /// All differences that were not accepted.
    #[must_use]
    pub fn differences(&self) -> u64 {
        self.divergences.len() as u64 + self.further.values().sum::<u64>()
    }
}

/// A process that stands in another place of its family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// Its lineage in the recorded run.
    pub recorded: String,
    /// Its lineage in the other one.
    pub live: String,
}

/// A difference.
#[derive(Clone, PartialEq, Debug)]
pub struct Divergence {
    /// The process, as `0.2`; `run` of what is the launcher's.
    pub stream: String,
    /// The step, as `0.2@7`: the seventh entry of that process, in the recorded trace where it has one. What
    /// differs before the start is `run@0`.
    pub step: String,
    /// Its class.
    pub cause: Cause,
    /// The operation.
    pub op: String,
    /// The recorded entry.
    pub recorded: Option<Map<String, Value>>,
    /// The other one.
    pub live: Option<Map<String, Value>>,
    /// What differs between them.
    pub fields: Vec<Field>,
    /// The process and its ancestors, from the command down.
    pub chain: Vec<Ancestor>,
}

impl Divergence {
    /// A difference before anything ran.
    pub(super) fn before_the_start(cause: Cause, op: &str, fields: Vec<Field>) -> Self {
        Self {
            stream: "run".to_owned(),
            step: "run@0".to_owned(),
            cause,
            op: op.to_owned(),
            recorded: None,
            live: None,
            fields,
            chain: Vec::new(),
        }
    }
}

/// A process and what it started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ancestor {
    /// Its lineage.
    pub proc: String,
    /// What it first started; empty of a process that only forked.
    pub argv: Vec<Value>,
}
