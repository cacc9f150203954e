//! Finds a socket by its two ends and tells its cookie, inode and owner, or whether one listens (sock_diag(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::message::{Encoder, field};
use super::{exchange, open};

const REQUEST: u16 = 0x1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const FAMILY_INET: u8 = 2;
const FAMILY_INET6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ALL_STATES: u32 = u32::MAX;
const LISTENING: u8 = 10;
const CLOSE_WAIT: u8 = 8;
/// "Any cookie" (INET_DIAG_NOCOOKIE), twice.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Offsets in `struct inet_diag_msg`.
const REPLY_STATE: usize = 1;
const REPLY_SOURCE_PORT: usize = 4;
const REPLY_DESTINATION_PORT: usize = 6;
const REPLY_SOURCE: usize = 8;
const REPLY_DESTINATION: usize = 24;
const REPLY_COOKIE: usize = 44;
const REPLY_UNREAD: usize = 56;
const REPLY_UID: usize = 64;
const REPLY_INODE: usize = 68;

/// What tells one socket from all others in the life of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketIdentity {
    /// The same as SO_COOKIE of the socket; never used again.
    pub cookie: u64,
    /// Inode in sockfs, as `/proc/PID/fd` shows it; 0 when no process holds the socket any more.
    pub inode: u32,
    /// Owner, as the user namespace of the diag socket's maker numbers it.
    pub uid: u32,
}

/// Opens the socket that [`tcp_cookie_of`] asks, in the caller's network namespace: it keeps looking
/// there when it is used from another namespace.
pub fn diag_socket() -> io::Result<OwnedFd> {
    open(SockProtocol::NetlinkSockDiag)
}

/// Looks up the client's socket of a connection from `client` to `server`, exactly.
///
/// `sock` comes from [`diag_socket`]; one caller at a time. `None`: there is no such socket (it may
/// be closed already). Errors carry the kernel's errno; EBADMSG is an answer that cannot be read.
pub fn tcp_cookie_of(
    sock: BorrowedFd<'_>,
    client: SocketAddr,
    server: SocketAddr,
) -> io::Result<Option<SocketIdentity>> {
    let client = canonical(client);
    let server = canonical(server);
    // Without the connection the kernel finds a listener at the client's end instead.
    look_up(sock, TCP, client, server, |reply| {
        Ok((ends(reply)? == (client, server)).then_some(identity(reply)?))
    })
}

/// How many bytes of what has come from `server` the client of the same connection has yet to read.
///
/// `sock`, `None` and the errors are those of [`tcp_cookie_of`].
pub fn tcp_unread_of(
    sock: BorrowedFd<'_>,
    client: SocketAddr,
    server: SocketAddr,
) -> io::Result<Option<u32>> {
    let (client, server) = (canonical(client), canonical(server));
    look_up(sock, TCP, client, server, |reply| {
        let unread = u32::from_ne_bytes(field(reply, REPLY_UNREAD)?);
        Ok((ends(reply)? == (client, server)).then_some(unread))
    })
}

/// Whether nobody holds the client's socket of a connection any more, and the end of it has come to `server`, whose
/// socket is in the same network namespace. One that has ended its half, and still listens, has not left.
///
/// `sock` and the errors are those of [`tcp_cookie_of`].
pub fn tcp_has_left(sock: BorrowedFd<'_>, client: SocketAddr, server: SocketAddr) -> io::Result<bool> {
    let (client, server) = (canonical(client), canonical(server));
    let state = look_up(sock, TCP, server, client, |reply| {
        let [state] = field(reply, REPLY_STATE)?;
        Ok((ends(reply)? == (server, client)).then_some(state))
    })?;
    if state != Some(CLOSE_WAIT) {
        return Ok(false);
    }
    Ok(tcp_cookie_of(sock, client, server)?.is_none_or(|identity| identity.inode == 0))
}

