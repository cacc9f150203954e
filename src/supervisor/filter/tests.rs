//! Runs compiled filters over calls, with an interpreter that checks them as the kernel does.

use libc::ENOSYS;
use proptest::prelude::*;
use syscalls::Sysno;

use super::super::bpf::interpreter::{Outcome, SeccompData, check, run};
use super::super::bpf::{Instruction, PROGRAM_LIMIT};
use super::super::syscall_table::row;
use super::*;

mod rules;

const ALLOW: Action = Action::Allow;
const NOTIFY: Action = Action::Notify;
const OPEN: FilterOptions = FilterOptions {
    full_mediation: false,
    signals_are_scoped: true,
    replayable: false,
    replayed: false,
    hides_names: false,
    orders_output: false,
    orders_error: false,
};

/// Upper halves that the kernel drops where it takes an `int`.
const UPPER: [u64; 4] = [0, 1 << 32, 0x5555_5555 << 32, 0xffff_ffff << 32];

fn every_option() -> impl Iterator<Item = FilterOptions> {
    (0..128u8).map(|bits| FilterOptions {
        full_mediation: bits & 1 != 0,
        signals_are_scoped: bits & 2 != 0,
        replayable: bits & 4 != 0,
        replayed: bits & 8 != 0,
        hides_names: bits & 16 != 0,
        orders_output: bits & 32 != 0,
        orders_error: bits & 64 != 0,
    })
}

fn program(options: FilterOptions) -> Vec<Instruction> {
    let program = compile(options).expect("compiles");
    check(&program);
    program
}

fn outcome(program: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> Outcome {
    run(program, &SeccompData { number, arch, instruction_pointer: 0x1234_5678_9abc, args })
}

fn named(names: &str) -> Vec<Sysno> {
    names.split_whitespace().map(|name| name.parse().expect("a syscall")).collect()
}

/// What the table says.
fn expected(number: u32, options: FilterOptions, args: &[u64; 6]) -> Action {
    row(number).map_or(UNKNOWN, |row| row.disposition.under(options).action(args))
}

fn refuse(errno: i32) -> Action {
    Action::Errno(errno)
}

/// Asserts the action for a call whose first arguments are given.
#[track_caller]
fn expect<const N: usize>(program: &[Instruction], syscall: Sysno, given: [u64; N], action: Action) {
    let mut args = [0xdead_beef_dead_beef; 6];
    args[..N].copy_from_slice(&given);
    let answer = outcome(program, ARCHITECTURE, syscall.id().unsigned_abs(), args).value;
    assert_eq!(answer, return_value(action), "{syscall}({given:x?}) => {answer:#x}, not {action:?}");
}

/// As [`expect`], whatever the upper halves of all given arguments hold.
#[track_caller]
fn expect_ints<const N: usize>(program: &[Instruction], syscall: Sysno, given: [u64; N], action: Action) {
    for upper in UPPER {
        expect(program, syscall, given.map(|value| value | upper), action);
    }
}

#[test]
fn every_number_gets_what_its_row_says() {
    for options in every_option() {
        let program = program(options);
        for number in (0..2000).chain(X32_FIRST - 5..X32_FIRST + 600).chain(u32::MAX - 5..=u32::MAX) {
            for args in [[0; 6], [u64::MAX; 6], [0o6001; 6], [1, 2, 3, 4, 5, 6]] {
                let expected = expected(number, options, &args);
                let answer = outcome(&program, ARCHITECTURE, number, args).value;
                assert_eq!(answer, return_value(expected), "{number} {args:x?}");
            }
        }
    }
}

fn register() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0_u64..64, 0_u64..0x1_0000, any::<u32>().prop_map(u64::from)]
}

proptest! {
    /// The program and the table agree on any registers; small values are frequent, as in flags.
    #[test]
    fn the_program_agrees_with_the_table(
        number in 0_u32..480,
        args in proptest::array::uniform6(register()),
    ) {
        let options = FilterOptions { full_mediation: true, signals_are_scoped: false, ..OPEN };
        let expected = expected(number, options, &args);
        let program = compile(options).expect("compiles");
        let answer = outcome(&program, ARCHITECTURE, number, args).value;
        prop_assert_eq!(answer, return_value(expected));
    }
}

