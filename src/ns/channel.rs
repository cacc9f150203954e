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

/// Largest part of an order: a socket takes it whole (net.core.wmem_default).
const PART: usize = 32 * 1024;

/// Sends bytes of any length, for [`receive_order`]; their length goes first.
///
/// # Errors
/// The errno of sendmsg(2); EPIPE when the other side is gone.
pub fn send_order(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let length = u64::try_from(bytes.len()).map_err(io::Error::other)?;
    send(socket, &length.to_le_bytes(), &[])?;
    bytes.chunks(PART).try_for_each(|part| send(socket, part, &[]))
}

/// Receives what [`send_order`] sent; `None` when the other side is gone.
///
/// # Errors
/// The errno of recvmsg(2).
pub fn receive_order(socket: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    if scm::receive(socket, &mut length)?.0 != length.len() {
        return Ok(None);
    }
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let (received, _) = scm::receive(socket, &mut bytes[filled..])?;
        if received == 0 {
            return Ok(None);
        }
        filled += received;
    }
    Ok(Some(bytes))
}
