//! What is said within TLS: HTTP/2 with its own client, HTTP without ALPN, and what is no HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, StreamOwned};
use tokio_rustls::TlsConnector;

use super::origin::{Shown, TestAuthority, plain_origin};
use super::world::{Bench, PUBLIC, Plan, open, server};

const SECURE: &str = "93.184.216.34:443";

fn bench(policy: &str, origin: SocketAddr, authority: &TestAuthority) -> Bench {
    let names = [("a.test", PUBLIC), ("b.test", PUBLIC)];
    let (routes, roots) = ([(SECURE, Some(origin))], [authority.root()]);
    let plan = Plan { policy, names: &names, routes: &routes, tls: Some(&roots), ..Plan::default() };
    let bench = Bench::start(&plan);
    bench.resolve("a.test");
    bench.resolve("b.test");
    bench
}

/// A client that trusts the run's authority.
fn config(bench: &Bench, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let pem = bench.authority.as_deref().unwrap();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    Arc::new(config)
}

type Sender = SendRequest<http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>>;

async fn connect(bench: &Bench) -> Sender {
    let inside = bench.transparent[&SECURE.parse().unwrap()];
    let stream = tokio::net::TcpStream::connect(inside).await.unwrap();
    let name = ServerName::try_from("a.test").unwrap();
    let stream = TlsConnector::from(config(bench, &[b"h2"])).connect(name, stream).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(super) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn trailers_pass_both_ways() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let bench = bench("net: a.test", origin, &authority);
    run(async {
        let mut sender = connect(&bench).await;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        let body = Full::new(Bytes::from("message")).with_trailers(async { Some(Ok(trailers)) });
        let request = Request::post("https://a.test/pkg.Service/Call")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(body.boxed_unsync())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
        let collected = response.into_body().collect().await.unwrap();
        let trailers = collected.trailers().unwrap().clone();
        assert_eq!(
            (&trailers["x-sum"], &trailers["grpc-status"]),
            (&"1".parse().unwrap(), &"0".parse().unwrap())
        );
        let body = String::from_utf8(collected.to_bytes().to_vec()).unwrap();
        assert!(body.contains("te: trailers") && body.ends_with("message"), "{body}");
    });
    assert_eq!(bench.wait_for("http.exchange", 1)[0].args["url"], "https://a.test/pkg.Service/Call");
}

#[test]
fn each_stream_is_judged_by_itself() {
    let authority = TestAuthority::new();
    let (origin, connections) = authority.origin(&Shown::name("a.test"));
    let bench = bench("net: a.test\nnet: b.test", origin, &authority);
    run(async {
        let sender = connect(&bench).await;
        let ask = |url: &'static str| {
            let mut sender = sender.clone();
            async move {
                let body = Full::new(Bytes::new()).boxed_unsync();
                let response = sender.send_request(Request::get(url).body(body).unwrap()).await.unwrap();
                response.status().as_u16()
            }
        };
        let urls = ["https://a.test/1", "https://b.test/", "https://c.test/", "https://a.test:444/"];
        let (one, other, foreign, port) =
            tokio::join!(ask(urls[0]), ask(urls[1]), ask(urls[2]), ask(urls[3]));
        assert_eq!((one, other, foreign, port), (200, 421, 403, 403));
        let mut many = tokio::task::JoinSet::new();
        for _ in 0..50 {
            many.spawn(ask("https://a.test/2"));
        }
        assert!(many.join_all().await.iter().all(|status| *status == 200));
    });
    assert_eq!(connections.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(bench.wait_for("http.exchange", 51).len(), 51);
    let mut denied = bench.denied();
    denied.sort();
    assert_eq!(denied, ["a.test:443", "a.test:444", "c.test:443"]);
}

/// A stream of TLS from inside, without a protocol agreed on.
fn plain(bench: &Bench) -> StreamOwned<ClientConnection, TcpStream> {
    let inside = bench.transparent[&SECURE.parse().unwrap()];
    let name = ServerName::try_from("a.test").unwrap();
    StreamOwned::new(ClientConnection::new(config(bench, &[]), name).unwrap(), open(inside))
}

#[test]
fn http_without_alpn_is_read() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let bench = bench("net: a.test", origin, &authority);
    let mut stream = plain(&bench);
    stream.write_all(b"GET /old HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("GET /old HTTP/1.1"), "{answer}");
    assert_eq!(bench.wait_for("http.exchange", 1)[0].args["url"], "https://a.test/old");
}

