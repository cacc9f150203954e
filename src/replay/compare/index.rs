//! A trace as it is compared: for each step a few numbers, and where its line stands.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Read, Seek, SeekFrom};

use serde_json::{Map, Value};

use super::begun::{self, Begun};
use super::cause::Cause;
use super::comparison::MOST_UNHELD;
use super::essence::{Essence, digest, is_empty_input, is_unlinked};
use super::names::Names;
use super::normal;
use super::processes::{ARGV_UNKNOWN, Processes, is_too_deep};
use super::table::Lane;
use super::{beside::Beside, variables};
use crate::trace::{Line, Reader};

/// One step of a run.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Which process, of [`Index::processes`].
    pub(super) process: u32,
    /// Which of its threads; 0 is the main one.
    pub(super) thread: u32,
    /// Its number among the entries of its process, from 1.
    pub(super) number: u32,
    pub(super) lane: Lane,
    /// Kind and operation, of [`Names`].
    pub(super) op: u16,
    /// Digest of what it is about.
    pub(super) about: u64,
    /// Digest of all that counts.
    pub(super) digest: u128,
    /// The same digest, where names that were made up at random are left out.
    pub(super) alike: u64,
    /// Repeats of it are one step.
    pub(super) folds: bool,
    /// What it is called where it differs.
    pub(super) cause: Cause,
    /// The run did not see what it would have to compare.
    pub(super) blind: bool,
    /// What was written could not be read.
    pub(super) unread: bool,
    /// How many events it stands for.
    pub(super) weight: u64,
    /// How many of them count as steps: none of a statement about the run.
    pub(super) counts: bool,
    /// Number of the entry in its trace.
    pub(super) entry: u64,
    /// Where it began, in the trace and in its process: see `begun.rs`.
    pub(super) place: u64,
    pub(super) rank: u32,
    offset: u64,
    length: u32,
}

/// What else is known of a request.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Which step, of [`Index::steps`].
    pub(super) step: u32,
    /// Digest of the request.
    pub(super) exact: u128,
    /// Digest of its normal form.
    pub(super) normal: u128,
    /// The same without durations.
    pub(super) timeless: u128,
    /// Digest of the answer.
    pub(super) outcome: u128,
    /// When it began and ended, in seconds since the epoch.
    pub(super) time: (f64, f64),
    /// When it was made, as far as that is known: with the connection that was opened for it, if there was one.
    pub(super) made: f64,
    /// The recorded entry that was served, how well it fitted, and whether durations differ, where a replay says so.
    pub(super) served: Option<(u64, u64, bool)>,
}

/// Everything of a trace that is compared.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) steps: Vec<Step>,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) processes: Processes,
    /// The arguments of `run.start`.
    pub(super) start: Map<String, Value>,
    /// The script of the command was read as a file that a rule grants.
    pub(super) reads_script: bool,
    /// The names of the variables that were passed.
    pub(super) environment: Option<Value>,
    /// Their values, as far as they were kept and may be read; those of the launcher that they come from.
    pub(super) variables: BTreeMap<String, String>,
    /// What it was told of the machine, and is not held.
    pub(super) unheld: Vec<String>,
    /// Processes whose clock was not read from a tape.
    pub(super) approximate: BTreeSet<String>,
    /// Bytes of a last line that was not finished.
    pub(super) torn: Option<usize>,
    /// Events that count as steps.
    pub(super) events: u64,
    /// Secrets are named by a key that the other run does not have.
    pub(super) masked: bool,
    /// What else is known of the trace.
    beside: Beside,
}

/// What is remembered while a trace is read.
#[derive(Default)]
struct Reading {
    index: Index,
    /// Steps of which repeats are folded.
    folded: HashMap<(u32, u32, u128), u32>,
    /// The last step of each settled file.
    settled: HashMap<u64, u32>,
    /// How often a path was renamed, replaced or deleted.
    lives: HashMap<u64, u32>,
    /// Paths at which nothing is since a file was deleted.
    gone: HashSet<u64>,
    /// Program files that had a digest.
    images: HashSet<u64>,
    begun: Begun,
}

