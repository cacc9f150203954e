//! An assembler for classic BPF programs as seccomp runs them.
//!
//! Only what the kernel can evaluate ahead of time is offered: absolute loads, AND and comparisons
//! with a constant. With nothing else in front of it, a call that is allowed whatever its arguments
//! costs one bit of the kernel's cache (`seccomp_is_const_allow` in kernel/seccomp.c).

#[cfg(test)]
pub(crate) mod interpreter;
#[cfg(test)]
mod tests;

/// The longest program that the kernel loads (`BPF_MAXINSNS`).
pub const PROGRAM_LIMIT: usize = 4096;

/// Load a 32-bit word of `struct seccomp_data` at a fixed offset (BPF_LD | BPF_W | BPF_ABS).
pub(crate) const LOAD: u16 = 0x20;
/// A &= k (BPF_ALU | BPF_AND | BPF_K).
pub(crate) const AND: u16 = 0x54;
/// Unconditional jump with a 32-bit distance (BPF_JMP | BPF_JA).
pub(crate) const JUMP: u16 = 0x05;
/// Jump by A == k (BPF_JMP | BPF_JEQ | BPF_K).
pub(crate) const JUMP_EQUAL: u16 = 0x15;
/// Jump by A >= k, unsigned (BPF_JMP | BPF_JGE | BPF_K).
pub(crate) const JUMP_AT_LEAST: u16 = 0x35;
/// Jump by A & k != 0 (BPF_JMP | BPF_JSET | BPF_K).
pub(crate) const JUMP_ANY_BIT: u16 = 0x45;
/// Return k (BPF_RET | BPF_K).
pub(crate) const RETURN: u16 = 0x06;

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when the condition holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

impl From<Instruction> for libc::sock_filter {
    fn from(instruction: Instruction) -> Self {
        Self { code: instruction.code, jt: instruction.jt, jf: instruction.jf, k: instruction.k }
    }
}

/// Why a program cannot be assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BpfError {
    /// A jump goes to a label that was never bound, or was bound after the last instruction.
    #[error("a jump of the filter program leads nowhere (label {label})")]
    UnboundLabel {
        /// Its number, in order of creation.
        label: usize,
    },
    /// A label stands for two places.
    #[error("label {label} of the filter program was bound twice")]
    LabelBoundTwice {
        /// Its number, in order of creation.
        label: usize,
    },
    /// Classic BPF has no backward jumps, so that every program ends.
    #[error("instruction {at} of the filter program jumps backwards")]
    BackwardJump {
        /// Position of the jump.
        at: usize,
    },
    /// The program would run past its end.
    #[error("the filter program does not end with a return")]
    MissingReturn,
    /// The kernel would refuse the program.
    #[error("the filter program has {length} instructions, the kernel takes {PROGRAM_LIMIT}")]
    ProgramTooLong {
        /// Instructions after assembly.
        length: usize,
    },
}

/// A place in the program, to be bound later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

#[derive(Clone, Copy)]
enum Operation {
    Plain { code: u16, k: u32 },
    Goto(Label),
    Branch { code: u16, k: u32, holds: Label, fails: Label },
}

/// Collects operations and labels; [`Assembler::assemble`] turns them into instructions.
#[derive(Default)]
pub struct Assembler {
    operations: Vec<Operation>,
    labels: Vec<Option<usize>>,
    bound_twice: Option<Label>,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// A label that is bound to no place yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Makes `label` stand for the next operation.
    pub fn bind(&mut self, label: Label) {
        if self.labels[label.0].replace(self.operations.len()).is_some() {
            self.bound_twice = Some(label);
        }
    }

    /// Loads the 32-bit word at byte `offset` of `struct seccomp_data`.
    pub fn load(&mut self, offset: u32) {
        self.operations.push(Operation::Plain { code: LOAD, k: offset });
    }

    /// Keeps the bits of `mask`.
    pub fn and(&mut self, mask: u32) {
        self.operations.push(Operation::Plain { code: AND, k: mask });
    }

    /// Ends the program with `value`.
    pub fn return_value(&mut self, value: u32) {
        self.operations.push(Operation::Plain { code: RETURN, k: value });
    }

    /// Goes on at `target`.
    pub fn goto(&mut self, target: Label) {
        self.operations.push(Operation::Goto(target));
    }

    /// Goes on at `holds` when the loaded word equals `value`, else at `fails`.
    pub fn if_equal(&mut self, value: u32, holds: Label, fails: Label) {
        self.operations.push(Operation::Branch { code: JUMP_EQUAL, k: value, holds, fails });
    }

    /// Goes on at `holds` when the loaded word is `value` or more, else at `fails`.
    pub fn if_at_least(&mut self, value: u32, holds: Label, fails: Label) {
        self.operations.push(Operation::Branch { code: JUMP_AT_LEAST, k: value, holds, fails });
    }

