//! Pairs requests: as the replay says it served them, else by content, in tiers.

use std::collections::{HashMap, VecDeque};

use super::cause::Cause;
use super::index::{Exchange, Index};
use super::matching::{Cut, Finding};
use super::processes::Pairs;

/// How well requests matched.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tiers {
    /// The same bytes count, the same process.
    pub exact: u64,
    /// The same but for dates, ids, boundaries, durations, the order of keys, and secrets.
    pub normalised: u64,
    /// Either of them, by another process or thread.
    pub elsewhere: u64,
}

/// How a request was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tier {
    Exact,
    Normalised,
    Elsewhere,
    Closest,
}

/// Two requests that belong together, by their place in [`Index::exchanges`].
struct Pair {
    recorded: usize,
    live: usize,
    tier: Tier,
}

pub(super) fn match_requests(
    recorded: &Index,
    live: &Index,
    pairs: &Pairs,
    cut: &mut Cut,
) -> (Vec<Finding>, Tiers) {
    let mut matching = Matching {
        recorded,
        live,
        processes: pairs,
        ours: vec![None; recorded.exchanges.len()],
        theirs: vec![false; live.exchanges.len()],
    };
    matching.as_served();
    matching.by_content();
    let found = matching.pairs();
    let mut tiers = Tiers::default();
    let mut findings = matching.left_over(cut);
    for pair in &found {
        match pair.tier {
            Tier::Exact => tiers.exact += 1,
            Tier::Normalised => tiers.normalised += 1,
            Tier::Elsewhere => tiers.elsewhere += 1,
            Tier::Closest => {}
        }
        let (ours, theirs) = (&recorded.exchanges[pair.recorded], &live.exchanges[pair.live]);
        let cause = match pair.tier {
            Tier::Closest => Cause::RequestChanged,
            _ if ours.outcome != theirs.outcome => Cause::ResponseChanged,
            Tier::Normalised | Tier::Elsewhere if differ_in_durations(ours, theirs) => Cause::TimeOnly,
            _ => continue,
        };
        findings.push(Finding { cause, recorded: Some(ours.step), live: Some(theirs.step) });
    }
    findings.extend(matching.reordered(&found));
    (findings, tiers)
}

struct Matching<'a> {
    recorded: &'a Index,
    live: &'a Index,
    processes: &'a Pairs,
    /// The counterpart of each recorded request.
    ours: Vec<Option<(usize, Tier)>>,
    /// Which live requests have one.
    theirs: Vec<bool>,
}

/// A key under which requests are looked for, and the process where that matters.
type Key = (Option<u32>, u128);

