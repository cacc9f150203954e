//! Descriptors over Unix sockets, owned from the moment they arrive (unix(7), SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Most descriptors in one message of ours.
pub const MOST: usize = 64;
/// Most that the kernel passes in one message (SCM_MAX_FD): room for all of them, so none is cut off unseen.
const KERNEL_MOST: usize = 253;

/// Sends `payload`, which must not be empty, together with `fds`, at most [`MOST`]. Returns how many
/// bytes were taken; the descriptors go with the first.
pub fn send(socket: impl AsFd, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if payload.is_empty() || fds.len() > MOST {
        return Err(Errno::EINVAL.into());
    }
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights };
    let fd = socket.as_fd().as_raw_fd();
    retry(|| sendmsg::<()>(fd, &[IoSlice::new(payload)], control, MsgFlags::MSG_NOSIGNAL, None))
}

/// Receives into `buffer`; returns how many bytes came and the descriptors that came with them,
/// close-on-exec. 0 bytes: the other end is closed. A message that is longer than `buffer` on a socket
/// that keeps messages apart is an error (EMSGSIZE), and its descriptors are closed.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let fd = socket.as_fd().as_raw_fd();
    let mut control = cmsg_space!([RawFd; KERNEL_MOST]);
    loop {
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = match recvmsg::<()>(fd, &mut parts, Some(&mut control), flags) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let mut owned = Vec::new();
        // Cut short where no descriptor was left for them (unix(7)).
        for part in message.cmsgs().map_err(|_| Errno::EMFILE)? {
            if let ControlMessageOwned::ScmRights(fds) = part {
                owned.extend(fds.into_iter().map(own));
            }
        }
        if message.flags.contains(MsgFlags::MSG_TRUNC) {
            return Err(Errno::EMSGSIZE.into());
        }
        return Ok((message.bytes, owned));
    }
}

fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just installed this descriptor for us by SCM_RIGHTS; nobody else knows its number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}
