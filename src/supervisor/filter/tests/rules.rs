//! Calls that are decided on their arguments, one test a rule, upper register halves included.

use libc::{
    EACCES, EAFNOSUPPORT, EBUSY, EINVAL, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, ESOCKTNOSUPPORT,
};
use syscalls::Sysno;

use super::{ALLOW, NOTIFY, OPEN, expect, expect_ints, named, program, refuse};
use crate::supervisor::filter::FilterOptions;

#[test]
fn sockets_of_listed_families_alone_exist() {
    const UNIX: u64 = 1;
    const INET: u64 = 2;
    const INET6: u64 = 10;
    const NETLINK: u64 = 16;
    const FLAGS: [u64; 4] = [0, 0o4000, 0o2000000, 0o2004000]; // SOCK_NONBLOCK, SOCK_CLOEXEC
    let program = program(OPEN);
    let mut cases = vec![
        ([UNIX, 1, 0], ALLOW),
        ([UNIX, 5, 0], ALLOW),
        ([UNIX, 2, 0], NOTIFY),
        ([UNIX, 3, 0], NOTIFY),
        ([UNIX, 4, 0], refuse(ESOCKTNOSUPPORT)),
        ([NETLINK, 3, 0], ALLOW),
        ([NETLINK, 2, 0], ALLOW),
    ];
    for family in [INET, INET6] {
        cases.extend([
            ([family, 1, 0], ALLOW),
            ([family, 1, 6], ALLOW),
            ([family, 2, 0], ALLOW),
            ([family, 2, 17], ALLOW),
            ([family, 2, 1], refuse(EACCES)),
            ([family, 2, 58], refuse(EACCES)),
            ([family, 3, 0], refuse(EPERM)),
            ([family, 3, 1], refuse(EPERM)),
            ([family, 3, 255], refuse(EPERM)),
            ([family, 10, 0x0300], refuse(EPERM)),
            ([family, 1, 262], refuse(EPROTONOSUPPORT)),
            ([family, 1, 132], refuse(EPROTONOSUPPORT)),
            ([family, 1, 17], refuse(EPROTONOSUPPORT)),
            ([family, 2, 6], refuse(EPROTONOSUPPORT)),
            ([family, 2, 136], refuse(EPROTONOSUPPORT)),
            ([family, 5, 132], refuse(ESOCKTNOSUPPORT)),
            ([family, 6, 33], refuse(ESOCKTNOSUPPORT)),
        ]);
    }
    cases.extend((1..=25).map(|protocol| ([NETLINK, 3, protocol], refuse(EPROTONOSUPPORT))));
    let others = (0..=60).filter(|family| ![UNIX, INET, INET6, NETLINK].contains(family));
    cases.extend(others.map(|family| ([family, 1, 0], refuse(EAFNOSUPPORT))));
    cases.push(([0xffff_ffff, 1, 0], refuse(EAFNOSUPPORT)));
    for (given, action) in cases {
        for flags in FLAGS {
            expect_ints(&program, Sysno::socket, [given[0], given[1] | flags, given[2]], action);
        }
    }
}

#[test]
fn pairs_are_of_unix_sockets() {
    let program = program(OPEN);
    for (given, action) in [
        ([1, 1, 0], ALLOW),
        ([1, 5, 0], ALLOW),
        ([1, 1 | 0o2004000, 0], ALLOW),
        ([1, 2, 0], NOTIFY),
        ([1, 3, 0], NOTIFY),
        ([1, 7, 0], refuse(ESOCKTNOSUPPORT)),
        ([2, 1, 0], refuse(EOPNOTSUPP)),
        ([10, 2, 0], refuse(EOPNOTSUPP)),
        ([30, 1, 0], refuse(EAFNOSUPPORT)),
        ([40, 1, 0], refuse(EAFNOSUPPORT)),
    ] {
        expect_ints(&program, Sysno::socketpair, given, action);
    }
}

#[test]
fn fast_open_is_refused() {
    const MSG_FASTOPEN: u64 = 0x2000_0000;
    const MSG_NOSIGNAL: u64 = 0x4000;
    let program = program(OPEN);
    for (flags, action) in [
        (0, ALLOW),
        (MSG_NOSIGNAL, ALLOW),
        (!MSG_FASTOPEN & 0xffff_ffff, ALLOW),
        (MSG_FASTOPEN, refuse(EOPNOTSUPP)),
        (MSG_FASTOPEN | MSG_NOSIGNAL, refuse(EOPNOTSUPP)),
    ] {
        expect_ints(&program, Sysno::sendto, [3, 0, 0, flags], action);
        expect_ints(&program, Sysno::sendmsg, [3, 0, flags], action);
        expect_ints(&program, Sysno::sendmmsg, [3, 0, 1, flags], action);
    }
    for option in [23, 30, 33, 34] {
        expect_ints(&program, Sysno::setsockopt, [3, 6, option], refuse(EOPNOTSUPP));
        expect_ints(&program, Sysno::setsockopt, [3, 1, option], ALLOW);
    }
    expect_ints(&program, Sysno::setsockopt, [3, 6, 1], ALLOW);
    expect_ints(&program, Sysno::setsockopt, [3, 41, 26], ALLOW);
}

