//! Turns the syscall table into a seccomp program.
//!
//! The number is searched for in a balanced tree, so that every call is decided after a dozen
//! comparisons, and those that are always allowed never load an argument: the kernel finds that out
//! when the program is loaded and answers them from a bitmap at a constant cost.

use super::bpf::{Assembler, BpfError, Instruction, Label};
use super::syscall_table::{
    ARCHITECTURE, Action, ArgumentRules, Condition, Decision, Half, Test, UNKNOWN, X32_FIRST, rows,
};

pub use super::syscall_table::FilterOptions;

#[cfg(test)]
mod tests;

/// Offsets in `struct seccomp_data` (man 2 seccomp).
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const POINTER: u32 = 8;
const ARGUMENTS: u32 = 16;

/// A call by another convention. i386 code reaches its own numbers by `int 0x80`, also from a
/// 64-bit process: `open` there would pass for another call here. With an errno a 32-bit program
/// could not even exit and would spin, so it dies at its first call, which a shell reports as "Bad
/// system call".
const FOREIGN_ARCHITECTURE: Action = Action::Kill;

/// x32 calls, and -1. Most kernels are built without x32 and say ENOSYS, so programs that try them
/// know it.
const X32: Action = Action::Errno(libc::ENOSYS);

/// The program for these options, to be loaded with `SECCOMP_SET_MODE_FILTER`.
pub fn compile(options: FilterOptions) -> Result<Vec<Instruction>, BpfError> {
    Compiler::new(options).compile()
}

/// What the kernel expects a filter to return (man 2 seccomp).
pub fn return_value(action: Action) -> u32 {
    match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        Action::Notify => libc::SECCOMP_RET_USER_NOTIF,
        Action::Trace => libc::SECCOMP_RET_TRACE,
        Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | (errno.unsigned_abs() & libc::SECCOMP_RET_DATA),
    }
}

/// Numbers from `first` to the next range's, treated alike.
struct Range {
    first: u32,
    target: Label,
}

