//! The host's own loopback: rules without a port, servers inside beside it, and runs that only observe.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

use crate::support::{Ran, Sandbox, everyone, has, skip, until};

/// Says `host` to everybody who connects; ends with the tests.
fn serve(address: &str) -> u16 {
    let listener = TcpListener::bind(address).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // A client that goes away has what it wanted.
            let _ = client.write_all(b"host");
        }
    });
    port
}

/// A port that nobody listens on.
fn free() -> u16 {
    let one = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    one.local_addr().expect("bound").port()
}

/// Clients without any proxy, that wait or do not.
const CLIENTS: &str = "import errno, select, socket, sys
def ask(host, port, wait=True):
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    one = socket.socket(family)
    one.setblocking(wait)
    try:
        one.connect((host, port))
    except BlockingIOError:
        select.select([], [one], [], 20)
        number = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number: return errno.errorcode[number]
    except OSError as error:
        return errno.errorcode[error.errno]
    one.setblocking(True)
    one.settimeout(20)
    return one.recv(9).decode()
";

fn clients(sandbox: &Sandbox, options: &[&str], program: &str) -> Ran {
    sandbox.run_with(options, &["python3", "-c", &format!("{CLIENTS}{program}")])
}

#[test]
fn a_rule_without_a_port_leads_to_every_port_of_the_host() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    let (port, nobody) = (serve("127.0.0.1:0"), free());
    everyone(|sandbox| {
        for rule in ["net: localhost", "net: 127.0.0.1"] {
            sandbox.policy(&format!("{rule}\n"));
            let program = format!(
                "for host in ('127.0.0.1', 'localhost', '0.0.0.0', '::1'):
    print(ask(host, {port}), ask(host, {port}, False), ask(host, {nobody}), ask(host, {nobody}, False))"
            );
            let ran = clients(sandbox, &[], &program);
            ran.exits(0).prints(&"host host ECONNREFUSED ECONNREFUSED\n".repeat(4));
            ran.recorded("net.connect", "address", "127.0.0.1");
            assert!(ran.of("net.connect").iter().all(|entry| entry["proc"] == "0"), "{ran}");
            let tried = ran.of("net.connect").into_iter().filter(|entry| entry["args"]["port"] == nobody);
            let tried: Vec<_> = tried.collect();
            assert!(!tried.is_empty(), "{ran}");
            for entry in tried {
                assert_eq!(entry["result"]["failure"]["kind"], "refused", "{ran}");
                assert!(entry["rule"].as_str().expect("a rule").ends_with("agentbox.policy:1"), "{ran}");
            }
            ran.denied_nothing();
        }
    });
}

#[test]
fn a_server_inside_has_its_port_to_itself_while_it_listens() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    let port = serve("127.0.0.1:0");
    everyone(|sandbox| {
        sandbox.policy("net: localhost\n");
        let program = format!(
            "import threading
print(ask('127.0.0.1', {port}))
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::')):
    server = socket.socket(family); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, {port})); server.listen()
    def serve(): server.accept()[0].sendall(b'inside')
    thread = threading.Thread(target=serve); thread.start()
    print(ask('127.0.0.1', {port}))
    thread.join(); server.close()
print(ask('127.0.0.1', {port}))"
        );
        clients(sandbox, &[], &program).exits(0).prints("host\ninside\ninside\nhost\n").denied_nothing();
    });
}

#[test]
fn a_socket_that_was_led_to_the_host_is_led_inside_again() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    let port = serve("127.0.0.1:0");
    everyone(|sandbox| {
        sandbox.policy("net: localhost\n");
        let program = format!(
            "import ctypes, threading
server = socket.create_server(('127.0.0.1', 0))
def serve(): server.accept()[0].sendall(b'inside')
threading.Thread(target=serve).start()
libc = ctypes.CDLL(None)
one = socket.socket(); one.connect(('127.0.0.1', {port})); print(one.recv(9))
print(libc.connect(one.fileno(), bytes(16), 16))
one.connect(server.getsockname()); print(one.recv(9))"
        );
        clients(sandbox, &[], &program).exits(0).prints("b'host'\n0\nb'inside'\n").denied_nothing();
    });
}

#[test]
fn a_rule_for_the_port_that_captures_elsewhere_leads_to_the_host_as_others_do() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    let port = serve("127.0.0.1:0");
    everyone(|sandbox| {
        // The first port that connections to other addresses are led to, where no rule names it.
        sandbox.policy(&format!("net: localhost:64000, localhost:{port}\n"));
        let ran = clients(sandbox, &[], &format!("print(ask('127.0.0.1', {port}))"));
        ran.exits(0).prints("host\n").denied_nothing();
    });
}

#[test]
fn a_denied_port_and_a_run_without_such_a_rule_are_refused() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    let (port, other) = (serve("127.0.0.1:0"), serve("127.0.0.1:0"));
    everyone(|sandbox| {
        sandbox.policy(&format!("net: localhost\ndeny: net localhost:{port}\n"));
        let ran =
            clients(sandbox, &[], &format!("print(ask('127.0.0.1', {port}), ask('127.0.0.1', {other}))"));
        ran.exits(0).prints("ECONNREFUSED host\n");
        assert_eq!(ran.denials("net").len(), 1, "{ran}");
        sandbox.policy(&format!("net: localhost:{other}\n"));
        let ran =
            clients(sandbox, &[], &format!("print(ask('127.0.0.1', {port}), ask('127.0.0.1', {other}))"));
        ran.exits(0).prints("ECONNREFUSED host\n").complains(&format!("to allow it: net: 127.0.0.1:{port}"));
        assert_eq!(ran.denials("net")[0]["args"]["remedy"], format!("net: 127.0.0.1:{port}"), "{ran}");
        assert_eq!(ran.denials("net").len(), 1, "{ran}");
    });
}