impl Index {
    /// Reads a trace that was verified: what cannot be read is not passed over.
    pub(super) fn read(
        input: &mut (impl Read + Seek),
        beside: Beside,
        names: &mut Names,
    ) -> io::Result<Self> {
        input.seek(SeekFrom::Start(0))?;
        let mut reader = Reader::new(input);
        let mut reading = Reading::default();
        reading.index.beside = beside;
        let mut offset = 0;
        while let Some(line) = reader.next_line()? {
            let bytes = match line {
                Line::Whole(bytes) => bytes,
                Line::Torn(bytes) => {
                    reading.index.torn = Some(bytes.len());
                    break;
                }
                Line::TooLong => return Err(io::ErrorKind::InvalidData.into()),
            };
            let mut entry: Map<String, Value> = serde_json::from_slice(bytes)?;
            if entry.get("proc").and_then(Value::as_str).is_some_and(is_too_deep) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a process has too many ancestors"));
            }
            reading.index.masked |= reading.index.beside.complete(&mut entry);
            reading.take(&entry, (offset, bytes.len()), names);
            offset += bytes.len() as u64 + 1;
        }
        Ok(reading.index)
    }

    /// Reads the entry of a step once more.
    pub(super) fn entry(&self, step: u32, from: &mut (impl Read + Seek)) -> io::Result<Map<String, Value>> {
        let step = &self.steps[step as usize];
        from.seek(SeekFrom::Start(step.offset))?;
        let mut line = vec![0; step.length as usize];
        from.read_exact(&mut line)?;
        let mut entry = serde_json::from_slice(&line)?;
        self.beside.complete(&mut entry);
        Ok(entry)
    }
}

