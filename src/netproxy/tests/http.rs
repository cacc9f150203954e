//! HTTP through every way in, with raw sockets, curl and Python.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::world::{
    Bench, PATIENCE, PUBLIC, Plan, mirror, open, read_head, read_request, read_response, server, text,
};

const WEB: &str = "93.184.216.34:80";
const ALT: &str = "93.184.216.34:8080";

fn bench(policy: &str, origin: SocketAddr) -> Bench {
    let names = [("a.test", PUBLIC), ("b.test", PUBLIC), ("c.test", "93.184.216.99")];
    let routes = [(WEB, Some(origin)), (ALT, Some(origin)), ("93.184.216.35:80", None)];
    Bench::start(&Plan { policy, names: &names, routes: &routes, ..Plan::default() })
}

fn get(stream: &mut TcpStream, host: &str, path: &str) -> (String, String) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    read_response(stream)
}

fn curl(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("curl").args(["-sS", "--max-time", "20"]).args(arguments).output();
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn each_request_of_a_connection_is_judged() {
    let bench = bench("net: a.test:80\nnet: c.test:80", mirror());
    bench.resolve("a.test");
    bench.resolve("c.test");
    let mut stream = bench.connect(WEB);
    assert!(get(&mut stream, "a.test", "/one").0.starts_with("HTTP/1.1 200"));
    let (head, body) = get(&mut stream, "b.test", "/two");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert!(body.contains("net: b.test:80"), "{body}");
    let (head, body) = get(&mut stream, "c.test", "/three");
    assert!(head.starts_with("HTTP/1.1 403") && body.contains("did not resolve"), "{head}{body}");
    assert!(get(&mut stream, "a.test:8080", "/").0.starts_with("HTTP/1.1 403"));
    assert!(get(&mut stream, "93.184.216.34", "/").0.starts_with("HTTP/1.1 403"));
    let (head, body) = get(&mut stream, "A.test:80", "/four");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("Host: A.test:80"), "{head}{body}");
    let denied = ["b.test:80", "c.test:80", "a.test:8080", WEB];
    assert_eq!(bench.denied(), denied);
    assert_eq!(bench.wait_for("http.exchange", 2).len(), 2);
}

#[test]
fn an_exchange_is_recorded_with_its_bodies() {
    let bench = bench("net: a.test", mirror());
    bench.resolve("a.test");
    let mut stream = bench.connect(ALT);
    let head = "POST /p?q=1 HTTP/1.1\r\nHost: a.test:8080\r\nX-Odd: 1\r\nContent-Length: 5\r\n\r\n";
    stream.write_all(format!("{head}hello").as_bytes()).unwrap();
    let (_, echoed) = read_response(&mut stream);
    let exchange = &bench.wait_for("http.exchange", 1)[0];
    assert_eq!(exchange.args["method"], "POST");
    assert_eq!(exchange.args["url"], "http://a.test:8080/p?q=1");
    assert_eq!(exchange.args["version"], "HTTP/1.1");
    assert!(exchange.args["headers"].as_array().unwrap().contains(&json!(["x-odd", "1"])));
    assert_eq!(exchange.args["body"]["text"], "hello");
    let result = exchange.result.as_ref().unwrap();
    assert_eq!(result["status"], 200);
    assert_eq!(result["address"], ALT);
    assert_eq!(result["names"], json!(["a.test"]));
    assert_eq!(result["body"]["text"], echoed.as_str());
    assert_eq!(result["body"]["size"], echoed.len());
    let timing = &result["timing"];
    let at = |key: &str| timing[key].as_f64().unwrap();
    assert!(at("start") <= at("first_byte") && at("first_byte") <= at("end"), "{timing}");
    assert!(result.get("error").is_none());
    // The spelling of field names reaches the origin.
    assert!(echoed.contains("X-Odd: 1\r\n"), "{echoed}");
}