impl Matching<'_> {
    /// The process of a live request, by its number in the recorded trace.
    fn process(&self, live: &Exchange) -> Option<u32> {
        self.processes.recorded(self.live.steps[live.step as usize].process)
    }

    fn own_process(&self, recorded: &Exchange) -> u32 {
        self.recorded.steps[recorded.step as usize].process
    }

    /// A replay knows which exchange it served.
    fn as_served(&mut self) {
        let (recorded, live) = (self.recorded, self.live);
        let entry = |exchange: &Exchange| recorded.steps[exchange.step as usize].entry;
        let by_entry: HashMap<u64, usize> =
            recorded.exchanges.iter().enumerate().map(|(at, exchange)| (entry(exchange), at)).collect();
        for (at, exchange) in live.exchanges.iter().enumerate() {
            let Some((entry, tier, _)) = exchange.served else { continue };
            let tier = match tier {
                0 => Tier::Exact,
                1 => Tier::Normalised,
                2 => Tier::Elsewhere,
                _ => Tier::Closest,
            };
            if let Some(served) = by_entry.get(&entry)
                && self.ours[*served].is_none()
            {
                self.ours[*served] = Some((at, tier));
                self.theirs[at] = true;
            }
        }
    }

    fn by_content(&mut self) {
        let whole = |index: &Index, exchange: &Exchange| index.steps[exchange.step as usize].digest;
        let about = |index: &Index, exchange: &Exchange| index.steps[exchange.step as usize].about.into();
        let op = |index: &Index, exchange: &Exchange| index.steps[exchange.step as usize].op.into();
        self.pass(Tier::Exact, true, whole);
        self.pass(Tier::Exact, true, |_, exchange| exchange.exact);
        self.pass(Tier::Normalised, true, |_, exchange| exchange.normal);
        self.pass(Tier::Normalised, true, |_, exchange| exchange.timeless);
        self.pass(Tier::Elsewhere, false, whole);
        self.pass(Tier::Elsewhere, false, |_, exchange| exchange.exact);
        self.pass(Tier::Elsewhere, false, |_, exchange| exchange.normal);
        self.pass(Tier::Elsewhere, false, |_, exchange| exchange.timeless);
        // No longer the same request: the closest there is.
        self.pass(Tier::Closest, true, about);
        self.pass(Tier::Closest, true, op);
    }

    /// Pairs what is still free and has the same key, in the order in which it began.
    fn pass(&mut self, tier: Tier, same_process: bool, key: impl Fn(&Index, &Exchange) -> u128) {
        let mut free: HashMap<Key, VecDeque<usize>> = HashMap::new();
        for at in in_order_of_begin(&self.recorded.exchanges) {
            if self.ours[at].is_none() {
                let exchange = &self.recorded.exchanges[at];
                let process = same_process.then(|| self.own_process(exchange));
                free.entry((process, key(self.recorded, exchange))).or_default().push_back(at);
            }
        }
        for at in in_order_of_begin(&self.live.exchanges) {
            let exchange = &self.live.exchanges[at];
            if self.theirs[at] || (same_process && self.process(exchange).is_none()) {
                continue;
            }
            let process = self.process(exchange).filter(|_| same_process);
            let found = free.get_mut(&(process, key(self.live, exchange))).and_then(VecDeque::pop_front);
            if let Some(found) = found {
                self.ours[found] = Some((at, tier));
                self.theirs[at] = true;
            }
        }
    }

    fn pairs(&self) -> Vec<Pair> {
        let pair = |(recorded, found): (usize, &Option<(usize, Tier)>)| {
            found.map(|(live, tier)| Pair { recorded, live, tier })
        };
        self.ours.iter().enumerate().filter_map(pair).collect()
    }

    fn left_over(&self, cut: &mut Cut) -> Vec<Finding> {
        let missing = self.ours.iter().zip(&self.recorded.exchanges).filter(|(found, _)| found.is_none());
        let in_time = |(_, exchange): &(_, &Exchange)| {
            let is_cut = self.processes.was_cut(self.own_process(exchange));
            cut.recorded.extend(is_cut.then_some(exchange.step));
            !is_cut
        };
        let missing: Vec<_> = missing.filter(in_time).collect();
        let missing = missing.into_iter().map(|(_, exchange)| Finding {
            cause: Cause::MissingEffect,
            recorded: Some(exchange.step),
            live: None,
        });
        let extra = self.theirs.iter().zip(&self.live.exchanges).filter(|(found, _)| !**found);
        let in_time = |(_, exchange): &(_, &Exchange)| {
            let process = self.live.steps[exchange.step as usize].process;
            let is_cut = self.processes.was_cut_live(process);
            cut.live.extend(is_cut.then_some(exchange.step));
            !is_cut
        };
        let extra = extra.filter(in_time).map(|(_, exchange)| Finding {
            cause: Cause::ExtraEffect,
            recorded: None,
            live: Some(exchange.step),
        });
        missing.chain(extra).collect()
    }

    /// Requests of one process that followed each other, and now follow each other the other way round: one was made
    /// when the other had been answered. Those that were under way at the same time have no order.
    fn reordered(&self, found: &[Pair]) -> Vec<Finding> {
        let mut by_process: HashMap<u32, Vec<(&Exchange, &Exchange)>> = HashMap::new();
        for pair in found.iter().filter(|pair| pair.tier < Tier::Elsewhere) {
            let (ours, theirs) = (&self.recorded.exchanges[pair.recorded], &self.live.exchanges[pair.live]);
            let process = self.own_process(ours);
            // Which of several threads or workers comes first is a matter of chance.
            let shared = self.processes.works(process) || self.processes.has_pool(process);
            if !shared && self.process(theirs) == Some(process) {
                by_process.entry(self.own_process(ours)).or_default().push((ours, theirs));
            }
        }
        let mut findings = Vec::new();
        for row in by_process.into_values() {
            let mut ended = row.clone();
            ended.sort_by(|(a, _), (b, _)| a.time.1.total_cmp(&b.time.1));
            let mut begun = row;
            begun.sort_by(|(a, _), (b, _)| a.made.total_cmp(&b.made));
            let mut ended = ended.into_iter().peekable();
            let mut latest = f64::NEG_INFINITY;
            for (ours, theirs) in begun {
                while let Some((_, before)) = ended.next_if(|(before, _)| before.time.1 < ours.made) {
                    latest = latest.max(before.made);
                }
                if theirs.time.1 < latest {
                    let (recorded, live) = (Some(ours.step), Some(theirs.step));
                    findings.push(Finding { cause: Cause::OrderChanged, recorded, live });
                }
            }
        }
        findings
    }
}

/// Whether what one says is what the other says, but for how long something took.
fn differ_in_durations(ours: &Exchange, theirs: &Exchange) -> bool {
    let is_served_so = theirs.served.is_some_and(|(_, _, durations)| durations);
    is_served_so || (ours.normal != theirs.normal && ours.timeless == theirs.timeless)
}

fn in_order_of_begin(exchanges: &[Exchange]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..exchanges.len()).collect();
    order.sort_by(|a, b| exchanges[*a].time.0.total_cmp(&exchanges[*b].time.0));
    order
}
