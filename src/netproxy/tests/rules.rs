//! Methods, paths and rates on every hop, with raw sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::world::{Bench, PUBLIC, Plan, mirror, open, read_head, read_request, read_response, server, text};

const WEB: &str = "93.184.216.34:80";

fn bench(policy: &str) -> Bench {
    bench_with(policy, mirror(), false)
}

fn bench_with(policy: &str, origin: std::net::SocketAddr, observe: bool) -> Bench {
    let names = [("a.test", PUBLIC), ("b.test", PUBLIC)];
    let bench = Bench::start(&Plan {
        policy,
        names: &names,
        routes: &[(WEB, Some(origin))],
        observe,
        ..Plan::default()
    });
    bench.resolve("a.test");
    if policy.contains("b.test") {
        bench.resolve("b.test");
    }
    bench
}

fn ask(stream: &mut TcpStream, line: &str, fields: &str) -> (u16, String) {
    let host = if fields.to_ascii_lowercase().contains("host:") { "" } else { "Host: a.test\r\n" };
    write!(stream, "{line} HTTP/1.1\r\n{host}{fields}\r\n").unwrap();
    answer(stream)
}

fn answer(stream: &mut TcpStream) -> (u16, String) {
    let (head, body) = read_response(stream);
    (head[9..12].parse().unwrap(), format!("{head}{body}"))
}

#[test]
fn each_request_is_judged_by_method_and_path() {
    let bench = bench("net: GET|HEAD a.test/repos/**\nnet: POST a.test:80/v1/messages\n");
    let mut stream = bench.connect(WEB);
    let cases = [
        ("GET /repos/x?q=/../y", 200),
        ("GET /repos", 200),
        ("POST /v1/messages", 200),
        ("POST /repos/x", 403),
        ("GET /v1/messages", 403),
        ("GET /", 403),
        ("get /repos/x", 403),
        ("GETX /repos/x", 403),
        ("OPTIONS *", 403),
        ("GET http://a.test/other", 403),
        ("GET http://a.test/repos/y", 200),
        ("GET http://b.test/repos/y", 403),
        ("GET /repos/%2e%2e/other", 400),
        ("GET /repos/../other", 400),
        ("GET /repos//other", 400),
        ("GET /repos/%2Fother", 400),
        ("GET /repos/..;/other", 400),
        ("GET /repos/\\..\\other", 400),
        ("GET /repos/%00", 400),
        ("GET /repos/%5c", 400),
        ("GET /repos/x", 200),
    ];
    for (line, status) in cases {
        let (found, shown) = ask(&mut stream, line, "");
        assert_eq!(found, status, "{line}: {shown}");
        assert!(!shown.to_ascii_lowercase().contains("connection: close"), "{shown}");
    }
    let (_, shown) = ask(&mut stream, "DELETE /repos/x?token=secret", "");
    assert!(shown.contains("content-type: text/plain"), "{shown}");
    assert!(shown.contains("the rule `net: DELETE a.test:80/repos/x` would allow it"), "{shown}");
    let denial = bench.events("net").pop().unwrap();
    assert_eq!(denial.args["method"], "DELETE");
    assert_eq!(denial.args["target"], "a.test:80");
    assert_eq!(denial.args["remedy"], "net: DELETE a.test:80/repos/x");
    let url = text(&denial.args["url"]);
    assert!(url.starts_with("http://a.test/repos/x?token=redacted"), "{url}");
    let refused = cases.iter().filter(|(_, status)| *status != 200).count();
    assert_eq!(bench.denied().len(), refused + 1);
}

