//! The processes of a trace, and which of one trace is which of the other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Stands for the argv of a process that never started a program: a child that only forked.
pub(super) const ARGV_UNKNOWN: u64 = 0;

/// One process, or the run itself.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// Its place among the children of its parent: `2` of `0.2`.
    place: Box<str>,
    pub(super) parent: Option<u32>,
    /// Digest of what it first started.
    argv: u64,
    /// The step in which it started that.
    pub(super) spawn: Option<u32>,
    entries: u32,
    /// Its first and its last entry, by their numbers in the trace.
    pub(super) from: u64,
    to: u64,
    /// Its threads other than the main one.
    threads: BTreeSet<u32>,
}

/// All processes of a trace, in the order in which they are first named.
#[derive(Debug, Default)]
pub(super) struct Processes {
    all: Vec<Process>,
    /// By parent and place: the lineage of each of many ancestors would fill the memory.
    known: HashMap<(Option<u32>, Box<str>), u32>,
    /// What stands in `proc`, once it was taken apart.
    spelled: HashMap<String, (u32, u32)>,
    /// Lineages of those that were killed when the command had ended.
    cut: HashSet<String>,
}

impl Processes {
    /// The process and the thread that `proc` names.
    pub(super) fn of(&mut self, proc: &str) -> (u32, u32) {
        if let Some(found) = self.spelled.get(proc) {
            return *found;
        }
        let (process, thread) = proc.split_once('#').unwrap_or((proc, ""));
        let process = process.split(':').next().unwrap_or_default();
        let found = (self.number(process), thread_number(thread));
        self.spelled.insert(proc.to_owned(), found);
        found
    }

    fn number(&mut self, lineage: &str) -> u32 {
        let mut process = None;
        for place in lineage.split('.') {
            process = Some(self.child(process, place));
        }
        process.unwrap_or_default()
    }

    fn child(&mut self, parent: Option<u32>, place: &str) -> u32 {
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let number = *self.known.entry((parent, place.into())).or_insert(next);
        if number == next {
            self.all.push(Process {
                place: place.into(),
                parent,
                argv: ARGV_UNKNOWN,
                spawn: None,
                entries: 0,
                from: u64::MAX,
                to: 0,
                threads: BTreeSet::new(),
            });
        }
        number
    }

    /// The process that `lineage` names, if the trace does.
    pub(super) fn find(&self, lineage: &str) -> Option<u32> {
        let mut process = None;
        for place in lineage.split('.') {
            process = Some(*self.known.get(&(process, place.into()))?);
        }
        process
    }

    /// Whether it is the launcher.
    pub(super) fn is_of_run(&self, process: u32) -> bool {
        let process = self.get(process);
        process.parent.is_none() && &*process.place == "run"
    }

    /// As `0.2`, without thread.
    pub(super) fn lineage(&self, process: u32) -> String {
        let mut places = Vec::new();
        let mut next = Some(process);
        while let Some(process) = next {
            let process = self.get(process);
            places.push(&*process.place);
            next = process.parent;
        }
        places.reverse();
        places.join(".")
    }

    /// Counts an entry of a process, and gives its number; `entry` is its number in the trace.
    pub(super) fn count(&mut self, (process, thread): (u32, u32), entry: u64) -> u32 {
        let process = &mut self.all[process as usize];
        process.entries += 1;
        process.from = process.from.min(entry);
        process.to = process.to.max(entry);
        if thread > 0 {
            process.threads.insert(thread);
        }
        process.entries
    }

    /// A program was started by a process.
    pub(super) fn spawned(&mut self, process: u32, argv: u64, step: u32) {
        let process = &mut self.all[process as usize];
        if process.spawn.is_none() {
            (process.argv, process.spawn) = (argv, Some(step));
        }
    }

    /// These were killed when the command had ended.
    pub(super) fn cut(&mut self, lineages: impl Iterator<Item = String>) {
        self.cut.extend(lineages);
    }

    /// Which processes were killed in the other run when the command had ended there, or the one that would have made
    /// them was: so what they did further is not there.
    fn are_cut(&self, other: &Self, counterpart: impl Fn(u32) -> Option<u32>) -> Vec<bool> {
        let named =
            |all: &Self| -> HashSet<u32> { other.cut.iter().filter_map(|one| all.find(one)).collect() };
        let (theirs, ours) = (named(other), named(self));
        let mut cut: Vec<bool> = Vec::with_capacity(self.all.len());
        for (number, process) in (0..).zip(&self.all) {
            cut.push(match counterpart(number) {
                Some(found) => theirs.contains(&found),
                // A parent has its number before its children.
                None => ours.contains(&number) || process.parent.is_some_and(|parent| cut[parent as usize]),
            });
        }
        cut
    }

