//! Files: descriptors, paths, and the calls that change what a path leads to.

use libc::{EOPNOTSUPP, EPERM as NOT_PERMITTED};

use super::arguments::{ArgumentRules, Clause, any_bit, clause, masked, one_of};
use super::process::TRANSLATED_TIMER;
use super::{ALLOW, Action, Disposition, Group, NOTIFY};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: NOTIFY,
        reason: "takes a path to a file: judged, recorded and, where content counts, answered \
                 with a descriptor",
        syscalls: calls![open openat openat2 creat truncate],
    },
    Group {
        disposition: NOTIFY,
        reason: "makes, moves or removes a name: judged at every path it takes, and recorded",
        syscalls: calls![
            rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat rmdir mkdir
            mkdirat mknod mknodat
        ],
    },
    Group {
        disposition: NOTIFY,
        reason: "changes an inode's owner, times or attributes, by path or through a descriptor \
                 that need not be open for writing",
        syscalls: calls![
            chown fchown lchown fchownat utime utimes futimesat utimensat setxattr lsetxattr
            fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr
        ],
    },
    Group {
        // A nosuid mount does not stop a run from planting setuid programs on the host's files.
        disposition: NOTIFY,
        reason: "changes a mode: judged and recorded; setuid and setgid bits never",
        syscalls: calls![chmod fchmod fchmodat fchmodat2],
    },
    Group {
        disposition: ALLOW,
        reason: "acts on a descriptor that a judged open gave",
        syscalls: calls![
            read close lseek pread64 pwrite64 readv preadv pwritev preadv2
            pwritev2 dup dup2 dup3 close_range sendfile splice tee vmsplice copy_file_range fsync
            fdatasync sync_file_range readahead fadvise64 cachestat
            fgetxattr flistxattr fchdir
        ],
    },
    Group {
        disposition: Disposition::Output { output: &OUTPUT, error: &ERROR, both: &BOTH },
        reason: "writes to a descriptor that a judged open gave; to standard output or error in the recorded order, if \
                 the run is to be replayed",
        syscalls: calls![write writev],
    },
    Group {
        disposition: Disposition::Replayable,
        reason: "asks how much is free where a name or a descriptor leads: noted, if the run is to be replayed",
        syscalls: calls![statfs fstatfs],
    },
    Group {
        disposition: Disposition::Listing,
        reason: "lists a directory: without the names of former traces, and in a replay in the recorded order",
        syscalls: calls![getdents64 getdents],
    },
    Group {
        disposition: Disposition::Replayed,
        reason: "names, times and sizes inside the view are visible by design: in a replay with the recorded \
                 times and numbers",
        syscalls: calls![stat lstat fstat newfstatat statx],
    },
    Group {
        disposition: ALLOW,
        reason: "needs a descriptor that was opened for writing, which was judged as such",
        syscalls: calls![ftruncate fallocate],
    },
    Group {
        disposition: ALLOW,
        reason: "libaio: reads and writes on descriptors alone; unlike io_uring it opens and \
                 connects nothing",
        syscalls: calls![io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents],
    },
    Group {
        disposition: ALLOW,
        reason: "names inside the view are visible by design; what is not granted \
                 is not there",
        syscalls: calls![
            access faccessat faccessat2 readlink readlinkat getcwd chdir listxattr llistxattr listxattrat file_getattr
        ],
    },
    Group {
        // EOPNOTSUPP is a file system without attributes: ls, cp and tar go on without a word.
        disposition: Disposition::FullMediation {
            judged: Action::Errno(EOPNOTSUPP),
            otherwise: Action::Allow,
        },
        reason: "reads what a file carries by its path, with no open that could be judged",
        syscalls: calls![getxattr lgetxattr getxattrat],
    },
    Group {
        disposition: ALLOW,
        reason: "shows the mounts of its own namespace, as /proc/self/mountinfo does",
        syscalls: calls![statmount listmount],
    },
    Group {
        disposition: ALLOW,
        reason: "the process's own mask; the supervisor reads it where it acts in the process's \
                 stead",
        syscalls: calls![umask],
    },
    Group {
        disposition: ALLOW,
        reason: "writes back what is dirty; programs that finish with sync must not fail",
        syscalls: calls![sync syncfs],
    },
    Group {
        disposition: Disposition::Arguments(&FLOCK),
        reason: "takes an exclusive lock through a descriptor that is open for reading alone, which \
                 would stall the host's own programs; shared locks pass",
        syscalls: calls![flock],
    },
    Group {
        disposition: Disposition::GroupSignals { unscoped: &FCNTL_UNSCOPED, otherwise: &FCNTL },
        reason: "descriptor flags, record locks (exclusive ones need a descriptor for writing), \
                 seals; no leases",
        syscalls: calls![fcntl],
    },
    Group {
        disposition: Disposition::GroupSignals { unscoped: &IOCTL_UNSCOPED, otherwise: &IOCTL },
        reason: "terminals, sockets and files need it; not what types into a terminal or changes \
                 inodes unseen; the caller's group, which has no number here, gets the terminal \
                 back by the supervisor",
        syscalls: calls![ioctl],
    },
    Group {
        disposition: ALLOW,
        reason: "pipes, event descriptors and waiting on them stay within the run",
        syscalls: calls![
            pipe pipe2 poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait
            epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_gettime
        ],
    },
    Group {
        disposition: Disposition::ReplayedWait(&TRANSLATED_TIMER),
        reason: "as above; in a replay, a time of its clock is one of the recorded run",
        syscalls: calls![timerfd_settime],
    },
    Group {
        disposition: Disposition::Replayable,
        reason: "as above; in a replay it is told when time is left out",
        syscalls: calls![timerfd_create],
    },
    Group {
        disposition: ALLOW,
        reason: "watches names and changes inside the view, never content",
        syscalls: calls![inotify_init inotify_init1 inotify_add_watch inotify_rm_watch],
    },
];

