//! Connections to origins: when they are dialled, and who gets one that a client has left.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::origin::{Shown, TestAuthority};
use super::replays::twice;
use super::secure::Reader;
use super::world::{
    Bench, PATIENCE, PUBLIC, Plan, open, read_head, read_request, read_response, server, until,
};

pub(super) const WEB: &str = "93.184.216.34:80";

/// An origin that counts who connects; after each answer it also says `more`.
pub(super) fn counting(more: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let address = server(move |mut stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        while read_request(&mut stream).is_some() {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{more}");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, count)
}

pub(super) fn bench(policy: &str, origin: SocketAddr) -> Bench {
    let names = [("a.test", PUBLIC), ("b.test", PUBLIC)];
    let bench =
        Bench::start(&Plan { policy, names: &names, routes: &[(WEB, Some(origin))], ..Plan::default() });
    bench.resolve("a.test");
    bench.resolve("b.test");
    bench
}

pub(super) fn status(stream: &mut TcpStream, line: &str, host: &str) -> String {
    write!(stream, "{line} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    read_response(stream).0[9..12].to_owned()
}

/// One request on a connection of its own, which the proxy has seen the end of.
pub(super) fn once(bench: &Bench, host: &str) {
    let streams = bench.events("net.stream").len();
    assert_eq!(status(&mut bench.connect(WEB), "GET /", host), "200");
    bench.wait_for("net.stream", streams + 1);
    std::thread::sleep(Duration::from_millis(30));
}

/// Waits until the proxy has a connection to `address` that nobody uses.
pub(super) fn kept(bench: &Bench, address: &str) {
    let (pool, address) = (Arc::clone(&bench.proxy.as_ref().unwrap().egress.pool), address.parse().unwrap());
    until("a connection is kept", || pool.knows(address));
}

#[test]
fn a_connection_without_tls_outlives_its_client() {
    let (origin, count) = counting("");
    let bench = bench("net: a.test\nnet: b.test\n", origin);
    for _ in 0..3 {
        once(&bench, "a.test");
        kept(&bench, WEB);
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
    // What was one name's is not another's.
    once(&bench, "b.test");
    assert_eq!(count.load(Ordering::Relaxed), 2);
    let streams = bench.events("net.stream");
    assert_eq!(streams.len(), 4);
    for stream in &streams {
        let result = stream.result.as_ref().unwrap();
        assert_eq!(result["requests"], 1, "{result}");
        assert!(result["up"].as_u64() > Some(20) && result["down"].as_u64() > Some(20), "{result}");
        assert_eq!(result["protocol"], "http");
    }
    assert_eq!(bench.events("http.exchange").len(), 4);
}

#[test]
fn a_connection_that_served_two_names_serves_no_other_client() {
    let (origin, count) = counting("");
    let bench = bench("net: a.test\nnet: b.test\n", origin);
    let mut stream = bench.connect(WEB);
    assert_eq!(status(&mut stream, "GET /", "a.test"), "200");
    assert_eq!(status(&mut stream, "GET /", "b.test"), "200");
    drop(stream);
    bench.wait_for("net.stream", 1);
    once(&bench, "a.test");
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn a_body_that_an_origin_may_not_read_is_put_before_nobodys_request() {
    let (origin, count) = counting("");
    let bench = bench("net: a.test\n", origin);
    for (number, (request, connections)) in [("POST", 1), ("GET", 1), ("DELETE", 2)].into_iter().enumerate() {
        let mut stream = bench.connect(WEB);
        let body = "GET /evil HTTP/1.1\r\nX: ";
        let length = body.len();
        write!(stream, "{request} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        assert!(read_head(&mut stream).unwrap().contains("200 OK"));
        drop(stream);
        bench.wait_for("net.stream", number + 1);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(count.load(Ordering::Relaxed), connections, "{request}");
    }
    once(&bench, "a.test");
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[test]
fn an_answer_that_nobody_asked_for_is_nobodys() {
    let (origin, count) = counting("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    let bench = bench("net: a.test\n", origin);
    for _ in 0..3 {
        once(&bench, "a.test");
    }
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[test]
fn one_that_the_origin_has_closed_is_dialled_anew_and_counted_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let (counted, (report, closed)) = (Arc::clone(&count), std::sync::mpsc::channel());
    let origin = server(move |mut stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        drop(stream);
        let _ = report.send(());
    });
    let bench = bench("net: a.test\n", origin);
    for _ in 0..3 {
        once(&bench, "a.test");
        closed.recv_timeout(PATIENCE).unwrap();
        std::thread::sleep(Duration::from_millis(30));
    }
    assert_eq!(count.load(Ordering::Relaxed), 3);
    let streams = bench.events("net.stream");
    assert!(streams.iter().all(|stream| stream.result.as_ref().unwrap()["requests"] == 1), "{streams:#?}");
}

#[test]
fn nothing_is_dialled_for_a_request_that_is_refused() {
    let (origin, count) = counting("");
    let bench = bench("net: GET a.test/open/**\nnet: b.test @1/h\n", origin);
    let mut stream = bench.connect(WEB);
    assert_eq!(status(&mut stream, "POST /open/x", "a.test"), "403");
    assert_eq!(status(&mut stream, "GET /closed", "a.test"), "403");
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert_eq!(status(&mut stream, "GET /open/x", "a.test"), "200");
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(stream);
    assert_eq!(status(&mut bench.connect(WEB), "GET /", "b.test"), "200");
    assert_eq!(count.load(Ordering::Relaxed), 2);
    assert_eq!(status(&mut bench.connect(WEB), "GET /", "b.test"), "429");
    assert_eq!(count.load(Ordering::Relaxed), 2);
    let denied = bench.denied();
    assert_eq!(denied, ["a.test:80", "a.test:80", "b.test:80"]);
}

#[test]
fn nothing_is_dialled_for_bytes_that_are_refused() {
    let (origin, count) = counting("");
    let bench = bench("net: GET a.test/open/**\n", origin);
    let mut stream = bench.connect(WEB);
    stream.write_all(b"\x00\x01\x02\x03").unwrap();
    assert!(stream.read(&mut [0; 16]).is_err());
    bench.wait_for("net", 1);
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

fn connected(bench: &Bench, host: &str) -> TcpStream {
    let mut stream = open(bench.http);
    write!(stream, "CONNECT {host}:80 HTTP/1.1\r\nHost: {host}:80\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
    stream
}

#[test]
fn nothing_is_dialled_through_the_proxy_port_for_what_is_refused() {
    let (origin, count) = counting("");
    let bench = bench("net: GET a.test/open/**\nnet: b.test @1/h\n", origin);
    let connect = |host: &str| connected(&bench, host);
    let socks = |host: &str| {
        let mut stream = open(bench.http);
        stream.write_all(&[5, 1, 0]).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        let length = u8::try_from(host.len()).unwrap();
        stream.write_all(&[&[5, 1, 0, 3, length], host.as_bytes(), &[0, 80]].concat()).unwrap();
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[1], 0);
        stream
    };
    assert_eq!(status(&mut connect("a.test"), "POST /open/x", "a.test"), "403");
    assert_eq!(status(&mut socks("a.test"), "POST /open/x", "a.test"), "403");
    let mut plain = open(bench.http);
    assert_eq!(status(&mut plain, "POST http://a.test/open/x", "a.test"), "403");
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert_eq!(status(&mut connect("b.test"), "GET /", "b.test"), "200");
    assert_eq!(status(&mut connect("b.test"), "GET /", "b.test"), "429");
    assert_eq!(status(&mut socks("b.test"), "GET /", "b.test"), "429");
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_connection_of_a_client_that_names_no_protocol_outlives_it() {
    let authority = TestAuthority::new();
    let (origin, connections) = authority.origin(&Shown::name("a.test"));
    let reader = Reader::new("net: a.test", Some(origin), &[authority.root()]);
    for ended in 1..=3 {
        let (ok, body) = reader.curl(&["--no-alpn", "https://a.test/"]);
        assert!(ok, "{body}");
        reader.bench.wait_for("net.stream", ended);
        kept(&reader.bench, "93.184.216.34:443");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[test]
fn nothing_is_dialled_within_tls_while_a_rate_is_used_up() {
    let authority = TestAuthority::new();
    for option in ["--http1.1", "--http2", "--no-alpn"] {
        let (origin, connections) = authority.origin(&Shown::name("a.test"));
        let reader = Reader::new("net: a.test @1/h", Some(origin), &[authority.root()]);
        // HTTP/2 outlives its client, and then nothing is dialled anyway.
        let get = || {
            reader.curl(&[option, "-H", "Authorization: NTLM x", "-w", "%{http_code}", "https://a.test/"]).1
        };
        assert!(get().ends_with("200"));
        reader.bench.wait_for("net.stream", 1);
        std::thread::sleep(Duration::from_millis(30));
        let shown = get();
        assert!(shown.ends_with("429"), "{shown}");
        assert_eq!(connections.load(Ordering::Relaxed), 1, "{option}");
    }
}

#[test]
fn what_was_refused_before_it_was_dialled_is_replayed() {
    let (origin, _) = counting("");
    let names = [("a.test", PUBLIC), ("b.test", PUBLIC)];
    let routes = [(WEB, Some(origin))];
    let policy = "net: GET a.test/open/**\nnet: b.test @1/h\n";
    twice(&Plan { policy, names: &names, routes: &routes, ..Plan::default() }, |bench| {
        bench.resolve("a.test");
        bench.resolve("b.test");
        let mut seen = Vec::new();
        for (line, host) in [
            ("POST /open/x", "a.test"),
            ("GET /open/x", "a.test"),
            ("GET /", "b.test"),
            ("GET /", "b.test"),
            ("GET /open/y", "a.test"),
        ] {
            let streams = bench.events("net.stream").len();
            seen.push(status(&mut bench.connect(WEB), line, host));
            bench.wait_for("net.stream", streams + 1);
        }
        assert_eq!(seen, ["403", "200", "200", "429", "200"]);
        let mut stream = connected(bench, "a.test");
        assert_eq!(status(&mut stream, "POST /", "a.test"), "403");
        assert_eq!(status(&mut stream, "GET /open/z", "a.test"), "200");
        seen
    });
}

#[test]
fn an_origin_that_is_not_there_is_told_to_requests_alone() {
    let names = [("a.test", PUBLIC)];
    for policy in ["net: a.test", "net: GET a.test/**"] {
        let plan = Plan { policy, names: &names, routes: &[(WEB, None)], ..Plan::default() };
        let (recorded, _) = twice(&plan, |bench| {
            bench.resolve("a.test");
            let direct = status(&mut bench.connect(WEB), "GET /", "a.test");
            bench.wait_for("net.stream", 1);
            let proxied =
                (policy != "net: a.test").then(|| status(&mut connected(bench, "a.test"), "GET /", "a.test"));
            (direct, proxied)
        });
        let connects = recorded.entries.iter().filter(|entry| entry["op"] == "net.connect").count();
        assert_eq!(connects, if policy == "net: a.test" { 1 } else { 2 });
        let exchange = recorded.entries.iter().find(|entry| entry["op"] == "http.exchange").unwrap();
        assert!(exchange["result"]["error"].as_str().unwrap().contains("connect"), "{exchange}");
    }
}