    pub(super) fn get(&self, process: u32) -> &Process {
        &self.all[process as usize]
    }

    /// Whether it never started a program: it was forked, as the workers of a pool are.
    pub(super) fn only_forked(&self, process: u32) -> bool {
        self.get(process).argv == ARGV_UNKNOWN
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    fn children(&self) -> BTreeMap<Option<u32>, Vec<u32>> {
        let mut children: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        for (number, process) in (0..).zip(&self.all) {
            children.entry(process.parent).or_default().push(number);
        }
        children
    }
}

impl Process {
    /// Whether threads of it share out what there is to do.
    fn has_pool(&self) -> bool {
        self.threads.len() > 1
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.from < other.to && other.from < self.to
    }
}

impl Processes {
    /// Which processes are workers of a pool: siblings that run the same, at the same time.
    fn workers(&self) -> Vec<bool> {
        let mut alike: HashMap<(Option<u32>, u64), Vec<u32>> = HashMap::new();
        for (number, process) in (0..).zip(&self.all).filter(|(_, process)| process.parent.is_some()) {
            alike.entry((process.parent, process.argv)).or_default().push(number);
        }
        let mut workers = vec![false; self.all.len()];
        for mut siblings in alike.into_values() {
            siblings.sort_by_key(|number| self.get(*number).from);
            for pair in siblings.windows(2) {
                if let [one, other] = pair
                    && self.get(*one).overlaps(self.get(*other))
                {
                    workers[*one as usize] = true;
                    workers[*other as usize] = true;
                }
            }
        }
        workers
    }
}

/// Which process of the recorded trace is which of the live one.
#[derive(Debug)]
pub(super) struct Pairs {
    to_live: Vec<Option<u32>>,
    to_recorded: Vec<Option<u32>>,
    /// Those that were found by what they started, under another lineage.
    pub(super) renamed: Vec<(u32, u32)>,
    /// Which recorded and which live processes are workers of a pool.
    workers: [Vec<bool>; 2],
    /// In which of them threads are.
    pools: [Vec<bool>; 2],
    /// Which of them were cut off in the other run.
    cut: [Vec<bool>; 2],
}

impl Pairs {
    pub(super) fn new(recorded: &Processes, live: &Processes) -> Self {
        let mut pairs = Self {
            to_live: vec![None; recorded.len()],
            to_recorded: vec![None; live.len()],
            renamed: Vec::new(),
            workers: [recorded.workers(), live.workers()],
            pools: [recorded, live].map(|all| all.all.iter().map(Process::has_pool).collect()),
            cut: [Vec::new(), Vec::new()],
        };
        let (ours, theirs) = (recorded.children(), live.children());
        let mut parents = vec![(None, None)];
        let none = Vec::new();
        while let Some((parent, other)) = parents.pop() {
            let (these, those) = (ours.get(&parent).unwrap_or(&none), theirs.get(&other).unwrap_or(&none));
            pairs.siblings((recorded, these), (live, those));
            let found = these.iter().filter_map(|process| Some((*process, pairs.live(*process)?)));
            parents.extend(found.map(|(process, other)| (Some(process), Some(other))));
        }
        pairs.cut = [
            recorded.are_cut(live, |one| pairs.live(one)),
            live.are_cut(recorded, |one| pairs.recorded(one)),
        ];
        // A pool that looks like one in either run is one in both.
        for (process, other) in pairs.to_live.iter().enumerate() {
            let Some(other) = *other else { continue };
            for [ours, theirs] in [&mut pairs.workers, &mut pairs.pools] {
                let one = &mut ours[process];
                let counterpart = &mut theirs[other as usize];
                *one |= *counterpart;
                *counterpart = *one;
            }
        }
        pairs
    }