const LOCK_EX: u32 = 2;

const FLOCK: ArgumentRules =
    ArgumentRules { clauses: &[clause(&[any_bit(1, LOCK_EX)], Action::Notify)], otherwise: Action::Allow };

/// A lease on a file, or a delegation on a directory, stalls whoever opens the file next: the
/// supervisor too, between its judgement and its answer.
const F_SETLEASE: u32 = 1024;
const F_SETDELEG: u32 = 1024 + 16;

const LEASES: Clause = clause(&[one_of(1, &[F_SETLEASE, F_SETDELEG])], Action::Errno(NOT_PERMITTED));

const FCNTL: ArgumentRules = ArgumentRules { clauses: &[LEASES], otherwise: Action::Allow };

/// A terminal that is to tell of its input (SIGIO) takes its foreground process group for the owner (tty_ioctl(4)), which
/// is the caller's, outside of the run; F_SETSIG makes that any signal.
const FCNTL_UNSCOPED: ArgumentRules = ArgumentRules {
    clauses: &[
        LEASES,
        clause(&[one_of(1, &[F_SETFL]), any_bit(2, O_ASYNC)], Action::Errno(NOT_PERMITTED)),
        clause(&[one_of(1, &[F_SETSIG])], Action::Errno(NOT_PERMITTED)),
    ],
    otherwise: Action::Allow,
};

const F_SETFL: u32 = 4;
const F_SETSIG: u32 = 10;
const O_ASYNC: u32 = 0x2000;
/// As O_ASYNC.
const FIOASYNC: u32 = 0x5452;

/// Gives the terminal to a process group.
const TIOCSPGRP: u32 = 0x5410;

/// TIOCSTI types into the caller's terminal and TIOCLINUX pastes into a console (CVE-2023-1523); a
/// line discipline that TIOCSETD sets outlives the run and can leave the user's terminal dead.
///
/// What else outlives the run: TIOCEXCL closes the terminal to others (`/dev/tty` too); KDSETMODE, KDSKBMODE,
/// VT_SETMODE, VT_ACTIVATE and VT_SETACTIVATE leave a console dark, deaf, held, or another one in its place.
///
/// And what leaves every console of one size, or unreadable: VT_RESIZE, VT_RESIZEX, KDFONTOP, and the PIO_ calls for
/// maps, fonts and colours.
const LASTING: [u32; 20] = [
    0x5412, 0x541c, 0x5423, 0x540c, 0x4b3a, 0x4b45, 0x5602, 0x5606, 0x560f, 0x5609, 0x560a, 0x4b72, 0x4b41,
    0x4b61, 0x4b67, 0x4b68, 0x4b6a, 0x4b6c, 0x4b6d, 0x4b71,
];

