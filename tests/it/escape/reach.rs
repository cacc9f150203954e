//! The network: nothing that listens on the host hears anything but what a rule names.

use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use super::cell::{Cell, users};

#[test]
fn no_listener_of_the_host_is_reached() {
    for user in users() {
        let cell = Cell::new("reach", user);
        let tcp = TcpListener::bind("0.0.0.0:0").expect("a port");
        let port = tcp.local_addr().expect("an address").port();
        let tcp6 = TcpListener::bind(("::1", port));
        let udp = UdpSocket::bind(("0.0.0.0", port)).expect("a port");
        let allowed = TcpListener::bind("127.0.0.1:0").expect("a port");
        let allowed_port = allowed.local_addr().expect("an address").port();
        let name = format!("agentbox-attack-{port}");
        let named = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name"));
        let named = named.expect("an abstract socket");
        let path = UnixListener::bind(cell.work().join("host.sock")).expect("a socket");
        let datagram = UnixDatagram::bind(cell.work().join("host.dgram")).expect("a socket");
        for socket in ["host.sock", "host.dgram"] {
            let mode = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(cell.work().join(socket), mode).expect("a mode");
        }
        for rules in ["read: .\n", "write: .\n", "write: .\ndeny: read ./none/*.x\n"] {
            let policy = format!("{rules}net: 127.0.0.1:{allowed_port}\n");
            let (port, allowed_port) = (port.to_string(), allowed_port.to_string());
            let abstract_name = format!("@{name}");
            let mut words = vec![port.as_str(), &allowed_port, &abstract_name, "./host.sock", "./host.dgram"];
            let own = own_address();
            words.extend(own.as_deref());
            let fight = cell.attack(&policy, &words);
            fight.is_lost();
            assert!(fight.found("deny", "net").count() > 0, "{fight}");
        }
        for listener in [Some(&tcp), tcp6.as_ref().ok()].into_iter().flatten() {
            listener.set_nonblocking(true).expect("a mode");
            assert!(listener.accept().is_err(), "a TCP connection came");
        }
        udp.set_nonblocking(true).expect("a mode");
        assert!(udp.recv(&mut [0; 8]).is_err(), "a datagram came");
        for listener in [&named, &path] {
            listener.set_nonblocking(true).expect("a mode");
            assert!(listener.accept().is_err(), "a connection came by a Unix socket");
        }
        datagram.set_nonblocking(true).expect("a mode");
        assert!(datagram.recv(&mut [0; 8]).is_err(), "a datagram came by a Unix socket");
        reached(&allowed);
    }
}

/// What a rule names is reached, by the races too, and hears nothing that was meant for others.
fn reached(allowed: &TcpListener) {
    allowed.set_nonblocking(true).expect("a mode");
    let mut connections = 0;
    while let Ok((mut stream, _)) = allowed.accept() {
        connections += 1;
        let mut text = [0; 4];
        let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        if stream.read_exact(&mut text).is_ok() {
            assert_eq!(&text, b"RACE");
        }
    }
    assert!(connections > 0, "the allowed port was not reached");
}

/// The address that the host would send from.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}