#[test]
fn hop_by_hop_fields_stay_behind() {
    let bench = bench("net: a.test", mirror());
    bench.resolve("a.test");
    let mut stream = bench.connect(WEB);
    let fields = "Connection: keep-alive, X-Mine, Host\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
                  Proxy-Connection: close\r\nProxy-Authorization: Basic x\r\nUser-Agent: t\r\n";
    write!(stream, "GET / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n").unwrap();
    let (_, echoed) = read_response(&mut stream);
    assert_eq!(echoed, "GET / HTTP/1.1\r\nHost: a.test\r\nUser-Agent: t\r\n\r\n");
}

#[test]
fn curl_and_python_use_the_proxy_port() {
    let bench = bench("net: a.test:80", mirror());
    let proxy = format!("http://{}", bench.http);
    let (ok, body) = curl(&["-x", &proxy, "http://a.test/x"]);
    assert!(ok && body.starts_with("GET /x HTTP/1.1\r\n") && !body.contains("Proxy-"), "{body}");
    let (ok, body) = curl(&["-p", "-x", &proxy, "http://a.test/y"]);
    assert!(ok && body.starts_with("GET /y HTTP/1.1\r\n"), "{body}");
    let (_, body) = curl(&["-x", &proxy, "http://b.test/"]);
    assert!(body.contains("b.test:80 is denied"), "{body}");
    let (ok, body) = curl(&["-p", "-x", &proxy, "http://b.test/"]);
    assert!(!ok && body.contains("403"), "{body}");
    let (ok, body) = curl(&["-p", "-x", &proxy, "-H", "Host: b.test", "http://a.test/"]);
    assert!(ok && body.contains("b.test:80 is denied"), "{body}");
    let script = "import urllib.request as u; print(u.urlopen('http://a.test/py').read().decode())";
    let python = Command::new("python3").args(["-c", script]).env("http_proxy", &proxy).output();
    let python = String::from_utf8(python.unwrap().stdout).unwrap();
    assert!(python.starts_with("GET /py HTTP/1.1"), "{python}");
    assert_eq!(bench.denied(), ["b.test:80"; 3]);
    let connects = bench.events("net.connect");
    let via: Vec<_> = connects.iter().map(|event| text(&event.args["via"])).collect();
    assert_eq!(via, ["proxy", "connect", "connect", "proxy"]);
}

#[test]
fn packed_bodies_pass_as_they_are() {
    const PACKED: [u8; 12] = [0x1f, 0x8b, 8, 0, 0xff, 0xfe, 0, 0x28, 0xb5, 0x2f, 0xfd, 0x80];
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let heads = Arc::clone(&asked);
    let origin = server(move |mut stream| {
        while let Some((head, body)) = read_request(&mut stream) {
            assert!(body.is_empty() || body == PACKED);
            let coding = head.split("/as/").nth(1).unwrap().split(' ').next().unwrap().to_owned();
            heads.lock().unwrap().push(head);
            let length = PACKED.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(&[answer.as_bytes(), &PACKED].concat()).unwrap();
        }
    });
    let bench = bench("net: a.test", origin);
    bench.resolve("a.test");
    let mut stream = bench.connect(WEB);
    for coding in ["gzip", "br", "zstd"] {
        let fields =
            format!("Host: a.test\r\nAccept-Encoding: gzip, br, zstd\r\nContent-Encoding: {coding}\r\n");
        write!(stream, "POST /as/{coding} HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n", PACKED.len())
            .unwrap();
        stream.write_all(&PACKED).unwrap();
        let head = read_head(&mut stream).unwrap();
        assert!(head.contains(&format!("Content-Encoding: {coding}\r\n")), "{head}");
        let mut body = [0; PACKED.len()];
        stream.read_exact(&mut body).unwrap();
        assert_eq!(body, PACKED);
    }
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|head| head.contains("gzip, br, zstd\r\nContent-Encoding: ")), "{asked:?}");
}

