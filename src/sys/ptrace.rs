//! The ptrace(2) requests that stop nothing: SEIZE, LISTEN, CONT, DETACH, event message.

use std::io;

fn request(request: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    let data = std::ptr::without_provenance_mut::<libc::c_void>(data);
    // SAFETY: the requests used here take no pointer into our memory.
    super::checked(unsafe { libc::ptrace(request, pid, none, data) }).map(|_| ())
}

/// Attaches to `pid` without stopping it; it stops at its next execve(2) and dies with us.
///
/// # Errors
/// EPERM when it is traced already or not ours, ESRCH when it is gone.
pub fn seize_at_exec(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, pid, options.cast_unsigned() as usize)
}

/// As [`seize_at_exec`], and it stops when it has made a task, which is traced alike from its birth, and at
/// calls for which a filter says so.
///
/// # Errors
/// As [`seize_at_exec`].
pub fn seize_family(pid: i32) -> io::Result<()> {
    let births = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
    let calls = libc::PTRACE_O_TRACESECCOMP | libc::PTRACE_O_TRACESYSGOOD;
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL | births | calls;
    request(libc::PTRACE_SEIZE, pid, options.cast_unsigned() as usize)
}

/// Lets a group-stopped tracee stay stopped, but hear SIGCONT.
///
/// # Errors
/// The errno of ptrace(2).
pub fn listen(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, pid, 0)
}

/// Continues a stopped tracee, delivering `signal` (0: none).
///
/// # Errors
/// The errno of ptrace(2).
pub fn resume(pid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, pid, signal.cast_unsigned() as usize)
}

/// Continues a stopped tracee to the end of its call ([`Stop::Returned`]).
///
/// # Errors
/// The errno of ptrace(2).
pub fn resume_to_return(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, pid, 0)
}

/// Makes a tracee that was seized stop, as [`Stop::Event`]: the call in which it waits is interrupted.
///
/// # Errors
/// The errno of ptrace(2).
pub fn interrupt(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, pid, 0)
}

/// Lets the tracee go.
///
/// # Errors
/// The errno of ptrace(2).
pub fn detach(pid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, pid, signal.cast_unsigned() as usize)
}

/// The message of the last event: at PTRACE_EVENT_EXEC the thread id before the exec, after a fork,
/// vfork or clone that of the new task.
///
/// # Errors
/// The errno of ptrace(2).
pub fn event_message(pid: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel writes one unsigned long to `message`, which outlives the call.
    super::checked(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, none, &raw mut message) })?;
    Ok(i32::try_from(message).unwrap_or(-1))
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Exit status, or 128 plus the number of the signal that killed it.
    pub code: i32,
    /// The signal that killed it, 0 if none.
    pub signal: i32,
    /// Processor time of it and all that it waited for, in microseconds.
    pub cpu_micros: i64,
    /// Largest resident set of one of them, in KiB.
    pub peak_kib: i64,
}

/// What a stop or an end reported by wait4(2) is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The process exited or died.
    Ended(End),
    /// PTRACE_EVENT_EXEC: the new image has not run an instruction yet.
    Exec,
    /// It has made a task, by a clone(2) that is no fork(2) or vfork(2).
    Cloned,
    /// It has made a task by fork(2) or vfork(2).
    Forked,
    /// About to make a call for which a filter says so (SECCOMP_RET_TRACE).
    Call,
    /// At the end of the call after which it was to stop.
    Returned,
    /// Group stop (job control).
    Group,
    /// Another event stop: the first of a new task, or the end of a group stop.
    Event,
    /// About to receive a signal.
    Signal(i32),
}

/// The next child or tracee that changed state, without waiting.
///
/// # Errors
/// ECHILD when there is none left.
pub fn next_stop() -> io::Result<Option<(i32, Stop)>> {
    let mut status: libc::c_int = 0;
    // SAFETY: rusage is plain integers; all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let flags = libc::__WALL | libc::WNOHANG;
    // SAFETY: the kernel writes one int to `status` and one rusage to `usage`, which outlive the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, flags, &raw mut usage) };
    let pid = i32::try_from(super::checked(libc::c_long::from(pid))?).unwrap_or(0);
    Ok((pid != 0).then(|| (pid, classify(status, &usage))))
}

fn end(status: i32, usage: &libc::rusage) -> End {
    let signal = if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 };
    let code = if signal == 0 { libc::WEXITSTATUS(status) } else { 128 + signal };
    let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    let cpu_micros = micros(usage.ru_utime) + micros(usage.ru_stime);
    End { code, signal, cpu_micros, peak_kib: usage.ru_maxrss }
}

fn classify(status: i32, usage: &libc::rusage) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(end(status, usage));
    }
    let signal = libc::WSTOPSIG(status);
    let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    match status >> 16 {
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_CLONE => Stop::Cloned,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => Stop::Forked,
        libc::PTRACE_EVENT_STOP if stopping.contains(&signal) => Stop::Group,
        libc::PTRACE_EVENT_SECCOMP => Stop::Call,
        // PTRACE_O_TRACESYSGOOD
        0 if signal == libc::SIGTRAP | 0x80 => Stop::Returned,
        0 => Stop::Signal(signal),
        _ => Stop::Event,
    }
}
