//! What follows from a difference that was told: steps of processes that began only behind it.

use std::collections::HashMap;

use super::begun;
use super::cause::Cause;
use super::index::{Index, Step};
use super::matching::Finding;
use super::table::Lane;

/// Where each process of the two runs first did something else.
pub(super) struct Parted<'a> {
    traces: [&'a Index; 2],
    places: [HashMap<u32, u64>; 2],
}

impl<'a> Parted<'a> {
    pub(super) fn new(recorded: &'a Index, live: &'a Index) -> Self {
        Self { traces: [recorded, live], places: [HashMap::new(), HashMap::new()] }
    }

    fn steps(&self, finding: &Finding) -> [Option<&'a Step>; 2] {
        let [recorded, live] = self.traces;
        let step = |index: &'a Index, step: Option<u32>| step.map(|step| &index.steps[step as usize]);
        [step(recorded, finding.recorded), step(live, finding.live)]
    }

    /// From here on its process does something else. What one is given does not mean that.
    pub(super) fn note(&mut self, finding: &Finding) {
        if finding.cause == Cause::InputChanged {
            return;
        }
        for (step, places) in self.steps(finding).into_iter().zip(&mut self.places) {
            let Some(Step { process, place, lane, .. }) = step else { continue };
            if !matches!(lane, Lane::End | Lane::Settled) {
                let first = places.entry(*process).or_insert(*place);
                *first = (*place).min(*first);
            }
        }
    }

    /// Whether it is of a process that was made by one that did something else before that, or a file of one that
    /// did so. Inputs, requests, denials, what was written in both runs and what the command came to are told
    /// all the same.
    pub(super) fn is_followed_by(&self, finding: &Finding) -> bool {
        let one_sided = finding.recorded.is_none() || finding.live.is_none();
        let may_follow = match finding.cause {
            Cause::MissingEffect | Cause::ExtraEffect => true,
            Cause::CommandChanged | Cause::OrderChanged | Cause::ExitStatusChanged => !one_sided,
            _ => false,
        };
        let sides = self.steps(finding).into_iter().zip(self.traces).zip(&self.places);
        may_follow
            && sides
                .filter_map(|((step, index), places)| Some((step?, index, places)))
                .any(|(step, index, places)| follows(step, index, places))
    }
}

fn follows(step: &Step, index: &Index, places: &HashMap<u32, u64>) -> bool {
    let is_behind = |process: u32, place: u64| places.get(&process).is_some_and(|parted| *parted < place);
    let process = index.processes.get(step.process);
    if index.processes.is_of_run(step.process) {
        // The digest of a program is noted by the launcher.
        return step.lane == Lane::Any && places.values().any(|parted| *parted < step.place);
    }
    if step.lane == Lane::Settled && is_behind(step.process, step.place) {
        return true;
    }
    let mut began = process.from;
    let mut next = process.parent;
    while let Some(parent) = next {
        if is_behind(parent, begun::place(began)) {
            return true;
        }
        let process = index.processes.get(parent);
        began = began.min(process.from);
        next = process.parent;
    }
    false
}
