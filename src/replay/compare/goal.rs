//! A recorded step up to which a run is replayed, and whether it has come so far.
//!
//! It has when the live run has done that step, in its own stream. What other streams did before it has then
//! happened, or is still to come: nothing orders them.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read, Seek};

use serde_json::{Map, Value};

use super::beside::Beside;
use super::cause::Cause;
use super::comparison::Comparison;
use super::essence::{Essence, digest};
use super::index::{Index, Step};
use super::matching::{Finding, Found};
use super::names::Names;
use super::table::Lane;
use super::{Pass, SameButForTimes};
use crate::trace::{Event, Kind};

/// A step of a recorded run.
#[derive(Debug)]
pub struct Goal {
    /// As reports name it: `0.2@7`.
    pub step: String,
    /// The number of its entry.
    pub entry: u64,
    /// Kind and operation.
    what: String,
    lineage: String,
    about: u128,
    /// How often the process does something about the same until then, at least.
    times: usize,
    /// The recorded processes.
    known: HashSet<String>,
}

/// What a user calls a step: `0.2@7`, or the number of its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The step of this number, of the process of this lineage.
    Step(String, u32),
    /// The entry of this number.
    Entry(u64),
}

impl Named {
    /// Reads it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let Some((lineage, number)) = text.split_once('@') else { return text.parse().ok().map(Self::Entry) };
        let is_lineage = lineage == "run" || lineage.split('.').all(|part| part.parse::<u32>().is_ok());
        is_lineage.then_some(())?;
        Some(Self::Step(lineage.to_owned(), number.parse().ok()?))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(lineage, number) => write!(f, "{lineage}@{number}"),
            Self::Entry(number) => write!(f, "entry {number}"),
        }
    }
}

impl Goal {
    /// The step that is named so; else the nearest, if there is any.
    ///
    /// # Errors
    /// Those of reading the trace.
    pub fn find<R: Read + Seek>(recorded: &mut R, named: &Named) -> io::Result<Result<Self, Option<String>>> {
        let index = Index::read(recorded, Beside::default(), &mut Names::default())?;
        let steps = || index.steps.iter().filter(|step| step.counts);
        let lineage = |step: &Step| index.processes.lineage(step.process);
        let is_of = |step: &Step, process: &str| index.processes.find(process) == Some(step.process);
        let found = steps().find(|step| match named {
            Named::Step(process, number) => is_of(step, process) && step.number == *number,
            Named::Entry(entry) => step.entry == *entry,
        });
        let Some(step) = found else {
            let nearest = steps().min_by_key(|step| match named {
                Named::Step(process, number) => {
                    (!is_of(step, process), u64::from(step.number.abs_diff(*number)))
                }
                Named::Entry(entry) => (false, step.entry.abs_diff(*entry)),
            });
            return Ok(Err(nearest.map(|step| format!("{}@{}", lineage(step), step.number))));
        };
        let at = index.steps.iter().position(|other| std::ptr::eq(other, step)).unwrap_or_default();
        let entry = index.entry(u32::try_from(at).unwrap_or(u32::MAX), recorded)?;
        let (what, about) = about(&entry).unwrap_or_default();
        let is_like =
            |other: &&Step| (other.process, other.op, other.about) == (step.process, step.op, step.about);
        let processes: HashSet<u32> = steps().map(|step| step.process).collect();
        let times = steps().filter(is_like).filter(|other| other.entry <= step.entry).count();
        Ok(Ok(Self {
            step: format!("{}@{}", lineage(step), step.number),
            entry: step.entry,
            what,
            lineage: lineage(step),
            about,
            times,
            known: processes.into_iter().map(|process| index.processes.lineage(process)).collect(),
        }))
    }

    /// Whether an event of a run may be the step, by itself.
    #[must_use]
    pub fn is_like(&self, event: &Event) -> bool {
        let kind = event.kind.as_str();
        if event.kind == Kind::Meta || self.what.strip_prefix(kind).map(str::trim_start) != Some(event.op) {
            return false;
        }
        let process = event.proc.as_deref().unwrap_or("0").split(['#', ':']).next().unwrap_or_default();
        if self.lineage != "run" && process != self.lineage && self.known.contains(process) {
            return false;
        }
        let mut entry = Map::new();
        entry.insert("kind".to_owned(), kind.into());
        entry.insert("op".to_owned(), event.op.into());
        entry.insert("args".to_owned(), Value::Object(event.args.clone()));
        entry.extend(event.result.clone().map(|result| ("result".to_owned(), result)));
        about(&entry).is_some_and(|(_, about)| about == self.about)
    }

