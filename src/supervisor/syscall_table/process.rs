//! Processes and threads: their life, signals, identity, scheduling and clocks.

use libc::{EBUSY, EINVAL, EOPNOTSUPP, EPERM as NOT_PERMITTED};

use super::arguments::{ANY, ArgumentRules, any_bit, any_upper_bit, clause, masked, one_of};
use super::{ALLOW, Action, Disposition, ENOSYS, EPERM, Group, NOTIFY};

pub(super) const GROUPS: &[Group] = &[
    Group {
        disposition: NOTIFY,
        reason: "starts a program: judged here, and again on what the kernel really took",
        syscalls: calls![execve execveat],
    },
    Group {
        disposition: Disposition::ReplayedArguments { replayed: &REPLAYED_CLONE, otherwise: &CLONE },
        reason: "new threads and processes; no new namespaces, in which the run would have \
                 capabilities",
        syscalls: calls![clone],
    },
    Group {
        // glibc, musl and Go fall back to clone on ENOSYS alone, not on EPERM.
        disposition: ENOSYS,
        reason: "its flags lie in memory, where a filter cannot see them",
        syscalls: calls![clone3],
    },
    Group {
        disposition: Disposition::Arguments(&UNSHARE),
        reason: "parts with threads' shared state; no new namespaces",
        syscalls: calls![unshare],
    },
    Group {
        disposition: Disposition::ReplayedBirth,
        reason: "makes a process: in a replay one after the other, with the recorded ids",
        syscalls: calls![fork vfork],
    },
    Group {
        disposition: ALLOW,
        reason: "begins, ends or waits for a process of the run",
        syscalls: calls![
            exit wait4 waitid set_tid_address arch_prctl restart_syscall
        ],
    },
    Group {
        disposition: Disposition::Replayable,
        reason: "ends a process of the run: after its siblings that ended before, if it is to be replayed",
        syscalls: calls![exit_group],
    },
    Group {
        disposition: EPERM,
        reason: "rewrites a process after it was judged, and keeps the supervisor from tracing it",
        syscalls: calls![ptrace],
    },
    Group {
        disposition: EPERM,
        reason: "takes descriptors from another process, or compares what two hold",
        syscalls: calls![pidfd_getfd kcmp],
    },
    Group {
        disposition: ALLOW,
        reason: "process ids mean something only inside the run's own pid namespace",
        syscalls: calls![tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open],
    },
    Group {
        disposition: Disposition::GroupSignals { unscoped: &KILL, otherwise: &ANY },
        reason: "as above, but for the caller's own process group, which reaches out of the pid \
                 namespace: Landlock's signal scope holds it back",
        syscalls: calls![kill],
    },
    Group {
        disposition: Disposition::GroupSignals { unscoped: &PIDFD_SEND_SIGNAL, otherwise: &ANY },
        reason: "as above, with a flag for the process group",
        syscalls: calls![pidfd_send_signal],
    },
    Group {
        disposition: ALLOW,
        reason: "the process's own signals and timers",
        syscalls: calls![
            rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend
            sigaltstack pause getitimer timer_create timer_gettime timer_getoverrun timer_delete
        ],
    },
    Group {
        disposition: Disposition::Replayable,
        reason: "the process's own timer: in a replay it is told when time is left out",
        syscalls: calls![alarm],
    },
    Group {
        disposition: Disposition::ReplayableTimer(&REAL_TIMER),
        reason: "as above, ITIMER_REAL; with another upper half it is set by us, or by a program that \
                 deceives nobody but itself",
        syscalls: calls![setitimer],
    },
    Group {
        disposition: Disposition::ReplayableWait { replayable: &ABSOLUTE_TIMER, replayed: &TRANSLATED_TIMER },
        reason: "the process's own timers: as above, where the time is one of a clock",
        syscalls: calls![timer_settime],
    },
    Group {
        disposition: ALLOW,
        reason: "reads clocks of CPU time, or sleeps",
        syscalls: calls![
            clock_getres nanosleep times
        ],
    },
    Group {
        disposition: Disposition::ReplayedWait(&SLEEP),
        reason: "sleeps: in a replay, a time to wake up at is one of the recorded run",
        syscalls: calls![clock_nanosleep],
    },
    Group {
        disposition: Disposition::ReplayableClock(&CLOCK),
        reason: "reads a clock: from a tape, if the run is to be replayed",
        syscalls: calls![clock_gettime],
    },
    Group {
        disposition: Disposition::Replayable,
        reason: "reads a clock: from a tape, if the run is to be replayed",
        syscalls: calls![gettimeofday time],
    },
    Group {
        disposition: Disposition::Replayable,
        reason: "asks for random bytes: those of the run's seed, if it is to be replayed",
        syscalls: calls![getrandom],
    },
    Group {
        disposition: Disposition::Replayed,
        reason: "asks how the system is: in a replay, how it was",
        syscalls: calls![sysinfo],
    },
    Group {
        disposition: ALLOW,
        reason: "asks who and what the process is",
        syscalls: calls![
            getpid gettid getppid getpgid getpgrp getsid getuid geteuid getgid getegid getresuid
            getresgid getgroups capget uname getrusage getrlimit getcpu getpriority
            ioprio_get sched_getparam sched_getscheduler sched_getattr sched_getaffinity
            sched_get_priority_max sched_get_priority_min sched_rr_get_interval lsm_get_self_attr
            lsm_list_modules
        ],
    },
    Group {
        disposition: ALLOW,
        reason: "no capability and one mapped id: the kernel refuses every other id itself, and \
                 programs that drop privileges set the id they have",
        syscalls: calls![
            setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset
            setpgid setsid
        ],
    },
    Group {
        disposition: ALLOW,
        reason: "a pid names a process of the run's own pid namespace or none (PRIO_USER and \
                 IOPRIO_WHO_USER too pass over processes that have no pid there), and nothing can \
                 be raised without a capability",
        syscalls: calls![
            setrlimit sched_yield sched_setparam sched_setscheduler sched_setattr
            sched_setaffinity
        ],
    },
    Group {
        disposition: Disposition::Arguments(&LIMITS),
        reason: "as above, but never for pid 1, which is ours: without room for descriptors it could not \
                 serve",
        syscalls: calls![prlimit64],
    },
    Group {
        disposition: Disposition::Arguments(&SET_PRIORITY),
        reason: "as above, but never for the caller's own process group: the launcher is in it",
        syscalls: calls![setpriority],
    },
    Group {
        disposition: Disposition::Arguments(&SET_IO_PRIORITY),
        reason: "as above, but never for the caller's own process group: the launcher is in it",
        syscalls: calls![ioprio_set],
    },
    Group {
        disposition: Disposition::Arguments(&PERSONALITY),
        reason: "other execution domains change how programs are mapped and how calls are read",
        syscalls: calls![personality],
    },
    Group {
        disposition: Disposition::ReplayableArguments { replayable: &PRCTL_UNFILTERED, otherwise: &PRCTL },
        reason: "the process's own settings, a further seccomp filter included",
        syscalls: calls![prctl],
    },
    Group {
        disposition: Disposition::ReplayableArguments { replayable: &UNFILTERED, otherwise: &SECCOMP },
        reason: "programs that confine themselves further may (Chromium, systemd, OpenSSH), but for runs \
                 that are to be replayed: a filter could refuse the calls by which we set up a clock",

        syscalls: calls![seccomp],
    },
    Group {
        disposition: ALLOW,
        reason: "programs that confine themselves further may",
        syscalls: calls![landlock_create_ruleset landlock_add_rule landlock_restrict_self],
    },
    Group {
        // EOPNOTSUPP is a host without such a module.
        disposition: Disposition::Always(Action::Errno(EOPNOTSUPP)),
        reason: "changes the security module's label, as the read-only /proc/self/attr does not \
                 allow either",
        syscalls: calls![lsm_set_self_attr],
    },
    Group {
        disposition: EPERM,
        reason: "16-bit code segments: a surface of its own that 64-bit programs do not use",
        syscalls: calls![modify_ldt],
    },
    Group {
        disposition: ALLOW,
        reason: "issued by the trampoline of the host's own probes: refusing it would crash a \
                 process that the host's administrator traces; elsewhere it raises SIGILL or \
                 ENXIO",
        syscalls: calls![uretprobe uprobe],
    },
];

