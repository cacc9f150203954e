//! Requests that are made to be read in two ways: the origin sees each one that is recorded, and no other.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::world::{
    Bench, PATIENCE, PUBLIC, Plan, mirror, open, read_head, read_request, read_response, server,
};

const WEB: &str = "93.184.216.34:80";

type Heads = Arc<Mutex<Vec<String>>>;

/// An origin that keeps the heads that it reads, strictly: lines end with CRLF, and no body is left unread.
fn strict() -> (SocketAddr, Heads) {
    let heads = Heads::default();
    let kept = Arc::clone(&heads);
    let address = server(move |mut stream| {
        while let Some((head, _)) = read_request(&mut stream) {
            let is_broken =
                head.replace("\r\n", "").contains(['\r', '\n', '\0']) || head.contains("Length: 00");
            kept.lock().unwrap().push(if is_broken { format!("BROKEN {head}") } else { head });
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    (address, heads)
}

fn bench(origin: SocketAddr) -> Bench {
    let names = [("a.test", PUBLIC), ("b.test", PUBLIC)];
    let routes = [(WEB, Some(origin))];
    let bench =
        Bench::start(&Plan { policy: "net: a.test", names: &names, routes: &routes, ..Plan::default() });
    bench.resolve("a.test");
    bench
}

/// What comes back until the proxy closes or nothing more comes.
fn all(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    let mut answers = Vec::new();
    let mut part = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut part) {
        answers.extend_from_slice(&part[..length]);
    }
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    String::from_utf8_lossy(&answers).into_owned()
}

#[test]
fn the_origin_sees_what_is_recorded_and_nothing_else() {
    let post = "POST /1 HTTP/1.1\r\nHost: a.test\r\n";
    let second = "GET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n";
    // What is sent, and how many of the two requests may go on.
    let cases: [(String, usize); 24] = [
        (format!("{post}Transfer-Encoding: chunked\r\n\r\n5;x=\"y\"\r\nhello\r\n0\r\n\r\n{second}"), 2),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n{second}"), 2),
        (format!("{post}Transfer-Encoding: chunked\r\n\r\n005\r\nhello\r\n00\r\n\r\n{second}"), 2),
        (
            format!(
                "{post}Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\nHost: b.test\r\n\r\n{second}"
            ),
            2,
        ),
        (
            format!(
                "{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"
            ),
            0,
        ),
        (format!("{post}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello{second}"), 2),
        (format!("{post}Content-Length: 005\r\n\r\nhello{second}"), 2),
        (format!("{post}Content-Length: 0\r\n\r\n{second}"), 2),
        (format!("{post}Connection: content-length, host\r\nContent-Length: 5\r\n\r\nhello{second}"), 2),
        (format!("POST /1 HTTP/1.1\nHost: a.test\nContent-Length: 5\n\nhello{second}"), 2),
        (format!("GET /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{second}", second.len()), 1),
        (format!("\r\n\r\nGET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n{second}"), 2),
        (format!("{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{second}"), 0),
        (format!("{post}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{second}"), 0),
        (format!("{post}Transfer-Encoding:\u{b}chunked\r\n\r\n0\r\n\r\n{second}"), 0),
        (format!("{post}Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n{second}"), 0),
        (format!("{post}Transfer\u{7f}Encoding: chunked\r\n\r\n0\r\n\r\n{second}"), 0),
        (format!("{post}X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"), 0),
        (format!("{post}Content-Length: 5 6\r\n\r\nhello{second}"), 0),
        (format!("{post}Content-Length: 0x5\r\n\r\nhello{second}"), 0),
        (format!("{post}Content-Length: -0\r\n\r\n{second}"), 0),
        (format!("{post}Content-Length: 99999999999999999999\r\n\r\nhello{second}"), 0),
        (format!("{post}Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n{second}"), 0),
        (format!("GET /1\tHTTP/1.1\r\nHost: a.test\r\n\r\n{second}"), 0),
    ];
    for (sent, most) in cases {
        let (origin, heads) = strict();
        let bench = bench(origin);
        let mut stream = bench.connect(WEB);
        stream.write_all(sent.as_bytes()).unwrap();
        let answers = all(&mut stream);
        drop(stream);
        let seen = heads.lock().unwrap().clone();
        let targets: Vec<&str> = seen.iter().filter_map(|head| head.split(' ').nth(1)).collect();
        assert_eq!(targets, ["/1", "/2"][..most], "{sent:?} got {answers:?}");
        assert!(seen.iter().all(|head| !head.starts_with("BROKEN")), "{sent:?} became {seen:?}");
        assert_eq!(answers.matches("HTTP/1.1 200").count(), most, "{sent:?} got {answers:?}");
        assert_eq!(bench.wait_for("http.exchange", most).len(), most, "{sent:?}");
        assert_eq!(most == 0, answers.starts_with("HTTP/1.1 400"), "{sent:?} got {answers:?}");
    }
}

#[test]
fn a_host_is_read_in_one_way_or_not_at_all() {
    let (origin, heads) = strict();
    let bench = bench(origin);
    let line = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for (request, status) in [
        (line("/", "A.TEST."), "200"),
        (line("/", "a.test:"), "200"),
        (line("/", "a.test:080"), "200"),
        (line("http://a.test/", "b.test"), "200"),
        (line("http://b.test/", "a.test"), "403"),
        (line("/", "b.test"), "403"),
        (line("/", "a.test:81"), "403"),
        (line("http://a.test@b.test/", "a.test"), "400"),
        (line("http://b.test@a.test/", "a.test"), "400"),
        (line("/", "a.test, b.test"), "400"),
        (line("/", "a.test b.test"), "400"),
        (line("/", "a%2etest"), "400"),
        (line("/", "a.test%00.b.test"), "400"),
        (line("/", "ａ.test"), "400"),
        (line("/", "[fe80::1%25lo]"), "400"),
        (line("/", "[::ffff:93.184.216.34"), "400"),
        (line("/", ""), "400"),
        (line("/", "a.test\\b.test"), "400"),
        (line("/", "a.test#"), "400"),
    ] {
        let before = heads.lock().unwrap().len();
        let mut stream = bench.connect(WEB);
        stream.write_all(request.as_bytes()).unwrap();
        let answers = all(&mut stream);
        assert_eq!(answers.get(9..12), Some(status), "{request:?} got {answers:?}");
        let seen = heads.lock().unwrap()[before..].to_vec();
        assert_eq!(seen.len(), usize::from(status == "200"), "{request:?} became {seen:?}");
        // A whole target says whom it is for, and the field that went with it does not.
        assert!(seen.iter().all(|head| !head.contains("b.test")), "{request:?} became {seen:?}");
    }
}

#[test]
fn nobody_switches_protocols_unasked() {
    let origin = server(|mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
            let other = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            let answer =
                if head.starts_with("GET /switch") { format!("{switch}{other}") } else { other.to_owned() };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let bench = bench(origin);
    let mut stream = bench.connect(WEB);
    stream.write_all(b"GET /switch HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let (head, body) = read_response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 502") && body.contains("101"), "{head}{body}");
    // What came behind it is nobody's answer.
    stream.write_all(b"GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let (head, body) = read_response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 200") && body == "ok", "{head}{body}");
    let exchanges = bench.wait_for("http.exchange", 2);
    let result = exchanges[0].result.as_ref().unwrap();
    assert_eq!(result["failure"]["kind"], "malformed", "{result}");
    assert_eq!(result["failure"]["side"], "origin", "{result}");
    assert!(result.get("status").is_none(), "{result}");
}

#[test]
fn answers_without_a_body_have_none() {
    // Each origin says more than its answer may hold.
    for (request, head) in [
        ("HEAD /", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"),
        ("GET /", "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n"),
        ("GET /", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n"),
    ] {
        let origin = server(move |mut stream| {
            while let Some(asked) = read_head(&mut stream) {
                let other = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                let answer = if asked.contains(" /2 ") { other.to_owned() } else { format!("{head}evil") };
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let bench = bench(origin);
        let mut stream = bench.connect(WEB);
        write!(stream, "{request} HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let first = read_head(&mut stream).unwrap();
        assert!(first.starts_with(&head[..12]), "{first}");
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(b"GET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let (second, body) = read_response(&mut stream);
        assert!(second.starts_with("HTTP/1.1 200") && body == "ok", "{request}: {second}{body}");
        let exchanges = bench.wait_for("http.exchange", 2);
        let body = |at: usize| exchanges[at].result.as_ref().unwrap()["body"]["text"].clone();
        assert_eq!((body(0), body(1)), (json!(null), json!("ok")), "{request}");
    }
}

#[test]
fn an_upload_that_breaks_off_leaves_no_connection_behind() {
    let (origin, heads) = strict();
    let bench = bench(origin);
    let mut stream = bench.connect(WEB);
    let inner = "GET /evil HTTP/1.1\r\nHost: a.test\r\n\r\n";
    write!(stream, "POST /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000\r\n\r\n{inner}").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop(stream);
    bench.wait_for("http.exchange", 1);
    let mut stream = bench.connect(WEB);
    stream.write_all(b"GET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert!(read_response(&mut stream).0.starts_with("HTTP/1.1 200"));
    let seen = heads.lock().unwrap().clone();
    let targets: Vec<&str> = seen.iter().filter_map(|head| head.split(' ').nth(1)).collect();
    assert_eq!(targets, ["/2"]);
}

#[test]
fn an_answer_before_the_end_of_an_upload_is_that_uploads() {
    let origin = server(|mut stream| {
        // It answers each head at once, and takes what follows for the next one.
        while let Some(head) = read_head(&mut stream) {
            let target = head.split(' ').nth(1).unwrap_or("-").to_owned();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{target}", target.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let bench = bench(origin);
    let mut stream = bench.connect(WEB);
    let inner = "GET /evil HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let length = inner.len() + 1;
    write!(stream, "POST /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).1, "/1");
    write!(stream, "{inner}.").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    write!(stream, "GET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let answers = all(&mut stream);
    assert!(!answers.contains("/evil"), "{answers}");
    // Another client is not answered with what was meant for this one.
    drop(stream);
    std::thread::sleep(Duration::from_millis(50));
    let mut stream = bench.connect(WEB);
    write!(stream, "GET /3 HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).1, "/3");
}

/// An origin that reads no bodies, as the handlers of Python's http.server do not, and keeps the targets that it is asked
/// for on each connection, as long as the client does not end it.
fn careless() -> (SocketAddr, Arc<Mutex<Vec<Vec<String>>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let address = server(move |mut stream| {
        let number = {
            let mut all = kept.lock().unwrap();
            all.push(Vec::new());
            all.len() - 1
        };
        while let Some(head) = read_head(&mut stream) {
            let line = head.split(" HTTP").next().unwrap_or("-").to_owned();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
            kept.lock().unwrap()[number].push(line);
            let ends = head.to_ascii_lowercase().contains("\r\nconnection: close\r\n");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
            if ends {
                // Without a reset, which could overtake the answer (RFC 9112 section 9.6).
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
                return;
            }
        }
    });
    (address, asked)
}

#[test]
fn a_body_that_an_origin_may_not_read_is_no_request() {
    let inner = "DELETE /admin HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let length = format!("Content-Length: {}\r\n\r\n{inner}", inner.len());
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "PROPFIND"] {
        for body in [&length, &chunked] {
            let (origin, asked) = careless();
            let bench = bench(origin);
            let mut stream = bench.connect(WEB);
            let request = format!("{method} /1 HTTP/1.1\r\nHost: a.test\r\n{body}");
            stream.write_all(request.as_bytes()).unwrap();
            assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
            if method != "HEAD" {
                stream.read_exact(&mut vec![0; method.len() + 3]).unwrap();
            }
            write!(stream, "GET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
            assert_eq!(read_response(&mut stream).1, "GET /2", "{method} {body}");
            let asked = asked.lock().unwrap().clone();
            assert_eq!(asked, [vec![format!("{method} /1")], vec!["GET /2".to_owned()]], "{body}");
        }
    }
}

#[test]
fn a_connection_that_answers_before_the_end_of_an_upload_is_the_uploads_alone() {
    let (origin, asked) = careless();
    let bench = bench(origin);
    let mut stream = bench.connect(WEB);
    write!(stream, "POST /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 8\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).1, "POST /1");
    write!(stream, "GET /x\r\n").unwrap();
    write!(stream, "GET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert_eq!(read_response(&mut stream).1, "GET /2");
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[test]
fn whole_targets_on_the_proxy_port_are_judged_by_themselves() {
    let bench = bench(mirror());
    for (target, status) in [
        ("http://a.test/", "200"),
        ("http://A.TEST.:80/", "200"),
        ("HTTP://a.test/", "200"),
        ("http://b.test/", "403"),
        ("http://a.test:81/", "502"),
        ("http://x@a.test/", "400"),
        ("http://a%2etest/", "400"),
        ("http://[::1%25lo]/", "400"),
        ("ftp://a.test/", "400"),
        ("//a.test/", "400"),
    ] {
        let mut stream = open(bench.http);
        write!(stream, "GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let answers = all(&mut stream);
        assert_eq!(answers.get(9..12), Some(status), "{target} got {answers:?}");
    }
}

#[test]
fn a_length_beside_the_chunks_of_an_answer_counts_for_nothing() {
    let origin = server(|mut stream| {
        while read_request(&mut stream).is_some() {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
            let _ = stream.write_all(&[&head[..], b"5\r\nhello\r\n0\r\n\r\n"].concat());
        }
    });
    let bench = bench(origin);
    let mut stream = bench.connect(WEB);
    let get = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    stream.write_all(get.repeat(2).as_bytes()).unwrap();
    let answers = all(&mut stream);
    assert_eq!(answers.matches("5\r\nhello\r\n0\r\n\r\n").count(), 2, "{answers:?}");
    assert!(!answers.to_lowercase().contains("content-length"), "{answers:?}");
}
