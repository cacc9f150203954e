//! SOCKS on the proxy's port: the replies, and that the stream is judged and recorded as any other.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::world::{Bench, PUBLIC, Plan, mirror, open, read_response, server};

const NAMES: [(&str, &str); 2] = [("a.test", PUBLIC), ("b.test", PUBLIC)];
const ROUTE: &str = "93.184.216.34:80";

/// Greets without authentication and asks for a name; the code of the reply.
pub(super) fn ask(stream: &mut TcpStream, name: &str, port: u16) -> u8 {
    let length = u8::try_from(name.len()).unwrap();
    request(stream, &[&[5, 1, 0, 3, length], name.as_bytes(), &port.to_be_bytes()].concat())
}

fn request(stream: &mut TcpStream, request: &[u8]) -> u8 {
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    stream.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0]);
    stream.write_all(request).unwrap();
    reply(stream)
}

fn reply(stream: &mut TcpStream) -> u8 {
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!((reply[0], reply[2], &reply[3..]), (5, 0, &[1, 0, 0, 0, 0, 0, 0][..]));
    reply[1]
}

fn bench(policy: &str) -> Bench {
    let routes = [(ROUTE, Some(mirror()))];
    Bench::start(&Plan { policy, names: &NAMES, routes: &routes, ..Plan::default() })
}

#[test]
fn a_name_is_judged_and_what_follows_is_read_as_http() {
    let bench = bench("net: a.test:80");
    let mut stream = open(bench.http);
    assert_eq!(ask(&mut stream, "a.test", 80), 0);
    write!(stream, "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert!(read_response(&mut stream).1.starts_with("GET /x"));
    // The name of another host on the same stream.
    write!(stream, "GET /y HTTP/1.1\r\nHost: b.test\r\n\r\n").unwrap();
    assert!(read_response(&mut stream).0.starts_with("HTTP/1.1 403"));
    let exchange = &bench.wait_for("http.exchange", 1)[0];
    assert_eq!(exchange.args["url"], "http://a.test/x");
    drop(stream);
    let flow = &bench.wait_for("net.stream", 1)[0];
    assert_eq!(flow.args["via"], "socks");
    assert_eq!(flow.proc.as_deref(), Some("0.1"));
}

#[test]
fn the_reply_says_what_failed() {
    let routes = [("93.184.216.40:81", None)];
    let names = [("a.test", PUBLIC), ("dead.test", "93.184.216.40"), ("meta.test", "169.254.169.254")];
    let policy = "net: a.test:80\nnet: dead.test\nnet: gone.test\nnet: meta.test";
    let bench = Bench::start(&Plan { policy, names: &names, routes: &routes, ..Plan::default() });
    let cases = [
        ("b.test", 80, 2),
        ("a.test", 81, 2),
        ("meta.test", 80, 2),
        ("gone.test", 80, 4),
        ("dead.test", 81, 5),
        ("127.1", 80, 2),
        ("169.254.169.254", 80, 2),
    ];
    for (name, port, code) in cases {
        let mut stream = open(bench.http);
        assert_eq!(ask(&mut stream, name, port), code, "{name}:{port}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed in order");
    }
    assert_eq!(bench.denied(), ["b.test:80", "a.test:81", "meta.test:80", "127.1:80", "169.254.169.254:80"]);
}

#[test]
fn only_connect_is_served() {
    let bench = bench("net: a.test");
    for command in [2, 3, 9] {
        let mut stream = open(bench.http);
        let asked = [&[5, command, 0, 3, 6], &b"a.test"[..], &[0, 80]].concat();
        assert_eq!(request(&mut stream, &asked), 7);
    }
    assert_eq!(request(&mut open(bench.http), &[5, 1, 0, 7]), 8);
    assert_eq!(bench.denied(), ["a.test:80", "a.test:80", "a.test:80", "<none>"]);
    assert!(bench.world.asked.lock().unwrap().is_empty());
}

#[test]
fn a_password_is_taken_and_not_looked_at() {
    let bench = bench("net: a.test");
    let mut stream = open(bench.http);
    // Byte by byte, as a slow client may.
    for byte in b"\x05\x02\x02\x01" {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5, 2]);
    stream.write_all(b"\x01\x04user\x06secret").unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [1, 0]);
    stream.write_all(b"\x05\x01\x00\x03\x06a.test\x00\x50GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert_eq!(reply(&mut stream), 0);
    assert!(read_response(&mut stream).0.starts_with("HTTP/1.1 200"));
    assert!(!format!("{:?}", bench.recorder.events()).contains("secret"));
    let mut stream = open(bench.http);
    stream.write_all(&[5, 1, 1]).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5, 0xff]);
    assert_eq!(bench.denied(), ["<none>"]);
}

#[test]
fn version_4_with_and_without_a_name() {
    let bench = bench("net: a.test:80");
    for (asked, code) in [
        (&b"\x04\x01\x00\x50\0\0\0\x01me\0a.test\0"[..], 90),
        (b"\x04\x01\x00\x50\0\0\0\x01\0b.test\0", 91),
        (b"\x04\x02\x00\x50\0\0\0\x01\0a.test\0", 91),
        // The address of a name that was resolved.
        (b"\x04\x01\x00\x50\x5d\xb8\xd8\x22\0", 90),
    ] {
        let mut stream = open(bench.http);
        stream.write_all(asked).unwrap();
        let mut reply = [9; 8];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [0, code, 0, 0, 0, 0, 0, 0], "{}", asked.escape_ascii());
    }
    assert_eq!(bench.denied(), ["b.test:80", "a.test:80"]);
}

#[test]
fn a_server_that_speaks_first_is_relayed() {
    let speaker = server(|mut stream| {
        stream.write_all(b"220 ready\r\n").unwrap();
        let mut word = [0; 4];
        stream.read_exact(&mut word).unwrap();
        stream.write_all(&word).unwrap();
    });
    let routes = [("93.184.216.34:25", Some(speaker))];
    let plan = Plan { policy: "net: a.test:25", names: &NAMES, routes: &routes, ..Plan::default() };
    let bench = Bench::start(&plan);
    let mut stream = open(bench.http);
    assert_eq!(ask(&mut stream, "a.test", 25), 0);
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(b"QUIT").unwrap();
    let mut echo = Vec::new();
    stream.read_to_end(&mut echo).unwrap();
    assert_eq!((&greeting[..], &echo[..]), (&b"220 ready\r\n"[..], &b"QUIT"[..]));
}
