//! Ports that a server inside offers on the host's loopback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::support::{Running, Sandbox, User, everyone, has, skip, until};

/// A port that is free on both of the host's loopback addresses.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        if TcpListener::bind((Ipv6Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Serves `count` connections on `host`: sends what comes back in brackets after the end of it.
fn server(host: &str, port: u16, count: usize) -> String {
    format!(
        "
import socket
s = socket.create_server(('{host}', {port}), family=socket.AF_INET6 if ':' in '{host}' else socket.AF_INET)
open('out/ready', 'w')
for _ in range({count}):
    c, peer = s.accept(); data = b''
    while piece := c.recv(65536): data += piece
    c.sendall(b'[' + data + b']'); c.close()
print(peer[0])"
    )
}

fn start(sandbox: &Sandbox, program: &str) -> Running {
    sandbox.directory("out");
    let _ = std::fs::remove_file(sandbox.path("out/ready"));
    let _ = std::fs::remove_file(sandbox.trace());
    Running::start(sandbox.run_command(&[], &["python3", "-c", program]))
}

fn ask(to: SocketAddr, words: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(words)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn loopbacks(port: u16) -> [SocketAddr; 2] {
    [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
}

#[test]
fn a_server_inside_is_reached_from_the_host() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        for host in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let port = free_port();
            sandbox.policy(&format!("write: ./out\nlisten: {port}\n"));
            let running = start(sandbox, &server(host, port, 3));
            until("the server is ready", || sandbox.path("out/ready").exists());
            for to in loopbacks(port) {
                assert_eq!(ask(to, b"hello").expect("an answer"), b"[hello]", "{host} {to}");
            }
            let large = vec![b'x'; 3 << 20];
            let answer = ask(loopbacks(port)[0], &large).expect("an answer");
            assert_eq!(answer.len(), large.len() + 2);
            let mut ran = running.finish();
            ran.read_trace(&sandbox.trace());
            ran.exits(0).denied_nothing();
            assert_eq!(ran.of("net.accept").len(), 3, "{ran}");
            assert_eq!(ran.recorded("net.listen", "address", host)["args"]["port"], port, "{ran}");
            let stream = ran.recorded("net.stream", "via", "listen");
            assert_eq!((&stream["result"]["down"], &stream["result"]["up"]), (&5.into(), &7.into()), "{ran}");
            assert!(stream["rule"].as_str().expect("a rule").ends_with("agentbox.policy:2"), "{ran}");
        }
    });
}

#[test]
fn root_offers_low_ports_and_others_learn_why_they_may_not() {
    // None of those that services are known for.
    let may = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let is_root = nix::unistd::geteuid().is_root();
    let port = (900..1023).find(|port| !is_root || may(port)).expect("a free port");
    everyone(|sandbox| {
        let ran = sandbox.policy(&format!("listen: {port}\n")).run(&["true"]);
        if sandbox.user == User::Caller && may(&port) {
            ran.exits(0);
        } else {
            ran.exits(125).complains("CAP_NET_BIND_SERVICE");
        }
    });
}

#[test]
fn nothing_listens_inside() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        let port = free_port();
        sandbox.policy(&format!("write: ./out\nlisten: {port}\n"));
        let running = start(sandbox, "open('out/ready', 'w')\nimport time; time.sleep(1)");
        until("the program runs", || sandbox.path("out/ready").exists());
        let refused = ask(loopbacks(port)[0], b"x");
        assert!(refused.as_ref().is_err_and(|error| error.raw_os_error() == Some(104)), "{refused:?}");
        // Only the loopback offers it.
        if let Some(own) = own_address() {
            let elsewhere = TcpStream::connect((own, port)).expect_err("no listener there");
            assert_eq!(elsewhere.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        let mut ran = running.finish();
        ran.read_trace(&sandbox.trace());
        let stream = ran.recorded("net.stream", "via", "listen");
        assert_eq!(stream["result"]["failure"]["kind"], "refused", "{ran}");
        ran.exits(0);
        assert!(TcpStream::connect(loopbacks(port)[0]).is_err(), "the port is free again");
    });
}

