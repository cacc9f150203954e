//! Finds for each recorded step the live one, stream by stream, and tells what is left over.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::cause::Cause;
use super::index::{Index, Step};
use super::names::Names;
use super::processes::Pairs;
use super::sequence::align;
use super::table::Lane;

/// A difference: steps of either trace, by their number in [`Index::steps`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    pub(super) cause: Cause,
    pub(super) recorded: Option<u32>,
    pub(super) live: Option<u32>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) findings: Vec<Finding>,
    /// Steps that another process or thread did.
    pub(super) elsewhere: u64,
    /// Steps that happened more or fewer times than recorded.
    pub(super) repeats: u64,
    /// Processes in which the order of steps was not compared, by their number in the recorded trace.
    pub(super) unordered: BTreeSet<u32>,
    /// Steps of which one run did not see what it would have to compare.
    pub(super) blind: Vec<u32>,
    /// Steps of processes that were killed in one run, at the end, before they did them.
    pub(super) cut: Cut,
}

/// Such steps.
#[derive(Debug, Default)]
pub(super) struct Cut {
    pub(super) recorded: Vec<u32>,
    pub(super) live: Vec<u32>,
}

impl Cut {
    /// Lineages of those that were killed before they did what they did in the other run.
    pub(super) fn lineages(&self, ours: &Index, theirs: &Index) -> Vec<String> {
        let lineage = |index: &Index, step: u32| {
            let process = index.steps[step as usize].process;
            index.processes.lineage(process)
        };
        let recorded = self.recorded.iter().map(|step| lineage(ours, *step));
        let live = self.live.iter().map(|step| lineage(theirs, *step));
        let all: BTreeSet<_> = recorded.chain(live).filter(|lineage| lineage != "run").collect();
        all.into_iter().collect()
    }
}

/// Which stream a step belongs to: its lane, its process by the number that it has in the recorded trace, its
/// thread.
type Stream = (u8, u64, u32);

/// A step that was not matched.
#[derive(Clone, Copy, Debug)]
struct Loose {
    stream: Stream,
    gap: u32,
    step: u32,
    /// Nothing behind it in its stream was matched.
    is_last: bool,
}

pub(super) fn match_all(recorded: &Index, live: &Index, pairs: &Pairs, names: &Names) -> Found {
    let mut matching =
        Matching { recorded, live, names, found: Found::default(), left: Vec::new(), right: Vec::new() };
    matching.by_stream(pairs);
    matching.reordered();
    matching.elsewhere();
    matching.made_up();
    matching.changed();
    matching.cut_off(pairs);
    matching.rest();
    matching.found
}

struct Matching<'a> {
    recorded: &'a Index,
    live: &'a Index,
    names: &'a Names,
    found: Found,
    left: Vec<Loose>,
    right: Vec<Loose>,
}

/// Whose a step is.
#[derive(Clone, Copy)]
struct Owner {
    /// The number of its process in the recorded trace, or one that no recorded process has.
    process: u64,
    /// The number of its parent, where the process is a worker of a pool.
    pool: Option<u64>,
    /// Whether its threads share out what there is to do.
    has_pool: bool,
}

/// The stream of a step; none of a request.
fn stream(step: &Step, owner: Owner) -> Option<Stream> {
    let Owner { process, pool, has_pool } = owner;
    match step.lane {
        // Which worker gets what is a matter of chance.
        Lane::Ordered | Lane::Any if let Some(pool) = pool => Some((4, pool, 0)),
        Lane::Ordered if has_pool && step.thread > 0 => Some((5, process, 0)),
        Lane::Ordered => Some((0, process, step.thread)),
        Lane::Any => Some((1, process, 0)),
        Lane::End => Some((2, process, 0)),
        // A file may be written by several, and closed by any of them.
        Lane::Settled => Some((3, 0, 0)),
        Lane::Request => None,
    }
}