/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME (0x80) is not
/// among them: the low byte of clone's flags is the exit signal, which the kernel cuts off first.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// REALTIME, its alarm, and TAI: those that no namespace sets back.
const REAL_CLOCKS: [u32; 3] = [0, 8, 11];

const SLEEP: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(0, &REAL_CLOCKS), any_bit(1, TIMER_ABSTIME)], Action::Trace)],
    otherwise: Action::Allow,
};

/// REALTIME, MONOTONIC, MONOTONIC_RAW, the coarse ones, BOOTTIME, the alarm ones, TAI: all but those of CPU
/// time and of devices.
const CLOCKS: [u32; 9] = [0, 1, 4, 5, 6, 7, 8, 9, 11];

const ITIMER_REAL: u32 = 0;

/// The kernel takes the lower half; the supervisor sets bits of the upper one in the calls that it makes a
/// task make.
const REAL_TIMER: ArgumentRules = ArgumentRules {
    clauses: &[
        clause(&[any_upper_bit(0)], Action::Allow),
        clause(&[one_of(0, &[ITIMER_REAL])], Action::Notify),
    ],
    otherwise: Action::Allow,
};

const TIMER_ABSTIME: u32 = 1;

const ABSOLUTE_TIMER: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[any_bit(1, TIMER_ABSTIME)], Action::Notify)],
    otherwise: Action::Allow,
};

