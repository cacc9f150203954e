//! Replays of programs that speak otherwise than they did: each connection is answered as what it carries, or ends.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::support::{Ran, Sandbox, Server, everyone, has, skip};

/// Does what each line of the file `what` says.
const CLIENT: &str = "import socket, sys\n\
    port, udp, path = sys.argv[1:]\n\
    def tcp(): return socket.create_connection(('127.0.0.1', int(port)))\n\
    def talk(s, said, silent):\n\
    \x20   try:\n\
    \x20       if not silent: s.sendall(said)\n\
    \x20       print(said, s.recv(1000).split(b'\\n')[-1])\n\
    \x20   except OSError as error: print(said, 'error', error.errno)\n\
    kept = []\n\
    for line in open('what'):\n\
    \x20   kind, said, *silent = line.split(); said = said.encode()\n\
    \x20   if kind == 'get': s, said = tcp(), b'GET /' + said + b' HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'\n\
    \x20   elif kind == 'raw': s, said = tcp(), b'\\x01' + said\n\
    \x20   elif kind == 'more': s, said = kept[-1], said\n\
    \x20   elif kind == 'unix': s = socket.socket(socket.AF_UNIX); s.connect(path)\n\
    \x20   elif kind == 'udp':\n\
    \x20       s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', int(udp)))\n\
    \x20   kept.append(s); talk(s, said, silent)\n";

fn serve(mut stream: TcpStream, number: usize) {
    let mut buffer = [0; 1000];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let body = format!("answer {number}");
        let answer = if buffer[..count].starts_with(b"GET") {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        } else {
            body
        };
        let _ = stream.write_all(answer.as_bytes());
    }
}

/// Records a run that does `recorded`, and replays one that does `live`.
fn replayed(sandbox: &Sandbox, recorded: &str, live: &str) -> (Ran, Ran) {
    let server = Server::start(0, serve);
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let udp = datagrams.local_addr().expect("bound").port();
    datagrams.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
    let path = sandbox.beside("host.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    sandbox.give(&path);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut buffer = [0; 100];
            while let Ok(1..) = stream.read(&mut buffer) {
                let _ = stream.write_all(b"local");
            }
        }
    });
    let (port, shown) = (server.port, path.display());
    sandbox.policy(&format!(
        "net: localhost:{port}\nnet: udp:localhost:{udp}\nnet: unix:{shown}\nexec: python3\nread: .\n"
    ));
    sandbox.file("client.py", CLIENT);
    sandbox.file("what", recorded);
    let (recording, recorded_all) = channel::<()>();
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 100];
        while recorded_all.try_recv() == Err(TryRecvError::Empty) {
            if let Ok((count, client)) = datagrams.recv_from(&mut buffer) {
                let _ = datagrams.send_to(&buffer[..count], client);
            }
        }
    });
    let words = ["python3", "client.py", &port.to_string(), &udp.to_string(), &shown.to_string()];
    let ran = sandbox.run_with(&[], &words);
    ran.exits(0);
    assert!(!ran.stdout.contains("error"), "{ran}");
    drop(recording);
    echo.join().expect("ends");
    let server = server.canary();
    sandbox.file("what", live);
    let trace = sandbox.trace();
    let begun = Instant::now();
    let again = sandbox.agentbox(&[
        "replay",
        "-t",
        trace.to_str().expect("text"),
        "--force",
        "--lenient",
        "input-changed",
    ]);
    assert!(begun.elapsed() < Duration::from_secs(60), "it waited");
    assert_eq!(server.accepted(), 0, "a replay went out");
    std::fs::remove_file(&path).expect("is there");
    (ran, again)
}

#[test]
fn a_connection_is_answered_as_what_it_carries() {
    if !has("python3") {
        return skip("replays of mixed connections", "python3 is not installed");
    }
    everyone(|sandbox| {
        let (ran, again) =
            replayed(sandbox, "get a\nraw one\nget b\nraw two\n", "raw one\nraw two\nget a\nget b\n");
        let sorted = |ran: &Ran| {
            let mut lines: Vec<_> =
                ran.stdout.lines().filter(|line| line.starts_with("b'")).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ran), sorted(&again), "{again}");
    });
}

#[test]
fn a_connection_of_which_no_more_was_recorded_ends_at_once() {
    if !has("python3") {
        return skip("replays of mixed connections", "python3 is not installed");
    }
    everyone(|sandbox| {
        for (recorded, live, errors, told) in [
            ("get a\nraw one\n", "get a\nraw one\nraw one\n", 1, "count: 1 -> one more"),
            ("get a\nget b\n", "raw one\nget a\nget b\n", 1, "carries: requests -> bytes"),
            ("raw one\nraw two\n", "get a\nraw one\nraw two\n", 1, "not recorded"),
            ("unix a\n", "unix a\nunix a\n", 1, "count: 1 -> one more"),
            ("udp a\n", "udp a\nudp a\n", 1, "count: 1 -> one more"),
        ] {
            let (_, again) = replayed(sandbox, recorded, live);
            again.exits(1);
            let ended = |line: &&str| line.contains("error") || line.ends_with("b''");
            assert_eq!(again.stdout.lines().filter(ended).count(), errors, "{live}: {again}");
            assert!(again.stderr.contains(told), "{live}: {again}");
        }
    });
}

#[test]
fn a_client_that_waits_in_vain_is_not_waited_for() {
    if !has("python3") {
        return skip("replays of silent clients", "python3 is not installed");
    }
    everyone(|sandbox| {
        for (recorded, live) in [
            ("raw one\nmore two\n", "raw one\nmore x silent\n"),
            ("raw one\n", "raw one silent\n"),
            ("get a\nraw one\n", "raw one silent\nget a\n"),
            ("unix one\n", "unix one silent\n"),
            ("udp one\n", "udp one\nmore x silent\n"),
        ] {
            let (_, again) = replayed(sandbox, recorded, live);
            again.exits(1);
            let ended = |line: &str| line.contains("error") || line.ends_with("b''");
            assert!(again.stdout.lines().any(ended), "{live}: {again}");
            assert!(
                again.stderr.contains("failed    diverged at byte")
                    || again.stderr.contains("failed    not recorded"),
                "{live}: {again}"
            );
        }
    });
}
