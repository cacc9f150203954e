//! Who was made by whom: exact, for tasks that are followed from their birth.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use sha2::{Digest as _, Sha256};

/// Longest lineage that is carried on, in bytes: each fork adds to it, and all are remembered.
const LINEAGE: usize = 256;
/// Longest name of a thread that is carried on: each that a thread makes adds to it.
const THREAD: usize = 64;

/// What one thread of one program does: the same name in each run of the same command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::supervisor) struct Strand {
    /// `0` for the command, `0.2` for its third child.
    pub(in crate::supervisor) process: String,
    /// How many programs the process has become since it was made; the command itself is 0.
    pub(in crate::supervisor) program: u32,
    /// Which of the program's threads: `3` for the third that the main one has made, `3.1` for the first that
    /// this one has made, nothing for the main one.
    pub(in crate::supervisor) thread: String,
}

impl Strand {
    /// As entries of the trace name it.
    pub(in crate::supervisor) fn label(&self) -> String {
        match self.thread.as_str() {
            "" => self.process.clone(),
            thread => format!("{}#{thread}", self.process),
        }
    }
}

/// As tapes are named: `0.2:1#3`.
impl fmt::Display for Strand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.process)?;
        if self.program > 0 {
            write!(formatter, ":{}", self.program)?;
        }
        if !self.thread.is_empty() {
            write!(formatter, "#{}", self.thread)?;
        }
        Ok(())
    }
}

/// The numbers of the children that a process has made.
#[derive(Debug, Default)]
struct Numbers {
    /// The lowest that none has.
    next: u32,
    /// Those above that some have.
    above: BTreeSet<u32>,
}

impl Numbers {
    fn is_free(&self, number: u32) -> bool {
        number >= self.next && !self.above.contains(&number)
    }

    fn take(&mut self, number: u32) {
        self.above.insert(number);
        while self.above.remove(&self.next) {
            self.next += 1;
        }
    }
}

/// A process that lives.
#[derive(Debug)]
struct Process {
    lineage: String,
    /// Who has made it.
    parent: i32,
    /// It has lived beside another child of its parent.
    is_beside: bool,
    children: Numbers,
    /// Programs that it has become since it was made.
    programs: u32,
    /// Threads that its main thread has made.
    threads: u32,
    /// Random draws of the main thread, or of all.
    draws: u64,
    /// All threads draw as one.
    shares_draws: bool,
}

/// A thread other than the main one.
#[derive(Debug)]
struct Thread {
    process: i32,
    /// Which of its program's threads.
    name: String,
    /// Threads that it has made.
    threads: u32,
    draws: u64,
}

impl Process {
    fn new(lineage: String, parent: i32, is_beside: bool) -> Self {
        Self {
            lineage,
            parent,
            is_beside,
            children: Numbers::default(),
            programs: 0,
            threads: 0,
            draws: 0,
            shares_draws: false,
        }
    }

    /// The lineage of its child of this number.
    fn child(&self, number: u32) -> String {
        shortened(format!("{}.{number}", self.lineage))
    }
}

/// The tasks of a run that live.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct Kin {
    /// By process id.
    processes: HashMap<i32, Process>,
    /// By thread id.
    threads: HashMap<i32, Thread>,
    /// Who makes a child of another number than the next.
    chosen: HashMap<i32, u32>,
    orphans: u32,
    /// The command itself was executed.
    started: bool,
}

impl Kin {
    /// The process of this task; `None` for one that was not followed.
    pub(in crate::supervisor) fn process_of(&self, task: i32) -> Option<i32> {
        match self.threads.get(&task) {
            Some(thread) => Some(thread.process),
            None => self.processes.contains_key(&task).then_some(task),
        }
    }

    /// Every task that lives, with its process.
    pub(in crate::supervisor) fn tasks(&self) -> Vec<(i32, i32)> {
        let others = self.threads.iter().map(|(task, thread)| (*task, thread.process));
        self.processes.keys().map(|process| (*process, *process)).chain(others).collect()
    }

    /// Whether the command has made no process yet.
    pub(in crate::supervisor) fn is_alone(&self) -> bool {
        let makes_none = |process: &Process| process.children.next == 0 && process.children.above.is_empty();
        self.orphans == 0 && self.processes.len() == 1 && self.processes.values().all(makes_none)
    }

    /// A thread of this process other than the main one.
    pub(in crate::supervisor) fn thread_of(&self, process: i32) -> Option<i32> {
        self.threads.iter().find(|(_, thread)| thread.process == process).map(|(id, _)| *id)
    }

