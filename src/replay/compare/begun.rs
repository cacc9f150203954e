//! Where requests began among the entries of a trace: theirs come when they have ended, behind what their answers led to.

use std::collections::HashMap;

use super::index::Step;

/// The times of all entries so far, and of those of each process; none is before the one that it follows.
#[derive(Debug, Default)]
pub(super) struct Begun {
    all: Vec<(f64, u64)>,
    by_process: HashMap<u32, Vec<(f64, u32)>>,
}

impl Begun {
    /// Notes when an entry was made.
    pub(super) fn note(&mut self, time: f64, step: &Step) {
        let latest = self.all.last().map_or(time, |(latest, _)| latest.max(time));
        self.all.push((latest, step.entry));
        self.by_process.entry(step.process).or_default().push((latest, step.number));
    }

    /// The places of a step that began then: in front of what was made later, in the trace and in its process.
    pub(super) fn places(&self, time: f64, step: &Step) -> (u64, u32) {
        let own = self.by_process.get(&step.process).map(Vec::as_slice).unwrap_or_default();
        let entry = self.all.get(self.all.partition_point(|(other, _)| *other < time));
        let number = own.get(own.partition_point(|(other, _)| *other < time));
        match (entry, number) {
            // Times from before the first entry are none of this run.
            (Some((_, entry)), Some((_, number))) if self.all.first().is_some_and(|one| one.0 <= time) => {
                (before(*entry), before_step(*number))
            }
            _ => (step.place, step.rank),
        }
    }
}

/// Places count twice, so that there is one in front of each.
pub(super) fn place(entry: u64) -> u64 {
    entry.saturating_mul(2).saturating_add(1)
}

/// The same in a process.
pub(super) fn rank(number: u32) -> u32 {
    number.saturating_mul(2).saturating_add(1)
}

fn before(entry: u64) -> u64 {
    place(entry).saturating_sub(1)
}

fn before_step(number: u32) -> u32 {
    rank(number).saturating_sub(1)
}
