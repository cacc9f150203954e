//! Netlink as far as a fresh network namespace needs it: routes, one nf_tables ruleset, socket look-ups (netlink(7)).
//!
//! Messages are encoded and parsed as bytes, so nothing here is unsafe. Every request is answered by
//! the kernel within `send`, so the answers are read without waiting.

mod address;
mod diag;
mod local;
mod message;
mod route;
mod tproxy;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

pub use address::own_addresses;
pub use diag::{
    SocketIdentity, diag_socket, tcp_cookie_of, tcp_has_left, tcp_listens_at, tcp_unread_of, udp_cookie_of,
};
pub use local::local_routes;
pub use route::{Ipv6, add_anyip_routes, link_up_loopback};
pub use tproxy::{ANSWER_MARK, LOOPBACK_MARK, install_tproxy};

use message::{Message, Messages};

/// What opening a netlink socket is called in an error.
const SOCKET: &str = "socket(AF_NETLINK)";

/// Opens a close-on-exec netlink socket that speaks `protocol` in the caller's network namespace.
fn open(protocol: SockProtocol) -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?)
}

/// Sends `request` and succeeds when the kernel acknowledged `acknowledgements` messages and refused none.
fn transact(socket: BorrowedFd<'_>, request: &[u8], acknowledgements: usize) -> io::Result<()> {
    let mut seen = 0;
    exchange(socket, request, |message| {
        if let Some(outcome) = message.acknowledgement()? {
            outcome?;
            seen += 1;
        }
        Ok(())
    })?;
    if seen < acknowledgements {
        return Err(Errno::EPROTO.into());
    }
    Ok(())
}

/// Sends `request` and hands each answer to `each`. Stops at the first error.
fn exchange(
    socket: BorrowedFd<'_>,
    request: &[u8],
    mut each: impl FnMut(&Message<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    send(fd, request, MsgFlags::empty())?;
    // An error answer carries the refused message, a rule of ours at most.
    let mut buffer = [0u8; 8192];
    loop {
        let length = match recv(fd, &mut buffer, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC) {
            Ok(length) => length,
            Err(Errno::EAGAIN) => return Ok(()),
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let datagram = buffer.get(..length).ok_or(Errno::EMSGSIZE)?;
        for message in Messages::new(datagram) {
            each(&message?)?;
        }
    }
}
