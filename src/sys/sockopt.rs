//! Socket options that `nix` has no safe wrapper for (socket(7), ipv6(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

const _: () = assert!(size_of::<libc::c_int>() == 4);

/// Lets an IPv6 socket take connections and datagrams for addresses that are not its own
/// (IPV6_TRANSPARENT). Needs CAP_NET_ADMIN in the socket's network namespace.
pub fn enable_ipv6_transparent(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is an int; the pointer and the length are those of `on`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_TRANSPARENT,
            (&raw const on).cast(),
            4,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// Has a netlink socket list only what a request names (NETLINK_GET_STRICT_CHK, Linux 4.20).
pub fn check_dumps(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is an int; the pointer and the length are those of `on`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_GET_STRICT_CHK,
            (&raw const on).cast(),
            4,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// The number that the kernel gives to this socket alone (SO_COOKIE, Linux 4.12).
pub fn socket_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut length: libc::socklen_t = 8;
    // SAFETY: SO_COOKIE writes at most `length` bytes, the size of `cookie`; both live through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok(cookie)
}

/// The mark of the socket's packets (SO_MARK). Setting one needs CAP_NET_ADMIN in the socket's network
/// namespace, which whoever made that namespace's user namespace has from outside (user_namespaces(7)).
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    use nix::sys::socket::{getsockopt, setsockopt, sockopt};
    if getsockopt(&socket, sockopt::Mark)? != mark {
        setsockopt(&socket, sockopt::Mark, &mark)?;
    }
    Ok(())
}

/// A read of the socket waits until it has all the bytes that it asks for (SO_RCVLOWAT).
pub fn read_whole(socket: impl AsFd) -> io::Result<()> {
    let lowest = libc::c_int::MAX;
    // SAFETY: the option is an int; the pointer and the length are those of `lowest`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const lowest).cast(),
            4,
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// Whether the socket carries a stream (SO_TYPE).
pub fn is_stream(socket: impl AsFd) -> bool {
    use nix::sys::socket::{SockType, getsockopt, sockopt};
    getsockopt(&socket, sockopt::SockType).is_ok_and(|kind| kind == SockType::Stream)
}

/// Whether it is one of TCP (SO_PROTOCOL).
pub fn is_tcp(socket: impl AsFd) -> bool {
    let mut protocol: libc::c_int = 0;
    let mut length: libc::socklen_t = 4;
    // SAFETY: SO_PROTOCOL writes at most `length` bytes, the size of `protocol`; both live through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PROTOCOL,
            (&raw mut protocol).cast(),
            &raw mut length,
        )
    };
    result == 0 && protocol == libc::IPPROTO_TCP
}

/// Whether it is a socket without connections (SOCK_DGRAM), which connect(2) never waits for.
pub fn is_datagram(socket: impl AsFd) -> bool {
    use nix::sys::socket::{SockType, getsockopt, sockopt};
    getsockopt(&socket, sockopt::SockType).is_ok_and(|kind| kind == SockType::Datagram)
}

/// Whether calls on the socket return at once (O_NONBLOCK).
pub fn is_nonblocking(socket: impl AsFd) -> bool {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = fcntl(socket.as_fd(), FcntlArg::F_GETFL).unwrap_or(0);
    OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK)
}
