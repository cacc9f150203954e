//! What belongs to the host and its administrator.
//!
//! Most of it fails already for want of capabilities; the filter keeps the code behind it out of reach too.
//! EPERM is what a process without the capability gets anyway.

use syscalls::Sysno;

use super::{ENOSYS, EPERM, Group};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: EPERM,
        reason: "changes the view that confines the run",
        syscalls: &[
            Sysno::mount, Sysno::umount2, Sysno::pivot_root, Sysno::chroot, Sysno::fsopen, Sysno::fsconfig,
            Sysno::fsmount, Sysno::fspick, Sysno::move_mount, Sysno::mount_setattr, Sysno::open_tree_attr,
        ],
    },
    Group {
        disposition: EPERM,
        reason: "without OPEN_TREE_CLONE it is an open by path that nobody would judge",
        syscalls: &[Sysno::open_tree],
    },
    Group {
        disposition: EPERM,
        reason: "enters a namespace that is not the run's",
        syscalls: &[Sysno::setns],
    },
    Group {
        disposition: EPERM,
        reason: "reaches files by handle, past every path and mount",
        syscalls: &[Sysno::open_by_handle_at, Sysno::name_to_handle_at],
    },
    Group {
        disposition: EPERM,
        reason: "watches, or holds up, the opens of others",
        syscalls: &[Sysno::fanotify_init, Sysno::fanotify_mark],
    },
    Group {
        disposition: EPERM,
        reason: "loads code into the kernel, replaces it or stops the machine",
        syscalls: &[
            Sysno::init_module, Sysno::finit_module, Sysno::delete_module, Sysno::kexec_load,
            Sysno::kexec_file_load, Sysno::reboot, Sysno::bpf,
        ],
    },
    Group {
        disposition: EPERM,
        reason: "sets the machine's clock. adjtimex with modes 0 only reads, but the modes lie in memory, \
                 which a filter cannot see",
        syscalls: &[
            Sysno::settimeofday, Sysno::clock_settime, Sysno::clock_adjtime, Sysno::adjtimex,
        ],
    },
    Group {
        disposition: EPERM,
        reason: "the machine's name, swap, accounting, quotas, ports and kernel log",
        syscalls: &[
            Sysno::sethostname, Sysno::setdomainname, Sysno::swapon, Sysno::swapoff, Sysno::acct, Sysno::quotactl,
            Sysno::quotactl_fd, Sysno::iopl, Sysno::ioperm, Sysno::syslog, Sysno::vhangup,
        ],
    },
    Group {
        disposition: EPERM,
        reason: "measures and traces kernel and neighbours; a large and often broken surface",
        syscalls: &[Sysno::perf_event_open],
    },
    Group {
        // ENOSYS is a kernel without CONFIG_KEYS: runc, cryptsetup and systemd go on without keyrings.
        disposition: ENOSYS,
        reason: "keyrings are not namespaced: keys of the user's other sessions would be in reach",
        syscalls: &[Sysno::add_key, Sysno::request_key, Sysno::keyctl],
    },
    Group {
        // ENOSYS is a kernel without CONFIG_IO_URING: libuv and others fall back to epoll and threads.
        disposition: ENOSYS,
        reason: "opens and connects from kernel threads, past this filter",
        syscalls: &[Sysno::io_uring_setup, Sysno::io_uring_enter, Sysno::io_uring_register],
    },
];
