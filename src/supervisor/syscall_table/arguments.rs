//! Rules over argument registers: an ordered list of clauses, the first that holds decides.
//!
//! seccomp sees 64-bit registers where most system calls take an `int`: the kernel drops the upper
//! half, so that a test of the whole register is beaten by setting any upper bit. Tests look at the
//! lower half, and at the upper one only where the kernel reads it too.

use super::Action;

/// Clauses in order, and what holds when none does.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentRules {
    /// The first clause that holds decides.
    pub clauses: &'static [Clause],
    /// The action when none holds.
    pub otherwise: Action,
}

/// Whatever the registers hold, the kernel answers.
pub(super) const ANY: ArgumentRules = ArgumentRules { clauses: &[], otherwise: Action::Allow };

/// An action for the calls that pass every test.
#[derive(Clone, Copy, Debug)]
pub struct Clause {
    /// All must hold.
    pub when: &'static [Test],
    /// The action then.
    pub then: Action,
}

/// A test of one half of one argument register.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// 0 to 5.
    pub argument: u8,
    /// Which 32 bits.
    pub half: Half,
    /// What must hold for them.
    pub condition: Condition,
}

/// Which 32 bits of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Bits 0 to 31.
    Lower,
    /// Bits 32 to 63.
    Upper,
}

/// A condition on 32 bits.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// The bits under `mask` equal one of `values`.
    OneOf {
        /// The bits that count.
        mask: u32,
        /// Each within `mask`.
        values: &'static [u32],
    },
    /// At least one bit of this mask is set.
    AnyBit(u32),
}

impl ArgumentRules {
    /// The action for these registers.
    pub fn action(&self, args: &[u64; 6]) -> Action {
        let holds = |clause: &&Clause| clause.when.iter().all(|test| test.holds(args));
        self.clauses.iter().find(holds).map_or(self.otherwise, |clause| clause.then)
    }

    /// Whether some registers lead to the supervisor.
    pub fn may_notify(&self) -> bool {
        self.otherwise == Action::Notify || self.clauses.iter().any(|clause| clause.then == Action::Notify)
    }
}

impl Test {
    /// Whether it holds for these registers.
    pub fn holds(&self, args: &[u64; 6]) -> bool {
        let bytes = args[usize::from(self.argument)].to_le_bytes();
        let [b0, b1, b2, b3, b4, b5, b6, b7] = bytes;
        let bits = match self.half {
            Half::Lower => u32::from_le_bytes([b0, b1, b2, b3]),
            Half::Upper => u32::from_le_bytes([b4, b5, b6, b7]),
        };
        match self.condition {
            Condition::OneOf { mask, values } => values.contains(&(bits & mask)),
            Condition::AnyBit(mask) => bits & mask != 0,
        }
    }
}

/// The argument, as an `int`, is one of `values`.
pub(super) const fn one_of(argument: u8, values: &'static [u32]) -> Test {
    masked(argument, u32::MAX, values)
}

/// The bits of the argument under `mask` are one of `values`.
pub(super) const fn masked(argument: u8, mask: u32, values: &'static [u32]) -> Test {
    Test { argument, half: Half::Lower, condition: Condition::OneOf { mask, values } }
}

/// The argument has at least one bit of `mask`.
pub(super) const fn any_bit(argument: u8, mask: u32) -> Test {
    Test { argument, half: Half::Lower, condition: Condition::AnyBit(mask) }
}

/// The argument has a bit above the lower 32.
pub(super) const fn any_upper_bit(argument: u8) -> Test {
    Test { argument, half: Half::Upper, condition: Condition::AnyBit(u32::MAX) }
}

/// When every test holds, this action.
pub(super) const fn clause(when: &'static [Test], then: Action) -> Clause {
    Clause { when, then }
}
