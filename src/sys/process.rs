//! The state of the calling process: prctl(2), exit, descriptors, the environment block.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::thread::JoinHandleExt as _;
use std::thread::JoinHandle;

use nix::sys::signal::{SigSet, Signal};

/// Ends the process without running exit handlers: the clone of a process must not run those
/// of its parent (man 2 _exit).
pub fn exit_now(code: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: the options that this file uses take integers only.
    super::checked(libc::c_long::from(unsafe { libc::prctl(option, argument, zero, zero, zero) })).map(|_| ())
}

/// How many descriptors the process of a task may have (prlimit(2)).
///
/// # Errors
/// The errno of prlimit(2).
pub fn descriptor_limit(task: i32) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call, which only writes it.
    let done = unsafe { libc::prlimit(task, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
    super::checked(libc::c_long::from(done))?;
    Ok(limit.rlim_cur)
}

/// No later execve(2) grants privileges (PR_SET_NO_NEW_PRIVS).
///
/// # Errors
/// The errno of prctl(2).
pub fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Whether other processes of the user may read this one's memory (PR_SET_DUMPABLE).
///
/// # Errors
/// The errno of prctl(2).
pub fn set_dumpable(dumpable: bool) -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(dumpable))
}

/// Programs are mapped at the same addresses each time, from the next execve(2) on (ADDR_NO_RANDOMIZE).
///
/// # Errors
/// The errno of personality(2).
pub fn fix_addresses() -> io::Result<()> {
    let persona = libc::ADDR_NO_RANDOMIZE.cast_unsigned();
    // SAFETY: takes an integer.
    super::checked(libc::c_long::from(unsafe { libc::personality(persona.into()) })).map(|_| ())
}

/// The calling thread gets the CPU in short slices, and so at once when it wakes: whoever runs there has a longer
/// one (sched_setattr(2), Linux 6.12; before that it changes nothing). Threads that it makes are as all others.
///
/// # Errors
/// The errno of sched_setattr(2).
pub fn take_short_slices() -> io::Result<()> {
    /// In nanoseconds: less than others get, but enough to sleep again before whoever was woken takes the CPU. A
    /// program start would find two tasks there, and go elsewhere (sched_exec in the kernel's sources).
    const SLICE: u64 = 500_000;
    const RESET_ON_FORK: u64 = 1;
    let size = size_of::<libc::sched_attr>();
    let mut own = libc::sched_attr {
        size: u32::try_from(size).unwrap_or(0),
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes to `own`, which outlives the call.
    super::checked(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, size, 0) })?;
    if own.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return Ok(());
    }
    own.sched_flags |= RESET_ON_FORK;
    own.sched_runtime = SLICE;
    // SAFETY: the kernel reads the bytes of `own` that its size says, and `own` outlives the call.
    super::checked(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const own, 0) }).map(|_| ())
}

/// The process is killed when the thread that made it ends (PR_SET_PDEATHSIG).
///
/// # Errors
/// The errno of prctl(2).
pub fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// Closes every descriptor from `first` on (close_range(2)).
///
/// # Errors
/// The errno of close_range(2).
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: integers only; the caller gives up every descriptor of that range, which are owned
    // by values that the calling process will never use or drop again (it executes or exits).
    super::checked(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(|_| ())
}

/// Marks every descriptor from `first` on close-on-exec.
///
/// # Errors
/// The errno of close_range(2).
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: integers only, nothing is closed now.
    super::checked(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) })
        .map(|_| ())
}

