//! Requests whose connection is closed as they are sent: what may be sent again is, once.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::kept::{WEB, bench, kept, status};
use super::origin::{Shown, TestAuthority};
use super::replays::{Recorded, again};
use super::secure::Reader;
use super::world::{Bench, PUBLIC, Plan, open, read_request, read_response, server};

/// How an origin ends a connection when it has read the second request on it.
#[derive(Clone, Copy)]
enum End {
    Close,
    Reset,
    After(&'static str),
}

/// An origin that answers the first request on each connection, and ends it when the second has come, but on the last of
/// `fragile` connections; counts connections and requests.
fn ending(fragile: usize, end: End) -> (SocketAddr, Arc<[AtomicUsize; 2]>) {
    let counts = Arc::<[AtomicUsize; 2]>::default();
    let counted = Arc::clone(&counts);
    let address = server(move |mut stream| {
        let number = counted[0].fetch_add(1, Ordering::Relaxed);
        let mut answered = 0;
        while let Some((head, _)) = read_request(&mut stream) {
            counted[1].fetch_add(1, Ordering::Relaxed);
            if answered == 1 && number < fragile {
                return break_off(&mut stream, end);
            }
            let body = if head.starts_with("HEAD") { "" } else { "ok" };
            if write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}").is_err() {
                return;
            }
            answered += 1;
        }
    });
    (address, counts)
}

fn break_off(stream: &mut TcpStream, end: End) {
    match end {
        End::Close => {}
        End::Reset => {
            let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
            nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
        }
        End::After(said) => stream.write_all(said.as_bytes()).unwrap(),
    }
}

fn counts(counts: &[AtomicUsize; 2]) -> [usize; 2] {
    [counts[0].load(Ordering::Relaxed), counts[1].load(Ordering::Relaxed)]
}

#[test]
fn one_that_changes_nothing_is_sent_again_on_a_new_connection() {
    for end in [End::Close, End::Reset] {
        for method in ["GET", "OPTIONS"] {
            let (origin, counted) = ending(1, end);
            let bench = bench("net: a.test\n", origin);
            let mut stream = bench.connect(WEB);
            assert_eq!(status(&mut stream, "GET /", "a.test"), "200");
            assert_eq!(status(&mut stream, &format!("{method} /x"), "a.test"), "200");
            assert_eq!(status(&mut stream, "GET /", "a.test"), "200");
            assert_eq!(counts(&counted), [2, 4]);
            let exchanges = bench.wait_for("http.exchange", 2);
            let result = exchanges[1].result.as_ref().unwrap();
            assert_eq!((&result["status"], result.get("error")), (&200.into(), None), "{result}");
        }
    }
}

#[test]
fn it_is_sent_again_once() {
    let (origin, counted) = ending(2, End::Close);
    let bench = bench("net: a.test\n", origin);
    // Two that are kept, and both break.
    let mut streams = [bench.connect(WEB), bench.connect(WEB)];
    for stream in &mut streams {
        assert_eq!(status(stream, "GET /", "a.test"), "200");
    }
    drop(streams);
    bench.wait_for("net.stream", 2);
    kept(&bench, WEB);
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(status(&mut bench.connect(WEB), "GET /", "a.test"), "200");
    assert_eq!(counts(&counted), [3, 4]);
    assert_eq!(bench.wait_for("http.exchange", 3).len(), 3);
}

#[test]
fn what_may_have_been_done_is_not_asked_for_twice() {
    let unfinished = "HTTP/1.1 200 OK\r\nContent-Le";
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    for (line, end) in [
        ("POST /", End::Close),
        ("PATCH /", End::Close),
        ("PUT /", End::Close),
        ("DELETE /", End::Close),
        ("PROPFIND /", End::Close),
        ("GET /?_method=DELETE", End::Close),
        ("GET /", End::After(unfinished)),
        ("GET /", End::After(early)),
    ] {
        let (origin, counted) = ending(1, end);
        let bench = bench("net: a.test\n", origin);
        let mut stream = bench.connect(WEB);
        assert_eq!(status(&mut stream, "GET /", "a.test"), "200");
        let mut second = status(&mut stream, line, "a.test");
        if second == "103" {
            second = read_response(&mut stream).0[9..12].to_owned();
        }
        assert_eq!(second, "502", "{line}");
        assert_eq!(counts(&counted), [1, 2], "{line}");
    }
    // Nor what has a body.
    let (origin, counted) = ending(1, End::Close);
    let bench = bench("net: a.test\n", origin);
    let mut stream = bench.connect(WEB);
    assert_eq!(status(&mut stream, "GET /", "a.test"), "200");
    write!(stream, "GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx").unwrap();
    assert_eq!(&read_response(&mut stream).0[9..12], "502");
    assert_eq!(counts(&counted), [1, 2]);
}

