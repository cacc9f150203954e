//! Compares two traces: what a run did, and what another run of the same command did.
//!
//! Steps are the entries of kind `effect`, `observe` and `deny`. They are ordered within the stream of a process
//! and never across streams: what ran at the same time has no order. A step is named `0.2@7`, the seventh entry
//! of the process `0.2`. What counts of each operation stands in one table, `table.rs`.
//!
//! The comparison reads both traces and holds a few numbers for each entry; it changes nothing, runs nothing and
//! reads no bodies but transcripts; whoever has them can say of two files that they differ in times alone. The
//! caller has verified the traces.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Read, Seek};

use serde_json::{Map, Value};

mod ancestors;
mod begun;
mod beside;
mod cause;
mod comparison;
mod essence;
mod fields;
mod follows;
mod goal;
mod index;
mod matching;
mod names;
mod normal;
mod processes;
pub mod report;
mod requests;
mod sequence;
mod start;
mod table;
mod transcripts;
mod variables;

pub use cause::Cause;
pub use comparison::{Ancestor, Comparison, Divergence, Renamed};
pub use fields::Field;
pub use goal::{Goal, Named, reached};
pub use requests::Tiers;

use ancestors::chain;
use follows::Parted;
use index::Index;
use matching::{Finding, Found, match_all};
use names::Names;
use processes::Pairs;
use requests::match_requests;

use crate::trace::StoredBlobs;

/// Differences that are told in full; the rest is counted.
const MOST_TOLD: usize = 1000;

/// Says of two entries whether the files that were written differ in times alone.
pub type SameButForTimes<'a> = dyn Fn(&Map<String, Value>, &Map<String, Value>) -> bool + 'a;

/// As [`compare_with`], where nobody has the files.
///
/// # Errors
/// Those of reading the traces.
pub fn compare<R: Read + Seek, L: Read + Seek>(
    recorded: &mut R,
    live: &mut L,
    lenient: &[Cause],
) -> io::Result<Comparison> {
    compare_with(recorded, live, [None, None], lenient, &|_, _| false)
}

/// The same, where what was said over streams that were passed on unread is compared too: its bytes lie beside
/// the traces. A replay has compared them already, as it served them.
///
/// # Errors
/// Those of reading the traces.
pub fn compare_with<R: Read + Seek, L: Read + Seek>(
    recorded: &mut R,
    live: &mut L,
    blobs: [Option<&StoredBlobs>; 2],
    lenient: &[Cause],
    same_but_for_times: &SameButForTimes<'_>,
) -> io::Result<Comparison> {
    Pass::read(recorded, live, blobs)?.tell(recorded, live, lenient, same_but_for_times)
}

/// Both traces, and what was found between them.
struct Pass {
    names: Names,
    ours: Index,
    theirs: Index,
    pairs: Pairs,
    found: Found,
    tiers: Tiers,
}

impl Pass {
    fn read<R: Read + Seek, L: Read + Seek>(
        recorded: &mut R,
        live: &mut L,
        blobs: [Option<&StoredBlobs>; 2],
    ) -> io::Result<Self> {
        let mut names = Names::default();
        let [ours, theirs] = beside::of(recorded, live, blobs)?;
        let ours = Index::read(recorded, ours, &mut names)?;
        let theirs = Index::read(live, theirs, &mut names)?;
        let pairs = Pairs::new(&ours.processes, &theirs.processes);
        let mut found = match_all(&ours, &theirs, &pairs, &names);
        let (requests, tiers) = match_requests(&ours, &theirs, &pairs, &mut found.cut);
        found.findings.extend(requests);
        Ok(Self { names, ours, theirs, pairs, found, tiers })
    }

    /// Says it in words.
    fn tell<R: Read + Seek, L: Read + Seek>(
        self,
        recorded: &mut R,
        live: &mut L,
        lenient: &[Cause],
        same_but_for_times: &SameButForTimes<'_>,
    ) -> io::Result<Comparison> {
        let Self { names, ours, theirs, pairs, found, tiers } = self;
        let timed = HashSet::new();
        let (ours, theirs, pairs, names) = (&ours, &theirs, &pairs, &names);
        let weight = |step: &u32| {
            let step = &ours.steps[*step as usize];
            if step.counts { step.weight } else { 0 }
        };
        let mut telling = Telling { recorded, live, ours, theirs, pairs, names, same_but_for_times, timed };
        let mut comparison = Comparison {
            recorded: ours.events,
            live: theirs.events,
            matched: ours.events.saturating_sub(found.cut.recorded.iter().map(weight).sum()),
            cut: found.cut.lineages(ours, theirs),
            tiers,
            elsewhere: found.elsewhere,
            repeats: found.repeats,
            renamed: pairs.renamed.iter().map(|pair| telling.renamed(*pair)).collect(),
            unordered: found.unordered.iter().map(|one| ours.processes.lineage(*one)).collect(),
            unseen: telling.unseen(&found.blind)?,
            approximate: ours.approximate.union(&theirs.approximate).cloned().collect(),
            unheld: ours.unheld.iter().chain(&theirs.unheld).cloned().collect(),
            torn: [ours.torn, theirs.torn],
            masked: ours.masked || theirs.masked,
            ..Comparison::default()
        };
        for difference in start::differing(ours, theirs) {
            if lenient.contains(&difference.cause) {
                *comparison.accepted.entry((difference.cause, difference.op)).or_default() += 1;
            } else {
                comparison.divergences.push(difference);
            }
        }
        telling.tell(found.findings, lenient, &mut comparison)?;
        Ok(comparison)
    }
}