#[test]
fn the_form_that_was_judged_is_sent() {
    let bench = bench("net: GET a.test/r~/**\n");
    let mut stream = bench.connect(WEB);
    let (_, shown) = ask(&mut stream, "GET /%72%7E/%c3%a9/%3a?%72=%2f", "");
    assert!(shown.contains("GET /r~/%C3%A9/%3A?%72=%2f HTTP/1.1\r\n"), "{shown}");
    let (_, shown) = ask(&mut stream, "GET http://a.test/%72~/x", "");
    assert!(shown.contains("GET /r~/x HTTP/1.1\r\n"), "{shown}");
    let exchange = &bench.wait_for("http.exchange", 2)[0];
    assert_eq!(exchange.args["url"], "http://a.test/r~/%C3%A9/%3A?%72=%2f");
    // No rule of b.test looks at paths.
    let open = self::bench("net: GET b.test\n");
    let mut stream = open.connect(WEB);
    let (_, shown) = ask(&mut stream, "GET /@x%2fy//%72", "Host: b.test\r\n");
    assert!(shown.contains("GET /@x%2fy//%72 HTTP/1.1\r\n"), "{shown}");
}

#[test]
fn another_method_in_disguise_is_judged_too() {
    let bench = bench("net: GET|POST a.test/x\nnet: POST a.test/y\n");
    let mut stream = bench.connect(WEB);
    for (line, fields, status) in [
        ("POST /x", "X-HTTP-Method-Override: DELETE\r\n", 403),
        ("GET /x", "x_http_method: delete\r\n", 403),
        ("POST /x", "X-Method-Override: GET\r\n", 200),
        ("POST /y", "X-Method-Override: GET\r\n", 403),
        ("POST /x?_method=PUT", "", 403),
        ("POST /x?%5fmethod=get", "", 200),
        ("GET /x", "X-Original-URL: /admin\r\n", 400),
        ("GET /x", "X-Rewrite-Url: /admin\r\n", 400),
        ("GET /x", "Trailer: X-Http-Method-Override\r\n", 400),
        ("GET /x", "", 200),
    ] {
        let (found, shown) = ask(&mut stream, line, fields);
        assert_eq!(found, status, "{line} {fields}: {shown}");
    }
}

#[test]
fn a_refused_body_leaves_the_connection_usable() {
    let bench = bench("net: GET|PUT a.test/x\n");
    let mut stream = bench.connect(WEB);
    let chunks = "Transfer-Encoding: chunked\r\n";
    for _ in 0..2 {
        let (status, shown) = {
            write!(stream, "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\n").unwrap();
            stream.write_all(&[b'y'; 100_000]).unwrap();
            answer(&mut stream)
        };
        assert_eq!(status, 403, "{shown}");
        write!(stream, "POST /x HTTP/1.1\r\nHost: a.test\r\n{chunks}\r\n3;a=b\r\nabc\r\n0\r\n\r\n").unwrap();
        assert_eq!(answer(&mut stream).0, 403);
        write!(stream, "PUT /x HTTP/1.1\r\nHost: a.test\r\n{chunks}\r\n3;a=b\r\nabc\r\n0\r\n\r\n").unwrap();
        let (status, shown) = answer(&mut stream);
        assert!(status == 200 && shown.contains("3\r\nabc\r\n"), "{shown}");
        assert_eq!(ask(&mut stream, "GET /x", "").0, 200);
    }
    // What comes after a body that is not taken is never read as a request.
    let mut stream = bench.connect(WEB);
    write!(stream, "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 400000\r\n\r\n").unwrap();
    let _ = stream.write_all("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n".repeat(9_000).as_bytes());
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    assert!(!String::from_utf8_lossy(&all).contains(" 200 "));
    // A client that waits to be told to go on is told not to.
    let mut stream = bench.connect(WEB);
    write!(stream, "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert_eq!(answer(&mut stream).0, 403);
}

#[test]
fn a_change_of_protocol_needs_its_rule() {
    let origin = server(|mut stream| {
        while let Some((head, _)) = read_request(&mut stream) {
            let lower = head.to_ascii_lowercase();
            if lower.contains("upgrade: websocket") {
                let _ = stream.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi",
                );
                let _ = stream.read(&mut [0; 16]);
                return;
            }
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
        }
    });
    let policy = "net: GET a.test, UPGRADE a.test/ws\n";
    let bench = bench_with(policy, origin, false);
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    let mut stream = bench.connect(WEB);
    let (status, shown) = ask(&mut stream, "GET /other", websocket);
    assert!(status == 403 && shown.contains("net: UPGRADE a.test:80/other"), "{shown}");
    assert_eq!(ask(&mut stream, "POST /ws", websocket).0, 403);
    let (status, shown) = ask(&mut stream, "GET /plain", h2c);
    let shown = shown.to_ascii_lowercase();
    assert!(status == 200 && !shown.contains("upgrade") && !shown.contains("http2-settings"), "{shown}");
    write!(stream, "GET /ws HTTP/1.1\r\nHost: a.test\r\n{websocket}\r\n").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 101"));
    let mut word = [0; 2];
    stream.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"hi");
    assert_eq!(bench.denied(), ["a.test:80", "a.test:80"]);
}

