//! Calls that the kernel has given up or never had on this architecture, and those nothing needs
//! any more.

use super::{ENOSYS, Group};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: ENOSYS,
        reason: "answers ENOSYS on any current kernel",
        syscalls: calls![
            create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall
            tuxcall security vserver set_thread_area get_thread_area epoll_ctl_old epoll_wait_old
            _sysctl lookup_dcookie
        ],
    },
    Group {
        disposition: ENOSYS,
        reason: "maps a library by path with no open that could be judged; a.out loaders alone \
                 used it",
        syscalls: calls![uselib],
    },
    Group {
        disposition: ENOSYS,
        reason: "tells about file systems of the host by number, in the view or not; C libraries \
                 have dropped it",
        syscalls: calls![ustat sysfs],
    },
];