impl Reading {
    fn take(&mut self, entry: &Map<String, Value>, place: (u64, usize), names: &mut Names) {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, op) = (text("kind"), text("op"));
        if kind == "meta" {
            self.note(op, entry);
        }
        let Some(essence) = Essence::of(entry) else { return };
        if self.is_left_out(op, entry) {
            return;
        }
        let what = format!("{kind} {op}");
        let mut step = self.step(entry, &essence, &what, names.number(kind, op), place);
        self.begun.note(entry.get("ts").and_then(Value::as_f64).unwrap_or_default(), &step);
        if step.counts {
            self.index.events = self.index.events.saturating_add(step.weight);
        }
        let rule = essence.rule;
        if op == "fs.open_read" && !self.index.reads_script {
            let script = self.index.start.get("script");
            let args = entry.get("args");
            let named = |name: &str| args.and_then(|args| args.get(name));
            self.index.reads_script =
                script.is_some_and(|script| named("resolved").or_else(|| named("path")) == Some(script));
        }
        if rule.folds {
            let next = self.next();
            let known = self.folded.entry((step.process, step.thread, step.digest)).or_insert(next);
            if *known != next {
                let known = &mut self.index.steps[*known as usize];
                known.weight = known.weight.saturating_add(step.weight);
                return;
            }
        }
        match (rule.lane, op) {
            (Lane::Settled, _) => return self.settle(entry, step),
            (Lane::Request, _) => {
                let exchange = self.exchange(entry, &what, &essence);
                (step.place, step.rank) = self.begun.places(exchange.time.0, &step);
                self.index.exchanges.push(exchange);
            }
            (_, "proc.spawn") => self.index.processes.spawned(step.process, short(step.digest), self.next()),
            (_, "fs.rename" | "fs.delete") => self.end_life(entry),
            _ => {}
        }
        self.index.steps.push(step);
    }

    fn step(
        &mut self,
        entry: &Map<String, Value>,
        essence: &Essence,
        what: &str,
        op: u16,
        (offset, length): (u64, usize),
    ) -> Step {
        let rule = essence.rule;
        let lineage = match entry.get("proc").and_then(Value::as_str) {
            Some(lineage) => lineage,
            None if rule.of_run => "run",
            None => "0",
        };
        let (process, thread) = self.index.processes.of(lineage);
        let number = entry.get("i").and_then(Value::as_u64).unwrap_or_default();
        let about = digest(what, &[&essence.about]);
        let whole = digest(what, &[&essence.about, &essence.more, &essence.outcome]);
        let alike = match essence.without_made_up_names() {
            Some(essence) => digest(what, &[&essence.about, &essence.more, &essence.outcome]),
            None => whole,
        };
        let count = self.index.processes.count((process, thread), number);
        Step {
            process,
            thread,
            number: count,
            lane: rule.lane,
            op,
            folds: rule.folds,
            about: short(about),
            digest: whole,
            alike: short(alike),
            cause: rule.cause,
            blind: is_blind(entry),
            unread: what == "observe fs.write" && entry["args"].get("unreadable").is_some(),
            weight: entry.get("count").and_then(Value::as_u64).unwrap_or(1),
            // A statement about the run is none of its steps.
            counts: !what.starts_with("meta "),
            entry: number,
            place: begun::place(number),
            rank: begun::rank(count),
            offset,
            length: u32::try_from(length).unwrap_or(u32::MAX),
        }
    }

    fn next(&self) -> u32 {
        u32::try_from(self.index.steps.len()).unwrap_or(u32::MAX)
    }

    /// Statements about the run.
    fn note(&mut self, op: &str, entry: &Map<String, Value>) {
        let Some(args) = entry.get("args").and_then(Value::as_object) else { return };
        match op {
            "run.start" => {
                let kept = ["argv", "argv_hex", "cwd", "cwd_hex", "policy_sha256", "script", "script_sha256"]
                    .into_iter();
                let kept = kept.filter_map(|name| Some((name.to_owned(), args.get(name)?.clone())));
                self.index.start = kept.collect();
            }
            "run.cut" => {
                let lineages = args.get("procs").and_then(Value::as_array).into_iter().flatten();
                self.index.processes.cut(lineages.filter_map(|one| one.as_str().map(str::to_owned)));
            }
            "env.pass" => self.index.environment = args.get("names").cloned(),
            "run.replay" => {
                let blobs = self.index.beside.blobs.as_ref();
                self.index.variables = blobs.map(|blobs| variables::read(args, blobs)).unwrap_or_default();
            }
            "machine.file" if args.contains_key("why") && self.index.unheld.len() < MOST_UNHELD => {
                let word = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default();
                self.index.unheld.push(format!("{} ({})", word("path"), word("why")));
            }
            // More reads than were recorded have times that go on at real rate.
            "clock.apart" => {
                let number = |name: &str| args.get(name).and_then(Value::as_u64).unwrap_or_default();
                let lineage = entry.get("proc").and_then(Value::as_str).unwrap_or_default();
                let process = lineage.split(['#', ':']).next().unwrap_or_default();
                if number("read") > number("recorded") {
                    self.index.approximate.insert(process.to_owned());
                }
            }
            "clock.tape" | "clock.uncontrolled"
                if op == "clock.uncontrolled" || args.get("clock").is_some_and(|clock| clock == "shift") =>
            {
                let lineage = entry.get("proc").or_else(|| args.get("proc")).and_then(Value::as_str);
                self.index.approximate.extend(lineage.map(str::to_owned));
            }
            _ => {}
        }
    }

    /// What a file holds for now: what it held before, under this name, no longer counts.
    fn settle(&mut self, entry: &Map<String, Value>, mut step: Step) {
        let path = path(entry, "path");
        let life = self.lives.get(&path).copied().unwrap_or_default();
        let key = path.wrapping_mul(31).wrapping_add(u64::from(life));
        step.about = step.about.wrapping_mul(31).wrapping_add(u64::from(life));
        step.digest = step.digest.wrapping_add(u128::from(life) << 64);
        match self.settled.get(&key) {
            Some(known) => {
                let former = &mut self.index.steps[*known as usize];
                step.weight = step.weight.saturating_add(former.weight);
                *former = step;
            }
            None => {
                self.settled.insert(key, self.next());
                self.index.steps.push(step);
            }
        }
    }

    /// Whether it is left out: what a file holds that lost its name while it was open is seen, or not, by chance.
    fn is_left_out(&mut self, op: &str, entry: &Map<String, Value>) -> bool {
        match op {
            "fs.delete" => _ = self.gone.insert(path(entry, "path")),
            "fs.write" if is_unlinked(entry) => return true,
            "fs.write" => return self.gone.contains(&path(entry, "path")),
            // An older trace has the first digest alone.
            "proc.image" if !self.index.beside.images => return !self.images.insert(path(entry, "path")),
            _ if op.starts_with("fs.") && op != "fs.open_read" => {
                for name in ["path", "to"] {
                    self.gone.remove(&path(entry, name));
                }
            }
            _ => {}
        }
        false
    }

    /// From now on, these names are those of other files.
    fn end_life(&mut self, entry: &Map<String, Value>) {
        for name in ["path", "to"] {
            *self.lives.entry(path(entry, name)).or_default() += 1;
        }
    }

    fn exchange(&self, entry: &Map<String, Value>, what: &str, essence: &Essence) -> Exchange {
        let text = entry.get("args").and_then(|args| args.pointer("/body/text")).and_then(Value::as_str);
        let request: Vec<_> = essence.about.iter().chain(&essence.more).cloned().collect();
        let result = entry.get("result");
        let number = |pointer: &str| result?.pointer(pointer)?.as_f64();
        let recorded = entry.get("ts").and_then(Value::as_f64).unwrap_or_default();
        let end = number("/timing/end").unwrap_or(recorded);
        let begin = number("/timing/start").or_else(|| Some(end - number("/seconds")?)).unwrap_or(end);
        let served = result.and_then(|result| result.get("replayed")).and_then(|served| {
            let number = |name: &str| served.get(name)?.as_u64();
            Some((number("entry")?, number("tier")?, served.get("durations").is_some()))
        });
        let normal = normal::request(&request, text);
        Exchange {
            step: self.next(),
            exact: digest(what, &[&request]),
            normal: digest(what, &[&normal]),
            timeless: digest(what, &[&normal::without_durations(normal)]),
            outcome: digest(what, &[&essence.outcome]),
            time: (begin, end),
            made: number("/timing/opened").map_or(begin, |opened| opened.min(begin)),
            served,
        }
    }
}

/// Whether the entry says itself that it does not say what there was.
fn is_blind(entry: &Map<String, Value>) -> bool {
    let Some(args) = entry.get("args").and_then(Value::as_object) else { return false };
    let uncovered = args.get("covered").is_some_and(|covered| covered == false);
    (uncovered && !is_empty_input(args)) || args.get("undigested").is_some()
}

/// Digest of a path that an entry names: where it led, rather than how it was spelled.
fn path(entry: &Map<String, Value>, name: &str) -> u64 {
    let args = entry.get("args");
    let value = |name: &str| args.and_then(|args| args.get(name));
    let resolved = if name == "path" { value("resolved") } else { None };
    let value = resolved.or_else(|| value(name)).cloned().unwrap_or_default();
    short(digest("path", &[&[(String::new(), value)]]))
}

fn short(digest: u128) -> u64 {
    let [low, _] = [digest, digest >> 64].map(|half| (half & u128::from(u64::MAX)).try_into().unwrap_or(0));
    if low == ARGV_UNKNOWN { !ARGV_UNKNOWN } else { low }
}