#[test]
fn calls_that_are_always_allowed_can_be_cached() {
    let program = program(OPEN);
    for number in 0..480 {
        let Some(Decision::Always(ALLOW)) = row(number).map(|row| row.disposition.under(OPEN)) else {
            continue;
        };
        let outcome = outcome(&program, ARCHITECTURE, number, [0; 6]);
        assert!(!outcome.looked_further, "{number} loads an argument");
        assert_eq!(outcome.value, libc::SECCOMP_RET_ALLOW);
    }
}

#[test]
fn no_call_takes_many_steps_and_the_program_is_small() {
    for options in every_option() {
        let program = program(options);
        assert!(program.len() < PROGRAM_LIMIT / 4, "{} instructions", program.len());
        for number in 0..480 {
            let steps = outcome(&program, ARCHITECTURE, number, [u64::MAX; 6]).steps;
            assert!(steps < 64, "{number} takes {steps} steps");
            if let Some(Decision::Always(_)) = row(number).map(|row| row.disposition.under(options)) {
                assert!(steps <= 24, "{number} takes {steps} steps");
            }
        }
    }
}

#[test]
fn the_answer_does_not_depend_on_where_the_call_came_from() {
    assert!(program(OPEN).iter().all(|instruction| {
        instruction.code != super::super::bpf::LOAD || ![8, 12].contains(&instruction.k)
    }));
}

#[test]
fn only_the_image_reads_the_machine_clock_in_a_replayable_run() {
    let program = program(FilterOptions { replayable: true, ..OPEN });
    let real = crate::sys::vdso::REAL_CLOCK;
    let outcome = |number: Sysno, instruction_pointer, clock| {
        let args = [clock, 0, 0, 0, 0, 0];
        let data =
            SeccompData { number: number.id().unsigned_abs(), arch: ARCHITECTURE, instruction_pointer, args };
        run(&program, &data).value
    };
    let (allow, notify) = (return_value(ALLOW), return_value(NOTIFY));
    assert_eq!(outcome(Sysno::clock_gettime, real, 1), allow);
    for pointer in [real + 1, real - 1, real | 1 << 32, 0] {
        assert_eq!(outcome(Sysno::clock_gettime, pointer, 1), notify);
    }
    assert_eq!(outcome(Sysno::gettimeofday, real, 1), notify);
    assert_eq!(outcome(Sysno::openat, real, 1), notify);
    // CPU time of the process.
    assert_eq!(outcome(Sysno::clock_gettime, 0, 2), allow);
}

#[test]
fn other_conventions_run_nothing() {
    const I386: u32 = 0x4000_0003;
    const AARCH64: u32 = 0xc000_00b7;
    let program = program(OPEN);
    for arch in [I386, AARCH64, 0, u32::MAX] {
        for number in [0, 1, 5, 231, 335, X32_FIRST, u32::MAX] {
            let answer = outcome(&program, arch, number, [0; 6]).value;
            assert_eq!(answer, libc::SECCOMP_RET_KILL_PROCESS, "{arch:#x} {number}");
        }
    }
    let no_call = return_value(refuse(ENOSYS));
    for number in [X32_FIRST, X32_FIRST + 1, X32_FIRST + 520, 0x8000_0000, 0xc000_0000, u32::MAX] {
        assert_eq!(outcome(&program, ARCHITECTURE, number, [0; 6]).value, no_call, "{number:#x}");
    }
}

#[test]
fn hot_calls_are_allowed() {
    let program = program(OPEN);
    let hot = "\
        read write close fstat lseek mmap munmap mprotect brk futex epoll_wait epoll_pwait \
        epoll_ctl recvfrom recvmsg poll clock_gettime newfstatat statx rt_sigreturn \
        restart_syscall exit_group wait4 getdents64";
    for syscall in named(hot) {
        expect(&program, syscall, [u64::MAX; 6], ALLOW);
    }
}
