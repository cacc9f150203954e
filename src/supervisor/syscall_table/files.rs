//! Files: descriptors, paths, and the calls that change what a path leads to.

use libc::{EOPNOTSUPP, EPERM as NOT_PERMITTED};
use syscalls::Sysno;

use super::arguments::{ArgumentRules, any_bit, clause, masked, one_of};
use super::{ALLOW, Action, Disposition, Group, NOTIFY};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: NOTIFY,
        reason: "takes a path to a file: judged, recorded and, where content counts, answered with a descriptor",
        syscalls: &[Sysno::open, Sysno::openat, Sysno::openat2, Sysno::creat, Sysno::truncate],
    },
    Group {
        disposition: NOTIFY,
        reason: "makes, moves or removes a name: judged at every path it takes, and recorded",
        syscalls: &[
            Sysno::rename, Sysno::renameat, Sysno::renameat2, Sysno::link, Sysno::linkat, Sysno::symlink,
            Sysno::symlinkat, Sysno::unlink, Sysno::unlinkat, Sysno::rmdir, Sysno::mkdir, Sysno::mkdirat,
            Sysno::mknod, Sysno::mknodat,
        ],
    },
    Group {
        disposition: NOTIFY,
        reason: "changes an inode's owner, times or attributes, by path or through a descriptor that need not \
                 be open for writing",
        syscalls: &[
            Sysno::chown, Sysno::fchown, Sysno::lchown, Sysno::fchownat, Sysno::utime, Sysno::utimes,
            Sysno::futimesat, Sysno::utimensat, Sysno::setxattr, Sysno::lsetxattr, Sysno::fsetxattr,
            Sysno::setxattrat, Sysno::removexattr, Sysno::lremovexattr, Sysno::fremovexattr,
            Sysno::removexattrat, Sysno::file_setattr,
        ],
    },
    Group {
        disposition: Disposition::Arguments(&MODE_SECOND),
        reason: "changes a mode: judged and recorded; setuid and setgid bits never",
        syscalls: &[Sysno::chmod, Sysno::fchmod],
    },
    Group {
        disposition: Disposition::Arguments(&MODE_THIRD),
        reason: "changes a mode: judged and recorded; setuid and setgid bits never",
        syscalls: &[Sysno::fchmodat, Sysno::fchmodat2],
    },
    Group {
        disposition: ALLOW,
        reason: "acts on a descriptor that a judged open gave",
        syscalls: &[
            Sysno::read, Sysno::write, Sysno::close, Sysno::fstat, Sysno::lseek, Sysno::pread64, Sysno::pwrite64,
            Sysno::readv, Sysno::writev, Sysno::preadv, Sysno::pwritev, Sysno::preadv2, Sysno::pwritev2,
            Sysno::dup, Sysno::dup2, Sysno::dup3, Sysno::close_range, Sysno::sendfile, Sysno::splice, Sysno::tee,
            Sysno::vmsplice, Sysno::copy_file_range, Sysno::fsync, Sysno::fdatasync, Sysno::sync_file_range,
            Sysno::readahead, Sysno::fadvise64, Sysno::cachestat, Sysno::getdents, Sysno::getdents64,
            Sysno::fstatfs, Sysno::fgetxattr, Sysno::flistxattr, Sysno::fchdir,
        ],
    },
    Group {
        disposition: ALLOW,
        reason: "needs a descriptor that was opened for writing, which was judged as such",
        syscalls: &[Sysno::ftruncate, Sysno::fallocate],
    },
    Group {
        disposition: ALLOW,
        reason: "libaio: reads and writes on descriptors alone; unlike io_uring it opens and connects nothing",
        syscalls: &[
            Sysno::io_setup, Sysno::io_destroy, Sysno::io_submit, Sysno::io_cancel, Sysno::io_getevents,
            Sysno::io_pgetevents,
        ],
    },
    Group {
        disposition: ALLOW,
        reason: "names, stat and sizes inside the view are visible by design; what is not granted is not there",
        syscalls: &[
            Sysno::stat, Sysno::lstat, Sysno::newfstatat, Sysno::statx, Sysno::access, Sysno::faccessat,
            Sysno::faccessat2, Sysno::readlink, Sysno::readlinkat, Sysno::statfs, Sysno::getcwd, Sysno::chdir,
            Sysno::listxattr, Sysno::llistxattr, Sysno::listxattrat, Sysno::file_getattr,
        ],
    },
    Group {
        // EOPNOTSUPP is a file system without attributes: ls, cp and tar go on without a word.
        disposition: Disposition::FullMediation {
            judged: Action::Errno(EOPNOTSUPP),
            otherwise: Action::Allow,
        },
        reason: "reads what a file carries by its path, with no open that could be judged",
        syscalls: &[Sysno::getxattr, Sysno::lgetxattr, Sysno::getxattrat],
    },
    Group {
        disposition: ALLOW,
        reason: "shows the mounts of its own namespace, as /proc/self/mountinfo does",
        syscalls: &[Sysno::statmount, Sysno::listmount],
    },
    Group {
        disposition: ALLOW,
        reason: "the process's own mask; the supervisor reads it where it acts in the process's stead",
        syscalls: &[Sysno::umask],
    },
    Group {
        disposition: ALLOW,
        reason: "writes back what is dirty; programs that finish with sync must not fail",
        syscalls: &[Sysno::sync, Sysno::syncfs],
    },
    Group {
        disposition: Disposition::JudgeLocks { judged: &FLOCK, otherwise: Action::Allow },
        reason: "flock takes an exclusive lock through a descriptor that is open for reading alone",
        syscalls: &[Sysno::flock],
    },
    Group {
        disposition: Disposition::Arguments(&FCNTL),
        reason: "descriptor flags, record locks (exclusive ones need a descriptor for writing), seals; no leases",
        syscalls: &[Sysno::fcntl],
    },
    Group {
        disposition: Disposition::Arguments(&IOCTL),
        reason: "terminals, sockets and files need it; not what types into a terminal or changes inodes unseen",
        syscalls: &[Sysno::ioctl],
    },
    Group {
        disposition: ALLOW,
        reason: "pipes, event descriptors and waiting on them stay within the run",
        syscalls: &[
            Sysno::pipe, Sysno::pipe2, Sysno::poll, Sysno::ppoll, Sysno::select, Sysno::pselect6,
            Sysno::epoll_create, Sysno::epoll_create1, Sysno::epoll_ctl, Sysno::epoll_wait, Sysno::epoll_pwait,
            Sysno::epoll_pwait2, Sysno::eventfd, Sysno::eventfd2, Sysno::signalfd, Sysno::signalfd4,
            Sysno::timerfd_create, Sysno::timerfd_settime, Sysno::timerfd_gettime,
        ],
    },
    Group {
        disposition: ALLOW,
        reason: "watches names and changes inside the view, never content",
        syscalls: &[
            Sysno::inotify_init, Sysno::inotify_init1, Sysno::inotify_add_watch, Sysno::inotify_rm_watch,
        ],
    },
];

