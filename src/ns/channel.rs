//! Messages between the launcher and the processes that it cloned (unix(7), SOCK_SEQPACKET).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use crate::sys::scm;

/// Largest message.
const MESSAGE: usize = 8 * 1024;

/// A connected pair: one end for each side.
///
/// # Errors
/// The errno of socketpair(2).
pub fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Sends one message.
///
/// # Errors
/// The errno of sendmsg(2).
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    scm::send(socket, bytes, descriptors).map(|_| ())
}

/// Receives one message; an empty one means that the other side is gone.
///
/// # Errors
/// The errno of recvmsg(2).
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MESSAGE];
    let (length, descriptors) = scm::receive(socket, &mut bytes)?;
    bytes.truncate(length);
    Ok((bytes, descriptors))
}