/// Looks up the socket that takes datagrams from `server` to `client`, which is where one from `client`
/// to `server` came from: one that is connected there, or is not connected at all.
///
/// `sock` and the errors are those of [`tcp_cookie_of`].
pub fn udp_cookie_of(
    sock: BorrowedFd<'_>,
    client: SocketAddr,
    server: SocketAddr,
) -> io::Result<Option<SocketIdentity>> {
    let client = canonical(client);
    let server = canonical(server);
    // The kernel takes the two ends of datagram sockets the other way round (`udp_dump_one`).
    look_up(sock, UDP, server, client, |reply| {
        let (own, peer) = ends(reply)?;
        let own = own.port() == client.port() && (own.ip() == client.ip() || own.ip().is_unspecified());
        let peer = peer == server || peer.port() == 0;
        Ok((own && peer).then_some(identity(reply)?))
    })
}

/// Whether a TCP socket takes connections to `at`: one of that very address, or of every one.
///
/// `sock` and the errors are those of [`tcp_cookie_of`].
pub fn tcp_listens_at(sock: BorrowedFd<'_>, at: SocketAddr) -> io::Result<bool> {
    let at = canonical(at);
    let nobody = match at.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let found = look_up(sock, TCP, at, SocketAddr::new(nobody, 0), |reply| {
        let [state] = field(reply, REPLY_STATE)?;
        Ok((state == LISTENING).then_some(()))
    });
    Ok(found?.is_some())
}

fn look_up<T>(
    sock: BorrowedFd<'_>,
    protocol: u8,
    own: SocketAddr,
    other: SocketAddr,
    read: impl Fn(&[u8]) -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    // A look-up of an exact socket is answered once: by the socket or by an error.
    const SEQUENCE: u32 = 1;
    let mut found = None;
    let outcome = exchange(sock, &request(protocol, own, other, SEQUENCE)?, |message| {
        if let Some(refusal) = message.acknowledgement()? {
            return refusal;
        }
        if message.kind == SOCK_DIAG_BY_FAMILY && message.sequence == SEQUENCE {
            found = read(message.payload)?;
        }
        Ok(())
    });
    match outcome {
        Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(found),
    }
}

/// `struct inet_diag_req_v2` for the socket whose own end is `client`.
fn request(protocol: u8, client: SocketAddr, server: SocketAddr, sequence: u32) -> io::Result<Vec<u8>> {
    let family = match (client.ip(), server.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => FAMILY_INET,
        (IpAddr::V6(_), IpAddr::V6(_)) => FAMILY_INET6,
        _ => return Err(Errno::EINVAL.into()),
    };
    let mut encoder = Encoder::default();
    encoder.message(SOCK_DIAG_BY_FAMILY, REQUEST, sequence, |message| {
        message.put(&[family, protocol, 0, 0]);
        message.put(&ALL_STATES.to_ne_bytes());
        message.put(&client.port().to_be_bytes());
        message.put(&server.port().to_be_bytes());
        message.put(&address(client.ip()));
        message.put(&address(server.ip()));
        message.put(&[0; 4]); // any interface
        message.put(&NO_COOKIE);
    });
    Ok(encoder.into_bytes())
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
    }
}

fn identity(reply: &[u8]) -> io::Result<SocketIdentity> {
    Ok(SocketIdentity {
        cookie: u64::from(u32::from_ne_bytes(field(reply, REPLY_COOKIE)?))
            | u64::from(u32::from_ne_bytes(field(reply, REPLY_COOKIE + 4)?)) << 32,
        inode: u32::from_ne_bytes(field(reply, REPLY_INODE)?),
        uid: u32::from_ne_bytes(field(reply, REPLY_UID)?),
    })
}

/// The two ends of the socket of a reply; an IPv6 socket with mapped addresses is told as IPv4.
fn ends(reply: &[u8]) -> io::Result<(SocketAddr, SocketAddr)> {
    Ok((end(reply, REPLY_SOURCE, REPLY_SOURCE_PORT)?, end(reply, REPLY_DESTINATION, REPLY_DESTINATION_PORT)?))
}

fn end(reply: &[u8], offset: usize, port: usize) -> io::Result<SocketAddr> {
    let [family] = field(reply, 0)?;
    let ip = match family {
        FAMILY_INET => Ipv4Addr::from(field::<4>(reply, offset)?).into(),
        FAMILY_INET6 => Ipv6Addr::from(field::<16>(reply, offset)?).into(),
        _ => return Err(Errno::EBADMSG.into()),
    };
    let port = u16::from_be_bytes(field(reply, port)?);
    Ok(canonical(SocketAddr::new(ip, port)))
}

