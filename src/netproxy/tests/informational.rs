//! Answers that precede the one: recorded, passed on, bounded, and played again.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use super::replays::twice;
use super::world::{Bench, PUBLIC, Plan, read_head, read_request, read_response, server};

const WEB: &str = "93.184.216.34:80";

fn bench(origin: SocketAddr) -> Bench {
    let routes = [(WEB, Some(origin))];
    let bench = Bench::start(&Plan {
        policy: "net: a.test",
        names: &[("a.test", PUBLIC)],
        routes: &routes,
        ..Plan::default()
    });
    bench.resolve("a.test");
    bench
}

/// An origin that says `before` in front of each answer.
fn announcing(before: String) -> SocketAddr {
    server(move |mut stream| {
        while read_request(&mut stream).is_some() {
            let answer = format!("{before}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

fn ask(stream: &mut TcpStream, version: &str) {
    write!(stream, "GET /page HTTP/{version}\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n").unwrap();
}

#[test]
fn what_precedes_an_answer_is_recorded_passed_on_and_played() {
    let hints = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\
                 Set-Cookie: sid=hunter2\r\nContent-Length: 9\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n";
    let routes = [(WEB, Some(announcing(hints.to_owned())))];
    let plan =
        Plan { policy: "net: a.test", names: &[("a.test", PUBLIC)], routes: &routes, ..Plan::default() };
    let (recorded, _) = twice(&plan, |bench| {
        bench.resolve("a.test");
        let mut stream = bench.connect(WEB);
        let mut seen = Vec::new();
        for _ in 0..2 {
            ask(&mut stream, "1.1");
            assert_eq!(read_head(&mut stream).unwrap(), "HTTP/1.1 102 Processing\r\n\r\n");
            let early = read_head(&mut stream).unwrap();
            assert!(early.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{early}");
            assert!(early.contains("Link: </style.css>; rel=preload\r\nSet-Cookie: sid=hunter2"), "{early}");
            assert!(!early.to_ascii_lowercase().contains("x-hop"), "{early}");
            assert!(!early.to_ascii_lowercase().contains("content-length"), "{early}");
            seen.push(read_response(&mut stream));
        }
        seen
    });
    let exchange = recorded.entries.iter().find(|entry| entry["op"] == "http.exchange").unwrap();
    let list = &exchange["result"]["informational"];
    assert_eq!(list[0], json!({"status": 102, "headers": []}));
    assert_eq!(list[1]["status"], 103);
    assert!(list[1]["headers"].to_string().contains("</style.css>; rel=preload"), "{list}");
    assert!(!list.to_string().contains("hunter2"), "{list}");
}

#[test]
fn a_client_of_http_1_0_hears_of_none() {
    let bench = bench(announcing("HTTP/1.1 103 Early Hints\r\n\r\n".to_owned()));
    let mut stream = bench.connect(WEB);
    ask(&mut stream, "1.0");
    assert!(read_head(&mut stream).unwrap().contains(" 200 OK"));
    let exchange = &bench.wait_for("http.exchange", 1)[0];
    assert_eq!(exchange.result.as_ref().unwrap()["informational"][0]["status"], 103);
}

#[test]
fn an_origin_that_only_announces_is_not_waited_for() {
    let origin = server(|mut stream| {
        read_request(&mut stream);
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n").is_ok() {}
    });
    let bench = bench(origin);
    let mut stream = bench.connect(WEB);
    ask(&mut stream, "1.1");
    let mut head = read_head(&mut stream).unwrap();
    let mut count = 0;
    while head.starts_with("HTTP/1.1 103") {
        count += 1;
        head = read_head(&mut stream).unwrap();
    }
    assert!(head.starts_with("HTTP/1.1 502") && count <= 32, "{count}: {head}");
    let exchange = &bench.wait_for("http.exchange", 1)[0];
    assert!(exchange.result.as_ref().unwrap()["error"].as_str().unwrap().contains("informational"));
}
