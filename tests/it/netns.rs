//! The network of a sandbox on the real kernel: what is dialled inside arrives at our sockets.
//!
//! Each test starts itself again in fresh user and network namespaces, so that it needs no
//! privilege; a root launcher is tested as root and as another user.

mod supervisor;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use agentbox::ns::handoff::Role;
use agentbox::ns::net::{Mechanism, NetSockets, NetSpec};
use agentbox::sys::netlink::{Ipv6, install_tproxy};
use nix::errno::Errno;

use supervisor::{Net, PATIENCE, at, inside, receive, unspecified};

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
            for ip in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST, Ipv4Addr::new(203, 0, 113, 7)] {
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
    inside("dns_is_asked_of_any_resolver_and_answered_from_there", || {
        for net in [Net::tproxy()] {
            for resolver in ["8.8.8.8:53", "127.0.0.53:53", "[2001:db8::53]:53", "[::1]:53"] {
                net.ask_dns(at(resolver), true);
                net.ask_dns(at(resolver), false);
                let listener = net.listener(Role::DnsTcp, at(resolver).ip());
                net.converse(&listener, at(resolver));
            }
        }
    });
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
        assert_eq!(server.recv(&mut [0; 8]).expect("own datagrams are let through"), 3);
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
            udp_ports: vec![123],
            udp_loopback: vec![124],
            published: Vec::new(),
        };
        let net = Net::new(&spec);
        assert_eq!(net.sockets.mechanism, Mechanism::Ports { errno: 0 });
        assert_ne!(net.sockets.proxy_port, 8080, "the policy's ports go first");
        for destination in ["203.0.113.7:80", "[2001:db8::7]:443", "127.0.0.1:8080"] {
            let at = at(destination);
            net.converse(&net.listener(Role::Port(at.port()), at.ip()), at);
        }
        net.converse(&net.loopback("127.0.0.1:5432"), at("127.0.0.1:5432"));
        let client = UdpSocket::bind("0.0.0.0:0").expect("bind");
        client.send_to(b"out", at("203.0.113.7:123")).expect("send");
        let (_, _, original) = receive(net.socket(Role::UdpTrap, Ipv4Addr::LOCALHOST.into()));
        assert_eq!(original, Some(at("203.0.113.7:123")));
        client.send_to(b"own", at("127.0.0.1:124")).expect("send");
        let role = Role::UdpLoopback(at("127.0.0.1:124"));
        assert_eq!(receive(net.socket(role, Ipv4Addr::LOCALHOST.into())).0, b"own");
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
    inside("loopback_ports_of_the_host_and_the_proxy_have_listeners", || {
        let net = Net::tproxy();
        for address in ["127.0.0.1:5432", "[::1]:5432"] {
            net.converse(&net.loopback(address), at(address));
        }
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            net.converse(&net.listener(Role::Proxy, ip), SocketAddr::new(ip, 3128));
        }
    });
}

#[test]
fn the_supervisor_gets_every_socket_and_what_is_in_force() {
    inside("the_supervisor_gets_every_socket_and_what_is_in_force", || {
        let sockets = Net::tproxy().sockets;
        let (child, supervisor) = UnixStream::pair().expect("socket pair");
        sockets.send(&child).expect("send");
        let received = NetSockets::receive(&supervisor).expect("receive");
        assert_eq!(received.mechanism, Mechanism::Tproxy);
        assert_eq!(received.transparent_port, sockets.transparent_port);
        assert_eq!(received.proxy_port, 3128);
        assert_eq!((received.ipv6, received.low_ports, received.diag), (Ipv6::Present, None, None));
        let roles = |fds: &[(Role, OwnedFd)]| fds.iter().map(|fd| fd.0).collect::<Vec<_>>();
        assert_eq!(roles(&received.fds), roles(&sockets.fds));
        drop(sockets);
        let net = Net { sockets: received };
        let listener = net.listener(Role::Transparent, Ipv4Addr::LOCALHOST.into());
        net.converse(&listener, at("203.0.113.7:80"));
    });
}

#[test]
fn a_refusal_of_nf_tables_tells_its_errno() {
    inside("a_refusal_of_nf_tables_tells_its_errno", || {
        let spec = NetSpec::default();
        let _net = Net::new(&spec); // drops the capabilities
        let error = install_tproxy(64_000).expect_err("no CAP_NET_ADMIN");
        assert_eq!(error.raw_os_error(), Some(Errno::EPERM as i32));
    });
}
