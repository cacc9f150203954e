//! What belongs to the host and its administrator.
//!
//! Most of it fails already for want of capabilities; the filter keeps the code behind it out of
//! reach too. EPERM is what a process without the capability gets anyway.

use super::{ENOSYS, EPERM, Group};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: EPERM,
        reason: "changes the view that confines the run",
        syscalls: calls![
            mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount mount_setattr
            open_tree_attr
        ],
    },
    Group {
        disposition: EPERM,
        reason: "without OPEN_TREE_CLONE it is an open by path that nobody would judge",
        syscalls: calls![open_tree],
    },
    Group { disposition: EPERM, reason: "enters a namespace that is not the run's", syscalls: calls![setns] },
    Group {
        disposition: EPERM,
        reason: "reaches files by handle, past every path and mount",
        syscalls: calls![open_by_handle_at name_to_handle_at],
    },
    Group {
        disposition: EPERM,
        reason: "watches, or holds up, the opens of others",
        syscalls: calls![fanotify_init fanotify_mark],
    },
    Group {
        disposition: EPERM,
        reason: "loads code into the kernel, replaces it or stops the machine",
        syscalls: calls![
            init_module finit_module delete_module kexec_load kexec_file_load reboot bpf
        ],
    },
    Group {
        disposition: EPERM,
        reason: "sets the machine's clock. adjtimex with modes 0 only reads, but the modes lie in \
                 memory, which a filter cannot see",
        syscalls: calls![settimeofday clock_settime clock_adjtime adjtimex],
    },
    Group {
        disposition: EPERM,
        reason: "the machine's name, swap, accounting, quotas, ports and kernel log",
        syscalls: calls![
            sethostname setdomainname swapon swapoff acct quotactl quotactl_fd iopl ioperm syslog
            vhangup
        ],
    },
    Group {
        disposition: EPERM,
        reason: "measures and traces kernel and neighbours; a large and often broken surface",
        syscalls: calls![perf_event_open],
    },
    Group {
        // ENOSYS is a kernel without CONFIG_KEYS: runc, cryptsetup and systemd go on without
        // keyrings.
        disposition: ENOSYS,
        reason: "keyrings are not namespaced: keys of the user's other sessions would be in reach",
        syscalls: calls![add_key request_key keyctl],
    },
    Group {
        // ENOSYS is a kernel without CONFIG_IO_URING: libuv and others fall back to epoll and
        // threads.
        disposition: ENOSYS,
        reason: "opens and connects from kernel threads, past this filter",
        syscalls: calls![io_uring_setup io_uring_enter io_uring_register],
    },
];
