//! What is kept of streams: both sides of opaque ones, streamed bodies, upgrades, Unix sockets, and
//! how each of them ended. The clients are real programs, the servers are on the host's loopback.

mod bodies;
mod faults;
mod idle;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Ran, Sandbox, everyone, has, skip};

/// What a client of every test may use of the host.
const LITERAL: &str = "read: .\n";

/// A server on the host's loopback; it ends with the tests.
fn serve(answer: impl Fn(TcpStream) + Send + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || answer(client));
        }
    });
    port
}

/// The content of a blob of the sandbox's trace.
fn blob(sandbox: &Sandbox, reference: &Value) -> Vec<u8> {
    if let Some(text) = reference["text"].as_str() {
        assert_eq!(reference["size"], text.len());
        return text.into();
    }
    let name = format!("{}.zst", reference["blob"].as_str().expect("a blob"));
    let file = std::fs::File::open(sandbox.beside("trace.jsonl.blobs").join(name)).expect("it is there");
    let content = zstd::decode_all(file).expect("zstd");
    assert_eq!(reference["size"], content.len());
    content
}

/// What was said in a transcript, neighbours of one direction joined: `up PING`, `down end`.
fn said(sandbox: &Sandbox, transcript: &Value) -> Vec<String> {
    let content = blob(sandbox, transcript);
    let (mut said, mut rest): (Vec<String>, _) = (Vec::new(), &content[..]);
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let (way, what, _): (String, Value, u64) = serde_json::from_slice(&rest[..end]).expect("a record");
        rest = &rest[end + 1..];
        let Some(length) = what.as_u64().and_then(|length| usize::try_from(length).ok()) else {
            said.push(format!("{way} {}", what.as_str().expect("an end")));
            continue;
        };
        let bytes = String::from_utf8_lossy(&rest[..length]);
        match said.last_mut() {
            Some(last) if last.starts_with(&format!("{way} ")) => last.push_str(&bytes),
            _ => said.push(format!("{way} {bytes}")),
        }
        rest = &rest[length + 1..];
    }
    said
}

/// The result of the one entry of an operation.
fn only<'a>(ran: &'a Ran, op: &str) -> &'a Value {
    let entries = ran.of(op);
    assert_eq!(entries.len(), 1, "{op}\n{ran}");
    &entries[0]["result"]
}

/// Runs a client of Python's against `port`; `{port}` in the program stands for it.
fn python(sandbox: &Sandbox, port: u16, program: &str) -> Ran {
    sandbox.policy(&format!("{LITERAL}net: 127.0.0.1:{port}\n"));
    sandbox.python(&program.replace("{port}", &port.to_string()))
}

#[test]
fn a_protocol_of_its_own_is_kept_as_it_was_spoken() {
    let port = serve(|mut client| {
        let mut line = [0; 14];
        while client.read_exact(&mut line).is_ok() {
            let _ = client.write_all(b"+PONG\r\n");
        }
        let _ = client.write_all(b"+BYE\r\n");
    });
    everyone(|sandbox| {
        let program = r#"
import socket
s = socket.create_connection(("127.0.0.1", {port}))
for _ in range(2):
    s.sendall(b"*1\r\n$4\r\nPING\r\n")
    assert s.recv(7, socket.MSG_WAITALL) == b"+PONG\r\n"
s.shutdown(socket.SHUT_WR)
assert s.makefile("rb").read() == b"+BYE\r\n"
"#;
        let ran = python(sandbox, port, program);
        let result = only(ran.exits(0), "net.stream");
        let (ping, pong) = ("up *1\r\n$4\r\nPING\r\n", "down +PONG\r\n");
        let expected = [ping, pong, ping, pong, "up end", "down +BYE\r\n", "down end"];
        assert_eq!(said(sandbox, &result["transcript"]), expected);
        assert_eq!((&result["end"], &result["up"]), (&json!("closed"), &json!(28)));
        assert_eq!(result["transcript"]["private"], true);
    });
}

#[test]
fn a_half_that_netcat_closes_leaves_the_other_open() {
    if !has("nc") {
        return skip("nc", "it is not installed");
    }
    let port = serve(|mut client| {
        let mut all = Vec::new();
        let _ = client.read_to_end(&mut all);
        std::thread::sleep(Duration::from_millis(300));
        all.reverse();
        let _ = client.write_all(&all);
    });
    everyone(|sandbox| {
        sandbox.policy(&format!("{LITERAL}net: localhost:{port}\nexec: nc\n"));
        let ran = sandbox.run(&["sh", "-c", &format!("printf '\\001ab' | nc -N 127.0.0.1 {port}")]);
        ran.exits(0).prints("ba\u{1}");
        let result = only(&ran, "net.stream");
        let expected = ["up \u{1}ab", "up end", "down ba\u{1}", "down end"];
        assert_eq!(said(sandbox, &result["transcript"]), expected);
    });
}