/// Without flow and scope, and as IPv4 when it is a mapped address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("socket address")
    }

    #[test]
    fn the_request_has_the_size_of_the_kernel_struct() {
        let bytes = request(TCP, at("[::1]:1"), at("[2001:db8::7]:443"), 1).expect("one family");
        assert_eq!(bytes.len(), 16 + 56);
        assert!(request(TCP, at("[::1]:1"), at("203.0.113.7:443"), 1).is_err());
    }

    #[test]
    fn a_mapped_reply_is_told_as_ipv4() {
        let mut reply = [0u8; 72];
        reply[0] = FAMILY_INET6;
        reply[4..8].copy_from_slice(&[0x12, 0x34, 0, 80]);
        reply[8..24].copy_from_slice(&Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
        reply[24..40].copy_from_slice(&Ipv4Addr::new(203, 0, 113, 7).to_ipv6_mapped().octets());
        reply[44..52].copy_from_slice(&7u64.to_ne_bytes());
        assert_eq!(ends(&reply).expect("whole reply"), (at("127.0.0.1:4660"), at("203.0.113.7:80")));
        assert_eq!(identity(&reply).expect("whole reply").cookie, 7);
        assert!(identity(&reply[..71]).is_err());
    }

    #[test]
    fn what_a_client_has_yet_to_read_is_told() {
        use std::io::{Read as _, Write as _};
        use std::net::{TcpListener, TcpStream};
        use std::os::fd::AsFd as _;
        let diag = diag_socket().expect("netlink");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut server, from) = listener.accept().expect("accepted");
        let to = server.local_addr().expect("bound");
        let unread = || tcp_unread_of(diag.as_fd(), from, to).expect("look-up");
        assert_eq!(unread(), Some(0));
        server.write_all(b"seven..").expect("written");
        assert_eq!(unread(), Some(7));
        client.read_exact(&mut [0; 3]).expect("read");
        assert_eq!(unread(), Some(4));
        drop((client, server));
        assert_eq!(tcp_unread_of(diag.as_fd(), at("127.0.0.1:1"), to).expect("look-up"), None);
    }

    #[test]
    fn who_ends_a_half_has_not_left() {
        use std::net::{Shutdown, TcpListener, TcpStream};
        use std::os::fd::AsFd as _;
        let diag = diag_socket().expect("netlink");
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).expect("bound");
            let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
            let (server, from) = listener.accept().expect("accepted");
            let to = server.local_addr().expect("bound");
            let has_left = || tcp_has_left(diag.as_fd(), from, to).expect("look-up");
            let another = client.try_clone().expect("a descriptor");
            assert!(!has_left());
            client.shutdown(Shutdown::Write).expect("half");
            assert!(!has_left());
            drop(client);
            assert!(!has_left());
            drop(another);
            assert!(has_left());
            drop(server);
            assert!(!has_left());
        }
    }

    #[test]
    fn datagram_sockets_are_found_connected_and_not() {
        use std::net::UdpSocket;
        use std::os::fd::AsFd as _;
        let diag = diag_socket().expect("netlink");
        for host in ["127.0.0.1", "[::1]"] {
            let server = UdpSocket::bind(format!("{host}:0")).expect("bound").local_addr().expect("bound");
            for bound in [host, if host == "[::1]" { "[::]" } else { "0.0.0.0" }] {
                let client = UdpSocket::bind(format!("{bound}:0")).expect("bound");
                let from = at(&format!("{host}:{}", client.local_addr().expect("bound").port()));
                let cookie = crate::sys::sockopt::socket_cookie(client.as_fd()).expect("a cookie");
                let found =
                    || udp_cookie_of(diag.as_fd(), from, server).expect("look-up").map(|it| it.cookie);
                assert_eq!(found(), Some(cookie), "{bound}");
                client.connect(server).expect("connected");
                assert_eq!(found(), Some(cookie), "{bound}");
                // What is connected elsewhere did not send there.
                client.connect(at(&format!("{host}:9"))).expect("connected");
                assert_eq!(found(), None, "{bound}");
                drop(client);
                assert_eq!(found(), None, "{bound}");
            }
        }
    }
}