#[test]
fn what_is_no_http_is_relayed_and_recorded() {
    let authority = TestAuthority::new();
    let config = authority.config(&Shown { protocols: &[], ..Shown::name("a.test") });
    let origin = server(move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        stream.write_all(b"220 ready\r\n").unwrap();
        let mut line = [0; 6];
        stream.read_exact(&mut line).unwrap();
        stream.write_all(&line).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    let bench = bench("net: a.test", origin, &authority);
    let mut stream = plain(&bench);
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 ready\r\n");
    stream.write_all(b"QUIT\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"QUIT\r\n");
    drop(stream);
    let ended = bench.wait_for("net.stream", 1)[0].result.clone().unwrap();
    let transcript = ended["transcript"]["blob"].as_str().unwrap();
    let transcript = bench.recorder.blob_content(transcript).unwrap();
    let transcript = String::from_utf8(transcript).unwrap();
    assert!(transcript.contains("220 ready\r\n") && transcript.contains("QUIT\r\n"), "{transcript}");
}

#[test]
fn http2_without_tls_is_read() {
    let plain = "93.184.216.34:80";
    let routes = [(plain, Some(plain_origin()))];
    let names = [("a.test", PUBLIC)];
    let bench = Bench::start(&Plan {
        policy: "net: GET a.test:80/allowed/**",
        names: &names,
        routes: &routes,
        ..Plan::default()
    });
    bench.resolve("a.test");
    run(async {
        let stream =
            tokio::net::TcpStream::connect(bench.transparent[&plain.parse().unwrap()]).await.unwrap();
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        for (url, status) in [("http://a.test/allowed/x", 200), ("http://a.test/other", 403)] {
            let body: Full<Bytes> = Full::default();
            let response = sender.send_request(Request::get(url).body(body).unwrap()).await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{url}");
        }
    });
    assert_eq!(bench.wait_for("http.exchange", 1)[0].args["version"], "HTTP/2.0");
}

/// A stream of TLS whose client has said that it speaks HTTP/1.1.
fn http1(bench: &Bench) -> StreamOwned<ClientConnection, TcpStream> {
    let inside = bench.transparent[&SECURE.parse().unwrap()];
    let name = ServerName::try_from("a.test").unwrap();
    StreamOwned::new(ClientConnection::new(config(bench, &[b"http/1.1"]), name).unwrap(), open(inside))
}

#[test]
fn a_websocket_passes_and_is_recorded() {
    let authority = TestAuthority::new();
    let shown = Shown { protocols: &[b"http/1.1"], ..Shown::name("a.test") };
    let config = authority.config(&shown);
    let origin = server(move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
        let mut frame = [0; 4];
        stream.read_exact(&mut frame).unwrap();
        stream.write_all(&frame).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    let bench = bench("net: a.test", origin, &authority);
    let mut stream = http1(&bench);
    let head = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(b"ping").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101") && answer.ends_with("ping"), "{answer}");
    drop(stream);
    let exchange = &bench.wait_for("http.exchange", 1)[0];
    assert_eq!(exchange.args["url"], "https://a.test/ws");
    assert_eq!(exchange.result.as_ref().unwrap()["status"], 101);
}

#[test]
fn who_said_http_speaks_nothing_else() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let bench = bench("net: a.test", origin, &authority);
    let mut stream = http1(&bench);
    stream.write_all(b"\x00\x01\x02 no request\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    let denied = bench.wait_for("net", 2);
    assert_eq!(denied[1].args["target"], SECURE);
    assert!(denied[1].args["reason"].as_str().unwrap().contains("cannot be read"), "{denied:?}");
}

#[test]
fn floods_end_their_own_connection_alone() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let bench = bench("net: a.test", origin, &authority);
    let get = |url: &str| Request::get(url).body(Full::new(Bytes::new()).boxed_unsync()).unwrap();
    run(async {
        let mut sender = connect(&bench).await;
        let mut bomb = get("https://a.test/bomb");
        bomb.headers_mut().insert("x-bomb", HeaderValue::from_bytes(&vec![b'a'; 80 * 1024]).unwrap());
        let answered = sender.send_request(bomb).await;
        assert!(answered.map_or(true, |response| response.status().as_u16() == 431));
        let mut sender = connect(&bench).await;
        for _ in 0..2_000 {
            // Sent, and taken back at once (CVE-2023-44487).
            let asked = sender.send_request(get("https://a.test/reset"));
            let _ = tokio::time::timeout(std::time::Duration::ZERO, asked).await;
            tokio::task::yield_now().await;
        }
        let mut other = connect(&bench).await;
        assert_eq!(other.send_request(get("https://a.test/")).await.unwrap().status(), StatusCode::OK);
    });
}