struct Compiler {
    assembler: Assembler,
    actions: Vec<(Action, Label)>,
    rules: Vec<(&'static ArgumentRules, Label)>,
    /// Where calls from one instruction are allowed.
    places: Vec<(u64, &'static ArgumentRules, Label)>,
    options: FilterOptions,
}

impl Compiler {
    fn new(options: FilterOptions) -> Self {
        Self {
            assembler: Assembler::new(),
            actions: Vec::new(),
            rules: Vec::new(),
            places: Vec::new(),
            options,
        }
    }

    fn compile(mut self) -> Result<Vec<Instruction>, BpfError> {
        let native = self.assembler.label();
        let foreign = self.action(FOREIGN_ARCHITECTURE);
        self.assembler.load(ARCH);
        self.assembler.if_equal(ARCHITECTURE, native, foreign);
        self.assembler.bind(native);
        self.assembler.load(NUMBER);
        let ranges = self.ranges();
        let tree = self.subtree(&ranges);
        self.search(&ranges, tree);
        for (pointer, rules, label) in std::mem::take(&mut self.places) {
            self.assembler.bind(label);
            self.place(pointer, rules);
        }
        for (rules, label) in std::mem::take(&mut self.rules) {
            self.assembler.bind(label);
            self.clauses(rules);
        }
        for (action, label) in std::mem::take(&mut self.actions) {
            self.assembler.bind(label);
            self.assembler.return_value(return_value(action));
        }
        self.assembler.assemble()
    }

    /// All numbers from 0 up, with neighbours that are treated alike put together.
    fn ranges(&mut self) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        let mut add = |first: u32, target: Label| {
            if ranges.last().is_none_or(|last| last.target != target) {
                ranges.push(Range { first, target });
            }
        };
        let unknown = self.action(UNKNOWN);
        let mut next = 0;
        for (syscall, row) in rows() {
            let number = syscall.id().unsigned_abs();
            if number > next {
                add(next, unknown);
            }
            let target = match row.disposition.under(self.options) {
                Decision::Always(action) => self.action(action),
                Decision::Arguments(rules) => self.rules(rules),
                Decision::UnlessFrom { pointer, rules } => {
                    let place = self.assembler.label();
                    self.places.push((pointer, rules, place));
                    place
                }
            };
            add(number, target);
            next = number + 1;
        }
        add(next, unknown);
        let x32 = self.action(X32);
        add(X32_FIRST, x32);
        ranges
    }

    /// A binary search over `ranges`, beginning at `start`.
    fn search(&mut self, ranges: &[Range], start: Label) {
        let [_, _, ..] = ranges else { return };
        let (below, above) = ranges.split_at(ranges.len() / 2);
        let (lower, upper) = (self.subtree(below), self.subtree(above));
        self.assembler.bind(start);
        self.assembler.if_at_least(above[0].first, upper, lower);
        self.search(below, lower);
        self.search(above, upper);
    }

    /// Where the search in `ranges` begins: one range alone needs none.
    fn subtree(&mut self, ranges: &[Range]) -> Label {
        match ranges {
            [range] => range.target,
            _ => self.assembler.label(),
        }
    }

    /// A call from this instruction is allowed; for any other the rules decide.
    fn place(&mut self, pointer: u64, rules: &'static ArgumentRules) {
        let (rules, upper) = (self.rules(rules), self.assembler.label());
        let allowed = self.action(Action::Allow);
        let [lower_half, upper_half] = halves(pointer);
        self.assembler.load(POINTER);
        self.assembler.if_equal(lower_half, upper, rules);
        self.assembler.bind(upper);
        self.assembler.load(POINTER + 4);
        self.assembler.if_equal(upper_half, allowed, rules);
    }

    fn clauses(&mut self, rules: &ArgumentRules) {
        for clause in rules.clauses {
            let next = self.assembler.label();
            for test in clause.when {
                let holds = self.assembler.label();
                self.test(test, holds, next);
                self.assembler.bind(holds);
            }
            let then = self.action(clause.then);
            self.assembler.goto(then);
            self.assembler.bind(next);
        }
        let otherwise = self.action(rules.otherwise);
        self.assembler.goto(otherwise);
    }

    fn test(&mut self, test: &Test, holds: Label, fails: Label) {
        let upper = match test.half {
            Half::Lower => 0,
            Half::Upper => 4,
        };
        self.assembler.load(ARGUMENTS + 8 * u32::from(test.argument) + upper);
        match test.condition {
            Condition::AnyBit(mask) => self.assembler.if_any_bit(mask, holds, fails),
            Condition::OneOf { mask, values } => {
                if mask != u32::MAX {
                    self.assembler.and(mask);
                }
                self.one_of(values, holds, fails);
            }
        }
    }

    fn one_of(&mut self, values: &[u32], holds: Label, fails: Label) {
        let Some((last, others)) = values.split_last() else { return self.assembler.goto(fails) };
        for value in others {
            let other = self.assembler.label();
            self.assembler.if_equal(*value, holds, other);
            self.assembler.bind(other);
        }
        self.assembler.if_equal(*last, holds, fails);
    }

    /// The place that returns `action`.
    fn action(&mut self, action: Action) -> Label {
        if let Some((_, label)) = self.actions.iter().find(|(known, _)| *known == action) {
            return *label;
        }
        let label = self.assembler.label();
        self.actions.push((action, label));
        label
    }

    /// The place that decides by `rules`, shared by the calls that have the same.
    fn rules(&mut self, rules: &'static ArgumentRules) -> Label {
        if let Some((_, label)) = self.rules.iter().find(|(known, _)| std::ptr::eq(*known, rules)) {
            return *label;
        }
        let label = self.assembler.label();
        self.rules.push((rules, label));
        label
    }
}

/// The lower and the upper 32 bits.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}
