//! Which child of its process a thread is about to make: the recorded one that began with the arguments that it holds.
//!
//! Children have their names by number, as their process makes them, and threads come to that in another order each
//! time. But who makes a process to run a program has its arguments in memory by then, and a pointer to them in a
//! register or on top of its stack: so do posix_spawn(3), `subprocess` of Python and `os/exec` of Go. In a replay the
//! child gets the number of the one that began with them; of several, or where none is found, of one that the same
//! thread has made; else the next. Go moves what it runs from thread to thread: of several of its children it is the
//! first. Nothing but the name depends on it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value};

use super::super::arguments::read_words;
use super::kin::Kin;
use crate::sys::memory;
use crate::sys::tracee::{self, Registers};
use crate::trace::display_bytes;

/// Starts that are kept.
const MOST: usize = 1 << 16;
/// Bytes of the stack that are looked at.
const STACK: usize = 4096;
/// The longest name by which a program is called.
const NAME: usize = 4096;
/// Interpreters and their options stand before the name of a script.
const NAMES: usize = 12;
/// What is read of what looks like arguments: who can write it there may leave much.
const READS: usize = 16;

/// What a child began with.
#[derive(Debug, PartialEq, Eq)]
struct Start {
    words: Vec<String>,
    /// The kernel has put an interpreter before them.
    is_script: bool,
}

impl Start {
    /// Whether a program that is called so may be this one.
    fn is_called(&self, name: &str) -> bool {
        let is_so = |word: &String| word == name || (self.is_script && file_of(word) == file_of(name));
        self.words.iter().take(if self.is_script { NAMES } else { 1 }).any(is_so)
    }

    /// Whether it began with these words.
    fn is_of(&self, words: &[String]) -> bool {
        let Some(((name, arguments), place)) =
            words.split_first().zip(self.words.len().checked_sub(words.len()))
        else {
            return false;
        };
        let [own, rest @ ..] = &self.words[place..] else { return false };
        let is_same = if place == 0 { own == name } else { self.is_script && file_of(own) == file_of(name) };
        is_same && rest == arguments
    }
}

fn file_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// What is recorded of a child.
#[derive(Debug, Default)]
struct Child {
    start: Option<Start>,
    /// Which thread has made it; nothing for the main one.
    maker: String,
}

/// What is recorded of the children of each process, by their numbers.
#[derive(Debug, Default)]
pub struct Starts {
    by_parent: HashMap<String, BTreeMap<u32, Child>>,
    count: usize,
}

impl Starts {
    /// The place of `process` among the children of its parent.
    fn of(&mut self, process: &str) -> Option<&mut Child> {
        let (parent, number) = process.rsplit_once('.').filter(|(parent, _)| !parent.contains('#'))?;
        let number = number.parse().ok()?;
        self.count += 1;
        let is_full = self.count > MOST;
        (!is_full).then(|| self.by_parent.entry(parent.to_owned()).or_default().entry(number).or_default())
    }

    /// Adds what an entry `proc.spawn` says of `process`; of each the first counts.
    pub fn add(&mut self, process: &str, args: &Map<String, Value>) {
        let Some(child) = self.of(process) else { return };
        let words = args.get("argv").and_then(Value::as_array).into_iter().flatten();
        let words = words.filter_map(|word| Some(word.as_str()?.to_owned())).collect();
        child.start.get_or_insert_with(|| Start { words, is_script: args.contains_key("script") });
    }

    /// Adds that there was a task of this name, if that is a process: not each becomes a program.
    pub(super) fn is_made(&mut self, name: &str) {
        self.of(name);
    }

    /// Adds that a thread has made `process`.
    pub(super) fn made(&mut self, process: &str, thread: &str) {
        if let Some(child) = self.of(process) {
            thread.clone_into(&mut child.maker);
        }
    }

    /// Chooses the number of the child that `maker`, which stands before the call that makes it, is about to make.
    pub(super) fn choose(&self, kin: &mut Kin, maker: i32) {
        let number = kin.strand(maker).and_then(|strand| {
            let is_free = kin.free_children(maker)?;
            let children = self.by_parent.get(&strand.process)?.iter();
            let free: Vec<_> = children.filter(|(number, _)| is_free(**number)).collect();
            let words = ready_words(maker, free.iter().filter_map(|(_, child)| child.start.as_ref()));
            let thread = (!kin.shares_draws(maker)).then_some(strand.thread.as_str());
            pick(&free, words.as_deref(), thread)
        });
        kin.choose(maker, number);
    }
}

/// Which of the children that are not made yet is made, with these words and by this thread, as far as that is known.
fn pick(free: &[(&u32, &Child)], words: Option<&[String]>, thread: Option<&str>) -> Option<u32> {
    let is_of = |start: &Start| words.is_none_or(|words| start.is_of(words));
    let fits = |child: &Child| child.start.as_ref().map_or_else(|| words.is_none(), is_of);
    let mut fitting = free.iter().filter(|(_, child)| fits(child)).peekable();
    let first = fitting.peek().filter(|_| words.is_some()).map(|(number, _)| **number);
    let own = thread.and_then(|thread| fitting.find(|(_, child)| child.maker == thread));
    own.map(|(number, _)| **number).or(first)
}

