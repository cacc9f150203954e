//! One total table: what happens to every syscall of this architecture, and why.
//!
//! Rows stand in groups that share a reason, one file an area. The table is put together at compile
//! time: a syscall that no row names, or that two rows name, breaks the build. A number that the
//! table does not know is answered with [`UNKNOWN`].
//!
//! A refusal uses the errno that real programs survive, by preference the one that a kernel without
//! the feature, or a caller without the privilege, gets anyway.

/// A list of syscalls by name.
macro_rules! calls {
    ($($name:ident)+) => { &[$(syscalls::Sysno::$name),+] };
}

mod arguments;
mod files;
mod memory;
mod network;
mod privileged;
mod process;
mod withdrawn;

#[cfg(test)]
mod tests;

use syscalls::Sysno;

use crate::sys::vdso::REAL_CLOCK;
pub use arguments::{ArgumentRules, Clause, Condition, Half, Test};

/// `AUDIT_ARCH_X86_64`: the only system call convention that the table's numbers belong to.
pub const ARCHITECTURE: u32 = 0xc000_003e;

/// `__X32_SYSCALL_BIT`: numbers from here on are x32's, which share the architecture constant.
pub const X32_FIRST: u32 = 0x4000_0000;

/// The answer for a number that this table does not know: a syscall newer than the table. ENOSYS is
/// what an older kernel says, and what every program that uses new calls must be ready for.
pub const UNKNOWN: Action = Action::Errno(libc::ENOSYS);

/// What the filter answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The kernel carries the call out.
    Allow,
    /// The call fails with this errno.
    Errno(i32),
    /// The whole process dies with SIGSYS.
    Kill,
    /// The supervisor decides, records and answers.
    Notify,
    /// The task stops, and the supervisor looks at its registers.
    Trace,
}

/// What the run's policy asks of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterOptions {
    /// The policy has `deny:` or glob rules for files: what a file holds must not be had by its
    /// path without a judged open, so that reading extended attributes by path is refused.
    pub full_mediation: bool,
    /// Landlock keeps signals inside the run (Linux 6.12): a signal to the caller's own process
    /// group reaches the run's processes in it and no others.
    pub signals_are_scoped: bool,
    /// The run is to be replayed: its randomness comes from a seed.
    pub replayable: bool,
    /// The run is the replay of another one: waits until a time are translated, and lists of names are put in order.
    pub replayed: bool,
    /// The view shows directories in which names are left out of lists.
    pub hides_names: bool,
    /// The run is to be replayed, and standard output is a pipe of ours.
    pub orders_output: bool,
    /// The same for standard error.
    pub orders_error: bool,
}