#[test]
fn h2c_gets_past_no_denial() {
    let bench = bench("net: a.test\ndeny: net DELETE a.test\n");
    let mut stream = bench.connect(WEB);
    let (_, shown) = ask(&mut stream, "GET /x", "Connection: Upgrade\r\nUpgrade: h2c\r\n");
    assert!(!shown.to_ascii_lowercase().contains("upgrade"), "{shown}");
    assert_eq!(ask(&mut stream, "DELETE /x", "").0, 403);
    assert_eq!(ask(&mut stream, "delete /x", "").0, 403);
    for protocol in [&b"h2c, \xff"[..], b"\xe9, H2C", b"TLS/1.0", b"HTTP/2.0"] {
        stream.write_all(b"GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: ").unwrap();
        stream.write_all(protocol).unwrap();
        stream.write_all(b"\r\n\r\n").unwrap();
        let (status, shown) = answer(&mut stream);
        let shown = shown.to_ascii_lowercase();
        assert!(status == 200 && !shown.contains("upgrade"), "{}: {shown}", protocol.escape_ascii());
    }
}

/// Where a `deny:` or a secret stands in the way, granting the whole host would change nothing.
#[test]
fn no_rule_is_named_that_would_not_help() {
    let bench = bench("net: a.test\ndeny: net a.test/x\n");
    let mut stream = bench.connect(WEB);
    stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    assert!(ended.is_err() || rest.is_empty(), "{rest:?}");
    let denials = bench.events("net");
    assert_eq!(denials.len(), 1);
    assert!(text(&denials[0].args["reason"]).contains("no HTTP that is read"));
    assert!(denials[0].args.get("remedy").is_none(), "{denials:?}");
}

#[test]
fn what_is_not_read_is_nothing_where_requests_are_judged() {
    let bench = bench("net: GET a.test/x\n");
    for opening in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"\x00\x01\x02binary",
        // A ClientHello for a.test cannot be read yet, or is answered by us.
        b"*1\r\n$4\r\nPING\r\n",
    ] {
        let mut stream = bench.connect(WEB);
        stream.write_all(opening).unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_err() || rest.is_empty(), "{rest:?}");
    }
    let mut stream = open(bench.http);
    write!(stream, "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
    stream.write_all(b"\x00\x01").unwrap();
    assert!(!matches!(stream.read(&mut [0; 1]), Ok(1)));
    let denials = bench.events("net");
    assert_eq!(denials.len(), 4);
    for denial in denials {
        assert_eq!(denial.args["target"], "a.test:80");
        assert!(text(&denial.args["reason"]).contains("no HTTP that is read"));
        assert_eq!(denial.args["remedy"], "net: a.test:80");
    }
    // A tunnel that carries HTTP is judged inside.
    let mut stream = open(bench.http);
    write!(stream, "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n").unwrap();
    read_head(&mut stream).unwrap();
    assert_eq!(ask(&mut stream, "GET /x", "").0, 200);
    assert_eq!(ask(&mut stream, "GET /y", "").0, 403);
}

#[test]
fn a_refused_name_is_proposed_with_its_port_where_that_is_no_usual_one() {
    for (port, remedy) in [(8443, "net: b.test:8443"), (443, "net: b.test"), (80, "net: b.test")] {
        let bench = bench("net: a.test\n");
        let mut stream = open(bench.http);
        write!(stream, "CONNECT b.test:{port} HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 403"));
        assert_eq!(bench.events("net")[0].args["remedy"], remedy);
    }
}