/// A nosuid mount does not stop a run from planting setuid programs on the host's files. The kernel reads an
/// `umode_t` of 16 bits, in which these two bits lie. The bits in the modes of open, creat and mknod are
/// registers (or, for openat2, copied) too: the supervisor refuses them where it judges the path. mkdir drops
/// them by itself (man 2 mkdir).
const SET_ID_BITS: u32 = 0o6000;

const MODE_SECOND: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[any_bit(1, SET_ID_BITS)], Action::Errno(NOT_PERMITTED))],
    otherwise: Action::Notify,
};

const MODE_THIRD: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[any_bit(2, SET_ID_BITS)], Action::Errno(NOT_PERMITTED))],
    otherwise: Action::Notify,
};

const LOCK_EX: u32 = 2;

const FLOCK: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[any_bit(1, LOCK_EX)], Action::Notify)],
    otherwise: Action::Allow,
};

/// A lease on a file, or a delegation on a directory, stalls whoever opens the file next: the supervisor too,
/// between its judgement and its answer.
const F_SETLEASE: u32 = 1024;
const F_SETDELEG: u32 = 1024 + 16;

const FCNTL: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(1, &[F_SETLEASE, F_SETDELEG])], Action::Errno(NOT_PERMITTED))],
    otherwise: Action::Allow,
};

/// TIOCSTI types into the caller's terminal and TIOCLINUX pastes into a console (CVE-2023-1523); a line
/// discipline that TIOCSETD sets outlives the run and can leave the user's terminal dead.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

/// Type and number of an ioctl, without the size and direction above them.
const TYPE_AND_NUMBER: u32 = 0xffff;
const TYPE: u32 = 0xff00;

/// Inode flags, project ids, verity and encryption are set through descriptors for reading: FS_IOC_SETFLAGS,
/// FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY, FS_IOC_SET_ENCRYPTION_POLICY. `file_setattr` is judged; these
/// twins answer as a file system without such attributes does.
const INODE_CHANGES: [u32; 4] = [0x6602, 0x5820, 0x6685, 0x6613];

/// Cloning file ranges has Btrfs's type byte on every file system (FICLONE, FICLONERANGE, FIDEDUPERANGE) and
/// acts on descriptors that were judged.
const CLONE_RANGES: [u32; 3] = [0x9409, 0x940d, 0x9436];

/// Btrfs and bcachefs make, snapshot and delete subvolumes for anyone: names, and copies of denied files,
/// that no judged call made. ENOTTY is any other file system's answer.
const SUBVOLUME_TYPES: [u32; 2] = [0x9400, 0xbc00];

const IOCTL: ArgumentRules = ArgumentRules {
    clauses: &[
        clause(&[one_of(1, &[TIOCSTI, TIOCLINUX, TIOCSETD])], Action::Errno(NOT_PERMITTED)),
        clause(&[masked(1, TYPE_AND_NUMBER, &INODE_CHANGES)], Action::Errno(EOPNOTSUPP)),
        clause(&[masked(1, TYPE_AND_NUMBER, &CLONE_RANGES)], Action::Allow),
        clause(&[masked(1, TYPE, &SUBVOLUME_TYPES)], Action::Errno(libc::ENOTTY)),
    ],
    otherwise: Action::Allow,
};