#[test]
fn a_first_request_is_not_sent_again() {
    let (origin, counted) = {
        let counted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&counted);
        let address = server(move |mut stream| {
            count.fetch_add(1, Ordering::Relaxed);
            let _ = read_request(&mut stream);
        });
        (address, counted)
    };
    let bench = bench("net: a.test\n", origin);
    assert_eq!(status(&mut bench.connect(WEB), "GET /", "a.test"), "502");
    assert_eq!(counted.load(Ordering::Relaxed), 1);
}

#[test]
fn what_was_sent_again_is_replayed() {
    for (end, proxied) in [(End::Close, false), (End::Reset, false), (End::Close, true), (End::Reset, true)] {
        let (origin, _) = ending(1, end);
        let routes = [(WEB, Some(origin))];
        let plan =
            Plan { policy: "net: a.test", names: &[("a.test", PUBLIC)], routes: &routes, ..Plan::default() };
        let act = |bench: &Bench| {
            bench.resolve("a.test");
            let (mut stream, target) =
                if proxied { (open(bench.http), "http://a.test") } else { (bench.connect(WEB), "") };
            for method in ["GET", "OPTIONS", "GET"] {
                assert_eq!(status(&mut stream, &format!("{method} {target}/"), "a.test"), "200");
            }
            drop(stream);
            bench.wait_for("net.stream", 2);
        };
        let bench = Bench::start(&plan);
        act(&bench);
        let recorded = Recorded::of(bench);
        let replayed = again(&plan, &recorded.recording(), act);
        for op in ["net.connect", "net.stream", "http.exchange"] {
            // Which of two connections ends first is a race.
            let sorted = |run: &Recorded| {
                let mut lines: Vec<String> = run.compared(op).iter().map(Value::to_string).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&recorded), sorted(&replayed), "{op}");
        }
    }
}

/// An origin over TLS that breaks its first connection off when the second request has come on it.
fn breaking(config: Arc<rustls::ServerConfig>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&connections);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let acceptor = TlsAcceptor::from(config);
            while let Ok((stream, _)) = listener.accept().await {
                let is_first = counter.fetch_add(1, Ordering::Relaxed) == 0;
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let many = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let (broken, requests) = (Arc::<Notify>::default(), AtomicUsize::new(0));
                let breaks = Arc::clone(&broken);
                let answer = service_fn(move |_: Request<Incoming>| {
                    let number = requests.fetch_add(1, Ordering::Relaxed);
                    let breaks = (is_first && number == 1).then(|| Arc::clone(&breaks));
                    async move {
                        if let Some(breaks) = breaks {
                            breaks.notify_one();
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
                    }
                });
                let stream = TokioIo::new(stream);
                tokio::spawn(async move {
                    let serve = async {
                        if many {
                            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                            let _ = builder.serve_connection(stream, answer).await;
                        } else {
                            let builder = hyper::server::conn::http1::Builder::new();
                            let _ = builder.serve_connection(stream, answer).await;
                        }
                    };
                    tokio::select! { () = serve => {}, () = broken.notified() => {} }
                });
            }
        });
    });
    (address, connections)
}

#[test]
fn within_tls_it_is_sent_again_in_both_versions() {
    let authority = TestAuthority::new();
    for (option, body, expected) in
        [("--http1.1", None, "ok200ok200"), ("--http2", None, "ok200ok200"), ("--http1.1", Some("x"), "502")]
    {
        let (origin, connections) = breaking(authority.config(&Shown::name("a.test")));
        let reader = Reader::new("net: a.test", Some(origin), &[authority.root()]);
        let mut words = vec![option, "-w", "%{http_code}", "https://a.test/1", "https://a.test/2"];
        if let Some(body) = body {
            words.extend(["--data", body]);
        }
        let (ok, shown) = reader.curl(&words);
        assert!(ok && shown.ends_with(expected), "{option}: {shown}");
        assert_eq!(connections.load(Ordering::Relaxed), if body.is_some() { 1 } else { 2 });
        reader.bench.wait_for("http.exchange", 2);
    }
}
