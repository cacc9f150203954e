//! Messages between the launcher and the processes that it cloned, with descriptors
//! (unix(7), SOCK_SEQPACKET, SCM_RIGHTS).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};

/// Largest message.
const MESSAGE: usize = 16 * 1024;
/// Most descriptors in one message.
pub const DESCRIPTORS: usize = 64;

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
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd]) -> nix::Result<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control: &[ControlMessage<'_>] = if descriptors.is_empty() { &[] } else { &rights };
    let data = [IoSlice::new(bytes)];
    sendmsg::<()>(socket.as_raw_fd(), &data, control, MsgFlags::MSG_NOSIGNAL, None).map(|_| ())
}

/// Receives one message; an empty one means that the other side is gone.
///
/// # Errors
/// The errno of recvmsg(2).
pub fn receive(socket: BorrowedFd<'_>) -> nix::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MESSAGE];
    let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS]);
    let (length, descriptors) = {
        let mut data = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = loop {
            match recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), flags) {
                Err(Errno::EINTR) => {}
                other => break other?,
            }
        };
        let mut descriptors = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                descriptors.extend(raw.into_iter().map(crate::sys::pidfd::adopt));
            }
        }
        (message.bytes, descriptors)
    };
    bytes.truncate(length);
    Ok((bytes, descriptors))
}