/// The arguments that a task holds of one of these starts, where they are not all the same.
fn ready_words<'a>(task: i32, starts: impl Iterator<Item = &'a Start>) -> Option<Vec<String>> {
    let starts: Vec<_> = starts.collect();
    starts.iter().skip(1).find(|start| **start != starts[0])?;
    let names = |name: &str| starts.iter().any(|start| start.is_called(name));
    let registers = tracee::registers(task).ok()?;
    let held = pointers(task, &registers).into_iter().filter_map(|at| words_at(task, at, names));
    held.take(READS).find(|words| starts.iter().any(|start| start.is_of(words)))
}

/// What a task has in its registers and on top of its stack, as far as that may be addresses.
fn pointers(task: i32, registers: &Registers) -> Vec<u64> {
    let Registers { rdi, rsi, rdx, r8, r9, r10, rbx, rbp, r12, r13, r14, r15, rsp, .. } = *registers;
    let mut stack = [0; STACK];
    let read = memory::read(task, rsp, &mut stack).unwrap_or(0);
    let stack = stack[..read].as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    let held = [rdi, rsi, rdx, r8, r9, r10, rbx, rbp, r12, r13, r14, r15];
    let is_address = |word: &u64| *word >= memory::PAGE as u64 && word.is_multiple_of(8) && *word >> 47 == 0;
    held.into_iter().chain(stack).filter(is_address).collect()
}

/// The arguments at `at`, if there may be some, and the first is one of those `names`.
fn words_at(task: i32, at: u64, names: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let mut first = [0; 8];
    memory::read_exact(task, at, &mut first).ok()?;
    let name = u64::from_ne_bytes(first);
    if name < memory::PAGE as u64 || !names(&display_bytes(&memory::read_string(task, name, NAME).ok()?)) {
        return None;
    }
    let words: Vec<OsString> = read_words(task, at).ok()?;
    Some(words.iter().map(|word| display_bytes(word.as_bytes())).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn starts(children: &[(&str, &str, &str)]) -> Starts {
        let mut starts = Starts::default();
        for (process, argv, maker) in children {
            let args = json!({"argv": words(argv)});
            starts.add(process, args.as_object().expect("an object"));
            starts.made(process, maker);
        }
        starts
    }

    #[test]
    fn a_script_is_what_it_is_called() {
        let script = Start { words: words("/bin/sh -e /usr/bin/tool a b"), is_script: true };
        for (called, is_so) in [
            ("tool a b", true),
            ("./tool a b", true),
            ("tool a", false),
            ("sh a b", false),
            ("/bin/sh -e", false),
        ] {
            assert_eq!(script.is_of(&words(called)), is_so, "{called}");
        }
        let program = Start { words: words("tool a b"), is_script: false };
        assert!(program.is_of(&words("tool a b")) && !program.is_of(&words("b")) && !program.is_of(&[]));
    }

    #[test]
    fn the_child_with_the_same_words_is_made_next() {
        let starts = starts(&[
            ("0.0", "a", "1"),
            ("0.1", "b", "2"),
            ("0.2", "b", "3"),
            ("0#1.3", "c", ""),
            ("0.~12", "c", ""),
            ("0.0", "other", "1"),
        ]);
        let free: Vec<_> = starts.by_parent["0"].iter().collect();
        let picked = |argv: Option<&str>, thread| pick(&free, argv.map(words).as_deref(), Some(thread));
        assert_eq!(["1", "2", "3", "4"].map(|thread| picked(Some("b"), thread)), [1, 1, 2, 1].map(Some));
        assert_eq!(["1", "3", "4"].map(|thread| picked(None, thread)), [Some(0), Some(2), None]);
        assert_eq!((picked(Some("other"), "1"), free.len()), (None, 3));
        let moved = |argv: Option<&str>| pick(&free, argv.map(words).as_deref(), None);
        assert_eq!([Some("b"), Some("a"), None].map(moved), [Some(1), Some(0), None]);
    }

    #[test]
    fn a_child_that_becomes_no_program_is_made_as_well() {
        let mut starts = Starts::default();
        for name in ["0", "0.0", "0#1", "0:1#1.1", "0.1"] {
            starts.is_made(name);
        }
        starts.add("0.1", json!({"argv": ["a"]}).as_object().expect("an object"));
        let free: Vec<_> = starts.by_parent["0"].iter().collect();
        assert_eq!(
            (free.len(), pick(&free, None, Some("")), pick(&free, Some(&words("a")), Some(""))),
            (2, Some(0), Some(1))
        );
    }

    #[test]
    fn arguments_are_found_by_a_pointer_to_them() {
        let (one, other) = (c"one", c"other");
        let pointers = [one.as_ptr() as u64, other.as_ptr() as u64, 0];
        let own = std::process::id().cast_signed();
        let found = |at: u64| words_at(own, at, |name| name == "one");
        assert_eq!(found(pointers.as_ptr() as u64), Some(words("one other")));
        assert_eq!((found(pointers[1..].as_ptr() as u64), found(8)), (None, None));
    }
}