/// The stream of what a process read.
const GIVEN: u64 = u64::MAX;

/// Says in words what was found in numbers.
struct Telling<'a, R, L> {
    recorded: &'a mut R,
    live: &'a mut L,
    ours: &'a Index,
    theirs: &'a Index,
    pairs: &'a Pairs,
    names: &'a Names,
    same_but_for_times: &'a SameButForTimes<'a>,
    /// Digests of files that differ in times alone, each with the other's: what reads them reads the same.
    timed: HashSet<(String, String)>,
}

impl<R: Read + Seek, L: Read + Seek> Telling<'_, R, L> {
    /// Tells the first difference of each stream, and counts the rest.
    fn tell(
        &mut self,
        mut findings: Vec<Finding>,
        lenient: &[Cause],
        into: &mut Comparison,
    ) -> io::Result<()> {
        let mut begins: HashMap<(u64, u64), (u64, u64)> = HashMap::new();
        for finding in &findings {
            let at = self.position(finding);
            let begin = begins.entry(self.stream(finding)).or_insert(at);
            *begin = at.min(*begin);
        }
        // Numbers of entries of two traces say little of each other; those of steps do, within a stream.
        findings.sort_by_cached_key(|finding| {
            let (_, step) = self.step(finding);
            (begins.get(&self.stream(finding)).copied(), step.rank, finding.recorded.is_none())
        });
        let mut told = BTreeSet::new();
        let mut parted = Parted::new(self.ours, self.theirs);
        for finding in &findings {
            if self.ends_by_chance(finding)? {
                let process = finding.recorded.map(|step| self.ours.steps[step as usize].process);
                into.ended_otherwise.extend(process.map(|one| self.ours.processes.lineage(one)));
                continue;
            }
            if let Some(step) = finding.recorded.map(|step| &self.ours.steps[step as usize])
                && step.counts
            {
                into.matched = into.matched.saturating_sub(step.weight);
            }
            let finding = self.refined(finding)?;
            let (_, step) = self.step(&finding);
            let op = self.names.op(step.op).to_owned();
            if lenient.contains(&finding.cause) {
                *into.accepted.entry((finding.cause, op)).or_default() += 1;
                continue;
            }
            let follows = parted.is_followed_by(&finding);
            parted.note(&finding);
            if !follows && into.divergences.len() < MOST_TOLD && told.insert(self.stream(&finding)) {
                let divergence = self.divergence(&finding)?;
                into.divergences.push(divergence);
            } else {
                *into.further.entry((finding.cause, op)).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Whether a process was killed in one run alone for want of a reader, or as a worker that its pool no longer needs.
    fn ends_by_chance(&mut self, finding: &Finding) -> io::Result<bool> {
        let (Some(ours), Some(theirs)) = (finding.recorded, finding.live) else { return Ok(false) };
        if finding.cause != Cause::ExitStatusChanged {
            return Ok(false);
        }
        let process = self.ours.steps[ours as usize].process;
        let is_worker = self.pairs.works(process) || self.ours.processes.only_forked(process);
        let (recorded, live) = (self.ours.entry(ours, self.recorded)?, self.theirs.entry(theirs, self.live)?);
        Ok(fields::tell_of_a_closed_pipe(&recorded, &live)
            || (is_worker && fields::tell_of_a_closed_pool(&recorded, &live)))
    }

    /// Whose numbers a finding is told by, and its step.
    fn step(&self, finding: &Finding) -> (&Index, &index::Step) {
        let index = if finding.recorded.is_some() { self.ours } else { self.theirs };
        // Each finding has one of them.
        let step = finding.recorded.or(finding.live).unwrap_or_default();
        (index, &index.steps[step as usize])
    }

    /// What a process did first comes first, in whichever run.
    fn position(&self, finding: &Finding) -> (u64, u64) {
        let place = |index: &Index, step: Option<u32>| step.map(|step| index.steps[step as usize].place);
        let (ours, theirs) = (place(self.ours, finding.recorded), place(self.theirs, finding.live));
        let first = [ours, theirs].into_iter().flatten().min().unwrap_or_default();
        (first, theirs.unwrap_or_default())
    }

    /// The stream of which a finding may be the first: a process, a file, or one of a kind.
    fn stream(&self, finding: &Finding) -> (u64, u64) {
        let (index, step) = self.step(finding);
        let process = match finding.recorded {
            Some(_) => u64::from(step.process),
            None => match self.pairs.recorded(step.process) {
                Some(process) => u64::from(process),
                None => u64::from(u32::MAX) + u64::from(step.process),
            },
        };
        // How a process ended follows from what it did; of the command it is told in any case.
        let is_run = index.processes.get(step.process).parent.is_none();
        let apart = step.lane == table::Lane::Settled || (step.lane == table::Lane::End && is_run);
        // What it was given is not what it did: that is told as well.
        let given = if finding.cause == Cause::InputChanged { GIVEN } else { 0 };
        (process, if apart { step.about } else { given })
    }

    /// Finds the class that only the whole entries show.
    fn refined(&mut self, finding: &Finding) -> io::Result<Finding> {
        let (Some(ours), Some(theirs)) = (finding.recorded, finding.live) else { return Ok(*finding) };
        let mut refined = *finding;
        if finding.cause == Cause::ResponseChanged {
            let recorded = self.ours.entry(ours, self.recorded)?;
            let live = self.theirs.entry(theirs, self.live)?;
            let answered = |entry: &Map<String, Value>| {
                entry.get("result").is_some_and(|result| result.get("failure").is_none())
            };
            let fields = fields::differing(&recorded, &live);
            // What a stream's client says is its request.
            if strayed(&live) || fields.iter().any(|field| field.name.ends_with(".said")) {
                refined.cause = Cause::RequestChanged;
            } else if answered(&recorded) && !answered(&live) {
                refined.cause = Cause::ResponseMissing;
            } else if fields::tell_the_time(&fields) {
                refined.cause = Cause::TimeOnly;
            }
        } else if matches!(finding.cause, Cause::CommandChanged | Cause::MissingEffect) {
            let recorded = self.ours.entry(ours, self.recorded)?;
            let live = self.theirs.entry(theirs, self.live)?;
            if fields::are_made_up(&fields::differing(&recorded, &live)) {
                refined.cause = Cause::UncontrolledSource;
            }
        } else if finding.cause == Cause::OutputChanged {
            let recorded = self.ours.entry(ours, self.recorded)?;
            let live = self.theirs.entry(theirs, self.live)?;
            if recorded.get("args").and_then(|args| args.get("stream")).is_some_and(|name| name == "stdin") {
                refined.cause = Cause::InputChanged;
            } else if (self.same_but_for_times)(&recorded, &live) {
                refined.cause = Cause::TimeOnly;
                self.timed.insert((digest(&recorded), digest(&live)));
            }
        } else if finding.cause == Cause::InputChanged && !self.timed.is_empty() {
            let recorded = self.ours.entry(ours, self.recorded)?;
            let live = self.theirs.entry(theirs, self.live)?;
            if self.timed.contains(&(digest(&recorded), digest(&live))) {
                refined.cause = Cause::TimeOnly;
            }
        }
        Ok(refined)
    }

    fn divergence(&mut self, finding: &Finding) -> io::Result<Divergence> {
        let (index, step) = self.step(finding);
        let stream = index.processes.lineage(step.process);
        let (number, op) = (step.number, self.names.op(step.op).to_owned());
        let process = step.process;
        let mut recorded = finding.recorded.map(|step| self.ours.entry(step, self.recorded)).transpose()?;
        let mut live = finding.live.map(|step| self.theirs.entry(step, self.live)).transpose()?;
        let fields = match (&recorded, &live) {
            (Some(recorded), Some(live)) => fields::differing(recorded, live),
            _ => Vec::new(),
        };
        recorded.iter_mut().chain(&mut live).for_each(transcripts::remove);
        let chain = match finding.recorded {
            Some(_) => chain(self.ours, process, self.recorded)?,
            None => chain(self.theirs, process, self.live)?,
        };
        let step = format!("{stream}@{number}");
        Ok(Divergence { stream, step, cause: finding.cause, op, recorded, live, fields, chain })
    }

    fn renamed(&self, (recorded, live): (u32, u32)) -> Renamed {
        Renamed { recorded: self.ours.processes.lineage(recorded), live: self.theirs.processes.lineage(live) }
    }

    fn unseen(&mut self, steps: &[u32]) -> io::Result<Vec<String>> {
        let mut unseen = BTreeSet::new();
        for step in steps {
            let entry = self.ours.entry(*step, self.recorded)?;
            let about = match entry.get("args").and_then(|args| args.get("stream")).and_then(Value::as_str) {
                Some(stream) => stream.to_owned(),
                None => crate::trace::brief::brief(&entry),
            };
            unseen.insert(format!("{} {about}", self.names.op(self.ours.steps[*step as usize].op)));
        }
        Ok(unseen.into_iter().collect())
    }
}

/// Whether a replay found that the agent said something else over a stream than was recorded.
fn strayed(entry: &serde_json::Map<String, Value>) -> bool {
    let kind = entry.get("result").and_then(|result| result.pointer("/failure/kind"));
    kind.is_some_and(|kind| kind == "diverged")
}

/// The digest of the file that an entry is about.
fn digest(entry: &Map<String, Value>) -> String {
    let sha256 = entry.get("args").and_then(|args| args.get("sha256")).and_then(Value::as_str);
    sha256.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