#[test]
fn who_takes_all_places_of_a_port_takes_none_of_the_runs_own() {
    const ALL: u64 = 1024;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    if hard < 8 * ALL {
        return skip("the run of other streams", "too few descriptors may be open");
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4 * ALL), hard).expect("fewer than may be");
    let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let own = host.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut client in host.incoming().flatten() {
            let _ = client.write_all(b"host");
        }
    });
    everyone(|sandbox| {
        let port = free_port();
        sandbox.policy(&format!("write: ./out\nnet: 127.0.0.1:{own}\nlisten: {port}\n"));
        let program = format!(
            "
import os, resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
s = socket.create_server(('127.0.0.1', {port}), backlog=2000)
open('out/ready', 'w')
held = [s.accept() for _ in range({ALL} - 14)]
for _ in range(3):
    c = socket.create_connection(('127.0.0.1', {own}), 20)
    c.settimeout(20)
    assert c.recv(9) == b'host'
    held.append(c)
while not os.path.exists('out/all'): time.sleep(0.02)"
        );
        let running = start(sandbox, &program);
        until("the server is ready", || sandbox.path("out/ready").exists());
        let connect = |_| TcpStream::connect(loopbacks(port)[0]).expect("a connection");
        let held: Vec<TcpStream> = (0..ALL + 40).map(connect).collect();
        sandbox.file("out/all", "");
        running.finish().exits(0);
        drop(held);
    });
}

/// The address from which the host would speak to the outside; nothing is sent.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback()).then_some(own)
}

#[test]
fn a_port_that_is_taken_stops_the_start() {
    everyone(|sandbox| {
        for taken in [Ipv4Addr::LOCALHOST.into(), std::net::IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let Ok(holder) = TcpListener::bind((taken, 0)) else {
                skip("IPv6", "the host has no ::1");
                continue;
            };
            let port = holder.local_addr().expect("bound").port();
            sandbox.policy(&format!("listen: {port}\n"));
            let ran = sandbox.run(&["true"]);
            ran.exits(125)
                .complains("agentbox.policy:1: bind(")
                .complains("EADDRINUSE")
                .complains("name another");
            assert!(ran.of("proc.spawn").is_empty(), "{ran}");
        }
    });
}

#[test]
fn one_port_is_not_the_hosts_and_the_runs_at_once() {
    everyone(|sandbox| {
        sandbox.policy("listen: 3000\nnet: localhost:3000\n");
        sandbox.run(&["true"]).exits(2).complains("port 3000 is held inside for the host's");
        for (rule, reason) in [
            ("listen: 0", "no port"),
            ("listen: 65536", "no port"),
            ("listen: +80", "no port"),
            ("listen: http", "no port"),
            ("listen: 0.0.0.0:80", "takes a port alone"),
            ("deny: listen 80", "unknown verb"),
        ] {
            sandbox.policy(&format!("{rule}\n"));
            sandbox.run(&["true"]).exits(2).complains(reason);
        }
        // Twice is once.
        let port = free_port();
        sandbox.policy(&format!("listen: {port}, {port}\n"));
        sandbox.run(&["true"]).exits(0);
    });
}

/// The run itself reaches its server by the port as ever, and cannot leave through the one outside.
#[test]
fn the_run_reaches_its_own_server_directly() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        let port = free_port();
        sandbox.policy(&format!("listen: {port}\nnet: localhost\n"));
        let ran = sandbox.python(&format!(
            "
import socket, threading
try: socket.create_connection(('127.0.0.1', {port}), 5).recv(1); print('an answer')
except OSError as error: print(type(error).__name__)
s = socket.create_server(('127.0.0.1', {port}))
threading.Thread(target=lambda: s.accept()[0].sendall(b'own'), daemon=True).start()
print(socket.create_connection(('127.0.0.1', {port}), 5).recv(3))"
        ));
        ran.exits(0).prints("ConnectionRefusedError\nb'own'\n").denied("net", &format!(":{port}"));
        assert!(ran.of("net.accept").is_empty(), "{ran}");
    });
}