    /// What this task does.
    pub(in crate::supervisor) fn strand(&self, task: i32) -> Option<Strand> {
        let own = self.threads.get(&task);
        let (id, thread) = own.map_or((task, String::new()), |own| (own.process, own.name.clone()));
        let process = self.processes.get(&id)?;
        Some(Strand { process: process.lineage.clone(), program: process.programs, thread })
    }

    /// The command's process, before anything else is there.
    pub(in crate::supervisor) fn begin(&mut self, process: i32) -> bool {
        let first = self.processes.is_empty() && self.orphans == 0;
        if first {
            self.processes.insert(process, Process::new("0".to_owned(), 0, false));
        }
        first
    }

    /// What the next process or thread that this task makes will be called.
    pub(in crate::supervisor) fn next_child(&self, maker: i32, is_thread: bool) -> Option<String> {
        let process = self.processes.get(&self.process_of(maker)?)?;
        if !is_thread {
            return Some(process.child(self.number_of(maker, process)));
        }
        let Process { lineage, programs, .. } = process;
        let thread = self.next_thread(maker, process);
        Some(Strand { process: lineage.clone(), program: *programs, thread }.to_string())
    }

    /// The number of the next child of a process that this task of it makes.
    fn number_of(&self, maker: i32, process: &Process) -> u32 {
        self.chosen.get(&maker).copied().unwrap_or(process.children.next)
    }

    /// Whether no child has this number of the process of this task, where others of its tasks may make some as well.
    pub(in crate::supervisor) fn free_children(&self, maker: i32) -> Option<impl Fn(u32) -> bool> {
        let id = self.process_of(maker)?;
        self.thread_of(id)?;
        let children = &self.processes.get(&id)?.children;
        Some(|number| children.is_free(number))
    }

    /// The child that this task makes next has this number; none: the next.
    pub(in crate::supervisor) fn choose(&mut self, maker: i32, number: Option<u32>) {
        match number {
            Some(number) => self.chosen.insert(maker, number),
            None => self.chosen.remove(&maker),
        };
    }

    /// What the next thread of this task will be called among those of the process.
    fn next_thread(&self, maker: i32, process: &Process) -> String {
        match self.threads.get(&maker) {
            Some(thread) => shortened_to(format!("{}.{}", thread.name, thread.threads + 1), THREAD, ""),
            None => (process.threads + 1).to_string(),
        }
    }

    /// A task has made a process. One that is gone already counts as well.
    pub(in crate::supervisor) fn forked(&mut self, maker: i32, child: i32, lives: bool) {
        let parent = self.process_of(maker).unwrap_or(maker);
        let chosen = self.chosen.remove(&maker);
        let Some(process) = self.processes.get_mut(&parent) else { return self.adopt(child) };
        let number = chosen.unwrap_or(process.children.next);
        let lineage = process.child(number);
        process.children.take(number);
        if lives {
            self.threads.remove(&child);
            let mut is_beside = false;
            for sibling in self.processes.values_mut().filter(|process| process.parent == parent) {
                (sibling.is_beside, is_beside) = (true, true);
            }
            self.processes.insert(child, Process::new(lineage, parent, is_beside));
        }
    }

    /// A task has made a thread of its process.
    pub(in crate::supervisor) fn cloned(&mut self, maker: i32, child: i32, lives: bool) {
        let Some(id) = self.process_of(maker) else { return self.adopt(child) };
        let Some(name) = self.processes.get(&id).map(|process| self.next_thread(maker, process)) else {
            return;
        };
        match (self.threads.get_mut(&maker), self.processes.get_mut(&id)) {
            (Some(thread), _) => thread.threads += 1,
            (None, Some(process)) => process.threads += 1,
            (None, None) => {}
        }
        if lives {
            self.processes.remove(&child);
            self.threads.insert(child, Thread { process: id, name, threads: 0, draws: 0 });
        }
    }

    /// A process whose maker was killed before it could be asked: which child of whom it is cannot be
    /// known.
    pub(in crate::supervisor) fn adopt(&mut self, process: i32) {
        self.processes.insert(process, Process::new(format!("0.~{}", self.orphans), 0, false));
        self.orphans += 1;
    }