/// The same, and TFD_TIMER_ABSTIME.
pub(super) const TRANSLATED_TIMER: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[any_bit(1, TIMER_ABSTIME)], Action::Trace)],
    otherwise: Action::Allow,
};

const CLOCK: ArgumentRules =
    ArgumentRules { clauses: &[clause(&[one_of(0, &CLOCKS)], Action::Notify)], otherwise: Action::Allow };

/// The child of a traced process would escape its tracer; only kernel threads need it.
const CLONE_UNTRACED: u32 = 0x0080_0000;

/// clone takes its flags as `unsigned long`, of which the kernel uses the lower half
/// (`lower_32_bits`).
const CLONE: ArgumentRules = ArgumentRules {
    clauses: &[
        clause(&[any_bit(0, NEW_NAMESPACES | CLONE_UNTRACED)], Action::Errno(NOT_PERMITTED)),
        clause(&[masked(0, CLONE_FS | CLONE_THREAD, &[CLONE_FS])], Action::Errno(NOT_PERMITTED)),
    ],
    otherwise: Action::Allow,
};

/// The same in a replay, where the supervisor says which id comes next.
const REPLAYED_CLONE: ArgumentRules = ArgumentRules { clauses: CLONE.clauses, otherwise: Action::Trace };

/// A process, not a thread, that shares its working directory goes on sharing it after an exec: it
/// could move the directory from which an interpreter opens the script that was judged.
const CLONE_FS: u32 = 0x0000_0200;
const CLONE_THREAD: u32 = 0x0001_0000;

/// CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM: what may be parted with. All else makes a
/// namespace (CLONE_NEWTIME counts here), or may do so in a later kernel. The kernel reads the
/// whole register.
const SHARED_STATE: u32 = 0x0005_0f00;