#[test]
fn a_request_that_names_nobody_must_be_allowed_for_all() {
    let bench = bench("net: GET a.test/x\nnet: b.test\n");
    for (line, status) in [("GET /x", "200"), ("DELETE /x", "403")] {
        let mut stream = bench.connect(WEB);
        write!(stream, "{line} HTTP/1.0\r\n\r\n").unwrap();
        let head = read_head(&mut stream).unwrap();
        assert!(head.contains(status), "{line}: {head}");
    }
}

#[test]
fn rates_count_requests_and_tell_when_to_come_again() {
    let bench = bench("net: GET a.test @2/h\n");
    let mut stream = bench.connect(WEB);
    assert_eq!(ask(&mut stream, "GET /", "").0, 200);
    assert_eq!(ask(&mut stream, "POST /", "").0, 403);
    assert_eq!(ask(&mut stream, "GET /", "").0, 200);
    for _ in 0..2 {
        let (status, shown) = ask(&mut stream, "GET /", "");
        assert_eq!(status, 429, "{shown}");
        let after = shown.split("retry-after: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
        assert!((3500..=3600).contains(&after.parse::<u32>().unwrap()), "{shown}");
    }
    assert_eq!(bench.denied().len(), 3);
    let hits = bench.events("limit.hit");
    assert_eq!((hits.len(), hits[0].kind), (1, crate::trace::Kind::Meta));
    assert_eq!(hits[0].rule.as_deref(), Some("t.policy:1"));
}

#[test]
fn rates_count_connections_where_nothing_is_read() {
    let echo = server(|mut stream| {
        let mut bytes = [0; 4];
        while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
    });
    let bench = bench_with("net: a.test @1/h\n", echo, false);
    let mut stream = bench.connect(WEB);
    stream.write_all(b"\x00abc").unwrap();
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).unwrap();
    let mut second = bench.connect(WEB);
    let _ = second.write_all(b"\x00abc");
    assert!(!matches!(second.read(&mut bytes), Ok(1..)));
    assert_eq!(bench.denied(), ["a.test:80"]);
    stream.write_all(b"\x00def").unwrap();
    stream.read_exact(&mut bytes).unwrap();
}

#[test]
fn grpc_clients_are_answered_in_their_words() {
    let bench = bench("net: POST a.test/ok\n");
    let mut stream = bench.connect(WEB);
    let fields = "Content-Type: application/grpc+proto\r\nTE: trailers\r\nContent-Length: 0\r\n";
    write!(stream, "POST /pkg.Service/Call HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n").unwrap();
    let head = read_head(&mut stream).unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("grpc-status: 7\r\n"), "{head}");
    assert!(head.contains("net: POST a.test:80/pkg.Service/Call"), "{head}");
}

#[test]
fn observing_records_what_would_have_been_refused() {
    let bench = bench_with("net: GET a.test/x @1/h\n", mirror(), true);
    let mut stream = bench.connect(WEB);
    for line in ["GET /x", "GET /x", "PUT /x", "GET /x/../y", "GET /%78"] {
        assert_eq!(ask(&mut stream, line, "").0, 200, "{line}");
    }
    assert_eq!(bench.denied().len(), 4 + 1);
    assert!(bench.events("net").iter().all(|denial| denial.args["enforced"] == json!(false)));
}

#[test]
fn http_2_that_begins_without_asking_is_judged_too() {
    let bench = bench("net: GET a.test/x\n");
    let inside = bench.transparent[&WEB.parse().unwrap()];
    let to = format!("a.test:80:127.0.0.1:{}", inside.port());
    let base = ["-sS", "--max-time", "20", "--noproxy", "*", "--http2-prior-knowledge", "--path-as-is"];
    for (method, path, status) in [("DELETE", "/x", "403"), ("GET", "/y", "403"), ("GET", "/x/../y", "400")] {
        let output = std::process::Command::new("curl")
            .args(base)
            .args(["-o", "/dev/null", "-w", "%{http_code}", "-X", method, "--connect-to", &to])
            .arg(format!("http://a.test{path}"))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{method} {path}");
    }
    assert_eq!(bench.denied(), ["a.test:80"; 3]);
}