impl Matching<'_> {
    fn by_stream(&mut self, pairs: &Pairs) {
        let mut streams: BTreeMap<Stream, [Vec<u32>; 2]> = BTreeMap::new();
        for (number, step) in (0..).zip(&self.recorded.steps) {
            let parent =
                self.recorded.processes.get(step.process).parent.filter(|_| pairs.works(step.process));
            let (pool, has_pool) = (parent.map(u64::from), pairs.has_pool(step.process));
            if let Some(stream) = stream(step, Owner { process: step.process.into(), pool, has_pool }) {
                if stream.0 >= 4 {
                    self.found.unordered.insert(step.process);
                }
                streams.entry(stream).or_default()[0].push(number);
            }
        }
        let known = |live: u32| {
            let only_live = u64::from(u32::MAX) + 1 + u64::from(live);
            pairs.recorded(live).map_or(only_live, u64::from)
        };
        for (number, step) in (0..).zip(&self.live.steps) {
            let parent =
                self.live.processes.get(step.process).parent.filter(|_| pairs.works_live(step.process));
            let (pool, has_pool) = (parent.map(known), pairs.has_pool_live(step.process));
            if let Some(stream) = stream(step, Owner { process: known(step.process), pool, has_pool }) {
                streams.entry(stream).or_default()[1].push(number);
            }
        }
        for (stream, [ours, theirs]) in streams {
            if stream.0 == 0 {
                self.in_order(stream, &ours, &theirs);
            } else {
                self.as_a_set(stream, &ours, &theirs);
            }
        }
    }

    fn in_order(&mut self, stream: Stream, ours: &[u32], theirs: &[u32]) {
        let digests = |index: &Index, row: &[u32]| -> Vec<u128> {
            row.iter().map(|step| index.steps[*step as usize].digest).collect()
        };
        let (left, right) = align(&digests(self.recorded, ours), &digests(self.live, theirs));
        let (mut skipped, mut others) = (left.iter().peekable(), right.iter().peekable());
        let mut other = 0;
        for (at, step) in ours.iter().enumerate() {
            if skipped.next_if(|loose| loose.at == at).is_some() {
                continue;
            }
            while others.next_if(|loose| loose.at == other).is_some() {
                other += 1;
            }
            self.same(*step, theirs[other]);
            other += 1;
        }
        let loose = |row: &[u32], all: Vec<super::sequence::Loose>| {
            let tail =
                all.iter().rev().zip((0..row.len()).rev()).take_while(|(one, at)| one.at == *at).count();
            let end = row.len() - tail;
            let one = |one: super::sequence::Loose| Loose {
                stream,
                gap: one.gap,
                step: row[one.at],
                is_last: one.at >= end,
            };
            all.into_iter().map(one).collect::<Vec<_>>()
        };
        self.left.extend(loose(ours, left));
        self.right.extend(loose(theirs, right));
    }

    fn as_a_set(&mut self, stream: Stream, ours: &[u32], theirs: &[u32]) {
        let mut free: HashMap<u128, VecDeque<u32>> = HashMap::new();
        for step in theirs {
            free.entry(self.live.steps[*step as usize].digest).or_default().push_back(*step);
        }
        let mut known = HashSet::new();
        for step in ours {
            let Step { digest, folds, .. } = self.recorded.steps[*step as usize];
            known.insert(digest);
            match free.get_mut(&digest).map(VecDeque::pop_front) {
                Some(Some(other)) => self.same(*step, other),
                // One more worker did it as well.
                Some(None) if folds => self.found.repeats += 1,
                _ => self.left.push(Loose { stream, gap: 0, step: *step, is_last: true }),
            }
        }
        let mut rest: Vec<u32> = free.into_values().flatten().collect();
        rest.retain(|step| {
            let Step { digest, folds, .. } = self.live.steps[*step as usize];
            !(folds && known.contains(&digest))
        });
        rest.sort_unstable();
        self.right.extend(rest.into_iter().map(|step| Loose { stream, gap: 0, step, is_last: true }));
    }

    fn same(&mut self, recorded: u32, live: u32) {
        let (ours, theirs) = (&self.recorded.steps[recorded as usize], &self.live.steps[live as usize]);
        self.found.repeats += u64::from(ours.lane != Lane::Settled && ours.weight != theirs.weight);
        if ours.blind || ours.unread {
            self.found.blind.push(recorded);
        }
    }

    /// Takes out of what is left all pairs for which `key` gives the same.
    fn take<K: Eq + std::hash::Hash>(&mut self, key: impl Fn(&Loose, &Step) -> Option<K>) -> Vec<(u32, u32)> {
        let mut free: HashMap<K, VecDeque<usize>> = HashMap::new();
        for (at, loose) in self.right.iter().enumerate() {
            if let Some(key) = key(loose, &self.live.steps[loose.step as usize]) {
                free.entry(key).or_default().push_back(at);
            }
        }
        let mut taken = vec![false; self.right.len()];
        let mut pairs = Vec::new();
        let (recorded, right) = (self.recorded, &self.right);
        self.left.retain(|loose| {
            let key = key(loose, &recorded.steps[loose.step as usize]);
            let Some(at) = key.and_then(|key| free.get_mut(&key)?.pop_front()) else { return true };
            taken[at] = true;
            pairs.push((loose.step, right[at].step));
            false
        });
        let mut taken = taken.into_iter();
        self.right.retain(|_| !taken.next().unwrap_or_default());
        pairs
    }

    fn find(&mut self, cause: Cause, recorded: Option<u32>, live: Option<u32>) {
        self.found.findings.push(Finding { cause, recorded, live });
    }

    /// The same step at another place of its stream.
    fn reordered(&mut self) {
        for (ours, theirs) in self.take(|loose, step| Some((loose.stream, step.digest))) {
            self.find(Cause::OrderChanged, Some(ours), Some(theirs));
        }
    }

    /// The same step, done by another process or thread: a pool shares its tasks out as it happens.
    fn elsewhere(&mut self) {
        let of_process = |step: &Step| matches!(step.lane, Lane::Ordered | Lane::Any);
        let pairs = self.take(|_, step| of_process(step).then_some(step.digest));
        self.found.elsewhere += pairs.len() as u64;
    }

    /// The same but for names that were made up at random.
    fn made_up(&mut self) {
        let in_gap = self.take(|loose, step| Some((loose.stream, loose.gap, step.alike)));
        let anywhere = self.take(|loose, step| Some((loose.stream, step.alike)));
        for (ours, theirs) in in_gap.into_iter().chain(anywhere) {
            self.find(Cause::UncontrolledSource, Some(ours), Some(theirs));
        }
    }

    /// What is about the same thing, and differs; else the same operation at the same place.
    fn changed(&mut self) {
        let mut pairs = self.take(|loose, step| Some((loose.stream, loose.gap, step.about)));
        pairs.extend(self.take(|loose, step| Some((loose.stream, step.about))));
        for (ours, theirs) in pairs {
            let (step, other) = (&self.recorded.steps[ours as usize], &self.live.steps[theirs as usize]);
            if step.blind || other.blind {
                self.found.blind.push(ours);
            } else {
                self.find(step.cause, Some(ours), Some(theirs));
            }
        }
        let replaced = self.take(|loose, step| (loose.gap > 0).then_some((loose.stream, loose.gap, step.op)));
        for (ours, theirs) in replaced {
            let step = &self.recorded.steps[ours as usize];
            let cause = match step.cause {
                cause @ (Cause::DenialChanged | Cause::CommandChanged) => cause,
                _ => Cause::MissingEffect,
            };
            self.find(cause, Some(ours), Some(theirs));
        }
    }

    /// What a process had no time for in the other run.
    fn cut_off(&mut self, pairs: &Pairs) {
        let Found { cut, .. } = &mut self.found;
        self.left.retain(|loose| {
            let is_cut = loose.is_last && pairs.was_cut(self.recorded.steps[loose.step as usize].process);
            cut.recorded.extend(is_cut.then_some(loose.step));
            !is_cut
        });
        self.right.retain(|loose| {
            let is_cut = loose.is_last && pairs.was_cut_live(self.live.steps[loose.step as usize].process);
            cut.live.extend(is_cut.then_some(loose.step));
            !is_cut
        });
        cut_images(self.names, self.recorded, &mut self.left, &mut cut.recorded);
        cut_images(self.names, self.live, &mut self.right, &mut cut.live);
    }

    fn rest(&mut self) {
        let refused =
            |names: &Names, step: &Step| names.kind(step.op) == "deny" || step.cause == Cause::DenialChanged;
        for loose in std::mem::take(&mut self.left) {
            let is_denial = refused(self.names, &self.recorded.steps[loose.step as usize]);
            let cause = if is_denial { Cause::DenialChanged } else { Cause::MissingEffect };
            self.find(cause, Some(loose.step), None);
        }
        for loose in std::mem::take(&mut self.right) {
            let is_denial = refused(self.names, &self.live.steps[loose.step as usize]);
            let cause = if is_denial { Cause::DenialChanged } else { Cause::ExtraEffect };
            self.find(cause, None, Some(loose.step));
        }
    }
}

/// The digests of programs are entries of the run: one for each program that was cut off is cut off as well. That it
/// was started is an entry of its process, which counts wherever that was not.
fn cut_images(names: &Names, index: &Index, loose: &mut Vec<Loose>, cut: &mut Vec<u32>) {
    let is = |step: u32, op: &str| names.op(index.steps[step as usize].op) == op;
    let mut started = cut.iter().filter(|step| is(**step, "proc.spawn")).count();
    loose.retain(|one| {
        let is_cut = started > 0 && is(one.step, "proc.image");
        started -= usize::from(is_cut);
        cut.extend(is_cut.then_some(one.step));
        !is_cut
    });
}