    /// Pairs the children of one process: by place and program, by program alone, by place alone.
    fn siblings(&mut self, (recorded, these): (&Processes, &[u32]), (live, those): (&Processes, &[u32])) {
        for by in [(true, true), (false, true), (true, false)] {
            let key = |processes: &Processes, number: u32| {
                let process = processes.get(number);
                let place = if by.0 { process.place.clone() } else { Box::default() };
                (place, if by.1 { process.argv } else { ARGV_UNKNOWN })
            };
            let mut free: HashMap<(Box<str>, u64), Vec<u32>> = HashMap::new();
            for other in those.iter().rev().filter(|other| self.recorded(**other).is_none()) {
                free.entry(key(live, *other)).or_default().push(*other);
            }
            for process in these {
                let nameless = !by.0 && recorded.get(*process).argv == ARGV_UNKNOWN;
                if nameless || self.live(*process).is_some() {
                    continue;
                }
                if let Some(other) = free.get_mut(&key(recorded, *process)).and_then(Vec::pop) {
                    self.to_live[*process as usize] = Some(other);
                    self.to_recorded[other as usize] = Some(*process);
                    if !by.0 {
                        self.renamed.push((*process, other));
                    }
                }
            }
        }
    }

    pub(super) fn live(&self, recorded: u32) -> Option<u32> {
        self.to_live[recorded as usize]
    }

    /// Whether a recorded process is a worker of a pool.
    pub(super) fn works(&self, recorded: u32) -> bool {
        self.workers[0][recorded as usize]
    }

    /// The same of a live one.
    pub(super) fn works_live(&self, live: u32) -> bool {
        self.workers[1][live as usize]
    }

    /// Whether threads of a recorded process share out what there is to do.
    pub(super) fn has_pool(&self, recorded: u32) -> bool {
        self.pools[0][recorded as usize]
    }

    /// The same of a live one.
    pub(super) fn has_pool_live(&self, live: u32) -> bool {
        self.pools[1][live as usize]
    }

    /// Whether a recorded process was cut off in the live run.
    pub(super) fn was_cut(&self, recorded: u32) -> bool {
        self.cut[0][recorded as usize]
    }

    /// Whether a live process was cut off in the recorded run.
    pub(super) fn was_cut_live(&self, live: u32) -> bool {
        self.cut[1][live as usize]
    }

    pub(super) fn recorded(&self, live: u32) -> Option<u32> {
        self.to_recorded[live as usize]
    }
}

/// Whether `proc` has more ancestors than any run could give it.
pub(super) fn is_too_deep(proc: &str) -> bool {
    /// As many tasks as a run has at once, and twice that.
    const MOST: usize = 1 << 16;
    proc.bytes().filter(|byte| *byte == b'.').count() > MOST
}

/// The number of a thread in its process, the same in each trace: `3` of the main one, `3.1` of the third.
fn thread_number(name: &str) -> u32 {
    let hashed = || {
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    };
    if name.is_empty() { 0 } else { name.parse().unwrap_or_else(|_| hashed() | 1 << 31) }
}
#[cfg(test)]
mod tests {
    use super::*;

    fn processes(rows: &[(&str, u64)]) -> Processes {
        let mut processes = Processes::default();
        for (lineage, argv) in rows {
            let (process, _) = processes.of(lineage);
            if *argv != ARGV_UNKNOWN {
                processes.spawned(process, *argv, 0);
            }
        }
        processes
    }

    #[test]
    fn a_lineage_is_taken_apart() {
        let mut processes = Processes::default();
        let (process, thread) = processes.of("0.2:3#4");
        assert_eq!((processes.lineage(process).as_str(), thread), ("0.2", 4));
        assert_eq!(processes.of("0.2"), (process, 0));
        assert_eq!(processes.lineage(processes.get(process).parent.expect("a parent")), "0");
    }

    #[test]
    fn children_that_swapped_places_are_found_by_what_they_run() {
        let recorded = processes(&[("0", 1), ("0.0", 10), ("0.1", 20), ("0.2", 30), ("0.1.0", 5)]);
        let live = processes(&[("0", 1), ("0.0", 20), ("0.1", 10), ("0.2", 31), ("0.0.0", 5)]);
        let pairs = Pairs::new(&recorded, &live);
        let name = |lineage: &str| {
            let process = recorded.find(lineage).expect("it is named");
            pairs.live(process).map(|other| live.lineage(other))
        };
        assert_eq!(
            [name("0.0"), name("0.1"), name("0.2"), name("0.1.0")],
            ["0.1", "0.0", "0.2", "0.0.0"].map(|lineage| Some(lineage.to_owned()))
        );
        assert_eq!(pairs.renamed.len(), 2);
    }
}
