//! Requests that two readers could read differently are refused, and recorded.

use std::io::{Read as _, Write as _};

use serde_json::json;

use super::replays::twice;
use super::world::{Bench, PATIENCE, PUBLIC, Plan, mirror, open, read_request, read_response, server};

const WEB: &str = "93.184.216.34:80";

fn bench() -> Bench {
    let bench = Bench::start(&Plan {
        policy: "net: a.test",
        names: &[("a.test", PUBLIC)],
        routes: &[(WEB, Some(mirror()))],
        ..Plan::default()
    });
    bench.resolve("a.test");
    bench
}

#[test]
fn a_body_that_cannot_be_read_is_the_clients_fault() {
    let plan = Plan {
        policy: "net: a.test",
        names: &[("a.test", PUBLIC)],
        routes: &[(WEB, Some(mirror()))],
        ..Plan::default()
    };
    for body in
        ["5\r\nhelloworld\r\n0\r\n\r\n", "zz\r\nhello", "f0000000000000003\r\nhello", "-1\r\n", "5\nhello"]
    {
        let (recorded, _) = twice(&plan, |bench| {
            bench.resolve("a.test");
            let mut stream = bench.connect(WEB);
            let head = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400"), "{body:?} got {answer:?}");
            assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer:?}");
            bench.wait_for("http.exchange", 1);
            answer
        });
        let failure = &recorded.compared("http.exchange")[0]["result"]["failure"];
        assert_eq!((&failure["kind"], &failure["side"]), (&json!("malformed"), &json!("agent")), "{body:?}");
    }
}

#[test]
fn ambiguous_requests_are_answered_with_400() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let cases = [
        format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n{chunked}\r\n0\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nHost: a.test\r\n{chunked}Content-Length: 5\r\n\r\n0\r\n\r\n"),
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!".into(),
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5, 5\r\n\r\nhello".into(),
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +5\r\n\r\nhello".into(),
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".into(),
        format!("POST / HTTP/1.1\r\nHost: a.test\r\n{chunked}{chunked}\r\n0\r\n\r\n"),
        format!("POST / HTTP/1.0\r\nHost: a.test\r\n{chunked}\r\n0\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a.test/b.test\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: u@a.test\r\n\r\n".into(),
        "GET / HTTP/1.1\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost : a.test\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a.test\r\n folded\r\n\r\n".into(),
        "GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n".into(),
        "GET / HTTP/1.7\r\nHost: a.test\r\n\r\n".into(),
        "GET /\r\n\r\n".into(),
    ];
    for (count, case) in cases.iter().enumerate() {
        let bench = bench();
        let mut stream = bench.connect(WEB);
        stream.write_all(case.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 400"), "{count}: {case:?} got {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{case:?} got {answer:?}");
        bench.wait_for("net", 1);
        assert!(bench.events("http.exchange").is_empty(), "{case:?}");
    }
}

#[test]
fn a_head_without_end_is_refused() {
    let bench = bench();
    let mut stream = bench.connect(WEB);
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nX: ");
    let _ = stream.write_all(&vec![b'x'; 200 << 10]);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    bench.wait_for("net", 1);
}

#[test]
fn chunked_requests_may_follow_each_other() {
    let bench = bench();
    let mut stream = bench.connect(WEB);
    for _ in 0..3 {
        let head = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = "11\r\ncontent-length: 1\r\n0\r\n\r\n";
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let (answer, echoed) = read_response(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}{echoed}");
        assert!(echoed.contains(body), "{echoed}");
        stream.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\n").unwrap();
        stream.write_all(b"ok").unwrap();
        assert!(read_response(&mut stream).1.ends_with("ok"));
    }
}

#[test]
fn a_body_in_chunks_goes_on_whatever_the_method() {
    for method in ["GET", "HEAD", "DELETE", "POST"] {
        let (sent, got) = std::sync::mpsc::channel();
        let origin = server(move |mut stream| {
            while let Some(request) = read_request(&mut stream) {
                sent.send(request).unwrap();
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            }
        });
        let bench = Bench::start(&Plan {
            policy: "net: a.test",
            names: &[("a.test", PUBLIC)],
            routes: &[(WEB, Some(origin))],
            ..Plan::default()
        });
        bench.resolve("a.test");
        let mut stream = bench.connect(WEB);
        for body in ["2\r\nok\r\n0\r\n\r\n", ""] {
            let framing = if body.is_empty() { "" } else { "Transfer-Encoding: chunked\r\n" };
            let request = format!("{method} / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n{body}");
            stream.write_all(request.as_bytes()).unwrap();
            assert!(read_response(&mut stream).0.starts_with("HTTP/1.1 204"));
            let (head, arrived) = got.recv_timeout(PATIENCE).unwrap();
            assert_eq!(String::from_utf8(arrived).unwrap(), body, "{head}");
            let is_framed = head.to_ascii_lowercase().contains("transfer-encoding");
            assert_eq!(is_framed, !body.is_empty(), "{head}");
        }
    }
}

#[test]
fn a_request_smuggled_in_a_body_is_not_seen() {
    let bench = bench();
    let mut stream = bench.connect(WEB);
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", inner.len());
    stream.write_all(format!("{head}{inner}").as_bytes()).unwrap();
    assert!(read_response(&mut stream).1.ends_with(inner));
    assert_eq!(bench.wait_for("http.exchange", 1).len(), 1);
}

#[test]
fn the_proxy_port_wants_absolute_targets() {
    let bench = bench();
    for head in
        ["GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n"]
    {
        let mut stream = open(bench.http);
        stream.write_all(head.as_bytes()).unwrap();
        assert!(read_response(&mut stream).0.starts_with("HTTP/1.1 400"));
    }
    assert_eq!(bench.denied().len(), 2);
    let mut stream = open(bench.http);
    let head = "GET http://a.test/x HTTP/1.1\r\nHost: b.test\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let (_, echoed) = read_response(&mut stream);
    assert!(echoed.to_ascii_lowercase().contains("host: a.test"), "{echoed}");
}