const UNSHARE: ArgumentRules = ArgumentRules {
    clauses: &[
        clause(&[any_bit(0, !SHARED_STATE)], Action::Errno(NOT_PERMITTED)),
        clause(&[any_upper_bit(0)], Action::Errno(NOT_PERMITTED)),
    ],
    otherwise: Action::Allow,
};

/// PER_LINUX, UNAME26, ADDR_NO_RANDOMIZE and the query.
const PERSONALITIES: [u32; 4] = [0, 0x0002_0000, 0x0004_0000, 0xffff_ffff];

const PERSONALITY: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(0, &PERSONALITIES)], Action::Allow)],
    otherwise: Action::Errno(NOT_PERMITTED),
};

/// Moves where the kernel looks for argv, environment and executable: the exec guard reads them
/// there.
const PR_SET_MM: u32 = 35;

const PRCTL: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(0, &[PR_SET_MM])], Action::Errno(NOT_PERMITTED))],
    otherwise: Action::Allow,
};

/// EINVAL is the answer of a kernel without seccomp, which programs know (prctl(2), seccomp(2)).
const PRCTL_UNFILTERED: ArgumentRules = ArgumentRules {
    clauses: &[
        clause(&[one_of(0, &[PR_SET_MM])], Action::Errno(NOT_PERMITTED)),
        clause(&[one_of(0, &[PR_SET_SECCOMP])], Action::Errno(EINVAL)),
    ],
    otherwise: Action::Allow,
};

const PR_SET_SECCOMP: u32 = 22;

/// As above; what only asks may go on.
const UNFILTERED: ArgumentRules = ArgumentRules {
    clauses: &[clause(
        &[one_of(0, &[SECCOMP_SET_MODE_STRICT, SECCOMP_SET_MODE_FILTER])],
        Action::Errno(EINVAL),
    )],
    otherwise: Action::Allow,
};

const SECCOMP_SET_MODE_STRICT: u32 = 0;
const SECCOMP_SET_MODE_FILTER: u32 = 1;
const SECCOMP_FILTER_FLAG_NEW_LISTENER: u32 = 8;

/// A guest's filter can only refuse more: its ERRNO and TRAP go before our notification, its TRACE
/// and ALLOW come after. A listener of its own would take our place; EBUSY is the kernel's answer
/// where one exists.
const SECCOMP: ArgumentRules = ArgumentRules {
    clauses: &[clause(
        &[one_of(0, &[SECCOMP_SET_MODE_FILTER]), any_bit(1, SECCOMP_FILTER_FLAG_NEW_LISTENER)],
        Action::Errno(EBUSY),
    )],
    otherwise: Action::Allow,
};

/// kill(2) with pid 0 means the caller's process group, whatever pid namespaces its members are in:
/// the launcher's shell and its other jobs among them.
const KILL: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(0, &[0])], Action::Errno(NOT_PERMITTED))],
    otherwise: Action::Allow,
};

const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 4;

/// EINVAL is the answer of kernels before 6.9, which know no flags.
const PIDFD_SEND_SIGNAL: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[any_bit(3, PIDFD_SIGNAL_PROCESS_GROUP)], Action::Errno(EINVAL))],
    otherwise: Action::Allow,
};

const LIMITS: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(0, &[1])], Action::Errno(NOT_PERMITTED))],
    otherwise: Action::Allow,
};

const PRIO_PGRP: u32 = 1;

const SET_PRIORITY: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(0, &[PRIO_PGRP]), one_of(1, &[0])], Action::Errno(NOT_PERMITTED))],
    otherwise: Action::Allow,
};

const IOPRIO_WHO_PGRP: u32 = 2;

const SET_IO_PRIORITY: ArgumentRules = ArgumentRules {
    clauses: &[clause(&[one_of(0, &[IOPRIO_WHO_PGRP]), one_of(1, &[0])], Action::Errno(NOT_PERMITTED))],
    otherwise: Action::Allow,
};
