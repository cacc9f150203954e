//! The network of a sandbox on the real kernel: what is dialled inside arrives at our sockets.
//!
//! Each test starts itself again in fresh user and network namespaces, so that it needs no
//! privilege; a root launcher is tested as root and as another user.

use std::fs;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use agentbox::ns::handoff::Role;
use agentbox::ns::net::{Mechanism, NetSockets, NetSpec, setup};
use agentbox::sys::netlink::{Ipv6, tcp_cookie_of};
use agentbox::sys::sockopt::socket_cookie;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage,
    recvmsg, sendmsg,
};

const INSIDE: &str = "AGENTBOX_TEST_INSIDE";
const PATIENCE: Duration = Duration::from_secs(2);
const OTHER_USER: &str = "65534";

#[test]
fn every_tcp_destination_arrives_where_it_was_dialled() {
    inside("every_tcp_destination_arrives_where_it_was_dialled", || {
        let net = Net::tproxy();
        for destination in [
            "203.0.113.7:80",
            "203.0.113.7:12345",
            "[2001:db8::7]:443",
            "[2001:db8::7]:9",
            "8.8.8.8:853",
            "255.1.2.3:65535",
        ] {
            let listener = net.listener(Role::Transparent, at(destination).ip());
            net.converse(&listener, at(destination));
        }
    });
}

#[test]
fn servers_inside_are_reached_on_loopback_alone() {
    inside("servers_inside_are_reached_on_loopback_alone", || {
        let net = Net::tproxy();
        for own in ["127.0.0.1:8080", "[::1]:8080", "0.0.0.0:80", "[::]:443"] {
            let server = TcpListener::bind(at(own)).expect("a port of its own, low ones too");
            let ip = match at(own).ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            net.converse(&server, SocketAddr::new(ip, at(own).port()));
        }
        let _everywhere = TcpListener::bind(at("0.0.0.0:9090")).expect("bind");
        let listener = net.listener(Role::Transparent, Ipv4Addr::LOCALHOST.into());
        net.converse(&listener, at("203.0.113.7:9090"));
    });
}

#[test]
fn our_ports_cannot_be_bound_inside() {
    inside("our_ports_cannot_be_bound_inside", || {
        let net = Net::tproxy();
        let transparent = net.sockets.transparent_port;
        for port in [53, transparent] {
            for ip in [
                Ipv4Addr::UNSPECIFIED,
                Ipv4Addr::LOCALHOST,
                Ipv4Addr::new(203, 0, 113, 7),
            ] {
                // std sets SO_REUSEADDR on TCP listeners: that does not help either.
                let tcp = TcpListener::bind((ip, port)).expect_err("taken");
                let udp = UdpSocket::bind((ip, port)).expect_err("taken");
                assert_eq!(tcp.kind(), ErrorKind::AddrInUse, "{ip}:{port}");
                assert_eq!(udp.kind(), ErrorKind::AddrInUse, "{ip}:{port}");
            }
        }
    });
}

#[test]
fn dns_is_asked_of_any_resolver_and_answered_from_there() {
    inside(
        "dns_is_asked_of_any_resolver_and_answered_from_there",
        || {
            for net in [Net::tproxy()] {
                for resolver in [
                    "8.8.8.8:53",
                    "127.0.0.53:53",
                    "[2001:db8::53]:53",
                    "[::1]:53",
                ] {
                    net.ask_dns(at(resolver), true);
                    net.ask_dns(at(resolver), false);
                    let listener = net.listener(Role::DnsTcp, at(resolver).ip());
                    net.converse(&listener, at(resolver));
                }
            }
        },
    );
}

#[test]
fn other_datagrams_are_trapped_with_their_destination() {
    inside("other_datagrams_are_trapped_with_their_destination", || {
        let net = Net::tproxy();
        for destination in ["203.0.113.9:9999", "[2001:db8::9]:443", "192.0.2.1:64000"] {
            let client = UdpSocket::bind((unspecified(at(destination).ip()), 0)).expect("bind");
            client.send_to(b"out", at(destination)).expect("send");
            let trap = net.socket(Role::UdpTrap, at(destination).ip());
            let (bytes, _, original) = receive(trap);
            assert_eq!(bytes, b"out");
            assert_eq!(original, Some(at(destination)));
        }
        let server = UdpSocket::bind("127.0.0.1:9999").expect("bind");
        let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
        client.send_to(b"own", "127.0.0.1:9999").expect("send");
        server.set_read_timeout(Some(PATIENCE)).expect("timeout");
        assert_eq!(
            server
                .recv(&mut [0; 8])
                .expect("own datagrams are let through"),
            3
        );
    });
}

