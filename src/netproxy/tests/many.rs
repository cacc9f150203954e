//! HTTP/2 without TLS: many requests at once, connections that break the protocol, fields behind bodies.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::super::places::MAX_REQUESTS;
use super::origin::plain_origin;
use super::replays::twice;
use super::within::run;
use super::world::{Bench, PUBLIC, Plan};

const PLAIN: &str = "93.184.216.34:80";

fn bench(policy: &str, origin: SocketAddr) -> Bench {
    let routes = [(PLAIN, Some(origin))];
    let names = [("a.test", PUBLIC)];
    let bench = Bench::start(&Plan { policy, names: &names, routes: &routes, ..Plan::default() });
    bench.resolve("a.test");
    bench
}

fn inside(bench: &Bench) -> SocketAddr {
    bench.transparent[&PLAIN.parse().unwrap()]
}

async fn connect<B>(bench: &Bench) -> SendRequest<B>
where
    B: hyper::body::Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let stream = tokio::net::TcpStream::connect(inside(bench)).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// An origin that answers nothing until it may; `.1` counts what it has got.
fn slow_origin(may: &Arc<Semaphore>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (got, may) = (Arc::<AtomicUsize>::default(), Arc::clone(may));
    let counter = Arc::clone(&got);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (counter, may) = (Arc::clone(&counter), Arc::clone(&may));
                let answer = service_fn(move |_| {
                    counter.fetch_add(1, Ordering::Relaxed);
                    let may = Arc::clone(&may);
                    async move {
                        let _until_all_may = may.acquire_owned().await;
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"at last"))))
                    }
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), answer));
            }
        });
    });
    (address, got)
}

#[test]
fn more_requests_than_may_be_under_way_wait_and_none_fails() {
    const CONNECTIONS: usize = 32;
    const EACH: usize = 90;
    let may = Arc::new(Semaphore::new(0));
    let (origin, got) = slow_origin(&may);
    let bench = bench("net: a.test:80", origin);
    run(async {
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let sender = connect(&bench).await;
            for _ in 0..EACH {
                let mut sender = sender.clone();
                asked.spawn(async move {
                    let body: Full<Bytes> = Full::default();
                    let request = Request::get("http://a.test/").body(body).unwrap();
                    let response = sender.send_request(request).await.unwrap();
                    (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes())
                });
            }
        }
        let begun = Instant::now();
        while got.load(Ordering::Relaxed) < MAX_REQUESTS && begun.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(got.load(Ordering::Relaxed), MAX_REQUESTS);
        may.add_permits(CONNECTIONS * EACH);
        while let Some(answer) = asked.join_next().await {
            assert_eq!(answer.unwrap(), (200, Bytes::from_static(b"at last")));
        }
    });
    assert_eq!(got.load(Ordering::Relaxed), CONNECTIONS * EACH);
}

#[test]
fn a_connection_that_breaks_the_protocol_is_recorded() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // A DATA frame of no stream (RFC 9113 section 6.1), and SETTINGS of a length that is none (section 6.5).
    let faults: [&[u8]; 2] = [&[0, 0, 1, 0, 0, 0, 0, 0, 0, 1], &[0, 0, 5, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]];
    for fault in faults {
        let bench = bench("net: a.test:80", plain_origin());
        let mut stream = super::world::open(inside(&bench));
        stream.write_all(&[&preface[..], &settings, fault].concat()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        let denied = &bench.wait_for("net", 1)[0];
        assert_eq!(denied.args["target"], PLAIN);
        assert!(
            denied.args["reason"].as_str().unwrap().contains("HTTP/2 connection is malformed"),
            "{denied:?}"
        );
    }
    // One that just ends breaks nothing.
    let bench = bench("net: a.test:80", plain_origin());
    let mut stream = super::world::open(inside(&bench));
    stream.write_all(&[&preface[..], &settings].concat()).unwrap();
    drop(stream);
    bench.wait_for("net.stream", 1);
    assert_eq!(bench.denied(), Vec::<String>::new());
}

#[test]
fn fields_behind_a_body_name_no_other_method() {
    let plan = Plan {
        policy: "net: GET|POST a.test:80/allowed/**",
        names: &[("a.test", PUBLIC)],
        routes: &[(PLAIN, Some(plain_origin()))],
        ..Plan::default()
    };
    let (recorded, _) = twice(&plan, |bench| {
        bench.resolve("a.test");
        run(async {
            let mut sender = connect(bench).await;
            for (field, status) in [("x-sum", 200), ("x-http-method-override", 400), ("x_original_url", 400)]
            {
                let fields =
                    hyper::HeaderMap::from_iter([(field.parse().unwrap(), "DELETE".parse().unwrap())]);
                let body = Full::new(Bytes::from_static(b"body")).with_trailers(async { Some(Ok(fields)) });
                let request = Request::post("http://a.test/allowed/x").body(body.boxed_unsync()).unwrap();
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.status(), status, "{field}");
            }
        });
        bench.wait_for("net", 2);
        bench.wait_for("http.exchange", 3);
    });
    let denied = recorded.compared("net");
    let reason = |entry: &Value| entry["args"]["reason"].as_str().unwrap().to_owned();
    assert!(reason(&denied[0]).contains("`x-http-method-override`"), "{denied:?}");
    assert!(reason(&denied[1]).contains("another path"), "{denied:?}");
    assert_eq!(denied[0]["args"]["url"], "http://a.test/allowed/x");
}