/// Makes /proc/self/cmdline `name` alone, and /proc/self/environ empty, for everyone who reads them.
///
/// # Errors
/// /proc/self/stat could not be read.
pub fn wipe_words(name: &[u8]) -> io::Result<()> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // The first field after the name is number 3 (proc_pid_stat(5)).
    let bounds: Vec<usize> =
        after_name.split_whitespace().skip(45).take(4).filter_map(|word| word.parse().ok()).collect();
    let &[words, words_end, environment, environment_end] = bounds.as_slice() else {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    };
    let is_there = |start: usize, end: usize| start != 0 && start <= end;
    if !is_there(words, words_end) || !is_there(environment, environment_end) {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let kept = name.len().min(words_end - words);
    let block = |start| std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the kernel says that this process's environment strings lie there, on its own
    // writable stack; the calling process is the copy that no longer reads its environment.
    unsafe { std::ptr::write_bytes(block(environment), 0, environment_end - environment) };
    // SAFETY: as above, of the words of its command line.
    unsafe { std::ptr::write_bytes(block(words), 0, words_end - words) };
    // SAFETY: as above; no more than lies there.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), block(words), kept) };
    if words_end - words > kept + 1 {
        // The kernel shows the rest too, unless its last byte says that the first string is all (setproctitle(3)).
        // SAFETY: as above, the last byte of the words.
        unsafe { block(words_end - 1).write(1) };
    }
    Ok(())
}

/// The calling thread gets a working directory and umask of its own (unshare(2), CLONE_FS).
///
/// # Errors
/// The errno of unshare(2).
pub fn own_umask() -> io::Result<()> {
    // SAFETY: integers only.
    super::checked(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_FS) })).map(|_| ())
}

/// Closes every descriptor but those in `kept`, which must be sorted.
///
/// # Errors
/// The errno of close_range(2).
pub fn close_all_but(kept: &[i32]) -> io::Result<()> {
    let mut first: u32 = 0;
    for &descriptor in kept {
        let descriptor = descriptor.cast_unsigned();
        if descriptor > first {
            // SAFETY: integers only; the process keeps running code that uses `kept` alone.
            super::checked(unsafe { libc::syscall(libc::SYS_close_range, first, descriptor - 1, 0) })?;
        }
        first = descriptor + 1;
    }
    close_from(first)
}