/// How a syscall is treated.
#[derive(Clone, Copy, Debug)]
pub enum Disposition {
    /// Whatever its arguments.
    Always(Action),
    /// By what its argument registers hold. Registers cannot be changed under the filter; memory
    /// that they point to can, and is not seen.
    Arguments(&'static ArgumentRules),
    /// As `judged` under `FilterOptions::full_mediation`, else as `otherwise`.
    FullMediation {
        /// With the option.
        judged: Action,
        /// Without it.
        otherwise: Action,
    },
    /// As `otherwise` under `FilterOptions::signals_are_scoped`, else as `unscoped`.
    GroupSignals {
        /// Without the option.
        unscoped: &'static ArgumentRules,
        /// With it.
        otherwise: &'static ArgumentRules,
    },
    /// The supervisor answers under `FilterOptions::replayable`, else the kernel does.
    Replayable,
    /// The supervisor answers under `FilterOptions::replayed`, else the kernel does.
    Replayed,
    /// The supervisor answers under `FilterOptions::replayed` or `FilterOptions::hides_names`, else the kernel does.
    Listing,
    /// As these rules say under `FilterOptions::replayable`, else the kernel answers.
    ReplayableTimer(&'static ArgumentRules),
    /// By the rules of those of `FilterOptions::orders_output` and `FilterOptions::orders_error` that are set; without
    /// them the kernel answers.
    Output {
        /// With the first alone.
        output: &'static ArgumentRules,
        /// With the second alone.
        error: &'static ArgumentRules,
        /// With both.
        both: &'static ArgumentRules,
    },
    /// As these rules say under `FilterOptions::replayable`, but for the one place in the image that stands
    /// in for the vDSO ([`REAL_CLOCK`]); else the kernel answers.
    ReplayableClock(&'static ArgumentRules),
    /// As these rules say under `FilterOptions::replayed`, else the kernel answers.
    ReplayedWait(&'static ArgumentRules),
    /// As `replayed` under `FilterOptions::replayed`, else as `replayable` under `FilterOptions::replayable`, else
    /// the kernel answers.
    ReplayableWait {
        /// In a run that can be replayed.
        replayable: &'static ArgumentRules,
        /// In a replay.
        replayed: &'static ArgumentRules,
    },
    /// The task stops under `FilterOptions::replayed`, else the kernel answers.
    ReplayedBirth,
    /// As `replayed` under `FilterOptions::replayed`, else as `otherwise`.
    ReplayedArguments {
        /// With the option.
        replayed: &'static ArgumentRules,
        /// Without it.
        otherwise: &'static ArgumentRules,
    },
    /// As `replayable` under `FilterOptions::replayable`, else as `otherwise`.
    ReplayableArguments {
        /// With the option.
        replayable: &'static ArgumentRules,
        /// Without it.
        otherwise: &'static ArgumentRules,
    },
}

/// A [`Disposition`] once the options are known.
#[derive(Clone, Copy, Debug)]
pub enum Decision {
    /// Whatever its arguments.
    Always(Action),
    /// By its argument registers.
    Arguments(&'static ArgumentRules),
    /// Allowed from this instruction, else by its argument registers.
    UnlessFrom {
        /// The instruction pointer, as the filter sees it.
        pointer: u64,
        /// For calls from anywhere else.
        rules: &'static ArgumentRules,
    },
}

impl Disposition {
    /// What holds under `options`.
    pub fn under(self, options: FilterOptions) -> Decision {
        match self {
            Self::Always(action) => Decision::Always(action),
            Self::Arguments(rules) => Decision::Arguments(rules),
            Self::FullMediation { judged, .. } if options.full_mediation => Decision::Always(judged),
            Self::GroupSignals { unscoped, .. } if !options.signals_are_scoped => {
                Decision::Arguments(unscoped)
            }
            Self::ReplayableArguments { replayable, .. } if options.replayable => {
                Decision::Arguments(replayable)
            }
            Self::ReplayedArguments { replayed, .. } if options.replayed => Decision::Arguments(replayed),
            Self::ReplayableArguments { otherwise, .. } | Self::ReplayedArguments { otherwise, .. } => {
                Decision::Arguments(otherwise)
            }
            Self::Replayable if options.replayable => Decision::Always(Action::Notify),
            Self::Replayed if options.replayed => Decision::Always(Action::Notify),
            Self::Listing if options.replayed || options.hides_names => Decision::Always(Action::Notify),
            Self::ReplayedBirth if options.replayed => Decision::Always(Action::Trace),
            Self::ReplayableClock(rules) if options.replayable => {
                Decision::UnlessFrom { pointer: REAL_CLOCK, rules }
            }
            Self::ReplayableWait { replayed, .. } if options.replayed => Decision::Arguments(replayed),
            Self::ReplayableWait { replayable: rules, .. } | Self::ReplayableTimer(rules)
                if options.replayable =>
            {
                Decision::Arguments(rules)
            }
            Self::ReplayedWait(rules) if options.replayed => Decision::Arguments(rules),
            Self::Output { output, error, both } => match (options.orders_output, options.orders_error) {
                (true, true) => Decision::Arguments(both),
                (true, false) => Decision::Arguments(output),
                (false, true) => Decision::Arguments(error),
                (false, false) => Decision::Always(Action::Allow),
            },
            Self::Replayable
            | Self::Replayed
            | Self::Listing
            | Self::ReplayedBirth
            | Self::ReplayableClock(_)
            | Self::ReplayableTimer(_)
            | Self::ReplayableWait { .. }
            | Self::ReplayedWait(_) => Decision::Always(Action::Allow),
            Self::GroupSignals { otherwise, .. } => Decision::Arguments(otherwise),
            Self::FullMediation { otherwise, .. } => Decision::Always(otherwise),
        }
    }
}

impl Decision {
    /// The action for a call of a program's own with these argument registers.
    pub fn action(self, args: &[u64; 6]) -> Action {
        match self {
            Self::Always(action) => action,
            Self::Arguments(rules) | Self::UnlessFrom { rules, .. } => rules.action(args),
        }
    }

    /// Whether some call can reach the supervisor.
    pub fn may_notify(self) -> bool {
        match self {
            Self::Always(action) => action == Action::Notify,
            Self::Arguments(rules) | Self::UnlessFrom { rules, .. } => rules.may_notify(),
        }
    }
}

/// Syscalls that are treated alike for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// How.
    pub disposition: Disposition,
    /// Why.
    pub reason: &'static str,
    /// Which.
    pub syscalls: &'static [Sysno],
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// How the syscall is treated.
    pub disposition: Disposition,
    /// Why.
    pub reason: &'static str,
}

/// The row of a syscall number; `None` for numbers that the table does not know (see [`UNKNOWN`]).
pub fn row(number: u32) -> Option<&'static Row> {
    let index = usize::try_from(number).ok()?;
    TABLE.get(index)?.as_ref()
}

/// Whether a syscall may reach the supervisor in replays alone: the recorded run need not have seen it.
pub fn is_for_replays(number: u32) -> bool {
    let disposition = row(number).map(|row| row.disposition);
    matches!(disposition, Some(Disposition::Replayed | Disposition::Listing | Disposition::ReplayedWait(_)))
}

/// Every known syscall with its row, in the order of the numbers.
pub fn rows() -> impl Iterator<Item = (Sysno, &'static Row)> {
    TABLE.iter().enumerate().filter_map(|(number, row)| Some((Sysno::new(number)?, row.as_ref()?)))
}

/// Every syscall that can reach the supervisor under `options`: it needs an answer for each.
pub fn notified(options: FilterOptions) -> impl Iterator<Item = Sysno> {
    rows().filter(move |(_, row)| row.disposition.under(options).may_notify()).map(|(syscall, _)| syscall)
}

const AREAS: [&[Group]; 6] =
    [files::GROUPS, memory::GROUPS, network::GROUPS, privileged::GROUPS, process::GROUPS, withdrawn::GROUPS];

const SIZE: usize = Sysno::table_size();

static TABLE: [Option<Row>; SIZE] = total_table();

const fn total_table() -> [Option<Row>; SIZE] {
    let mut table = [None; SIZE];
    let mut area = 0;
    while area < AREAS.len() {
        let mut group = 0;
        while group < AREAS[area].len() {
            enter(&mut table, &AREAS[area][group]);
            group += 1;
        }
        area += 1;
    }
    let mut number = 0;
    while number < SIZE {
        assert!(
            table[number].is_some() == Sysno::new(number).is_some(),
            "a syscall is in no group of the table"
        );
        number += 1;
    }
    table
}

const fn enter(table: &mut [Option<Row>; SIZE], group: &Group) {
    let mut index = 0;
    while index < group.syscalls.len() {
        let number = group.syscalls[index] as usize;
        assert!(table[number].is_none(), "a syscall is in two groups of the table");
        table[number] = Some(Row { disposition: group.disposition, reason: group.reason });
        index += 1;
    }
}

const ALLOW: Disposition = Disposition::Always(Action::Allow);
const NOTIFY: Disposition = Disposition::Always(Action::Notify);
const EPERM: Disposition = Disposition::Always(Action::Errno(libc::EPERM));
const ENOSYS: Disposition = Disposition::Always(Action::Errno(libc::ENOSYS));
