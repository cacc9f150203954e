//! HTTP/2: answers that precede the one, resets, and bodies that are read slowly, with peers that show each frame.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::replays::twice;
use super::within::run;
use super::world::{Bench, PUBLIC, Plan};

const PLAIN: &str = "93.184.216.34:80";
const BIG: usize = 24 << 20;

/// What the origin has seen and done.
#[derive(Default)]
struct Noted {
    /// Bytes of bodies that it could send, and that it has got.
    sent: AtomicUsize,
    got: AtomicUsize,
    /// The code of the last reset.
    reset: AtomicU32,
}

/// An origin that does what the path says.
fn origin() -> (SocketAddr, Arc<Noted>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let noted = Arc::<Noted>::default();
    let shared = Arc::clone(&noted);
    std::thread::spawn(move || {
        run(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let noted = Arc::clone(&shared);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let noted = Arc::clone(&noted);
                        tokio::spawn(async move { act(request, respond, &noted).await });
                    }
                });
            }
        });
    });
    (address, noted)
}

fn precedes(status: u16) -> Response<()> {
    Response::builder().status(status).header("link", "</style.css>; rel=preload").body(()).unwrap()
}

async fn act(
    request: Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    noted: &Noted,
) -> Option<()> {
    let path = request.uri().path().to_owned();
    assert!(!request.headers().contains_key("expect"));
    let mut body = request.into_body();
    match path.as_str() {
        "/hints" => {
            respond.send_informational(precedes(102)).ok()?;
            respond.send_informational(precedes(103)).ok()?;
        }
        "/flood" => loop {
            for _ in 0..8 {
                respond.send_informational(precedes(103)).ok()?;
            }
            if timeout(Duration::from_millis(1), poll_fn(|cx| respond.poll_reset(cx))).await.is_ok() {
                return None;
            }
        },
        "/switch" => respond.send_informational(precedes(101)).ok()?,
        "/refuse" => {
            respond.send_reset(Reason::REFUSED_STREAM);
            return None;
        }
        "/wait" => {
            let reset = poll_fn(|cx| respond.poll_reset(cx)).await.ok()?;
            noted.reset.store(reset.into(), Ordering::SeqCst);
            return None;
        }
        _ => {}
    }
    let mut stream = respond.send_response(Response::new(()), false).ok()?;
    match path.as_str() {
        "/break" => {
            stream.send_data(Bytes::from_static(b"some"), false).ok()?;
            sleep(Duration::from_millis(100)).await;
            stream.send_reset(Reason::ENHANCE_YOUR_CALM);
        }
        "/big" => {
            send(&mut stream, BIG, &noted.sent).await?;
            stream.send_data(Bytes::new(), true).ok()?;
        }
        "/slow" => {
            sleep(Duration::from_millis(500)).await;
            let got = read(&mut body, usize::MAX, &noted.got).await.ok()?;
            stream.send_data(got.to_string().into(), true).ok()?;
        }
        _ => {
            let got = read(&mut body, usize::MAX, &noted.got).await.ok()?;
            stream.send_data(got.to_string().into(), false).ok()?;
            let trailers = body.trailers().await.ok()?.unwrap_or_default();
            stream.send_trailers(trailers).ok()?;
        }
    }
    Some(())
}

/// Sends `length` bytes as fast as they are taken.
async fn send(stream: &mut SendStream<Bytes>, length: usize, sent: &AtomicUsize) -> Option<()> {
    let mut rest = length;
    while rest > 0 {
        stream.reserve_capacity(rest.min(1 << 16));
        let room = poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
        let piece = vec![b'a'; room.min(rest)];
        rest -= piece.len();
        sent.fetch_add(piece.len(), Ordering::SeqCst);
        stream.send_data(piece.into(), false).ok()?;
    }
    Some(())
}

