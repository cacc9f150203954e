//! Sockets of the run's network, made by pid 1 when the launcher asks for one: only a process in
//! that network can make them (network_namespaces(7)).

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::channel;

/// The request for an IPv4 socket.
const V4: u8 = b'4';
/// The request for an IPv6 socket.
const V6: u8 = b'6';

/// The request for a socket that can reach `address`.
#[must_use]
pub fn request(address: IpAddr) -> u8 {
    if address.is_ipv4() { V4 } else { V6 }
}

/// Answers one request with a stream socket, which is not connected yet, or with an errno alone.
/// False: there will be no more.
///
/// # Errors
/// The errno of the channel.
pub(super) fn serve(requests: BorrowedFd<'_>) -> io::Result<bool> {
    let (bytes, _) = channel::receive(requests)?;
    let family = match bytes.as_slice() {
        [V4] => AddressFamily::Inet,
        [V6] => AddressFamily::Inet6,
        unknown => return Ok(!unknown.is_empty()),
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    match socket(family, SockType::Stream, flags, None) {
        Ok(made) => channel::send(requests, &answer(0), &[made.as_fd()])?,
        Err(errno) => channel::send(requests, &answer(errno as i32), &[])?,
    }
    Ok(true)
}

fn answer(errno: i32) -> [u8; 4] {
    errno.to_le_bytes()
}

/// Reads an answer.
///
/// # Errors
/// The errno that pid 1 had, or that its answer cannot be read.
pub fn made(bytes: &[u8], descriptors: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    let errno = bytes.try_into().map(i32::from_le_bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    match (errno, descriptors.into_iter().next()) {
        (0, Some(socket)) => Ok(socket),
        (0, None) => Err(io::ErrorKind::InvalidData.into()),
        (errno, _) => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_and_nonsense() {
        let (ours, theirs) = channel::pair().expect("a pair");
        for address in ["127.0.0.1:1", "[::1]:1"] {
            let address: std::net::SocketAddr = address.parse().expect("an address");
            channel::send(ours.as_fd(), &[request(address.ip())], &[]).expect("send");
            serve(theirs.as_fd()).expect("serve");
            let (bytes, descriptors) = channel::receive(ours.as_fd()).expect("receive");
            let socket = made(&bytes, descriptors).expect("a socket");
            let raw = nix::sys::socket::SockaddrStorage::from(address);
            let done = nix::sys::socket::connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &raw);
            assert!(done.is_err_and(|errno| errno != nix::errno::Errno::EAFNOSUPPORT));
        }
        channel::send(ours.as_fd(), b"?", &[]).expect("send");
        assert!(serve(theirs.as_fd()).expect("serve"));
        drop(ours);
        assert!(!serve(theirs.as_fd()).expect("serve"));
        assert!(made(&answer(24), Vec::new()).is_err_and(|error| error.raw_os_error() == Some(24)));
        assert!(made(&answer(0), Vec::new()).is_err() && made(b"x", Vec::new()).is_err());
    }
}
