//! seccomp(2) filters and user notification (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One classic BPF instruction, laid out as `struct sock_filter`.
pub type Instruction = (u16, u8, u8, u32);

/// A system call that waits for our answer.
#[derive(Debug, Clone, Copy)]
pub struct Notification {
    /// Cookie of the waiting call.
    pub id: u64,
    /// Thread id in the reader's pid namespace; 0 when it is not visible there.
    pub pid: i32,
    /// System call number.
    pub number: i32,
    /// Raw registers of the call.
    pub arguments: [u64; 6],
}

/// The answer to a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel carries the call out itself, reading the arguments anew.
    Continue,
    /// The call returns this value.
    Value(i64),
    /// The call fails with this errno.
    Errno(i32),
}

/// Installs `program` on the calling thread and gives the notification descriptor.
///
/// # Errors
/// The errno of seccomp(2); EBUSY when an outer filter has a listener.
pub fn install(program: &[Instruction]) -> io::Result<OwnedFd> {
    let filter: Vec<libc::sock_filter> =
        program.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    // Without WAIT_KILLABLE_RECV every signal restarts the call; Go's preemption signals would
    // keep it from ever being answered (Linux 5.19).
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: `program` points at `filter`, and both outlive the call; the kernel copies them.
    let fd = super::checked(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    })?;
    // SAFETY: the call made a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) })
}

/// Installs `program` without a listener.
///
/// # Errors
/// The errno of seccomp(2).
pub fn install_plain(program: &[Instruction]) -> io::Result<()> {
    let filter: Vec<libc::sock_filter> =
        program.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` points at `filter`, and both outlive the call; the kernel copies them.
    super::checked(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    })
    .map(|_| ())
}

/// Whether the kernel is to run the answered task on our CPU at once (Linux 6.6): that saves a wake-up on
/// another CPU for each call.
///
/// # Errors
/// EINVAL on older kernels, which only costs time.
pub fn wake_here(listener: BorrowedFd<'_>, here: bool) -> io::Result<()> {
    // SECCOMP_IOW(4, __u64)
    const SET_FLAGS: libc::c_ulong = 0x4008_2104;
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    let flags = if here { SYNC_WAKE_UP } else { 0 };
    // SAFETY: this ioctl takes its argument by value.
    super::checked(libc::c_long::from(unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, flags) }))
        .map(|_| ())
}

/// Takes the next waiting call.
///
/// # Errors
/// ENOENT when the call went away or no task is left, EINTR.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    // SAFETY: seccomp_notif is plain integers; the kernel demands that it is zeroed.
    let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one seccomp_notif to `raw`, which outlives the call.
    super::checked(libc::c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_RECV, &raw mut raw)
    }))?;
    Ok(Notification { id: raw.id, pid: raw.pid.cast_signed(), number: raw.data.nr, arguments: raw.data.args })
}

// SECCOMP_IOWR(0, struct seccomp_notif), SECCOMP_IOWR(1, struct seccomp_notif_resp),
// SECCOMP_IOW(2, __u64), SECCOMP_IOW(3, struct seccomp_notif_addfd)
const SECCOMP_IOCTL_NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const SECCOMP_IOCTL_NOTIF_SEND: libc::c_ulong = 0xc018_2101;
const SECCOMP_IOCTL_NOTIF_ID_VALID: libc::c_ulong = 0x4008_2102;
const SECCOMP_IOCTL_NOTIF_ADDFD: libc::c_ulong = 0x4018_2103;
const _: () = assert!(size_of::<libc::seccomp_notif>() == 80);
const _: () = assert!(size_of::<libc::seccomp_notif_resp>() == 24);
const _: () = assert!(size_of::<libc::seccomp_notif_addfd>() == 24);

/// Answers the waiting call `id`.
///
/// # Errors
/// ENOENT when the task was killed meanwhile.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<()> {
    let (val, error, flags) = match answer {
        Answer::Continue => (0, 0, 1),
        Answer::Value(value) => (value, 0, 0),
        Answer::Errno(errno) => (0, -errno, 0),
    };
    let mut response = libc::seccomp_notif_resp { id, val, error, flags };
    // SAFETY: the kernel reads one seccomp_notif_resp, which outlives the call.
    super::checked(libc::c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_SEND, &raw mut response)
    }))
    .map(|_| ())
}

/// Whether the task of call `id` still waits: what was read through its pid belongs to it.
#[must_use]
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one u64, which outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Puts a copy of `file` into the waiting task and makes its number the result of the call
/// (Linux 5.14).
///
/// # Errors
/// ENOENT when the task was killed meanwhile, EMFILE when its table is full.
pub fn answer_with_descriptor(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<()> {
    const ADDFD_FLAG_SEND: u32 = 2;
    give(listener, id, file, close_on_exec, ADDFD_FLAG_SEND).map(|_| ())
}

/// Puts a copy of `file` into the waiting task, which goes on waiting, and gives its number there.
///
/// # Errors
/// As [`answer_with_descriptor`].
pub fn add_descriptor(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<i64> {
    give(listener, id, file, close_on_exec, 0)
}

fn give(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    close_on_exec: bool,
    flags: u32,
) -> io::Result<i64> {
    let request = libc::seccomp_notif_addfd {
        id,
        flags,
        srcfd: file.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: if close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
    };
    // SAFETY: the kernel reads one seccomp_notif_addfd, which outlives the call.
    super::checked(libc::c_long::from(unsafe {
        libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_ADDFD, &raw const request)
    }))
}
