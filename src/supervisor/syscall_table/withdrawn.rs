//! Calls that the kernel has given up or never had on this architecture, and those nothing needs any more.

use syscalls::Sysno;

use super::{ENOSYS, Group};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: ENOSYS,
        reason: "answers ENOSYS on any current kernel",
        syscalls: &[
            Sysno::create_module, Sysno::get_kernel_syms, Sysno::query_module, Sysno::nfsservctl, Sysno::getpmsg,
            Sysno::putpmsg, Sysno::afs_syscall, Sysno::tuxcall, Sysno::security, Sysno::vserver,
            Sysno::set_thread_area, Sysno::get_thread_area, Sysno::epoll_ctl_old, Sysno::epoll_wait_old,
            Sysno::_sysctl, Sysno::lookup_dcookie,
        ],
    },
    Group {
        disposition: ENOSYS,
        reason: "maps a library by path with no open that could be judged; a.out loaders alone used it",
        syscalls: &[Sysno::uselib],
    },
    Group {
        disposition: ENOSYS,
        reason: "tells about file systems of the host by number, in the view or not; C libraries have dropped it",
        syscalls: &[Sysno::ustat, Sysno::sysfs],
    },
];
