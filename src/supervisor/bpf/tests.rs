//! Tests of the assembler.

use super::interpreter::{Outcome, SeccompData, check, run};
use super::{Assembler, BpfError, Instruction, PROGRAM_LIMIT};

fn run_with(program: &[Instruction], number: u32) -> Outcome {
    check(program);
    run(program, &SeccompData { number, arch: 0, instruction_pointer: 0, args: [0; 6] })
}

#[test]
fn an_instruction_has_the_kernels_layout() {
    assert_eq!(size_of::<Instruction>(), size_of::<libc::sock_filter>());
    let converted = libc::sock_filter::from(Instruction { code: 1, jt: 2, jf: 3, k: 4 });
    assert_eq!((converted.code, converted.jt, converted.jf, converted.k), (1, 2, 3, 4));
}

#[test]
fn branches_take_the_right_arm() {
    let mut assembler = Assembler::new();
    let (five, other, big, bits, none) =
        (assembler.label(), assembler.label(), assembler.label(), assembler.label(), assembler.label());
    let (small, masked) = (assembler.label(), assembler.label());
    assembler.load(0);
    assembler.if_equal(5, five, other);
    assembler.bind(other);
    assembler.if_at_least(1000, big, small);
    assembler.bind(small);
    assembler.goto(masked);
    assembler.bind(masked);
    assembler.and(0xf0);
    assembler.if_any_bit(0x30, bits, none);
    for (value, label) in [(1, five), (2, big), (3, bits), (4, none)] {
        assembler.bind(label);
        assembler.return_value(value);
    }
    let program = assembler.assemble().expect("assembles");
    let cases = [(5, 1), (1000, 2), (u32::MAX, 2), (999, 3), (0x10, 3), (0x40, 4), (0x0f, 4)];
    for (number, expected) in cases {
        assert_eq!(run_with(&program, number).value, expected, "{number}");
    }
}

/// A chain of `count` comparisons whose arms all lie behind the chain, `holds` before `fails` or
/// after it.
fn chain(count: u32, fails_first: bool) -> Assembler {
    let mut assembler = Assembler::new();
    let (hit, miss) = (assembler.label(), assembler.label());
    assembler.load(0);
    for value in 0..count {
        if value + 1 == count {
            assembler.if_equal(value * 2, hit, miss);
        } else {
            let next = assembler.label();
            assembler.if_equal(value * 2, hit, next);
            assembler.bind(next);
        }
    }
    let order = if fails_first { [(0, miss), (1, hit)] } else { [(1, hit), (0, miss)] };
    for (value, label) in order {
        assembler.bind(label);
        assembler.return_value(value);
    }
    assembler
}

#[test]
fn jumps_further_than_255_are_carried_on() {
    for count in (250..262).chain([600, 1500]) {
        for fails_first in [false, true] {
            let program = chain(count, fails_first).assemble().expect("assembles");
            for number in 0..count * 2 + 2 {
                let expected = u32::from(number % 2 == 0 && number < count * 2);
                assert_eq!(run_with(&program, number).value, expected, "{number} of {count}");
            }
        }
    }
}

#[test]
fn both_arms_can_be_far() {
    let mut assembler = Assembler::new();
    let (holds, fails, rest) = (assembler.label(), assembler.label(), assembler.label());
    assembler.load(0);
    assembler.if_equal(7, holds, fails);
    assembler.bind(rest);
    for _ in 0..400 {
        assembler.and(1);
    }
    assembler.return_value(9);
    for (value, label) in [(1, holds), (2, fails)] {
        assembler.bind(label);
        assembler.return_value(value);
    }
    let program = assembler.assemble().expect("assembles");
    assert_eq!(run_with(&program, 7).value, 1);
    assert_eq!(run_with(&program, 8).value, 2);
}

#[test]
fn broken_programs_are_refused() {
    assert_eq!(Assembler::new().assemble(), Err(BpfError::MissingReturn));

    let mut endless = Assembler::new();
    let start = endless.label();
    endless.bind(start);
    endless.goto(start);
    endless.return_value(0);
    assert_eq!(endless.assemble(), Err(BpfError::BackwardJump { at: 0 }));

    let mut unbound = Assembler::new();
    let nowhere = unbound.label();
    unbound.goto(nowhere);
    unbound.return_value(0);
    assert_eq!(unbound.assemble(), Err(BpfError::UnboundLabel { label: 0 }));
    unbound.bind(nowhere);
    assert_eq!(unbound.assemble(), Err(BpfError::UnboundLabel { label: 0 }), "bound behind the end");
    unbound.return_value(0);
    assert!(unbound.assemble().is_ok());
    unbound.bind(nowhere);
    assert_eq!(unbound.assemble(), Err(BpfError::LabelBoundTwice { label: 0 }));
}

#[test]
fn the_kernels_limit_is_kept() {
    let mut assembler = Assembler::new();
    for _ in 1..PROGRAM_LIMIT {
        assembler.load(0);
    }
    assembler.return_value(0);
    assert_eq!(assembler.assemble().map(|program| program.len()), Ok(PROGRAM_LIMIT));
    assembler.return_value(0);
    assert_eq!(assembler.assemble(), Err(BpfError::ProgramTooLong { length: PROGRAM_LIMIT + 1 }));
}
