//! Stands for the supervisor of a sandbox's network and for the programs inside, in one process.

use std::fs;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agentbox::ns::handoff::Role;
use agentbox::ns::net::{Mechanism, NetSockets, NetSpec, prepare, setup};
use agentbox::sys::netlink::{Ipv6, tcp_cookie_of};
use agentbox::sys::sockopt::socket_cookie;
use caps::CapSet;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, sendmsg,
};

const INSIDE: &str = "AGENTBOX_TEST_INSIDE";
const OTHER_USER: &str = "65534";
/// How long anything may take that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `body` in fresh namespaces, in a process of its own; as root, also as another user.
pub(crate) fn inside(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let exe = std::env::current_exe().expect("own path");
    run(Command::new("unshare").args(["--map-root-user", "--net"]), &exe, test);
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    // The build directory may be closed to others.
    let directory = tempfile::tempdir().expect("directory");
    let copy = directory.path().join("it");
    crate::support::copy_program(exe, &copy);
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("mode");
    let (uid, gid) = (format!("--reuid={OTHER_USER}"), format!("--regid={OTHER_USER}"));
    let mut command = Command::new("setpriv");
    command.args([&uid, &gid, "--clear-groups", "unshare"]);
    command.args(["--map-current-user", "--keep-caps", "--net"]);
    run(&mut command, &copy, test);
}

fn run(command: &mut Command, exe: &Path, test: &str) {
    let output = command
        .arg(exe)
        .args(["--exact", &format!("netns::{test}"), "--nocapture"])
        .env(INSIDE, "1")
        .current_dir("/")
        .output()
        .expect("unshare and setpriv are installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().expect("socket address")
}

pub(crate) fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The sockets that a supervisor would have, and clients that dial inside.
pub(crate) struct Net {
    pub(crate) sockets: NetSockets,
}

impl Net {
    pub(crate) fn tproxy() -> Self {
        let spec = NetSpec {
            tproxy: true,
            ports: vec![80],
            loopback: vec![5432],
            proxy_port: 3128,
            ..NetSpec::default()
        };
        let net = Self::new(&spec);
        assert_eq!(net.sockets.mechanism, Mechanism::Tproxy);
        net
    }

    pub(crate) fn new(spec: &NetSpec) -> Self {
        let (sockets, _) = prepare().and_then(|prepared| setup(prepared, spec)).expect("setup");
        // What follows runs as the command will: without capabilities.
        caps::clear(None, CapSet::Effective).expect("capabilities");
        assert_eq!(sockets.ipv6, Ipv6::Present);
        assert_eq!(sockets.low_ports, None);
        Self { sockets }
    }

    pub(crate) fn socket(&self, role: Role, like: IpAddr) -> &OwnedFd {
        let mut fds = self.sockets.fds.iter();
        let found = fds.find(|(r, fd)| *r == role && local(fd).is_ipv4() == like.is_ipv4());
        &found.expect("a socket of this role").1
    }

    pub(crate) fn listener(&self, role: Role, like: IpAddr) -> TcpListener {
        let socket = self.socket(role, like).try_clone().expect("duplicate");
        TcpListener::from(socket)
    }

    pub(crate) fn loopback(&self, address: &str) -> TcpListener {
        self.listener(Role::Loopback(at(address)), at(address).ip())
    }

    /// Dials `destination` and expects to arrive at `listener`: both ends see the same addresses, bytes
    /// go both ways, and the diag socket tells which socket dialled.
    pub(crate) fn converse(&self, listener: &TcpListener, destination: SocketAddr) {
        let mut client = TcpStream::connect_timeout(&destination, PATIENCE).expect("connect");
        listener.set_nonblocking(true).expect("mode");
        let (mut accepted, from) = listener.accept().expect("waiting to be accepted");
        accepted.set_nonblocking(false).expect("mode");
        assert_eq!(accepted.local_addr().expect("address"), destination);
        assert_eq!(client.peer_addr().expect("address"), destination);
        assert_eq!(client.local_addr().expect("address"), from);
        assert!(from.ip().is_loopback(), "dialled from {from}");

        let diag = self.sockets.fds.iter().find(|fd| fd.0 == Role::Diag).expect("diag");
        let found = tcp_cookie_of(diag.1.as_fd(), from, destination).expect("look-up");
        let found = found.expect("the client's socket");
        assert_eq!(found.cookie, socket_cookie(&client).expect("cookie"));
        assert_ne!(found.cookie, socket_cookie(&accepted).expect("cookie"));
        let link = fs::read_link(format!("/proc/self/fd/{}", client.as_raw_fd())).expect("link");
        assert_eq!(link, Path::new(&format!("socket:[{}]", found.inode)));
        assert_eq!(found.uid, nix::unistd::getuid().as_raw());
        let nobody = SocketAddr::new(from.ip(), 1);
        let none = tcp_cookie_of(diag.1.as_fd(), nobody, destination).expect("look-up");
        assert_eq!(none, None);

        client.write_all(b"ping").expect("write");
        let mut bytes = [0; 4];
        accepted.read_exact(&mut bytes).expect("read");
        accepted.write_all(b"pong").expect("write");
        client.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"pong");
    }

    /// Asks and answers one datagram; the client must see the answer come from `resolver`.
    pub(crate) fn ask_dns(&self, resolver: SocketAddr, connected: bool) {
        let client = UdpSocket::bind((unspecified(resolver.ip()), 0)).expect("bind");
        client.set_read_timeout(Some(PATIENCE)).expect("timeout");
        if connected {
            client.connect(resolver).expect("connect");
            client.send(b"question").expect("send");
        } else {
            client.send_to(b"question", resolver).expect("send");
        }
        let socket = self.socket(Role::DnsUdp, resolver.ip());
        let (bytes, from, asked) = receive(socket);
        assert_eq!(bytes, b"question");
        assert_eq!(asked.expect("packet information").ip(), resolver.ip());
        answer(socket, from, resolver.ip());
        let mut bytes = [0; 16];
        let (length, source) = client.recv_from(&mut bytes).expect("the answer");
        assert_eq!((&bytes[..length], source), (&b"answer"[..], resolver));
    }
}