#[test]
fn new_namespaces_are_refused() {
    const SIGCHLD: u64 = 17;
    const THREAD: u64 = 0x003d_0f00; // what pthread_create passes
    let program = program(OPEN);
    for flags in [SIGCHLD, THREAD, 0x4000 | 0x100 | SIGCHLD, 0x0100_0011, 0x80 | SIGCHLD, 0xff] {
        expect_ints(&program, Sysno::clone, [flags], ALLOW);
    }
    let namespaces = [17, 25, 26, 27, 28, 29, 30].map(|bit| 1_u64 << bit);
    for flag in namespaces.into_iter().chain([0x0080_0000]) {
        expect_ints(&program, Sysno::clone, [flag | SIGCHLD], refuse(EPERM));
        expect_ints(&program, Sysno::clone, [flag | THREAD], refuse(EPERM));
    }
    for flags in [0, 0x200, 0x400, 0x600, 0x4_0000, 0x1_0000] {
        expect(&program, Sysno::unshare, [flags], ALLOW);
    }
    for flag in namespaces.into_iter().chain([0x80, 0x0010_0000, 0x80 | 0x400, 1 << 32, (1 << 40) | 0x400]) {
        expect(&program, Sysno::unshare, [flag], refuse(EPERM));
    }
    expect(&program, Sysno::clone3, [0, 88], refuse(ENOSYS));
    expect(&program, Sysno::setns, [3, 0], refuse(EPERM));
}

#[test]
fn the_limits_of_pid_1_stay() {
    let program = program(OPEN);
    expect_ints(&program, Sysno::prlimit64, [1, 7], refuse(EPERM));
    expect_ints(&program, Sysno::prlimit64, [0, 7], ALLOW);
    expect_ints(&program, Sysno::prlimit64, [2, 7], ALLOW);
}

#[test]
fn terminals_are_not_typed_into() {
    let program = program(OPEN);
    for command in [0x5412, 0x541c, 0x5423, 0x540c, 0x4b3a, 0x4b45, 0x5602, 0x5606, 0x560f, 0x5609, 0x4b72] {
        expect_ints(&program, Sysno::ioctl, [0, command], refuse(EPERM));
    }
    // TCXONC: TCOOFF, and TCOON
    expect_ints(&program, Sysno::ioctl, [0, 0x540a, 0], refuse(EPERM));
    expect_ints(&program, Sysno::ioctl, [0, 0x540a, 1], ALLOW);
    // TIOCSPGRP
    expect_ints(&program, Sysno::ioctl, [0, 0x5410], NOTIFY);
    // TCGETS, TCSETS, TIOCGWINSZ, TIOCSCTTY, FIONREAD, FIONBIO, FIOCLEX, TIOCGPTN, SIOCGIFCONF
    for command in [0x5401, 0x5402, 0x5413, 0x540e, 0x541b, 0x5421, 0x5451, 0x8004_5430, 0x8912] {
        expect_ints(&program, Sysno::ioctl, [0, command], ALLOW);
    }
}

#[test]
fn inodes_and_subvolumes_do_not_change_unseen() {
    let program = program(OPEN);
    // FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY, FS_IOC_SET_ENCRYPTION_POLICY, FAT_IOCTL_SET_ATTRIBUTES
    for command in [0x4008_6602, 0x401c_5820, 0x4080_6685, 0x800c_6613, 0x4004_7211] {
        expect_ints(&program, Sysno::ioctl, [3, command], refuse(EOPNOTSUPP));
    }
    // FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_REMOVE_ENCRYPTION_KEY, and that for all users
    for command in [0xc050_6617, 0xc040_6618, 0xc040_6619] {
        expect_ints(&program, Sysno::ioctl, [3, command], refuse(EOPNOTSUPP));
    }
    // Subvolume and snapshot create and destroy, old and new; bcachefs' subvolume create
    for command in [0x5000_940e, 0x5000_9418, 0x5000_9401, 0x5000_9417, 0x5000_940f, 0x5000_943f, 0x4018_bc10]
    {
        expect_ints(&program, Sysno::ioctl, [3, command], refuse(ENOTTY));
    }
    // FICLONE, FICLONERANGE, FIDEDUPERANGE, FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FIEMAP
    for command in [0x4004_9409, 0x4020_940d, 0xc018_9436, 0x8008_6601, 0x801c_581f, 0xc020_660b] {
        expect_ints(&program, Sysno::ioctl, [3, command], ALLOW);
    }
}

