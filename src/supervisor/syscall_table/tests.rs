//! Tests of the table itself; what the kernel makes of it is tested with the filter.

use std::collections::BTreeSet;

use syscalls::Sysno;

use super::*;

const OPEN: FilterOptions = FilterOptions {
    full_mediation: false,
    signals_are_scoped: true,
    replayable: false,
    replayed: false,
    hides_names: false,
    orders_output: false,
    orders_error: false,
};
const STRICT: FilterOptions = FilterOptions {
    full_mediation: true,
    signals_are_scoped: false,
    replayable: true,
    replayed: true,
    hides_names: false,
    orders_output: false,
    orders_error: false,
};

/// `Sysno::iter` leaves the last syscall out, so the numbers are tried one by one as well.
#[test]
fn every_known_syscall_is_classified_with_a_reason() {
    let by_number: BTreeSet<Sysno> = (0..Sysno::table_size()).filter_map(Sysno::new).collect();
    let iterated: BTreeSet<Sysno> = Sysno::iter().collect();
    assert!(iterated.is_subset(&by_number));
    let classified: BTreeSet<Sysno> = rows().map(|(syscall, _)| syscall).collect();
    assert_eq!(classified, by_number);
    for syscall in by_number {
        let row = row(syscall.id().unsigned_abs()).unwrap_or_else(|| panic!("{syscall} is missing"));
        assert!(row.reason.len() > 20, "{syscall} needs a reason");
        assert!(!row.reason.contains("  "), "{syscall}: {:?}", row.reason);
    }
}

#[test]
fn numbers_that_no_row_names_are_unknown() {
    for number in [337, 423, Sysno::last().id().unsigned_abs() + 1, 100_000, X32_FIRST, u32::MAX] {
        assert!(row(number).is_none(), "{number}");
    }
    assert_eq!(UNKNOWN, Action::Errno(libc::ENOSYS));
}

/// The recorded run's clock is marked at each call that both runs see.
#[test]
fn what_reaches_the_supervisor_in_replays_alone_is_known() {
    let recording = FilterOptions { replayable: true, replayed: false, ..STRICT };
    let replay = FilterOptions { replayed: true, ..recording };
    let seen: Vec<_> = notified(recording).collect();
    for syscall in notified(replay) {
        assert_ne!(seen.contains(&syscall), is_for_replays(syscall.id().unsigned_abs()), "{syscall}");
    }
}

#[test]
fn errnos_are_ones_that_a_system_call_can_return() {
    let check = |action: Action| {
        if let Action::Errno(errno) = action {
            assert!((1..=133).contains(&errno), "{errno}");
        }
    };
    for (_, row) in rows() {
        match row.disposition.under(STRICT) {
            Decision::Always(action) => check(action),
            Decision::Arguments(rules) | Decision::UnlessFrom { rules, .. } => {
                check(rules.otherwise);
                rules.clauses.iter().for_each(|clause| check(clause.then));
            }
        }
    }
}

/// A value outside its mask could never be met: a rule that refuses nothing.
#[test]
fn every_test_can_hold() {
    for (syscall, row) in rows() {
        let Decision::Arguments(rules) = row.disposition.under(STRICT) else {
            continue;
        };
        assert!(!rules.clauses.is_empty(), "{syscall}");
        for test in rules.clauses.iter().flat_map(|clause| clause.when) {
            assert!(test.argument < 6, "{syscall}");
            match test.condition {
                Condition::AnyBit(mask) => assert_ne!(mask, 0, "{syscall}"),
                Condition::OneOf { mask, values } => {
                    assert!(!values.is_empty(), "{syscall}");
                    assert!(values.iter().all(|value| value & !mask == 0), "{syscall}");
                }
            }
        }
    }
}

/// The supervisor answers exactly these; a new one here needs an answer there.
#[test]
fn the_supervisor_sees_these_calls() {
    let expected = "\
        open connect socket bind listen socketpair execve truncate rename mkdir rmdir creat \
        link unlink symlink chmod fchmod chown fchown lchown utime mknod setxattr lsetxattr \
        fsetxattr removexattr lremovexattr fremovexattr utimes openat mkdirat mknodat \
        fchownat futimesat unlinkat renameat linkat symlinkat fchmodat utimensat renameat2 \
        execveat openat2 flock ioctl fchmodat2 setxattrat removexattrat file_setattr";
    let expected: BTreeSet<&str> = expected.split_whitespace().collect();
    let names = |options| notified(options).map(|syscall| syscall.name()).collect::<BTreeSet<_>>();
    assert_eq!(names(OPEN), expected);
    assert_eq!(names(FilterOptions { full_mediation: true, ..OPEN }), expected);
}