#[test]
fn without_nf_tables_the_named_ports_are_captured() {
    inside("without_nf_tables_the_named_ports_are_captured", || {
        let spec = NetSpec {
            ports: vec![80, 443, 443, 53, 8080],
            loopback: vec![8080, 5432],
            proxy_port: 8080,
            tproxy: false,
        };
        let net = Net::new(&spec);
        assert_eq!(net.sockets.mechanism, Mechanism::Ports { errno: 0 });
        assert_ne!(net.sockets.proxy_port, 8080, "the policy's ports go first");
        for destination in ["203.0.113.7:80", "[2001:db8::7]:443", "127.0.0.1:8080"] {
            let at = at(destination);
            net.converse(&net.listener(Role::Port(at.port()), at.ip()), at);
        }
        net.converse(&net.loopback("127.0.0.1:5432"), at("127.0.0.1:5432"));
        net.ask_dns(at("8.8.8.8:53"), false);
        net.ask_dns(at("[2001:db8::53]:53"), false);
        for refused in ["203.0.113.7:81", "[2001:db8::7]:82", "127.0.0.1:81"] {
            let error = TcpStream::connect_timeout(&at(refused), PATIENCE).expect_err(refused);
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{refused}");
        }
    });
}

#[test]
fn loopback_ports_of_the_host_and_the_proxy_have_listeners() {
    inside(
        "loopback_ports_of_the_host_and_the_proxy_have_listeners",
        || {
            let net = Net::tproxy();
            for address in ["127.0.0.1:5432", "[::1]:5432"] {
                net.converse(&net.loopback(address), at(address));
            }
            for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                net.converse(&net.listener(Role::Proxy, ip), SocketAddr::new(ip, 3128));
            }
        },
    );
}

#[test]
fn the_supervisor_gets_every_socket_and_what_is_in_force() {
    inside(
        "the_supervisor_gets_every_socket_and_what_is_in_force",
        || {
            let sockets = Net::tproxy().sockets;
            let (child, supervisor) = UnixStream::pair().expect("socket pair");
            sockets.send(&child).expect("send");
            let received = NetSockets::receive(&supervisor).expect("receive");
            assert_eq!(received.mechanism, Mechanism::Tproxy);
            assert_eq!(received.transparent_port, sockets.transparent_port);
            assert_eq!(received.proxy_port, 3128);
            assert_eq!(
                (received.ipv6, received.low_ports, received.diag),
                (Ipv6::Present, None, None)
            );
            let roles = |fds: &[(Role, OwnedFd)]| fds.iter().map(|fd| fd.0).collect::<Vec<_>>();
            assert_eq!(roles(&received.fds), roles(&sockets.fds));
            drop(sockets);
            let net = Net { sockets: received };
            let listener = net.listener(Role::Transparent, Ipv4Addr::LOCALHOST.into());
            net.converse(&listener, at("203.0.113.7:80"));
        },
    );
}

