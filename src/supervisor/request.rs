//! Opens as they were asked for: their memory is read once.

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::call::{PATH_MAX, errno_of, low_half};
use crate::policy::PathAccess;
use crate::sys::memory;
use crate::sys::seccomp::Notification;

/// An open as it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) directory: i32,
    pub(super) path: Vec<u8>,
    pub(super) flags: OFlag,
    pub(super) mode: u32,
    /// openat2(2): `how.resolve`.
    pub(super) resolve: u64,
    /// The flags stand in registers, which nobody can change while the call waits.
    pub(super) fixed: bool,
}

impl Request {
    pub(super) fn access(&self) -> PathAccess {
        let writes = OFlag::O_TRUNC | OFlag::O_WRONLY | OFlag::O_RDWR;
        if self.flags.intersects(writes) || self.is_temporary() {
            PathAccess::Write
        } else {
            PathAccess::Read
        }
    }

    pub(super) fn is_temporary(&self) -> bool {
        self.flags.contains(OFlag::O_TMPFILE)
    }

    /// Whether the path starts at `directory`.
    pub(super) fn is_relative(&self) -> bool {
        self.path.first().is_some_and(|&byte| byte != b'/')
    }

    /// Whether the call is an open.
    pub(super) fn is_one(number: i32) -> bool {
        [libc::SYS_open, libc::SYS_creat, libc::SYS_openat, libc::SYS_openat2].contains(&i64::from(number))
    }

    /// Reads what a call asks for that is [one](Self::is_one).
    pub(super) fn read(call: &Notification) -> nix::Result<Self> {
        let [a, b, c, d, ..] = call.arguments;
        let path = |address| memory::read_string(call.pid, address, PATH_MAX).map_err(errno_of);
        let int = |word: u64| low_half(word).cast_signed();
        let flags = |word: u64| OFlag::from_bits_retain(int(word));
        let request = |directory, path, flags, mode: u64| Self {
            directory,
            path,
            flags,
            mode: u32::try_from(mode & 0o7777).unwrap_or(0),
            resolve: 0,
            fixed: true,
        };
        match i64::from(call.number) {
            libc::SYS_open => Ok(request(libc::AT_FDCWD, path(a)?, flags(b), c)),
            libc::SYS_creat => {
                let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_TRUNC;
                Ok(request(libc::AT_FDCWD, path(a)?, flags, b))
            }
            libc::SYS_openat => Ok(request(int(a), path(b)?, flags(c), d)),
            _ => {
                let mut how = [0; 24];
                if d != how.len() as u64 {
                    // Larger forms are for kernels newer than this program (openat2(2)).
                    return Err(Errno::E2BIG);
                }
                memory::read_exact(call.pid, c, &mut how).map_err(|_| Errno::EFAULT)?;
                let word = |at: usize| {
                    how.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
                };
                let flags = OFlag::from_bits_retain(i32::try_from(word(0)).map_err(|_| Errno::EINVAL)?);
                let mode = word(8);
                if mode > 0o7777 {
                    return Err(Errno::EINVAL);
                }
                Ok(Self { resolve: word(16), fixed: false, ..request(int(a), path(b)?, flags, mode) })
            }
        }
    }
}