fn local(fd: &OwnedFd) -> SocketAddr {
    let storage: Result<SockaddrStorage, _> = nix::sys::socket::getsockname(fd.as_raw_fd());
    storage.ok().and_then(|storage| std(&storage)).unwrap_or_else(|| at("0.0.0.0:0")) // the diag socket
}

fn std(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|a| SocketAddr::V4((*a).into()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|a| SocketAddr::V6((*a).into())))
}

/// A datagram, its sender, and where it was sent as far as the socket tells.
pub(crate) fn receive(socket: &OwnedFd) -> (Vec<u8>, SocketAddr, Option<SocketAddr>) {
    let mut bytes = [0; 64];
    let mut control = nix::cmsg_space!([u8; 64]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::empty();
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)
        .expect("a datagram");
    let from = message.address.as_ref().and_then(std).expect("sender");
    let mut asked = None;
    for part in message.cmsgs().expect("whole") {
        asked = match part {
            ControlMessageOwned::Ipv4PacketInfo(i) => {
                let ip = Ipv4Addr::from(u32::from_be(i.ipi_addr.s_addr));
                assert_eq!(u32::from_be(i.ipi_spec_dst.s_addr), ip.to_bits(), "answers come from there");
                Some(SocketAddr::new(ip.into(), 0))
            }
            ControlMessageOwned::Ipv6PacketInfo(i) => {
                Some(SocketAddr::new(Ipv6Addr::from(i.ipi6_addr.s6_addr).into(), 0))
            }
            ControlMessageOwned::Ipv4OrigDstAddr(a) => Some(SocketAddr::V4(SockaddrIn::from(a).into())),
            ControlMessageOwned::Ipv6OrigDstAddr(a) => Some(SocketAddr::V6(SockaddrIn6::from(a).into())),
            _ => asked,
        };
    }
    let length = message.bytes;
    (bytes[..length].to_vec(), from, asked)
}

fn answer(socket: &OwnedFd, to: SocketAddr, source: IpAddr) {
    let v4;
    let v6;
    let control = match source {
        IpAddr::V4(ip) => {
            v4 = nix::libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: nix::libc::in_addr { s_addr: ip.to_bits().to_be() },
                ipi_addr: nix::libc::in_addr { s_addr: 0 },
            };
            ControlMessage::Ipv4PacketInfo(&v4)
        }
        IpAddr::V6(ip) => {
            v6 = nix::libc::in6_pktinfo {
                ipi6_addr: nix::libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: 0,
            };
            ControlMessage::Ipv6PacketInfo(&v6)
        }
    };
    let to = SockaddrStorage::from(to);
    let parts = [IoSlice::new(b"answer")];
    sendmsg(socket.as_raw_fd(), &parts, &[control], MsgFlags::empty(), Some(&to)).expect("send");
}
