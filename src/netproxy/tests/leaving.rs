//! HTTP/2 origins that begin with no further request, and clients whose request is not wanted to its end.

use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Response};
use tokio::time::{sleep, timeout};

use super::replays::{Recorded, again, twice};
use super::within::run;
use super::world::{Bench, PUBLIC, Plan, server};

const PLAIN: &str = "93.184.216.34:80";

/// Types of frames, and a flag (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;

/// How a request is said not to have been begun with.
#[derive(Clone, Copy)]
enum Leaving {
    /// All on the connection.
    Connection,
    Stream,
}

/// An origin that begins with nothing on its first `refusing` connections, once it has seen a request or, where that is
/// `whole`, all of it. On others each request is answered with the length of its body. Counts connections.
fn leaving(refusing: usize, how: Leaving, whole: bool) -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    let address = server(move |stream| {
        if counted.fetch_add(1, Ordering::SeqCst) < refusing {
            refuse(stream, how, whole);
        } else {
            stream.set_nonblocking(true).unwrap();
            run(answer(stream));
        }
    });
    (address, count)
}

fn refuse(mut stream: TcpStream, how: Leaving, whole: bool) -> Option<()> {
    stream.read_exact(&mut [0; 24]).ok()?;
    stream.write_all(&frame(SETTINGS, 0, &[])).ok()?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).ok()?;
        let [_, high, low, kind, flags, id @ ..] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        stream.read_exact(&mut payload).ok()?;
        let ends = flags & END_STREAM != 0;
        let is_seen = (kind == HEADERS && (!whole || ends)) || (kind == DATA && ends);
        if !is_seen {
            continue;
        }
        let answer = match how {
            Leaving::Connection => frame(GOAWAY, 0, &[0; 8]),
            Leaving::Stream => frame(RST_STREAM, u32::from_be_bytes(id), &7_u32.to_be_bytes()),
        };
        stream.write_all(&answer).ok()?;
    }
}

fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
}

async fn answer(stream: TcpStream) {
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        tokio::spawn(async move {
            let path = request.uri().path().to_owned();
            if path == "/early" {
                let head = Response::builder().status(413).body(()).unwrap();
                respond.send_response(head, true).unwrap();
                return;
            }
            if path == "/none" {
                respond.send_response(Response::new(()), true).unwrap();
                return;
            }
            let mut body = request.into_body();
            let mut length = 0;
            while let Some(Ok(data)) = body.data().await {
                length += data.len();
                let _ = body.flow_control().release_capacity(data.len());
            }
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            let said = if path == "/empty" { String::new() } else { length.to_string() };
            // The head goes out by itself.
            sleep(Duration::from_millis(50)).await;
            stream.send_data(said.into(), true).unwrap();
        });
    }
}

fn plan<'a>(routes: &'a [(&'a str, Option<SocketAddr>)]) -> Plan<'a> {
    Plan { policy: "net: a.test:80", names: &[("a.test", PUBLIC)], routes, ..Plan::default() }
}

async fn connect(bench: &Bench) -> SendRequest<Bytes> {
    bench.resolve("a.test");
    let inside = bench.transparent[&PLAIN.parse().unwrap()];
    let stream = tokio::net::TcpStream::connect(inside).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://a.test{path}")).body(()).unwrap()
}

/// The status and the body of the answer to a request with `body`, where it has one.
async fn ask(sender: &mut SendRequest<Bytes>, method: &str, body: Option<&[u8]>) -> (u16, String) {
    let (answer, mut stream) = sender.send_request(request(method, "/"), body.is_none()).unwrap();
    if let Some(body) = body {
        stream.send_data(Bytes::copy_from_slice(body), true).unwrap();
    }
    let answer = answer.await.unwrap();
    let (status, mut body) = (answer.status().as_u16(), answer.into_body());
    let mut text = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        text.extend_from_slice(&data);
    }
    (status, String::from_utf8(text).unwrap())
}

#[test]
fn what_an_origin_has_not_begun_with_goes_to_it_again() {
    for how in [Leaving::Connection, Leaving::Stream] {
        for (method, body) in [("GET", None), ("POST", None), ("POST", Some(&b"body"[..]))] {
            for whole in [true, false] {
                let (address, count) = leaving(2, how, whole);
                let routes = [(PLAIN, Some(address))];
                let plan = plan(&routes);
                let act = |bench: &Bench| {
                    let mut answered = (0, String::new());
                    run(async { answered = ask(&mut connect(bench).await, method, body).await });
                    assert_eq!(answered, (200, body.map_or(0, <[u8]>::len).to_string()), "{method}");
                    bench.wait_for("http.exchange", 1);
                };
                let bench = Bench::start(&plan);
                act(&bench);
                let recorded = Recorded::of(bench);
                let replayed = again(&plan, &recorded.recording(), act);
                let exchanges = |run: &Recorded| run.compared("http.exchange");
                assert_eq!(exchanges(&recorded), exchanges(&replayed));
                assert_eq!(count.load(Ordering::SeqCst), 3, "{method}");
            }
        }
    }
}

#[test]
fn what_cannot_be_told_once_more_fails() {
    // An origin that never begins, and a body of which only the record knows the beginning.
    for (refusing, body) in [(usize::MAX, &b"body"[..]), (1, &[b'x'; 64 << 10])] {
        let (address, count) = leaving(refusing, Leaving::Connection, true);
        let routes = [(PLAIN, Some(address))];
        let bench = Bench::start(&plan(&routes));
        run(async {
            let (status, _) = ask(&mut connect(&bench).await, "POST", Some(body)).await;
            assert_eq!(status, 502);
        });
        let count = count.load(Ordering::SeqCst);
        assert!(if refusing == 1 { count == 1 } else { (2..100).contains(&count) }, "{count}");
    }
}

#[test]
fn an_early_answer_is_read_before_the_request_is_reset() {
    let (address, _) = leaving(0, Leaving::Stream, false);
    let routes = [(PLAIN, Some(address))];
    let bench = Bench::start(&plan(&routes));
    run(async {
        let mut sender = connect(&bench).await;
        let (answer, mut stream) = sender.send_request(request("POST", "/early"), false).unwrap();
        stream.send_data(Bytes::from_static(b"some"), false).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 413);
        assert!(answer.into_body().data().await.is_none());
        let reset = timeout(Duration::from_millis(300), poll_fn(|cx| stream.poll_reset(cx))).await;
        assert!(reset.is_err(), "{reset:?}");
        stream.send_data(Bytes::from_static(b"rest"), true).unwrap();
    });
}

#[test]
fn an_answer_ends_as_it_did() {
    let (address, _) = leaving(0, Leaving::Stream, false);
    let routes = [(PLAIN, Some(address))];
    let (recorded, _) = twice(&plan(&routes), |bench| {
        let mut ends = Vec::new();
        run(async {
            let mut sender = connect(bench).await;
            for path in ["/none", "/empty"] {
                let (answer, _) = sender.send_request(request("GET", path), true).unwrap();
                let mut body = answer.await.unwrap().into_body();
                ends.push((body.is_end_stream(), body.data().await.map(Result::unwrap)));
            }
        });
        bench.wait_for("http.exchange", 2);
        ends
    });
    let exchanges = recorded.compared("http.exchange");
    assert_eq!(exchanges[0]["result"].get("body"), None);
    assert_eq!(exchanges[1]["result"]["body"]["size"], 0);
}