    /// How often [such events](Self::is_like) come until it is reached, at least.
    #[must_use]
    pub fn times(&self) -> usize {
        self.times
    }
}

/// Kind and operation of an entry, and the digest of what it is about.
fn about(entry: &Map<String, Value>) -> Option<(String, u128)> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    let what = format!("{} {}", text("kind")?, text("op")?);
    let about = digest(&what, &[&Essence::of(entry)?.about]);
    Some((what, about))
}

/// Compares a run that has not ended with the recorded one: `None` while it has not come to the step. What was not
/// done yet is no difference, unless the process that does the step did it before; nor is what a file holds in
/// between.
///
/// # Errors
/// Those of reading the traces.
pub fn reached<R: Read + Seek, L: Read + Seek>(
    recorded: &mut R,
    live: &mut L,
    goal: &Goal,
    lenient: &[Cause],
    same_but_for_times: &SameButForTimes<'_>,
) -> io::Result<Option<Comparison>> {
    let mut pass = Pass::read(recorded, live, [None, None])?;
    let Some(at) = pass.ours.steps.iter().position(|step| step.counts && step.entry == goal.entry) else {
        return Ok(None);
    };
    let (was_done, due) = sift(&pass.ours, &mut pass.found, at);
    let mut comparison = pass.tell(recorded, live, lenient, same_but_for_times)?;
    let differing = comparison.recorded.saturating_sub(comparison.matched);
    (comparison.recorded, comparison.matched) = (due, due.saturating_sub(differing));
    // It goes on: how often is not known yet.
    comparison.repeats = 0;
    let is_over = was_done || !comparison.is_same();
    Ok(is_over.then_some(comparison))
}

/// Leaves the findings that count while the step number `at` is looked for; whether it was done, and how many steps
/// up to it were to be done by now.
fn sift(ours: &Index, found: &mut Found, at: usize) -> (bool, u64) {
    let goal = &ours.steps[at];
    let is_goal = |step: Option<u32>| step.is_some_and(|step| step as usize == at);
    let in_between = |finding: &Finding| {
        let lane = finding.recorded.map(|step| ours.steps[step as usize].lane);
        let changed = matches!(finding.cause, Cause::OutputChanged | Cause::OrderChanged);
        changed && matches!(lane, Some(Lane::Settled | Lane::End))
    };
    let time = |number: u32| ours.exchanges.iter().find(|one| one.step == number).map(|one| one.time);
    let goal_time = u32::try_from(at).ok().and_then(time);
    // Of requests that were under way at the same time either may come first.
    let followed_by_goal = |number: u32| match (time(number), goal_time) {
        (Some((_, end)), Some((begin, _))) => end < begin,
        _ => true,
    };
    let is_open = |finding: &Finding| finding.live.is_none() || in_between(finding);
    let was_cut = found.cut.recorded.iter().any(|step| is_goal(Some(*step)));
    let is_open_goal = |finding: &Finding| is_goal(finding.recorded) && is_open(finding);
    let was_done = !was_cut && !found.findings.iter().any(is_open_goal);
    let mut pending: HashSet<u32> = found.cut.recorded.drain(..).collect();
    found.cut.live.clear();
    found.findings.retain(|finding| {
        if !is_open(finding) {
            return true;
        }
        let Some(number) = finding.recorded else { return true };
        let step = &ours.steps[number as usize];
        let is_before = step.process == goal.process && step.number < goal.number;
        let is_due = was_done
            && is_before
            && match step.lane {
                Lane::Ordered => step.thread == goal.thread,
                Lane::Request => step.thread == goal.thread && followed_by_goal(number),
                // When it is recorded is a matter of chance.
                Lane::Any | Lane::Settled | Lane::End => false,
            };
        if !is_due {
            pending.insert(number);
        }
        is_due
    });
    let is_due =
        |(number, step): &(u32, &Step)| step.counts && step.entry <= goal.entry && !pending.contains(number);
    let due = (0..).zip(&ours.steps).filter(is_due).map(|(_, step)| step.weight).sum();
    (was_done, due)
}
