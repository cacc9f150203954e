//! Runs a classic BPF program over `struct seccomp_data`, as the kernel would, for tests.

use super::{AND, Instruction, JUMP, JUMP_ANY_BIT, JUMP_AT_LEAST, JUMP_EQUAL, LOAD, PROGRAM_LIMIT, RETURN};

/// What the kernel hands to a filter (`struct seccomp_data`, man 2 seccomp).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeccompData {
    pub(crate) number: u32,
    pub(crate) arch: u32,
    pub(crate) instruction_pointer: u64,
    pub(crate) args: [u64; 6],
}

/// The answer, and what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) value: u32,
    pub(crate) steps: usize,
    /// Whether anything but number and architecture was loaded: then the kernel cannot cache the
    /// answer.
    pub(crate) looked_further: bool,
}

/// Panics on whatever the kernel's checker (`bpf_check_classic`, `seccomp_check_filter`) refuses.
pub(crate) fn check(program: &[Instruction]) {
    assert!(!program.is_empty() && program.len() <= PROGRAM_LIMIT, "length {}", program.len());
    assert_eq!(program[program.len() - 1].code, RETURN, "the last instruction must return");
    for (at, instruction) in program.iter().enumerate() {
        let left = program.len() - at - 1;
        match instruction.code {
            LOAD => assert!(instruction.k < 64 && instruction.k.is_multiple_of(4), "load at {at}"),
            AND | RETURN => {}
            JUMP => assert!((instruction.k as usize) < left, "jump at {at}"),
            JUMP_EQUAL | JUMP_AT_LEAST | JUMP_ANY_BIT => {
                let furthest = instruction.jt.max(instruction.jf);
                assert!(usize::from(furthest) < left, "branch at {at}");
            }
            code => panic!("instruction {at} has the unknown code {code:#x}"),
        }
    }
}

/// Runs a checked program.
pub(crate) fn run(program: &[Instruction], data: &SeccompData) -> Outcome {
    let (mut at, mut accumulator, mut steps, mut looked_further) = (0, 0, 0, false);
    loop {
        let instruction = program[at];
        let branch = |holds: bool| usize::from(if holds { instruction.jt } else { instruction.jf });
        at += 1;
        steps += 1;
        match instruction.code {
            LOAD => {
                looked_further |= instruction.k > 4;
                accumulator = word(data, instruction.k);
            }
            AND => accumulator &= instruction.k,
            JUMP => at += instruction.k as usize,
            JUMP_EQUAL => at += branch(accumulator == instruction.k),
            JUMP_AT_LEAST => at += branch(accumulator >= instruction.k),
            JUMP_ANY_BIT => at += branch(accumulator & instruction.k != 0),
            RETURN => {
                return Outcome { value: instruction.k, steps, looked_further };
            }
            code => panic!("unknown code {code:#x}"),
        }
    }
}

fn word(data: &SeccompData, offset: u32) -> u32 {
    let half = |value: u64| {
        let [b0, b1, b2, b3, b4, b5, b6, b7] = value.to_le_bytes();
        let lower = offset.is_multiple_of(8);
        u32::from_le_bytes(if lower { [b0, b1, b2, b3] } else { [b4, b5, b6, b7] })
    };
    match offset {
        0 => data.number,
        4 => data.arch,
        8 | 12 => half(data.instruction_pointer),
        _ => half(data.args[(offset as usize - 16) / 8]),
    }
}