#[test]
fn a_named_port_is_refused_until_somebody_listens_there_and_so_in_a_replay() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        let port = free();
        sandbox.policy(&format!("net: localhost:{port}\nwrite: .\n"));
        let asked = sandbox.path("asked");
        let server = std::thread::spawn(move || {
            until("the port is asked for", || asked.exists());
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port");
            let (mut client, _) = listener.accept().expect("a client");
            client.write_all(b"host").expect("writes");
        });
        let program = format!(
            "import time
for host in '127.0.0.1', 'localhost', '0.0.0.0', '::1': print(ask(host, {port}), ask(host, {port}, False))
open('asked', 'w').close()
while (said := ask('127.0.0.1', {port})) == 'ECONNREFUSED': time.sleep(0.05)
print(said)"
        );
        let said = "ECONNREFUSED ECONNREFUSED\n".repeat(4) + "host\n";
        let ran = clients(sandbox, &[], &program);
        ran.exits(0).prints(&said).denied_nothing();
        let refused = |entry: &&&serde_json::Value| entry["result"]["failure"]["kind"] == "refused";
        let of_port = ran.of("net.connect");
        assert!(of_port.iter().filter(refused).count() >= 8, "{ran}");
        assert!(of_port.iter().all(|entry| entry["args"]["port"] == port), "{ran}");
        server.join().expect("served");
        let trace = sandbox.trace();
        let replayed = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
        replayed.exits(0).prints(&said).complains("replay ok");
    });
}

#[test]
fn an_observed_run_reaches_the_host_and_is_told_what_would_be_denied() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    let Ok(six) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        return skip("::1", "the host has no IPv6 loopback");
    };
    drop(six);
    let (port, six) = (serve("127.0.0.1:0"), serve("[::1]:0"));
    everyone(|sandbox| {
        sandbox.policy("");
        let program = format!("print(ask('127.0.0.1', {port}), ask('::1', {six}))");
        let ran = clients(sandbox, &["--observe"], &program);
        ran.exits(0).prints("host host\n").complains(&format!("would be denied 1x: net localhost:{port}"));
        assert!(ran.stderr.contains(" would-be denials -> "), "{ran}");
        assert!(ran.denials("net").iter().all(|entry| entry["args"]["enforced"] == false), "{ran}");
    });
}

#[test]
fn a_server_inside_is_told_that_its_port_is_the_hosts() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    let (port, other) = (serve("127.0.0.1:0"), serve("127.0.0.1:0"));
    everyone(|sandbox| {
        sandbox.policy(&format!("net: localhost:{port}\n"));
        let program = format!(
            "import errno, socket
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, ''), (socket.AF_INET6, '::1')):
    for port in ({port}, {other}):
        try: socket.socket(family).bind((host, port)); print('bound')
        except OSError as error: print(errno.errorcode[error.errno])"
        );
        let ran = sandbox.python(&program);
        ran.exits(0).prints(&"EADDRINUSE\nbound\n".repeat(3));
        ran.complains(&format!("agentbox: port {port} is held inside for the host's own"));
        assert_eq!(ran.stderr.matches("is held inside").count(), 1, "{ran}");
        let denials = ran.denials("net");
        assert!(
            denials.iter().all(|entry| entry["rule"].as_str().is_some_and(|rule| rule.ends_with(":1"))),
            "{ran}"
        );
        assert!(!denials.is_empty(), "{ran}");
    });
}

#[test]
fn a_redirection_leads_nowhere_that_no_rule_names() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let other = serve("127.0.0.1:0");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut asked = [0; 1024];
            // A client that goes away has what it wanted.
            let _ = client.read(&mut asked);
            let head = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{other}/\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            );
            let _ = client.write_all(head.as_bytes());
        }
    });
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        sandbox.policy(&format!("net: 127.0.0.1:{port}\n"));
        for way in [&["--noproxy", "*"][..], &[]] {
            let url = format!("http://127.0.0.1:{port}/");
            let words = [&["curl", "-sS", "-L", "--http0.9"], way, &[url.as_str()]].concat();
            let ran = sandbox.run(&words);
            assert!(!ran.stdout.contains("host"), "{ran}");
            assert_eq!(ran.recorded("http.exchange", "url", &url)["result"]["status"], 302, "{ran}");
            ran.denied("net", &format!("127.0.0.1:{other}"));
        }
        let url = format!("file://{}", sandbox.path("secret.txt").display());
        sandbox.run(&["curl", "-sS", &url]).exits(37).prints("").denied("read", "secret.txt");
    });
}

#[test]
fn a_connect_that_waits_for_room_waits_as_long_as_its_socket_says() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        let program = "
import struct, threading, time
server = socket.socket()
server.bind(('127.0.0.1', 0))
server.listen(0)
first = socket.create_connection(server.getsockname())
def connect(*given):
    client, begun = socket.socket(), time.monotonic()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', *given))
    try:
        client.connect(server.getsockname())
        ended = 'connected'
    except OSError as error:
        ended = errno.errorcode[error.errno]
    kept = client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)
    print(ended, 0.2 < time.monotonic() - begun < 15, struct.unpack('ll', kept) == given)
connect(0, 252000)
for patience in ((20, 0), (0, 0)):
    threading.Timer(0.3, lambda: (server.accept(), server.accept())).start()
    connect(*patience)
    fill = socket.create_connection(server.getsockname())
";
        let ran = clients(sandbox, &[], program);
        ran.exits(0).prints("EINPROGRESS True True\nconnected True True\nconnected True True\n");
    });
}
