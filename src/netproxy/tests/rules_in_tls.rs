//! Methods, paths and rates within TLS, with curl and openssl.

use std::io::Write as _;

use super::origin::{Shown, TestAuthority};
use super::secure::Reader;
use super::world::text;

#[test]
fn requests_within_tls_are_judged_alike() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let policy = "net: GET a.test:443/repos/**\nnet: POST a.test/v1/messages @1/h\nnet: b.test\n";
    for option in ["--http1.1", "--http2"] {
        let reader = Reader::new(policy, Some(origin), &[authority.root()]);
        for (method, path, status) in [
            ("GET", "/repos/x", "200"),
            ("DELETE", "/repos/x", "403"),
            ("GET", "/other", "403"),
            ("GET", "/repos/../other", "400"),
            ("GET", "/repos/%2e%2e/other", "400"),
            ("GET", "/repos/%2fother", "400"),
            ("GET", "/%72epos/y", "200"),
            ("POST", "/v1/messages", "200"),
            ("POST", "/v1/messages", "429"),
        ] {
            let url = format!("https://a.test{path}");
            let format = "%{http_code}";
            let (ok, shown) =
                reader.curl(&[option, "--path-as-is", "-X", method, "-d", "x", "-w", format, &url]);
            assert!(ok && shown.ends_with(status), "{option} {method} {path}: {shown}");
        }
        let denial = &reader.bench.events("net")[0];
        assert_eq!(denial.args["url"], "https://a.test/repos/x");
        assert_eq!(denial.args["remedy"], "net: DELETE a.test:443/repos/x");
        let kind = "content-type: application/grpc";
        let url = "https://a.test/pkg.Service/Call";
        let (_, shown) = reader.curl(&[option, "-i", "-H", kind, "-d", "x", url]);
        assert!(shown.contains(" 200") && shown.contains("grpc-status: 7"), "{shown}");
        let (_, shown) = reader.curl(&[option, "-H", "Host: b.test", "https://a.test/repos/x"]);
        assert!(!shown.starts_with("GET"), "{shown}");
    }
}

#[test]
fn tls_that_carries_no_http_is_refused_where_requests_are_judged() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let reader = Reader::new("net: GET a.test/x\n", Some(origin), &[authority.root()]);
    let inside = reader.bench.transparent[&"93.184.216.34:443".parse().unwrap()];
    let mut client = std::process::Command::new("openssl")
        .args(["s_client", "-quiet", "-servername", "a.test", "-connect", &inside.to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    client.stdin.as_mut().unwrap().write_all(b"\x00\x01binary\n").unwrap();
    let denial = reader.bench.wait_for("net", 1 + 1).pop().unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(text(&denial.args["reason"]).contains("no HTTP that is read"), "{denial:?}");
}
