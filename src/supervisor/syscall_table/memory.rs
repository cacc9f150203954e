//! Memory, and the objects that processes share by it.

use syscalls::Sysno;

use super::{ALLOW, ENOSYS, EPERM, Group};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: ALLOW,
        reason: "the process's own address space; files are mapped from judged descriptors, and write roots \
                 are mounted noexec",
        syscalls: &[
            Sysno::mmap, Sysno::munmap, Sysno::mprotect, Sysno::mremap, Sysno::brk, Sysno::madvise, Sysno::msync,
            Sysno::mincore, Sysno::mlock, Sysno::mlock2, Sysno::mlockall, Sysno::munlock, Sysno::munlockall,
            Sysno::remap_file_pages, Sysno::pkey_alloc, Sysno::pkey_free, Sysno::pkey_mprotect,
            Sysno::map_shadow_stack, Sysno::mseal, Sysno::membarrier,
        ],
    },
    Group {
        disposition: ALLOW,
        reason: "runtimes use it for code and shared buffers; an exec of it is refused by the exec guard",
        syscalls: &[Sysno::memfd_create],
    },
    Group {
        disposition: ENOSYS,
        reason: "the supervisor could not read a path or argument that lies in such memory; off by default \
                 before Linux 6.5, where ENOSYS was the answer",
        syscalls: &[Sysno::memfd_secret],
    },
    Group {
        disposition: ALLOW,
        reason: "placement of the process's own memory (numactl, OpenJDK, databases)",
        syscalls: &[
            Sysno::mbind, Sysno::set_mempolicy, Sysno::get_mempolicy, Sysno::set_mempolicy_home_node,
        ],
    },
    Group {
        disposition: EPERM,
        reason: "moves another process's pages and tells which pages it shares",
        syscalls: &[Sysno::migrate_pages, Sysno::move_pages],
    },
    Group {
        disposition: EPERM,
        reason: "reads, writes or discards another process's memory: rewrites the argv of a fresh image while \
                 it is being judged",
        syscalls: &[
            Sysno::process_vm_readv, Sysno::process_vm_writev, Sysno::process_madvise, Sysno::process_mrelease,
        ],
    },
    Group {
        disposition: EPERM,
        reason: "stops the kernel, and whoever reads this memory, at a chosen page; EPERM is what \
                 vm.unprivileged_userfaultfd=0, the default, answers",
        syscalls: &[Sysno::userfaultfd],
    },
    Group {
        disposition: ALLOW,
        reason: "System V and POSIX objects live in the run's own IPC namespace",
        syscalls: &[
            Sysno::shmget, Sysno::shmat, Sysno::shmdt, Sysno::shmctl, Sysno::semget, Sysno::semop,
            Sysno::semtimedop, Sysno::semctl, Sysno::msgget, Sysno::msgsnd, Sysno::msgrcv, Sysno::msgctl,
            Sysno::mq_open, Sysno::mq_unlink, Sysno::mq_timedsend, Sysno::mq_timedreceive, Sysno::mq_notify,
            Sysno::mq_getsetattr,
        ],
    },
    Group {
        disposition: ALLOW,
        reason: "waking and waiting between the run's own threads",
        syscalls: &[
            Sysno::futex, Sysno::futex_waitv, Sysno::futex_wake, Sysno::futex_wait, Sysno::futex_requeue,
            Sysno::set_robust_list, Sysno::get_robust_list, Sysno::rseq,
        ],
    },
];
