//! The same destination gets the same verdict by every way in.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use super::world::{Bench, Plan, mirror, open, read_head, read_response};

const POLICY: &str = "net: a.test\nnet: b.test:8080\nnet: *.wild.test:80\nnet: 93.184.216.40:80\n\
                      net: inner.test\nnet: 10.0.0.9";

const NAMES: [(&str, &str); 8] = [
    ("a.test", "93.184.216.34"),
    ("b.test", "93.184.216.34"),
    ("x.wild.test", "93.184.216.35"),
    ("wild.test", "93.184.216.36"),
    ("inner.test", "10.0.0.8"),
    ("other.test", "93.184.216.37"),
    ("meta.test", "169.254.169.254"),
    ("nine.test", "10.0.0.9"),
];

const LITERALS: [&str; 3] = ["93.184.216.40", "93.184.216.41", "10.0.0.9"];

#[test]
fn every_way_in_gives_the_same_verdict() {
    let origin = mirror();
    let mut hosts: Vec<(&str, &str)> = NAMES.to_vec();
    hosts.extend(LITERALS.map(|literal| (literal, literal)));
    let mut destinations: Vec<String> = Vec::new();
    for (_, address) in &hosts {
        for port in [80, 8080] {
            destinations.push(format!("{address}:{port}"));
        }
    }
    destinations.sort();
    destinations.dedup();
    let routes: Vec<_> = destinations.iter().map(|it| (it.as_str(), Some(origin))).collect();
    let mut allowed = Vec::new();
    for (host, address) in &hosts {
        for port in [80, 8080] {
            let plan = Plan { policy: POLICY, names: &NAMES, routes: &routes, ..Plan::default() };
            let verdicts = [
                absolute(&Bench::start(&plan), host, port),
                connect(&Bench::start(&plan), host, port),
                socks(&Bench::start(&plan), host, port),
                transparent(&Bench::start(&plan), host, address, port),
            ];
            assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{host}:{port} {verdicts:?}");
            if verdicts[0] {
                allowed.push(format!("{host}:{port}"));
            }
        }
    }
    let expected = [
        "a.test:80",
        "a.test:8080",
        "b.test:8080",
        "x.wild.test:80",
        "93.184.216.40:80",
        "10.0.0.9:80",
        "10.0.0.9:8080",
    ];
    assert_eq!(allowed, expected);
}

fn absolute(bench: &Bench, host: &str, port: u16) -> bool {
    let mut stream = open(bench.http);
    let head = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    verdict(bench, &mut stream, &head)
}

fn connect(bench: &Bench, host: &str, port: u16) -> bool {
    let mut stream = open(bench.http);
    write!(stream, "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").unwrap();
    let answer = read_head(&mut stream).unwrap();
    if !answer.starts_with("HTTP/1.1 200") {
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_eq!(bench.denied().len(), 1);
        return false;
    }
    verdict(bench, &mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"))
}

fn socks(bench: &Bench, host: &str, port: u16) -> bool {
    let mut stream = open(bench.http);
    let code = super::socks::ask(&mut stream, host, port);
    if code != 0 {
        assert_eq!((code, bench.denied().len()), (2, 1));
        return false;
    }
    verdict(bench, &mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"))
}

fn transparent(bench: &Bench, host: &str, address: &str, port: u16) -> bool {
    if host != address && bench.resolve(host).is_empty() {
        assert_eq!(bench.denied().len(), 1);
        return false;
    }
    let destination: SocketAddr = format!("{address}:{port}").parse().unwrap();
    let mut stream = open(bench.transparent[&destination]);
    verdict(bench, &mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"))
}

/// True for an answer of the origin; false for a recorded refusal.
fn verdict(bench: &Bench, stream: &mut TcpStream, head: &str) -> bool {
    if stream.write_all(head.as_bytes()).is_err() || stream.peek(&mut [0]).is_err() {
        assert_eq!(bench.denied().len(), 1);
        return false;
    }
    let (answer, _) = read_response(stream);
    let passed = answer.starts_with("HTTP/1.1 200");
    assert!(passed || answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(bench.denied().len(), usize::from(!passed));
    passed
}

const REQUESTS: [(&str, bool); 9] = [
    ("GET /repos/x", true),
    ("GET /repos/%78?q", true),
    ("HEAD /repos/x", true),
    ("DELETE /repos/x", false),
    ("GET /other", false),
    ("GET /repos/secret/x", false),
    ("GET /repos/../other", false),
    ("get /repos/x", false),
    ("POST /v1/messages", true),
];

#[test]
fn every_way_in_judges_requests_alike() {
    let policy =
        "net: GET|HEAD a.test:80/repos/**, POST *.test/v1/messages\ndeny: net a.test/repos/secret/**";
    let origin = mirror();
    let routes = [("93.184.216.34:80", Some(origin))];
    for (request, expected) in REQUESTS {
        let (method, path) = request.split_once(' ').unwrap();
        let head =
            |target: &str| format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
        let bench = Bench::start(&Plan { policy, names: &NAMES, routes: &routes, ..Plan::default() });
        bench.resolve("a.test");
        let mut whole = open(bench.http);
        let mut tunnel = open(bench.http);
        write!(tunnel, "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n").unwrap();
        read_head(&mut tunnel).unwrap();
        let mut socks = open(bench.http);
        assert_eq!(super::socks::ask(&mut socks, "a.test", 80), 0);
        let mut direct = bench.connect("93.184.216.34:80");
        let ways = [
            (&mut whole, head(&format!("http://a.test{path}"))),
            (&mut tunnel, head(path)),
            (&mut socks, head(path)),
            (&mut direct, head(path)),
        ];
        for (at, (stream, head)) in ways.into_iter().enumerate() {
            stream.write_all(head.as_bytes()).unwrap();
            let answer = read_head(stream).unwrap();
            assert_eq!(answer.starts_with("HTTP/1.1 200"), expected, "{request} by way {at}: {answer}");
            assert_eq!(bench.denied().len(), if expected { 0 } else { at + 1 }, "{request}");
        }
    }
}