/// Reads at most about `most` bytes, or to the end.
async fn read(body: &mut RecvStream, most: usize, got: &AtomicUsize) -> Result<usize, h2::Error> {
    let mut length = 0;
    while length < most
        && let Some(data) = body.data().await
    {
        let data = data?;
        length += data.len();
        got.fetch_add(data.len(), Ordering::SeqCst);
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(length)
}

fn plan<'a>(routes: &'a [(&'a str, Option<SocketAddr>)]) -> Plan<'a> {
    Plan { policy: "net: GET|POST a.test:80/**", names: &[("a.test", PUBLIC)], routes, ..Plan::default() }
}

async fn connect(bench: &Bench) -> SendRequest<Bytes> {
    bench.resolve("a.test");
    let inside = bench.transparent[&PLAIN.parse().unwrap()];
    let stream = tokio::net::TcpStream::connect(inside).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn ask(
    sender: &mut SendRequest<Bytes>,
    method: &str,
    path: &str,
    expects: bool,
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut request = Request::builder().method(method).uri(format!("http://a.test{path}"));
    if expects {
        request = request.header("expect", "100-continue");
    }
    sender.send_request(request.body(()).unwrap(), method == "GET").unwrap()
}

/// What precedes the answer next.
async fn preceding(answer: &mut ResponseFuture) -> Option<Response<()>> {
    let next = timeout(Duration::from_secs(20), poll_fn(|cx| answer.poll_informational(cx))).await;
    next.unwrap().map(Result::unwrap)
}

#[test]
fn what_precedes_an_answer_passes_and_is_played() {
    let routes = [(PLAIN, Some(origin().0))];
    let (recorded, _) = twice(&plan(&routes), |bench| {
        let mut seen = Vec::new();
        run(async {
            let mut sender = connect(bench).await;
            let (mut answer, _) = ask(&mut sender, "GET", "/hints", false);
            while let Some(one) = preceding(&mut answer).await {
                seen.push((one.status().as_u16(), one.headers()["link"].to_str().unwrap().to_owned()));
            }
            assert_eq!(answer.await.unwrap().status(), 200);
        });
        assert_eq!(seen.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [102, 103]);
        bench.wait_for("http.exchange", 1);
        seen
    });
    let exchange = recorded.entries.iter().find(|entry| entry["op"] == "http.exchange").unwrap();
    let list = &exchange["result"]["informational"];
    assert_eq!((&list[0]["status"], &list[1]["status"]), (&json!(102), &json!(103)));
}

#[test]
fn who_waits_is_told_to_go_on_and_who_is_refused_is_not() {
    let routes = [(PLAIN, Some(origin().0))];
    let plan = Plan { policy: "net: POST a.test:80/echo", ..plan(&routes) };
    twice(&plan, |bench| {
        run(async {
            let mut sender = connect(bench).await;
            let (mut answer, mut stream) = ask(&mut sender, "POST", "/echo", true);
            assert_eq!(preceding(&mut answer).await.unwrap().status(), StatusCode::CONTINUE);
            stream.send_data(Bytes::from_static(b"body"), false).unwrap();
            stream
                .send_trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())]))
                .unwrap();
            assert!(preceding(&mut answer).await.is_none());
            let mut body = answer.await.unwrap().into_body();
            assert_eq!(body.data().await.unwrap().unwrap(), "4");
            assert!(body.data().await.is_none());
            assert_eq!(body.trailers().await.unwrap().unwrap()["x-sum"], "1");
            // Nobody who does not wait is told, and nobody who is refused.
            let (mut answer, mut stream) = ask(&mut sender, "POST", "/echo", false);
            stream.send_data(Bytes::from_static(b"body"), true).unwrap();
            assert!(preceding(&mut answer).await.is_none());
            let answer = answer.await.unwrap();
            assert_eq!(answer.status(), 200);
            // Whoever leaves before its end has abandoned it.
            let mut body = answer.into_body();
            assert_eq!(body.data().await.unwrap().unwrap(), "4");
            assert!(body.data().await.is_none());
            let (mut answer, _stream) = ask(&mut sender, "POST", "/other", true);
            assert!(preceding(&mut answer).await.is_none());
            assert_eq!(answer.await.unwrap().status(), 403);
        });
        bench.wait_for("http.exchange", 2);
    });
}

