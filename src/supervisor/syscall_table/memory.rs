//! Memory, and the objects that processes share by it.

use super::arguments::{any_bit, any_upper_bit, clause, masked};
use super::{ALLOW, Action, ArgumentRules, Disposition, ENOSYS, EPERM, Group};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: ALLOW,
        reason: "the process's own address space; files are mapped from judged descriptors, and \
                 write roots are mounted noexec",
        syscalls: calls![
            mmap munmap mprotect mremap brk madvise msync mincore mlock mlock2 mlockall munlock
            munlockall remap_file_pages pkey_alloc pkey_free pkey_mprotect map_shadow_stack mseal
            membarrier
        ],
    },
    Group {
        disposition: ALLOW,
        reason: "runtimes use it for code and shared buffers; an exec of it is refused by the \
                 exec guard",
        syscalls: calls![memfd_create],
    },
    Group {
        disposition: ENOSYS,
        reason: "the supervisor could not read a path or argument that lies in such memory; off \
                 by default before Linux 6.5, where ENOSYS was the answer",
        syscalls: calls![memfd_secret],
    },
    Group {
        disposition: ALLOW,
        reason: "placement of the process's own memory (numactl, OpenJDK, databases)",
        syscalls: calls![mbind set_mempolicy get_mempolicy set_mempolicy_home_node],
    },
    Group {
        disposition: EPERM,
        reason: "moves another process's pages and tells which pages it shares",
        syscalls: calls![migrate_pages move_pages],
    },
    Group {
        disposition: EPERM,
        reason: "reads, writes or discards another process's memory: rewrites the argv of a fresh \
                 image while it is being judged",
        syscalls: calls![process_vm_readv process_vm_writev process_madvise process_mrelease],
    },
    Group {
        disposition: EPERM,
        reason: "stops the kernel, and whoever reads this memory, at a chosen page; EPERM is what \
                 vm.unprivileged_userfaultfd=0, the default, answers",
        syscalls: calls![userfaultfd],
    },
    Group {
        disposition: ALLOW,
        reason: "System V and POSIX objects live in the run's own IPC namespace",
        syscalls: calls![
            shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
            mq_open mq_unlink mq_notify mq_getsetattr
        ],
    },
    Group {
        disposition: Disposition::ReplayedWait(&QUEUE),
        reason: "as above; in a replay, a time to wait until is one of the recorded run",
        syscalls: calls![mq_timedsend mq_timedreceive],
    },
    Group {
        disposition: Disposition::ReplayedWait(&FUTEX),
        reason: "waking and waiting between the run's own threads; in a replay, a time to wait until is \
                 one of the recorded run",
        syscalls: calls![futex],
    },
    Group {
        disposition: ALLOW,
        reason: "waking and waiting between the run's own threads",
        syscalls: calls![
            futex_waitv futex_wake futex_wait futex_requeue set_robust_list get_robust_list
            rseq
        ],
    },
];

/// FUTEX_CMD_MASK, within what operations there are, and FUTEX_CLOCK_REALTIME.
const FUTEX_COMMAND: u32 = 0x7f | 256;
/// FUTEX_LOCK_PI, and with FUTEX_CLOCK_REALTIME FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2: those
/// that wait until a time of that clock.
const UNTIL: [u32; 5] = [6, 6 | 256, 9 | 256, 11 | 256, 13 | 256];

/// Without a time there is nothing to translate: in practice no address has a lower half of 0.
const FUTEX: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[masked(1, FUTEX_COMMAND, &UNTIL), any_bit(3, u32::MAX)], Action::Trace)],
    otherwise: Action::Allow,
};

/// Those that have a time to wait until.
const QUEUE: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[any_bit(4, u32::MAX)], Action::Trace), clause(&[any_upper_bit(4)], Action::Trace)],
    otherwise: Action::Allow,
};