/// Gives `signal` its default action again.
///
/// # Errors
/// The errno of sigaction(2).
pub fn default_action(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: sigaction is integers and pointers; all zeroes is SIG_DFL without flags.
    let action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` outlives the call, no old action is asked for.
    let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    super::checked(libc::c_long::from(result)).map(|_| ())
}

/// Ignores `signal` or gives it its default action again, be it one that the C library keeps for itself.
///
/// # Errors
/// The errno of rt_sigaction(2).
pub fn set_ignored(signal: libc::c_int, ignored: bool) -> io::Result<()> {
    // `struct sigaction` of the kernel: the handler, flags, no way back, and the mask.
    let action = [if ignored { libc::SIG_IGN as u64 } else { libc::SIG_DFL as u64 }, 0, 0, 0];
    let none = std::ptr::null_mut::<u64>();
    // SAFETY: `action` outlives the call, and names no function; no old action is asked for.
    let set =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), none, size_of::<u64>()) };
    super::checked(set).map(|_| ())
}

/// The niceness of the calling process.
///
/// # Errors
/// The errno of getpriority(2).
pub fn niceness() -> io::Result<i32> {
    // SAFETY: integers only. The call itself gives 20 less than nobody could take for an error.
    let raw = super::checked(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) })?;
    Ok(20 - i32::try_from(raw).unwrap_or(20))
}

/// Sets it.
///
/// # Errors
/// EACCES where it would be less than it is.
pub fn set_niceness(niceness: i32) -> io::Result<()> {
    // SAFETY: integers only.
    super::checked(unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, niceness) })
        .map(|_| ())
}

/// Drops every capability that this kernel knows from the bounding set (PR_CAPBSET_DROP).
///
/// # Errors
/// EPERM without CAP_SETPCAP.
pub fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            // The first number that there is no capability for.
            Err(error) if capability > 0 && error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Whether `signal` waits to be taken, blocked.
#[must_use]
pub fn is_pending(signal: libc::c_int) -> bool {
    // SAFETY: a signal set is integers; all zeroes is the empty one.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one set, which outlives the call.
    let known = unsafe { libc::sigpending(&raw mut set) } == 0;
    // SAFETY: only reads the set.
    known && unsafe { libc::sigismember(&raw const set, signal) } == 1
}

/// Whether the process ignores `signal`, as after nohup(1).
#[must_use]
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: sigaction is integers and pointers; all zeroes is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is given, and `action` outlives the call.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// What interrupts a thread: ignored where nobody asked for it.
pub(super) const INTERRUPTION: Signal = Signal::SIGURG;

extern "C" fn nothing(_signal: libc::c_int) {}

/// From now on [`interrupt`] makes a waiting call of another thread fail with EINTR.
///
/// # Errors
/// The errno of sigaction(2).
pub fn let_threads_be_interrupted() -> io::Result<()> {
    // SAFETY: sigaction is integers and pointers; all zeroes is a valid value, without SA_RESTART.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: `action` outlives the call; the handler does nothing, so it may run anywhere.
    let result =
        unsafe { libc::sigaction(INTERRUPTION as libc::c_int, &raw const action, std::ptr::null_mut()) };
    super::checked(libc::c_long::from(result)).map(|_| ())
}

/// From now on [`interrupt`] reaches the calling thread; what came before has an effect no more.
///
/// # Errors
/// The errno of sigprocmask(2).
pub fn let_interrupt() -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(INTERRUPTION);
    Ok(set.thread_unblock()?)
}

/// From now on [`interrupt`] does nothing to the calling thread.
///
/// # Errors
/// The errno of sigprocmask(2).
pub fn let_nothing_interrupt() -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(INTERRUPTION);
    Ok(set.thread_block()?)
}

/// Interrupts the call in which `thread` waits. One that does not wait yet misses it.
pub fn interrupt<T>(thread: &JoinHandle<T>) {
    // SAFETY: the handle keeps the thread's identity valid, ended or not, until it is joined.
    // An error says that the thread has ended.
    let _ = unsafe { libc::pthread_kill(thread.as_pthread_t(), INTERRUPTION as libc::c_int) };
}

/// Whether two tasks share their memory (kcmp(2)).
///
/// # Errors
/// ESRCH when one of them is gone, ENOSYS or EPERM where kcmp(2) is not to be had.
pub fn share_memory(one: i32, other: i32) -> io::Result<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: integers only.
    let order = super::checked(unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) })?;
    Ok(order == 0)
}

/// Whether `task` is a thread of `process`, ended ones that were not waited for among them.
#[must_use]
pub fn has_thread(process: i32, task: i32) -> bool {
    // SAFETY: integers only; signal 0 is only checked, not sent.
    is_known(unsafe { libc::syscall(libc::SYS_tgkill, process, task, 0) })
}

/// Whether there is such a task, be it one that has ended and was not waited for.
#[must_use]
pub fn is_there(task: i32) -> bool {
    // SAFETY: integers only; signal 0 is only checked, not sent.
    is_known(libc::c_long::from(unsafe { libc::kill(task, 0) }))
}

/// What came of a signal says that its receiver is there.
fn is_known(sent: libc::c_long) -> bool {
    sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// The id that task `id` has in a pid namespace below the caller's (NS_GET_PID_IN_PIDNS, Linux 6.11).
///
/// # Errors
/// ENOTTY on older kernels, ESRCH where there is no such task, or none in that namespace.
pub fn id_in(namespace: BorrowedFd<'_>, id: i32) -> io::Result<i32> {
    // _IOR(0xb7, 8, int)
    const NS_GET_PID_IN_PIDNS: libc::c_ulong = 0x8004_b708;
    // SAFETY: the argument of this request is an integer.
    let found = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PID_IN_PIDNS, id) };
    super::checked(libc::c_long::from(found))?;
    Ok(found)
}