#[test]
fn an_origin_that_does_not_answer_is_not_waited_for() {
    let (address, _) = origin();
    let routes = [(PLAIN, Some(address))];
    let bench = Bench::start(&plan(&routes));
    run(async {
        let mut sender = connect(&bench).await;
        let (mut answer, _) = ask(&mut sender, "GET", "/flood", false);
        let mut count = 0;
        while let Some(one) = preceding(&mut answer).await {
            assert_eq!(one.status(), StatusCode::EARLY_HINTS);
            count += 1;
        }
        assert!(count <= 32, "{count}");
        assert_eq!(answer.await.unwrap().status(), 502);
        let (mut answer, _) = ask(&mut sender, "GET", "/switch", false);
        assert!(preceding(&mut answer).await.is_none());
        assert_eq!(answer.await.unwrap().status(), 502);
        let (answer, _) = ask(&mut sender, "GET", "/refuse", false);
        assert_eq!(answer.await.unwrap().status(), 502);
    });
    let errors = bench.wait_for("http.exchange", 3);
    let error = |index: usize| errors[index].result.as_ref().unwrap()["error"].as_str().unwrap().to_owned();
    assert!(error(0).contains("informational"), "{}", error(0));
}

#[test]
fn a_reset_passes_with_its_code_both_ways() {
    let (address, noted) = origin();
    let routes = [(PLAIN, Some(address))];
    let bench = Bench::start(&plan(&routes));
    run(async {
        let mut sender = connect(&bench).await;
        let (answer, _) = ask(&mut sender, "GET", "/break", false);
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "some");
        let error = body.data().await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
        for body_follows in [false, true] {
            noted.reset.store(0, Ordering::SeqCst);
            let method = if body_follows { "POST" } else { "GET" };
            let (answer, mut stream) = ask(&mut sender, method, "/wait", body_follows);
            sleep(Duration::from_millis(100)).await;
            stream.send_reset(Reason::CANCEL);
            drop(answer);
            while noted.reset.load(Ordering::SeqCst) == 0 {
                sleep(Duration::from_millis(2)).await;
            }
            assert_eq!(noted.reset.load(Ordering::SeqCst), u32::from(Reason::CANCEL));
        }
        // The connections are as good as before.
        let (answer, _) = ask(&mut sender, "GET", "/", false);
        assert_eq!(answer.await.unwrap().status(), 200);
    });
    bench.wait_for("http.exchange", 4);
}

#[test]
fn whoever_reads_slowly_makes_the_other_wait() {
    let (address, noted) = origin();
    let routes = [(PLAIN, Some(address))];
    let bench = Bench::start(&plan(&routes));
    run(async {
        let mut sender = connect(&bench).await;
        let (answer, _) = ask(&mut sender, "GET", "/big", false);
        let mut body = answer.await.unwrap().into_body();
        sleep(Duration::from_millis(500)).await;
        let sent = noted.sent.load(Ordering::SeqCst);
        assert!(sent < 8 << 20, "{sent} bytes were sent to nobody");
        // Another request of the connection is not held up by it.
        let (answer, _) = ask(&mut sender, "GET", "/", false);
        assert_eq!(answer.await.unwrap().status(), 200);
        assert_eq!(read(&mut body, usize::MAX, &AtomicUsize::new(0)).await.unwrap(), BIG);

        let (answer, mut stream) = ask(&mut sender, "POST", "/slow", true);
        let taken = AtomicUsize::new(0);
        let stuck = timeout(Duration::from_millis(400), send(&mut stream, BIG, &taken)).await;
        let so_far = taken.load(Ordering::SeqCst);
        assert!(stuck.is_err() && so_far < 8 << 20, "{so_far} bytes were taken for nobody");
        send(&mut stream, BIG - so_far, &taken).await.unwrap();
        stream.send_data(Bytes::new(), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), BIG.to_string());
    });
    assert_eq!(noted.got.load(Ordering::SeqCst), BIG);
    bench.wait_for("http.exchange", 3);
}