/// TCXONC with TCOOFF (tcflow(3)): what stops by it shows nothing more, whatever key is pressed.
const TCXONC: u32 = 0x540a;
const TCOOFF: u32 = 0;

/// Type and number of an ioctl, without the size and direction above them.
const TYPE_AND_NUMBER: u32 = 0xffff;
const TYPE: u32 = 0xff00;

/// Inode flags, project ids, verity and generations are set through descriptors for reading:
/// FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY, FS_IOC_SETVERSION, EXT4_IOC_SETVERSION,
/// FAT_IOCTL_SET_ATTRIBUTES.
/// `file_setattr` is judged; these twins answer as a file system without such attributes does.
const INODE_CHANGES: [u32; 6] = [0x6602, 0x5820, 0x6685, 0x7602, 0x6604, 0x7211];

/// Encryption (fscrypt) has the numbers from 0x13 to 0x1b, between ext4's for administrators. Not only policies are
/// set by it: whoever has a descriptor for reading can take the user's key away (FS_IOC_REMOVE_ENCRYPTION_KEY), and
/// with it every file that the user has encrypted.
const ENCRYPTION: u32 = 0x6610;
const ALL_BUT_FOUR_BITS: u32 = 0xfff0;

/// Cloning file ranges has Btrfs's type byte on every file system (FICLONE, FICLONERANGE,
/// FIDEDUPERANGE) and acts on descriptors that were judged.
const CLONE_RANGES: [u32; 3] = [0x9409, 0x940d, 0x9436];

/// Btrfs and bcachefs make, snapshot and delete subvolumes for anyone: names, and copies of denied
/// files, that no judged call made. ENOTTY is any other file system's answer.
const SUBVOLUME_TYPES: [u32; 2] = [0x9400, 0xbc00];

const IOCTL_CLAUSES: [Clause; 7] = [
    clause(&[one_of(1, &LASTING)], Action::Errno(NOT_PERMITTED)),
    clause(&[one_of(1, &[TCXONC]), one_of(2, &[TCOOFF])], Action::Errno(NOT_PERMITTED)),
    clause(&[one_of(1, &[TIOCSPGRP])], Action::Notify),
    clause(&[masked(1, TYPE_AND_NUMBER, &INODE_CHANGES)], Action::Errno(EOPNOTSUPP)),
    clause(&[masked(1, ALL_BUT_FOUR_BITS, &[ENCRYPTION])], Action::Errno(EOPNOTSUPP)),
    clause(&[masked(1, TYPE_AND_NUMBER, &CLONE_RANGES)], Action::Allow),
    clause(&[masked(1, TYPE, &SUBVOLUME_TYPES)], Action::Errno(libc::ENOTTY)),
];

const IOCTL: ArgumentRules = ArgumentRules { clauses: &IOCTL_CLAUSES, otherwise: Action::Allow };

const IOCTL_UNSCOPED: ArgumentRules = ArgumentRules {
    clauses: &{
        let [a, b, c, d, e, f, g] = IOCTL_CLAUSES;
        [a, b, c, d, e, f, g, clause(&[one_of(1, &[FIOASYNC])], Action::Errno(NOT_PERMITTED))]
    },
    otherwise: Action::Allow,
};

/// Writes to these descriptors.
const fn writes_to(which: &'static [Clause]) -> ArgumentRules {
    ArgumentRules { clauses: which, otherwise: Action::Allow }
}

const OUTPUT: ArgumentRules = writes_to(&[clause(&[one_of(0, &[1])], Action::Notify)]);
const ERROR: ArgumentRules = writes_to(&[clause(&[one_of(0, &[2])], Action::Notify)]);
const BOTH: ArgumentRules = writes_to(&[clause(&[one_of(0, &[1, 2])], Action::Notify)]);