#[test]
fn a_stream_that_the_server_resets_says_after_how_many_bytes() {
    let port = serve(|mut client| {
        let _ = client.write_all(b"\x01half");
        let _ = client.read(&mut [0]);
        // What is unread when a socket is closed becomes a reset (RFC 1122 section 4.2.2.13).
        std::thread::sleep(Duration::from_millis(100));
    });
    everyone(|sandbox| {
        let program = r#"
import socket
s = socket.create_connection(("127.0.0.1", {port}))
assert s.recv(5, socket.MSG_WAITALL) == b"\x01half"
s.sendall(b"\x01more")
try:
    assert False, s.recv(1)
except ConnectionResetError:
    pass
"#;
        let ran = python(sandbox, port, program);
        let result = only(ran.exits(0), "net.stream");
        assert_eq!(result["failure"], json!({"kind": "reset", "side": "origin", "received": 5}));
        assert_eq!(said(sandbox, &result["transcript"]).last().map(String::as_str), Some("down reset"));
    });
}

/// Answers one request by hand: its head is read, then `answer` goes on.
fn http(answer: impl Fn(&mut TcpStream) + Send + Clone + 'static) -> u16 {
    serve(move |mut client| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if !matches!(client.read(&mut byte), Ok(1)) {
                return;
            }
            head.push(byte[0]);
        }
        answer(&mut client);
        let _ = client.shutdown(Shutdown::Write);
        let _ = client.read_to_end(&mut Vec::new());
    })
}

#[test]
fn server_sent_events_keep_their_pace() {
    let port = http(|client| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = client.write_all(head.as_bytes());
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(5));
            let _ = client.write_all(b"a\r\ndata: tok\n\r\n");
        }
        let _ = client.write_all(b"0\r\n\r\n");
    });
    everyone(|sandbox| {
        let program = r#"
import time, urllib.request
with urllib.request.urlopen("http://127.0.0.1:{port}/") as answer:
    first = answer.readline()
    began = time.monotonic()
    rest = answer.read()
assert first == b"data: tok\n" and rest == first * 99
assert time.monotonic() - began > 0.3, "each event arrives when it is sent"
"#;
        let ran = python(sandbox, port, program);
        let result = only(ran.exits(0), "http.exchange");
        let segments = blob(sandbox, &result["segments"]);
        let segments: Vec<(String, u64, u64)> = String::from_utf8(segments)
            .expect("text")
            .lines()
            .map(|line| serde_json::from_str(line).expect("a segment"))
            .collect();
        assert!(segments.len() > 60, "{segments:?}");
        assert_eq!(segments.iter().map(|segment| segment.1).sum::<u64>(), 1000);
        assert_eq!(blob(sandbox, &result["body"]), b"data: tok\n".repeat(100));
    });
}