    /// Task `former` has executed a program, and is the main thread of process `process` now.
    pub(in crate::supervisor) fn executed(&mut self, former: i32, process: i32) {
        self.threads.remove(&former);
        if !self.processes.contains_key(&process) {
            self.adopt(process);
        }
        if let Some(process) = self.processes.get_mut(&process) {
            process.programs += u32::from(self.started);
            process.threads = 0;
            process.draws = 0;
            process.shares_draws = false;
            self.started = true;
        }
    }

    /// Whether all threads of the process draw random bytes as one, from now on.
    pub(in crate::supervisor) fn share_draws(&mut self, process: i32, shared: bool) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.shares_draws = shared;
        }
    }

    /// Whether all threads of the process of this task draw so: what they run moves from one to another.
    pub(super) fn shares_draws(&self, task: i32) -> bool {
        let process = self.process_of(task).and_then(|process| self.processes.get(&process));
        process.is_some_and(|process| process.shares_draws)
    }

    /// Who draws where `task` asks: its thread, or its process.
    pub(in crate::supervisor) fn drawer(&mut self, task: i32) -> Option<Strand> {
        let mut strand = self.strand(task)?;
        let shared = self.processes.get(&self.process_of(task)?)?.shares_draws;
        if shared || !self.threads.contains_key(&task) {
            strand.thread.clear();
        }
        Some(strand)
    }

    /// Counts a draw of random bytes: who draws, and which of its draws it is.
    pub(in crate::supervisor) fn draw(&mut self, task: i32) -> Option<(Strand, u64)> {
        let strand = self.drawer(task)?;
        let id = self.process_of(task)?;
        let process = self.processes.get_mut(&id)?;
        let draws = match self.threads.get_mut(&task) {
            Some(thread) if !process.shares_draws => &mut thread.draws,
            _ => &mut process.draws,
        };
        *draws += 1;
        Some((strand, *draws - 1))
    }

    /// The lineage of the process whose main thread this task is.
    pub(in crate::supervisor) fn lineage(&self, task: i32) -> Option<String> {
        self.processes.get(&task).map(|process| process.lineage.clone())
    }

    /// Who is left when this task ends, if it is the command: they are killed where they happen to be.
    pub(in crate::supervisor) fn left_by(&self, task: i32) -> Vec<String> {
        if self.processes.get(&task).is_none_or(|process| process.lineage != "0") {
            return Vec::new();
        }
        let others = self.processes.iter().filter(|(id, _)| **id != task);
        let mut left: Vec<_> = others.map(|(_, process)| process.lineage.clone()).collect();
        left.sort();
        left
    }

    /// The parent of this process, where it has lived beside another child of that.
    pub(in crate::supervisor) fn parent_of_several(&self, process: i32) -> Option<i32> {
        self.processes.get(&process).filter(|process| process.is_beside).map(|process| process.parent)
    }

    /// Who has made a process, where that lives.
    pub(in crate::supervisor) fn parent(&self, process: i32) -> Option<i32> {
        let parent = self.processes.get(&process)?.parent;
        self.processes.contains_key(&parent).then_some(parent)
    }

    /// The children of a process.
    pub(in crate::supervisor) fn children_of(&self, process: i32) -> impl Iterator<Item = i32> {
        let own = self.processes.iter().filter(move |(_, child)| child.parent == process);
        own.map(|(child, _)| *child)
    }

    /// Whether a child of it has not become another program yet.
    pub(in crate::supervisor) fn has_young_child(&self, process: i32) -> bool {
        self.processes.values().any(|child| child.parent == process && child.programs == 0)
    }

    /// Tasks of a process.
    pub(in crate::supervisor) fn tasks_of(&self, process: i32) -> impl Iterator<Item = i32> {
        let main = self.processes.contains_key(&process).then_some(process);
        let others = self.threads.iter().filter(move |(_, thread)| thread.process == process);
        main.into_iter().chain(others.map(|(task, _)| *task))
    }

    /// A task has ended; of a process, the main thread is the last.
    pub(in crate::supervisor) fn ended(&mut self, task: i32) {
        if self.threads.remove(&task).is_none() {
            self.processes.remove(&task);
        }
    }
}

/// A lineage that can be carried on: the same for the same row of ancestors.
fn shortened(lineage: String) -> String {
    shortened_to(lineage, LINEAGE, "0.")
}

/// A name of at most so many bytes, else a digest of it behind `head`.
fn shortened_to(name: String, most: usize, head: &str) -> String {
    if name.len() <= most {
        return name;
    }
    let digest = Sha256::digest(name.as_bytes());
    let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{head}~{digits}")
}

#[cfg(test)]
mod tests;