#[test]
fn uploads_stream_with_expect_and_chunks() {
    let bench = bench("net: a.test", mirror());
    bench.resolve("a.test");
    let local = bench.transparent[&WEB.parse().unwrap()];
    let connect_to = format!("a.test:80:127.0.0.1:{}", local.port());
    let body = "x".repeat(2 << 20);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body");
    std::fs::write(&file, &body).unwrap();
    let at = format!("@{}", file.display());
    let base = ["--noproxy", "*", "--connect-to", &connect_to, "http://a.test/", "--data-binary", &at];
    let (ok, echoed) = curl(&[&base[..], &["-H", "Expect: 100-continue"]].concat());
    assert!(ok && echoed.ends_with(&body) && !echoed.contains("Expect"));
    let (ok, echoed) = curl(&[&base[..], &["-H", "Transfer-Encoding: chunked"]].concat());
    assert!(ok && echoed.contains("chunked\r\n"), "{}", &echoed[..200]);
    for exchange in bench.wait_for("http.exchange", 2) {
        assert_eq!(exchange.args["body"]["size"], body.len());
    }
}

#[test]
fn http_1_0_works_with_and_without_host() {
    // As servers do (RFC 9112 section 3.2), it takes a request that names nobody for one of HTTP/1.0 alone.
    let origin = server(|mut stream| {
        let (head, _) = read_request(&mut stream).unwrap();
        let is_odd = head.contains("HTTP/1.1") && !head.contains("Host: a.test\r\n");
        let status = if is_odd { "400 Bad Request" } else { "200 OK" };
        let _ = write!(stream, "HTTP/1.0 {status}\r\n\r\nuntil the end");
    });
    let bench = bench("net: a.test", origin);
    bench.resolve("a.test");
    let old = "GET / HTTP/1.0\r\n\r\n";
    for head in [old, "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", old] {
        let mut stream = bench.connect(WEB);
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 ") && answer.ends_with("\r\n\r\nuntil the end"), "{answer}");
    }
    let url = text(&bench.wait_for("http.exchange", 3)[0].args["url"]);
    assert_eq!(url, "http://93.184.216.34/");
}

#[test]
fn events_arrive_while_the_response_goes_on() {
    let (go, going) = std::sync::mpsc::channel::<()>();
    let going = std::sync::Arc::new(std::sync::Mutex::new(going));
    let origin = server(move |mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        let _ = going.lock().unwrap().recv();
        let _ = stream.write_all(b"3\r\ntwo\r\n0\r\n\r\n");
    });
    let bench = bench("net: a.test", origin);
    bench.resolve("a.test");
    let mut stream = bench.connect(WEB);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    read_head(&mut stream).unwrap();
    let mut chunk = [0; 8];
    stream.read_exact(&mut chunk).unwrap();
    assert_eq!(&chunk, b"3\r\none\r\n");
    go.send(()).unwrap();
    let mut rest = [0; 13];
    stream.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"3\r\ntwo\r\n0\r\n\r\n");
}

#[test]
fn an_upgrade_passes_and_is_relayed() {
    let origin = server(|mut stream| {
        let (head, _) = read_request(&mut stream).unwrap();
        assert!(head.to_ascii_lowercase().contains("upgrade: websocket"), "{head}");
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi";
        let _ = stream.write_all(switch.as_bytes());
        let mut word = [0; 4];
        let _ = stream.read_exact(&mut word).and_then(|()| stream.write_all(&word));
    });
    let bench = bench("net: a.test", origin);
    let mut stream = open(bench.http);
    let head =
        "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let answer = read_head(&mut stream).unwrap().to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101") && answer.contains("upgrade: websocket"), "{answer}");
    stream.write_all(b"ping").unwrap();
    let mut words = [0; 6];
    stream.read_exact(&mut words).unwrap();
    assert_eq!(&words, b"hiping");
    drop(stream);
    let end = &bench.wait_for("net.stream", 1)[0];
    assert_eq!(end.result.as_ref().unwrap()["protocol"], "upgrade");
    assert_eq!(bench.wait_for("http.exchange", 1)[0].result.as_ref().unwrap()["status"], 101);
}