#[test]
fn leases_are_refused_and_exclusive_locks_judged() {
    let open = program(OPEN);
    expect_ints(&open, Sysno::fcntl, [3, 1024], refuse(EPERM));
    expect_ints(&open, Sysno::fcntl, [3, 1040], refuse(EPERM));
    for command in [0, 1, 2, 3, 4, 6, 7, 37, 38, 1025, 1026, 1030, 1031, 1033] {
        expect_ints(&open, Sysno::fcntl, [3, command], ALLOW);
    }
    for (operation, action) in [(1, ALLOW), (8, ALLOW), (5, ALLOW), (2, NOTIFY), (6, NOTIFY)] {
        expect_ints(&open, Sysno::flock, [3, operation], action);
    }
}

#[test]
fn personality_is_plain_or_a_query() {
    let program = program(OPEN);
    for domain in [0, 0x2_0000, 0x4_0000, 0xffff_ffff] {
        expect_ints(&program, Sysno::personality, [domain], ALLOW);
    }
    for domain in [1, 8, 0x6_0000, 0x40_0000, 0x800_0000, 0xffff_fffe] {
        expect_ints(&program, Sysno::personality, [domain], refuse(EPERM));
    }
}

#[test]
fn a_guest_has_no_filter_in_a_run_that_is_to_be_replayed() {
    let program = program(FilterOptions { replayable: true, ..OPEN });
    for (operation, flags) in [(0, 0), (1, 0), (1, 8), (1, 1)] {
        expect_ints(&program, Sysno::seccomp, [operation, flags], refuse(EINVAL));
    }
    for operation in [2, 3] {
        expect_ints(&program, Sysno::seccomp, [operation, 0], ALLOW);
    }
    for mode in [1, 2] {
        expect_ints(&program, Sysno::prctl, [22, mode], refuse(EINVAL));
    }
    expect_ints(&program, Sysno::prctl, [4, 0], ALLOW);
    expect_ints(&program, Sysno::prctl, [35, 8], refuse(EPERM));
}

#[test]
fn a_guests_filter_is_fine_and_its_listener_is_not() {
    let program = program(OPEN);
    for flags in [0, 1, 2, 4, 16, 32] {
        expect_ints(&program, Sysno::seccomp, [1, flags], ALLOW);
        expect_ints(&program, Sysno::seccomp, [1, flags | 8], refuse(EBUSY));
    }
    for operation in [0, 2, 3] {
        expect_ints(&program, Sysno::seccomp, [operation, 0], ALLOW);
    }
    expect_ints(&program, Sysno::prctl, [22, 2], ALLOW);
    expect_ints(&program, Sysno::prctl, [4, 0], ALLOW);
    expect_ints(&program, Sysno::prctl, [35, 8], refuse(EPERM));
}

#[test]
fn attributes_are_read_by_path_unless_files_are_mediated() {
    let syscalls = [Sysno::getxattr, Sysno::lgetxattr, Sysno::getxattrat];
    let (open, mediated) = (program(OPEN), program(FilterOptions { full_mediation: true, ..OPEN }));
    for syscall in syscalls {
        expect(&open, syscall, [0], ALLOW);
        expect(&mediated, syscall, [0], refuse(EOPNOTSUPP));
    }
    expect(&mediated, Sysno::fgetxattr, [0], ALLOW);
}

#[test]
fn refusals_use_the_errno_that_programs_survive() {
    let program = program(OPEN);
    let without_permission = "\
        ptrace process_vm_readv process_vm_writev pidfd_getfd process_madvise process_mrelease \
        kcmp bpf perf_event_open userfaultfd mount umount2 pivot_root chroot fsopen fsconfig \
        fsmount fspick open_tree open_tree_attr move_mount mount_setattr open_by_handle_at \
        name_to_handle_at init_module finit_module delete_module kexec_load kexec_file_load \
        reboot swapon swapoff acct quotactl quotactl_fd iopl ioperm settimeofday clock_settime \
        clock_adjtime adjtimex sethostname setdomainname syslog vhangup migrate_pages move_pages \
        fanotify_init modify_ldt";
    for syscall in named(without_permission) {
        expect(&program, syscall, [0; 6], refuse(EPERM));
    }
    let absent = "\
        io_uring_setup io_uring_enter io_uring_register add_key request_key keyctl memfd_secret \
        uselib nfsservctl lookup_dcookie create_module";
    for syscall in named(absent) {
        expect(&program, syscall, [0; 6], refuse(ENOSYS));
    }
    expect(&program, Sysno::lsm_set_self_attr, [0; 6], refuse(EOPNOTSUPP));
}