#[test]
fn who_waits_for_an_answer_in_vain_is_let_go_when_it_has_left() {
    // The first has the head of an answer, the second nothing; the third is answered when both have been let go.
    let seen = Arc::new(AtomicUsize::new(0));
    let port = serve(move |mut client| {
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if !matches!(client.read(&mut byte), Ok(1)) {
                return;
            }
            head.push(byte[0]);
        }
        if head.starts_with(b"GET /late") {
            let begun = std::time::Instant::now();
            while seen.load(Ordering::SeqCst) < 2 && begun.elapsed().as_secs() < 60 {
                std::thread::sleep(Duration::from_millis(20));
            }
            let count = seen.swap(0, Ordering::SeqCst);
            let _ = write!(client, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{count}");
            return;
        }
        if head.starts_with(b"GET /head") {
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
        }
        if matches!(client.read(&mut [0]), Ok(0) | Err(_)) {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    everyone(|sandbox| {
        let program = r#"
import socket
def ask(path):
    s = socket.create_connection(("127.0.0.1", {port}))
    s.sendall(b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n" % path)
    return s
one, two, late = ask(b"head"), ask(b"none"), ask(b"late")
assert one.recv(12) == b"HTTP/1.1 200"
late.shutdown(socket.SHUT_WR)
while b"\r\n\r\n" not in (seen := one.recv(4096)): pass
one.close(); two.close()
answer = b""
while piece := late.recv(4096): answer += piece
assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n2"), answer
"#;
        let ran = python(sandbox, port, program);
        let exchanges = ran.exits(0).of("http.exchange");
        let failed = |path: &str| {
            let one = exchanges
                .iter()
                .find(|one| one["args"]["url"].as_str().is_some_and(|url| url.ends_with(path)));
            one.expect("an exchange")["result"]["failure"]["kind"].clone()
        };
        assert_eq!((failed("/head"), failed("/none")), (json!("abandoned"), json!("abandoned")));
        assert!(failed("/late").is_null());
    });
}

#[test]
fn frames_of_a_websocket_belong_to_its_exchange() {
    let port = http(|client| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        let _ = client.write_all(head.as_bytes());
        let mut frame = [0; 9];
        while client.read_exact(&mut frame).is_ok() {
            let _ = client.write_all(b"\x81\x02ok");
        }
        // The client has closed its half: the other is still open.
        let _ = client.write_all(b"\x88\x00");
    });
    everyone(|sandbox| {
        let program = r#"
import socket
s = socket.create_connection(("127.0.0.1", {port}))
s.sendall(b"GET /chat HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
          b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
stream = s.makefile("rb")
assert stream.readline().startswith(b"HTTP/1.1 101")
while stream.readline() != b"\r\n":
    pass
for _ in range(3):
    s.sendall(b"\x81\x83\x00\x00\x00\x00hey")
    assert stream.read(4) == b"\x81\x02ok"
s.shutdown(socket.SHUT_WR)
assert stream.read() == b"\x88\x00"
"#;
        let ran = python(sandbox, port, program);
        let result = only(ran.exits(0), "http.exchange");
        assert_eq!((&result["status"], &result["upgraded"]["end"]), (&json!(101), &json!("closed")));
        let spoken = said(sandbox, &result["upgraded"]["transcript"]);
        assert_eq!(spoken.len(), 9, "{spoken:?}");
        assert!(spoken[0].ends_with("hey") && spoken[1].ends_with("ok") && spoken[6] == "up end");
        assert_eq!(spoken[8], "down end");
    });
}

#[test]
fn a_host_unix_socket_is_kept_like_any_stream() {
    everyone(|sandbox| {
        let path = sandbox.beside("service");
        let listener = UnixListener::bind(&path).expect("a socket");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, mode).expect("chmod");
        let service = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut all = Vec::new();
            client.read_to_end(&mut all).expect("bytes");
            client.write_all(&all).expect("room");
        });
        sandbox.policy(&format!("{LITERAL}net: unix:{}\n", path.display()));
        let ran = sandbox.python(&format!(
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect({path:?}); s.sendall(b'hello')\n\
             s.shutdown(socket.SHUT_WR); assert s.recv(100) == b'hello' and s.recv(1) == b''"
        ));
        let result = only(ran.exits(0), "net.stream");
        let expected = ["up hello", "up end", "down hello", "down end"];
        assert_eq!(said(sandbox, &result["transcript"]), expected);
        service.join().expect("the service");
    });
}

#[test]
fn failures_are_exchanges() {
    let cut = http(|client| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    everyone(|sandbox| {
        let program = r#"
import http.client
c = http.client.HTTPConnection("127.0.0.1", {port}, timeout=20)
c.request("GET", "/")
try:
    answer = c.getresponse()
    print(answer.status, answer.read())
except http.client.IncompleteRead as error:
    print(answer.status, error.partial)
"#;
        let ran = python(sandbox, cut, program);
        let result = only(ran.exits(0).prints("200 b'half'\n"), "http.exchange");
        assert_eq!(result["failure"], json!({"kind": "truncated", "side": "origin", "received": 4}));
        assert_eq!((&result["body"]["whole"], &result["body"]["size"]), (&json!(false), &json!(4)));
        // Without the proxy the connection itself is refused.
        let ran = python(sandbox, closed, program);
        assert!(ran.exits(1).stderr.contains("ConnectionRefusedError"), "{ran}");
        let proxied = program
            .replace(
                "\"127.0.0.1\", {port},",
                "*os.environ[\"HTTP_PROXY\"].removeprefix(\"http://\").split(\":\"),",
            )
            .replace("\"/\"", "\"http://127.0.0.1:{port}/\"")
            .replace("import http", "import os, http");
        let ran = python(sandbox, closed, &proxied);
        assert!(ran.exits(0).stdout.starts_with("502"), "{ran}");
        let result = only(&ran, "http.exchange");
        assert_eq!(result["failure"], json!({"kind": "refused", "side": "origin", "received": 0}));
    });
}

#[test]
fn an_agent_that_dies_leaves_the_record_of_what_was_open() {
    let port = http(|client| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf");
        let _ = client.read_to_end(&mut Vec::new());
    });
    everyone(|sandbox| {
        let program = r#"
import os, signal, socket
web = socket.create_connection(("127.0.0.1", {port}))
web.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")
seen = b""
while not seen.endswith(b"half"):
    seen += web.recv(1)
raw = socket.create_connection(("127.0.0.1", {port}))
raw.sendall(b"\x01" * 10)
import time
time.sleep(0.3)
os.kill(os.getpid(), signal.SIGKILL)
"#;
        let ran = python(sandbox, port, program);
        ran.exits(137);
        let exchange = only(&ran, "http.exchange");
        assert_eq!(exchange["failure"]["side"], "agent", "{exchange}");
        assert_eq!((&exchange["body"]["whole"], &exchange["body"]["size"]), (&json!(false), &json!(4)));
        let streams = ran.of("net.stream");
        let raw = streams.iter().find_map(|entry| entry["result"].get("transcript")).expect("a transcript");
        assert_eq!(said(sandbox, raw)[0], format!("up {}", "\u{1}".repeat(10)));
    });
}
