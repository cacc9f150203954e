//! Replays of programs that talk to the host's servers, once those are gone.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Ran, Sandbox, Server, everyone, has, skip};

fn saw_nobody(server: &Server) {
    assert_eq!(server.accepted(), 0, "a replay went out");
}

/// Reads up to the empty line; false at the end.
fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> bool {
    head.clear();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Answers each request otherwise: with its number, in pieces, not yet, or not whole.
fn web(mut stream: TcpStream, number: usize) {
    let mut head = Vec::new();
    for request in 0.. {
        if !read_head(&mut stream, &mut head) {
            return;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let target = text.split(' ').nth(1).unwrap_or_default();
        let answer = match target {
            "/events" => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                for _ in 0..4 {
                    std::thread::sleep(Duration::from_millis(50));
                    let _ = stream.write_all(format!("2\r\n{request}\n\r\n").as_bytes());
                }
                "0\r\n\r\n".to_owned()
            }
            "/later" if number % 3 != 2 => {
                "HTTP/1.1 429 Later\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
            "/cut" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_owned(),
            _ => {
                let body = format!("{number}.{request} {target}\n");
                let more = "Set-Cookie: key=hunter2\r\nETag: x";
                format!("HTTP/1.1 200 Fine\r\n{more}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
        };
        let _ = stream.write_all(answer.as_bytes());
        if target == "/cut" {
            return;
        }
    }
}

fn record(sandbox: &Sandbox, script: &str) -> Ran {
    sandbox.run_with(&[], &["sh", "-c", script])
}

fn replay(sandbox: &Sandbox, options: &[&str]) -> Ran {
    let trace = sandbox.trace();
    let words = [&["replay", "-t", trace.to_str().expect("text")], options].concat();
    sandbox.agentbox(&words)
}

#[test]
fn an_http_client_gets_what_it_got() {
    if !has("curl") {
        return skip("replays of curl", "curl is not installed");
    }
    everyone(|sandbox| {
        let server = Server::start(0, web);
        let at = format!("localhost:{}", server.port);
        sandbox.policy(&format!("net: {at}\nnet: localhost:9\nnet: nobody.invalid\nexec: sh\nexec: curl\n"));
        let ran = record(
            sandbox,
            &format!(
                "curl -si {at}/a {at}/b -d x=1; curl -sN {at}/events; curl -s --retry 5 {at}/later; \
                 curl -sS {at}/cut; curl -sS http://nobody.invalid/; curl -sS localhost:9; echo done"
            ),
        );
        ran.exits(0);
        assert!(
            ran.stdout.contains("HTTP/1.1 200 Fine\r\nSet-Cookie: key=hunter2\r\nETag: x"),
            "{}",
            ran.stdout
        );
        let server = server.canary();
        let again = replay(sandbox, &[]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
        saw_nobody(&server);
    });
}

#[test]
fn streams_datagrams_and_sockets_are_played() {
    if !has("python3") {
        return skip("replays of streams", "python3 is not installed");
    }
    const CLIENT: &str = "import socket, sys\n\
        def talk(s, words):\n    for word in words:\n        s.sendall(word); print(s.recv(100))\n\
        \x20   s.shutdown(socket.SHUT_WR); print(s.recv(100))\n\
        tcp, udp, path = sys.argv[1:]\n\
        talk(socket.create_connection(('127.0.0.1', int(tcp))), [b'\\x01one', b'\\x01two'])\n\
        s = socket.socket(socket.AF_UNIX); s.connect(path); talk(s, [b'three'])\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n\
        for word in (b'four', b'five'):\n    s.sendto(word, ('127.0.0.1', int(udp))); print(s.recv(100))\n";
    everyone(|sandbox| {
        let count = Arc::new(AtomicUsize::new(7));
        let numbers = Arc::clone(&count);
        let server = Server::start(0, move |mut stream, _| {
            let mut buffer = [0; 100];
            while let Ok(1..) = stream.read(&mut buffer) {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(format!("answer {number}").as_bytes());
            }
            let _ = stream.write_all(b"bye");
        });
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let udp = socket.local_addr().expect("bound").port();
        let datagrams = std::thread::spawn(move || {
            for number in 0..2 {
                let mut buffer = [0; 100];
                let (_, client) = socket.recv_from(&mut buffer).expect("a datagram");
                socket.send_to(format!("datagram {number}").as_bytes(), client).expect("sent");
            }
        });
        let path = sandbox.beside("host.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        sandbox.give(&path);
        let local = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut buffer = [0; 100];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(b"local");
            while let Ok(1..) = stream.read(&mut buffer) {}
        });
        let shown = path.display();
        let tcp = server.port;
        sandbox.policy(&format!(
            "net: localhost:{tcp}\nnet: udp:localhost:{udp}\nnet: unix:{shown}\nexec: sh\nexec: python3\nread: .\n"
        ));
        sandbox.file("client.py", CLIENT);
        let ran = record(sandbox, &format!("python3 client.py {tcp} {udp} {shown}"));
        ran.exits(0);
        assert!(ran.stdout.contains("answer 7") && ran.stdout.contains("datagram 1"), "{}", ran.stdout);
        datagrams.join().expect("ends");
        local.join().expect("ends");
        let server = server.canary();
        replay(sandbox, &[]).exits(0).prints(&ran.stdout).complains("replay ok");
        saw_nobody(&server);
        std::fs::remove_file(&path).expect("is there");
    });
}

#[test]
fn a_request_that_is_another_one_is_told() {
    if !has("curl") {
        return skip("replays of curl", "curl is not installed");
    }
    everyone(|sandbox| {
        let server = Server::start(0, web);
        let at = format!("localhost:{}", server.port);
        sandbox.policy(&format!("net: {at}\nexec: sh\nexec: curl\nexec: cat\nread: .\n"));
        sandbox.file("what", "one");
        record(sandbox, &format!("curl -s {at}/$(cat what)")).exits(0);
        let server = server.canary();
        sandbox.file("what", "two");
        let again = replay(sandbox, &["--force"]);
        again.exits(1);
        assert!(
            again.stdout.contains("no recorded answer to GET") && again.stdout.contains("/two"),
            "{again}"
        );
        saw_nobody(&server);
    });
}

#[test]
fn the_pieces_of_an_answer_stay_apart() {
    if !has("python3") {
        return skip("replays of the pieces of an answer", "python3 is not installed");
    }
    const CLIENT: &str = "import socket, sys\n\
        s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
        for target, size in ('/whole', 8), ('/head', 8), ('/pieces', 12), ('/none', 0):\n\
        \x20   s.sendall(f'GET {target} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'.encode()); got = b''\n\
        \x20   while not got.endswith(b'\\r\\n\\r\\n' + b'x' * size):\n\
        \x20       piece = s.recv(65536); got += piece; print(target, len(piece))\n";
    everyone(|sandbox| {
        let server = Server::start(0, |mut stream, _| {
            let mut head = Vec::new();
            while read_head(&mut stream, &mut head) {
                let text = String::from_utf8_lossy(&head).into_owned();
                let pieces: &[&str] = match text.split(' ').nth(1).unwrap_or_default() {
                    "/whole" => &["HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nxxxxxxxx"],
                    "/head" => &["HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n", "xxxxxxxx"],
                    "/none" => &["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"],
                    _ => &["HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nxxx", "xxx", "xxxxxx"],
                };
                for piece in pieces {
                    let _ = stream.set_nodelay(true).and_then(|()| stream.write_all(piece.as_bytes()));
                    std::thread::sleep(Duration::from_millis(30));
                }
            }
        });
        sandbox.policy(&format!("net: localhost:{}\nexec: sh\nexec: python3\nread: .\n", server.port));
        sandbox.file("client.py", CLIENT);
        let ran = record(sandbox, &format!("python3 client.py {}", server.port));
        ran.exits(0);
        let reads = |target: &str| ran.stdout.lines().filter(|line| line.starts_with(target)).count();
        assert_eq!(["/whole", "/head", "/pieces", "/none"].map(reads), [1, 2, 3, 1], "{}", ran.stdout);
        let server = server.canary();
        replay(sandbox, &[]).exits(0).prints(&ran.stdout).complains("replay ok");
        saw_nobody(&server);
    });
}