    /// Goes on at `holds` when the loaded word has any bit of `mask`, else at `fails`.
    pub fn if_any_bit(&mut self, mask: u32, holds: Label, fails: Label) {
        self.operations.push(Operation::Branch { code: JUMP_ANY_BIT, k: mask, holds, fails });
    }

    /// The program, with every jump resolved.
    pub fn assemble(&self) -> Result<Vec<Instruction>, BpfError> {
        if let Some(label) = self.bound_twice {
            return Err(BpfError::LabelBoundTwice { label: label.0 });
        }
        if !matches!(self.operations.last(), Some(Operation::Plain { code: RETURN, .. })) {
            return Err(BpfError::MissingReturn);
        }
        let layout = self.layout()?;
        let program = self.emit(&layout)?;
        match program.len() {
            length if length > PROGRAM_LIMIT => Err(BpfError::ProgramTooLong { length }),
            _ => Ok(program),
        }
    }

    /// Decides which arms need a far jump. Lengthening one branch can push another out of reach, so
    /// this repeats until nothing changes; arms are only ever lengthened, so it ends.
    fn layout(&self) -> Result<Layout, BpfError> {
        let mut layout = Layout { far: vec![Far::default(); self.operations.len()], positions: Vec::new() };
        loop {
            layout.place();
            let mut changed = false;
            for (index, operation) in self.operations.iter().enumerate() {
                let Operation::Branch { holds, fails, .. } = *operation else {
                    continue;
                };
                let at = layout.positions[index];
                let holds = reach(at, self.position(&layout, at, holds)?).is_none();
                let fails = reach(at, self.position(&layout, at, fails)?).is_none();
                let far = &mut layout.far[index];
                changed |= (holds && !far.holds) || (fails && !far.fails);
                far.holds |= holds;
                far.fails |= fails;
            }
            if !changed {
                return Ok(layout);
            }
        }
    }

    fn emit(&self, layout: &Layout) -> Result<Vec<Instruction>, BpfError> {
        let mut program = Vec::new();
        for (index, operation) in self.operations.iter().enumerate() {
            let at = layout.positions[index];
            match *operation {
                Operation::Plain { code, k } => program.push(Instruction { code, jt: 0, jf: 0, k }),
                Operation::Goto(target) => program.push(far_jump(at, self.position(layout, at, target)?)),
                Operation::Branch { code, k, holds, fails } => {
                    let holds = self.position(layout, at, holds)?;
                    let fails = self.position(layout, at, fails)?;
                    let far = layout.far[index];
                    // A far arm skips to the jump that follows the branch: the first one for
                    // `holds`.
                    let jt = if far.holds { Some(0) } else { reach(at, holds) };
                    let jf = if far.fails { Some(u8::from(far.holds)) } else { reach(at, fails) };
                    let (Some(jt), Some(jf)) = (jt, jf) else {
                        return Err(BpfError::BackwardJump { at });
                    };
                    program.push(Instruction { code, jt, jf, k });
                    if far.holds {
                        program.push(far_jump(at + 1, holds));
                    }
                    if far.fails {
                        program.push(far_jump(at + 1 + usize::from(far.holds), fails));
                    }
                }
            }
        }
        Ok(program)
    }

    /// Where a label lies, checked to be after the jump at `at`.
    fn position(&self, layout: &Layout, at: usize, label: Label) -> Result<usize, BpfError> {
        let target = self.labels[label.0]
            .and_then(|operation| layout.positions.get(operation).copied())
            .ok_or(BpfError::UnboundLabel { label: label.0 })?;
        if target <= at { Err(BpfError::BackwardJump { at }) } else { Ok(target) }
    }
}

/// Which arms of a branch are beyond the 255 instructions that a conditional jump can skip.
#[derive(Clone, Copy, Default)]
struct Far {
    holds: bool,
    fails: bool,
}

struct Layout {
    far: Vec<Far>,
    positions: Vec<usize>,
}

impl Layout {
    fn place(&mut self) {
        let mut next = 0;
        self.positions.clear();
        for far in &self.far {
            self.positions.push(next);
            next += 1 + usize::from(far.holds) + usize::from(far.fails);
        }
    }
}

/// The distance of a conditional jump, when it fits.
fn reach(at: usize, target: usize) -> Option<u8> {
    u8::try_from(target - at - 1).ok()
}

/// Distances fit: a program that is too long is refused before it is used.
fn far_jump(at: usize, target: usize) -> Instruction {
    let k = u32::try_from(target - at - 1).unwrap_or(u32::MAX);
    Instruction { code: JUMP, jt: 0, jf: 0, k }
}
