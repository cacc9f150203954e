//! Streams that begin as if they were no HTTP and no TLS, and become it later: with raw sockets.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::origin::{Shown, TestAuthority};
use super::world::{Bench, PUBLIC, Plan, mirror, open, read_response, server, text};

const WEB: &str = "93.184.216.34:80";
const SECURE: &str = "93.184.216.34:443";

/// Longer than text is held back that may yet become a request.
const PAUSE: Duration = Duration::from_millis(2_500);

/// Only a.test may be reached, and its address answers to more names.
fn bench(at: &str, origin: SocketAddr, authority: &TestAuthority) -> Bench {
    let (names, routes, roots) = ([("a.test", PUBLIC)], [(at, Some(origin))], [authority.root()]);
    let plan =
        Plan { policy: "net: a.test", names: &names, routes: &routes, tls: Some(&roots), ..Plan::default() };
    let bench = Bench::start(&plan);
    bench.resolve("a.test");
    bench
}

/// What comes back for pieces that are sent with pauses between them.
fn converse(stream: &mut (impl Read + Write), pieces: &[&[u8]]) -> String {
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            std::thread::sleep(PAUSE);
        }
        if stream.write_all(piece).and_then(|()| stream.flush()).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn assert_ended(bench: &Bench, answer: &str) {
    assert!(!answer.contains("b.test"), "{answer}");
    let denial = bench.wait_for("net", 1).pop().unwrap();
    assert!(text(&denial.args["target"]).starts_with("a.test:"), "{denial:?}");
    assert!(bench.events("http.exchange").is_empty());
}

#[test]
fn a_request_that_comes_late_ends_the_stream() {
    let authority = TestAuthority::new();
    let bench = bench(WEB, mirror(), &authority);
    let rest =
        b"W / HTTP/1.1\r\nHost: b.test\r\n\r\nGET /y HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n";
    let answer = converse(&mut bench.connect(WEB), &[b"BRE", rest]);
    assert_ended(&bench, &answer);
    let stream = &bench.wait_for("net.stream", 1)[0];
    let end = text(&stream.result.as_ref().unwrap()["end"]);
    assert!(end.contains("began after"), "{end}");
}

#[test]
fn what_stays_no_request_passes_late_as_well() {
    let origin = server(|mut stream| {
        let mut seen = Vec::new();
        let _ = stream.read_to_end(&mut seen);
        let _ = stream.write_all(&seen);
    });
    let bench = bench(WEB, origin, &TestAuthority::new());
    let mut stream = bench.connect(WEB);
    stream.write_all(b"ruok").unwrap();
    std::thread::sleep(PAUSE);
    stream.write_all(b" \x80\x01 HTP/\nGET / HTTP/1.1\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"ruok \x80\x01 HTP/\nGET / HTTP/1.1\r\n");
}

/// Sends the first byte long before the others.
struct Late {
    stream: TcpStream,
    begun: bool,
}

impl Read for Late {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Late {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.begun {
            return self.stream.write(bytes);
        }
        self.begun = true;
        self.stream.write_all(&bytes[..1])?;
        std::thread::sleep(PAUSE);
        Ok(1)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[test]
fn tls_that_comes_late_is_never_left_unread() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown { protocols: &[], ..Shown::name("b.test") });
    let bench = bench(SECURE, origin, &authority);
    let mut roots = RootCertStore::empty();
    roots.add(authority.root()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let client = ClientConnection::new(config, ServerName::try_from("b.test").unwrap()).unwrap();
    let late = Late { stream: bench.connect(SECURE), begun: false };
    let request = b"GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n";
    let answer = converse(&mut StreamOwned::new(client, late), &[request]);
    assert_ended(&bench, &answer);
}

#[test]
fn blanks_of_lenient_servers_hide_no_request() {
    for line in [" GET / HTTP/1.1", "\x0bGET\x0c/ HTTP/1.1", "GET\x1c/\x1fHTTP/1.1"] {
        let bench = bench(WEB, mirror(), &TestAuthority::new());
        let request = format!("{line}\r\nHost: b.test\r\nConnection: close\r\n\r\n");
        let answer = converse(&mut bench.connect(WEB), &[request.as_bytes()]);
        assert!(answer.starts_with("HTTP/1.1 400"), "{line:?}: {answer}");
        bench.wait_for("net", 1);
    }
    // Through the proxy's port as well.
    let bench = bench(WEB, mirror(), &TestAuthority::new());
    let mut stream = open(bench.http);
    stream.write_all(b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n").unwrap();
    super::world::read_head(&mut stream).unwrap();
    let answer = converse(&mut stream, &[b"\tGET / HTTP/1.1\r\nHost: b.test\r\n\r\n"]);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn h2c_hides_no_request_where_everything_is_granted() {
    for policy in ["net: a.test\n", "net: a.test @9/min\n", "net: a.test\nnet: GET|UPGRADE b.test/x\n"] {
        let (names, routes) = ([("a.test", PUBLIC)], [(WEB, Some(mirror()))]);
        let bench = Bench::start(&Plan { policy, names: &names, routes: &routes, ..Plan::default() });
        bench.resolve("a.test");
        let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__";
        for mut stream in [bench.connect(WEB), open(bench.http)] {
            write!(stream, "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n{h2c}\r\n\r\n").unwrap();
            let (head, body) = read_response(&mut stream);
            let body = body.to_ascii_lowercase();
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            assert!(!body.contains("upgrade") && !body.contains("http2-settings"), "{body}");
        }
        let mut stream = bench.connect(WEB);
        let websocket = "Connection: Upgrade\r\nUpgrade: websocket";
        write!(stream, "GET /x HTTP/1.1\r\nHost: a.test\r\n{websocket}\r\n\r\n").unwrap();
        let (_, body) = read_response(&mut stream);
        assert!(body.to_ascii_lowercase().contains("upgrade: websocket"), "{body}");
    }
}