/// Runs `body` in fresh namespaces, in a process of its own; as root, also as another user.
fn inside(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let exe = std::env::current_exe().expect("own path");
    run(
        Command::new("unshare").args(["--map-root-user", "--net"]),
        &exe,
        test,
    );
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    // The build directory may be closed to others.
    let directory = tempfile::tempdir().expect("directory");
    let copy = directory.path().join("it");
    fs::copy(exe, &copy).expect("copy");
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("mode");
    let (uid, gid) = (
        format!("--reuid={OTHER_USER}"),
        format!("--regid={OTHER_USER}"),
    );
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
    eprintln!("{text}{errors}");
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("socket address")
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The sockets that a supervisor would have, and clients that dial inside.
struct Net {
    sockets: NetSockets,
}

impl Net {
    fn tproxy() -> Self {
        let spec = NetSpec {
            tproxy: true,
            ports: vec![80],
            loopback: vec![5432],
            proxy_port: 3128,
        };
        let net = Self::new(&spec);
        assert_eq!(net.sockets.mechanism, Mechanism::Tproxy);
        net
    }

    fn new(spec: &NetSpec) -> Self {
        let start = Instant::now();
        let sockets = setup(spec).expect("setup");
        eprintln!("setup took {} us", start.elapsed().as_micros());
        assert_eq!(sockets.ipv6, Ipv6::Present);
        assert_eq!(sockets.low_ports, None);
        Self { sockets }
    }

    fn socket(&self, role: Role, like: IpAddr) -> &OwnedFd {
        let mut fds = self.sockets.fds.iter();
        let found = fds.find(|(r, fd)| *r == role && local(fd).is_ipv4() == like.is_ipv4());
        &found.expect("a socket of this role").1
    }

    fn listener(&self, role: Role, like: IpAddr) -> TcpListener {
        let socket = self.socket(role, like).try_clone().expect("duplicate");
        TcpListener::from(socket)
    }

    fn loopback(&self, address: &str) -> TcpListener {
        self.listener(Role::Loopback(at(address)), at(address).ip())
    }

    /// Dials `destination` and expects to arrive at `listener`: both ends see the same addresses, bytes
    /// go both ways, and the diag socket tells which socket dialled.
    fn converse(&self, listener: &TcpListener, destination: SocketAddr) {
        let mut client = TcpStream::connect_timeout(&destination, PATIENCE).expect("connect");
        listener.set_nonblocking(true).expect("mode");
        let (mut accepted, from) = listener.accept().expect("waiting to be accepted");
        accepted.set_nonblocking(false).expect("mode");
        assert_eq!(accepted.local_addr().expect("address"), destination);
        assert_eq!(client.peer_addr().expect("address"), destination);
        assert_eq!(client.local_addr().expect("address"), from);

        let diag = self
            .sockets
            .fds
            .iter()
            .find(|fd| fd.0 == Role::Diag)
            .expect("diag");
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

        for (a, b) in [(&mut client, &mut accepted)] {
            a.write_all(b"ping").expect("write");
            let mut bytes = [0; 4];
            b.read_exact(&mut bytes).expect("read");
            b.write_all(b"pong").expect("write");
            a.read_exact(&mut bytes).expect("read");
            assert_eq!(&bytes, b"pong");
        }
    }

    /// Asks and answers one datagram; the client must see the answer come from `resolver`.
    fn ask_dns(&self, resolver: SocketAddr, connected: bool) {
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
    storage
        .ok()
        .and_then(|storage| std(&storage))
        .unwrap_or_else(|| at("0.0.0.0:0")) // the diag socket
}

fn std(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage
        .as_sockaddr_in()
        .map(|a| SocketAddr::V4((*a).into()));
    v4.or_else(|| {
        storage
            .as_sockaddr_in6()
            .map(|a| SocketAddr::V6((*a).into()))
    })
}

/// A datagram, its sender, and where it was sent as far as the socket tells.
fn receive(socket: &OwnedFd) -> (Vec<u8>, SocketAddr, Option<SocketAddr>) {
    let mut bytes = [0; 64];
    let mut control = nix::cmsg_space!([u8; 64]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::empty();
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)
            .expect("a datagram");
    let from = message.address.as_ref().and_then(std).expect("sender");
    let mut asked = None;
    for part in message.cmsgs().expect("whole") {
        asked = match part {
            ControlMessageOwned::Ipv4PacketInfo(i) => {
                let ip = Ipv4Addr::from(u32::from_be(i.ipi_addr.s_addr));
                assert_eq!(
                    u32::from_be(i.ipi_spec_dst.s_addr),
                    ip.to_bits(),
                    "answers come from there"
                );
                Some(SocketAddr::new(ip.into(), 0))
            }
            ControlMessageOwned::Ipv6PacketInfo(i) => Some(SocketAddr::new(
                Ipv6Addr::from(i.ipi6_addr.s6_addr).into(),
                0,
            )),
            ControlMessageOwned::Ipv4OrigDstAddr(a) => {
                Some(SocketAddr::V4(SockaddrIn::from(a).into()))
            }
            ControlMessageOwned::Ipv6OrigDstAddr(a) => {
                Some(SocketAddr::V6(SockaddrIn6::from(a).into()))
            }
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
                ipi_spec_dst: nix::libc::in_addr {
                    s_addr: ip.to_bits().to_be(),
                },
                ipi_addr: nix::libc::in_addr { s_addr: 0 },
            };
            ControlMessage::Ipv4PacketInfo(&v4)
        }
        IpAddr::V6(ip) => {
            v6 = nix::libc::in6_pktinfo {
                ipi6_addr: nix::libc::in6_addr {
                    s6_addr: ip.octets(),
                },
                ipi6_ifindex: 0,
            };
            ControlMessage::Ipv6PacketInfo(&v6)
        }
    };
    let to = SockaddrStorage::from(to);
    let parts = [IoSlice::new(b"answer")];
    sendmsg(
        socket.as_raw_fd(),
        &parts,
        &[control],
        MsgFlags::empty(),
        Some(&to),
    )
    .expect("send");
}
