//! bind(2) and connect(2) with addresses that another process composed.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Room for a path in `struct sockaddr_un`, with its zero byte.
pub const UNIX_PATH: usize = 108;

/// The raw address of the Unix socket at `path`.
#[must_use]
pub fn unix(path: &[u8]) -> Vec<u8> {
    let mut raw = u16::try_from(libc::AF_UNIX).unwrap_or(1).to_ne_bytes().to_vec();
    raw.extend_from_slice(path);
    raw.push(0);
    raw
}

fn length(raw: &[u8]) -> libc::socklen_t {
    libc::socklen_t::try_from(raw.len()).unwrap_or(libc::socklen_t::MAX)
}

/// Connects `socket` to `raw`.
///
/// # Errors
/// The errno of connect(2).
pub fn connect(socket: BorrowedFd<'_>, raw: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `raw.len()` bytes of `raw`, which outlives the call, and makes no
    // assumption about its alignment.
    let result = unsafe { libc::connect(socket.as_raw_fd(), raw.as_ptr().cast(), length(raw)) };
    super::checked(libc::c_long::from(result)).map(|_| ())
}

/// Binds `socket` to `raw`.
///
/// # Errors
/// The errno of bind(2).
pub fn bind(socket: BorrowedFd<'_>, raw: &[u8]) -> io::Result<()> {
    // SAFETY: as in `connect`.
    let result = unsafe { libc::bind(socket.as_raw_fd(), raw.as_ptr().cast(), length(raw)) };
    super::checked(libc::c_long::from(result)).map(|_| ())
}

/// The internet address that `socket` is bound to.
#[must_use]
pub fn local(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    use nix::sys::socket::{SockaddrStorage, getsockname};
    let bound: SockaddrStorage = getsockname(socket.as_raw_fd()).ok()?;
    if let Some(v4) = bound.as_sockaddr_in() {
        return Some(SocketAddr::from((v4.ip(), v4.port())));
    }
    bound.as_sockaddr_in6().map(|v6| SocketAddr::from((v6.ip(), v6.port())))
}