#[test]
fn an_origin_that_cannot_be_reached_is_a_502() {
    let bench = bench("net: 93.184.216.35:80\nnet: d.test", mirror());
    let mut stream = bench.connect("93.184.216.35:80");
    let (head, body) = get(&mut stream, "93.184.216.35", "/");
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    assert_eq!(body.lines().count(), 1);
    assert!(body.contains("cannot connect to 93.184.216.35:80"), "{body}");
    let exchange = &bench.wait_for("http.exchange", 1)[0];
    assert!(text(&exchange.result.as_ref().unwrap()["error"]).contains("cannot connect"));
    let (_, body) = curl(&["-x", &format!("http://{}", bench.http), "http://d.test/"]);
    assert!(body.contains("cannot resolve d.test"), "{body}");
}

#[test]
fn an_idle_connection_that_the_origin_closed_is_replaced() {
    let (report, closed) = std::sync::mpsc::channel();
    let origin = server(move |mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        drop(stream);
        let _ = report.send(());
    });
    let bench = bench("net: a.test", origin);
    bench.resolve("a.test");
    let mut stream = bench.connect(WEB);
    for _ in 1..=5 {
        assert_eq!(get(&mut stream, "a.test", "/").1, "ok");
        closed.recv_timeout(PATIENCE).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    drop(stream);
    let streams = bench.wait_for("net.stream", 5);
    assert!(streams.iter().all(|stream| stream.result.as_ref().unwrap()["requests"] == 1), "{streams:#?}");
}

#[test]
fn a_response_that_breaks_off_is_recorded_so() {
    let origin = server(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    let bench = bench("net: a.test", origin);
    bench.resolve("a.test");
    let mut stream = bench.connect(WEB);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.ends_with(b"half"));
    let exchange = &bench.wait_for("http.exchange", 1)[0];
    let result = exchange.result.as_ref().unwrap();
    assert_eq!(result["body"]["whole"], false);
    assert_eq!(result["body"]["size"], 4);
    assert!(result["error"].is_string(), "{result}");
}

#[test]
fn the_host_loopback_speaks_http_too() {
    let service = mirror();
    let bench = Bench::start(&Plan {
        policy: &format!("net: 127.0.0.1:{}", service.port()),
        loopback: &[service],
        ..Plan::default()
    });
    let mut stream = open(bench.loopback[&service]);
    let port = service.port();
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        let (head, body) = get(&mut stream, &host, "/");
        assert!(head.starts_with("HTTP/1.1 200") && body.contains(&host), "{head}{body}");
    }
    let (head, _) = get(&mut stream, &format!("a.test:{port}"), "/");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

#[test]
fn observing_lets_pass_and_records_once() {
    let bench = Bench::start(&Plan {
        names: &[("a.test", PUBLIC)],
        routes: &[(WEB, Some(mirror()))],
        observe: true,
        ..Plan::default()
    });
    bench.resolve("a.test");
    let mut stream = bench.connect(WEB);
    for _ in 0..2 {
        assert!(get(&mut stream, "a.test", "/").0.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(bench.denied(), ["a.test", "a.test:80"]);
    assert!(bench.events("net").iter().all(|denial| denial.args["enforced"] == json!(false)));
}

#[test]
fn a_thousand_keep_alive_requests_do_not_stall() {
    let bench = bench("net: a.test", mirror());
    bench.resolve("a.test");
    let mut stream = bench.connect(WEB);
    let start = Instant::now();
    for _ in 0..1000 {
        assert!(get(&mut stream, "a.test", "/").0.starts_with("HTTP/1.1 200"));
    }
    // Delayed acknowledgements would take 40 s.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_password_in_a_refused_target_is_not_recorded() {
    let bench = bench("net: a.test", mirror());
    let mut stream = open(bench.http);
    stream.write_all(b"GET http://user:geheim@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 400"));
    assert_eq!(bench.denied(), ["a.test"]);
}
