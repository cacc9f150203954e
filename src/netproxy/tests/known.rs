//! Secrets that an origin knows already: it may say them to whoever asks, and in whatever way.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::origin::{Shown, TestAuthority};
use super::secure::Reader;
use super::world::{Bench, PUBLIC, Plan, open, read_response, server};

const VALUE: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
const SECRETS: [(&str, &str); 1] = [("TOKEN", VALUE)];

/// An origin that answers each request with the last credential that it got, before the answer, in its head and in
/// its body.
fn remembering(config: &Arc<ServerConfig>) -> SocketAddr {
    let (config, last) = (Arc::clone(config), Arc::new(Mutex::new("none".to_owned())));
    server(move |stream: TcpStream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut head = Vec::new();
        let mut byte = [0];
        while std::io::Read::read(&mut stream, &mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let text = String::from_utf8_lossy(&std::mem::take(&mut head)).into_owned();
            let mut last = last.lock().unwrap();
            let lines = text.lines().map(|line| line.split_once(": ").unwrap_or_default());
            let mut given = lines.filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            if let Some((_, given)) = given.next() {
                given.clone_into(&mut last);
            }
            let (early, length) =
                (format!("HTTP/1.1 103 Early Hints\r\nX-Early: {last}\r\n\r\n"), last.len());
            let answer =
                format!("HTTP/1.1 200 OK\r\nX-Echo: {last}\r\nContent-Length: {length}\r\n\r\n{last}");
            if stream.write_all(format!("{early}{answer}").as_bytes()).is_err() {
                return;
            }
        }
    })
}

fn assert_clean(bench: &Bench, exchanges: usize) {
    bench.wait_for("http.exchange", exchanges);
    let events = format!("{:?}", bench.recorder.events());
    assert!(!events.contains(&VALUE[4..]), "{events}");
}

#[test]
fn it_is_masked_whatever_host_a_request_names() {
    let authority = TestAuthority::new();
    let config = authority.config(&Shown { protocols: &[], ..Shown::name("a.test") });
    for (observe, words) in [
        (false, ["--http1.0", "-H", "Host:"]),
        (true, ["--http1.0", "-H", "Host:"]),
        (true, ["--http1.1", "-H", "Host: other.test"]),
        (true, ["--http1.1", "-H", "Host: 93.184.216.34"]),
    ] {
        let origin = Some(remembering(&config));
        let policy = "net: a.test\nsecret: TOKEN -> a.test\n";
        let reader = Reader::under(observe, policy, origin, &[authority.root()], &SECRETS);
        let placeholder = reader.bench.placeholders[0].1.clone();
        let field = format!("Authorization: Bearer {placeholder}");
        let (ok, body) = reader.curl(&["--http1.1", "-i", "-H", &field, "https://a.test/"]);
        assert!(ok && body.matches(&placeholder).count() == 3, "{body}");
        let (ok, body) = reader.curl(&[&words[..], &["-i", "https://a.test/"]].concat());
        assert!(ok && body.contains("X-Echo: Bearer") && !body.contains(&VALUE[4..]), "{words:?} {body}");
        assert!(body.ends_with(&placeholder), "{words:?} {body}");
        // For another host than the one that has proved itself it is not filled in.
        let (_, body) = reader.curl(&[&words[..], &["-i", "-H", &field, "https://a.test/"]].concat());
        assert!(body.contains("403") || !body.contains(&VALUE[4..]), "{words:?} {body}");
        assert_clean(&reader.bench, 2);
    }
}

#[test]
fn it_is_masked_without_tls_too() {
    let origin = server(|mut stream| {
        while super::world::read_request(&mut stream).is_some() {
            let length = VALUE.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\nX-It: {VALUE}\r\nContent-Length: {length}\r\n\r\n{VALUE}");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    for observe in [false, true] {
        let web = "93.184.216.34:80";
        let plan = Plan {
            policy: "net: a.test\nsecret: TOKEN -> a.test:80\n",
            names: &[("a.test", PUBLIC)],
            routes: &[(web, Some(origin))],
            tls: Some(&[]),
            secrets: &SECRETS,
            observe,
            ..Plan::default()
        };
        let bench = Bench::start(&plan);
        bench.resolve("a.test");
        for head in ["GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
            let mut stream = bench.connect(web);
            stream.write_all(head.as_bytes()).unwrap();
            let (head, body) = read_response(&mut stream);
            assert!(head.contains("X-It: ghp_") && !head.contains(&VALUE[4..]), "{head}");
            assert_eq!(body, bench.placeholders[0].1);
        }
        let mut stream = open(bench.http);
        stream.write_all(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        assert_eq!(read_response(&mut stream).1, bench.placeholders[0].1);
        assert_clean(&bench, 3);
    }
}

#[test]
fn the_record_has_what_was_sent() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let policy = "net: a.test\nsecret: TOKEN -> a.test\n";
    let reader = Reader::with(policy, Some(origin), &[authority.root()], &SECRETS);
    let asked = ["Range: bytes=0-3", "Accept: text/html;q=1;charset=utf-16, a/b", "Accept-Charset: utf-16"];
    let words: Vec<&str> = asked.iter().flat_map(|field| ["-H", field]).collect();
    let (ok, body) = reader.curl(&[&words[..], &["https://a.test/"]].concat());
    assert!(ok && body.contains("accept: text/html;q=1, a/b\n"), "{body}");
    assert!(!body.contains("range: ") && !body.contains("utf-16"), "{body}");
    let exchange = reader.bench.wait_for("http.exchange", 1).remove(0);
    let headers = exchange.args["headers"].to_string();
    assert!(headers.contains("text/html;q=1, a/b") && headers.contains("identity"), "{headers}");
    assert!(!headers.contains("range") && !headers.contains("utf-16"), "{headers}");
}
