//! TLS that is read: curl against origins of a test's own authority.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::Ordering;

use rcgen::ExtendedKeyUsagePurpose as Usage;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::origin::{Shown, TestAuthority, serve};
use super::world::{Bench, PUBLIC, Plan, text};
use crate::trace::Event;

const SECURE: &str = "93.184.216.34:443";

/// A proxy that reads TLS, and what its clients trust.
pub(super) struct Reader {
    pub(super) bench: Bench,
    directory: TempDir,
}

impl Reader {
    pub(super) fn new(policy: &str, origin: Option<SocketAddr>, roots: &[CertificateDer<'static>]) -> Self {
        Self::with(policy, origin, roots, &[])
    }

    /// The same with secrets.
    pub(super) fn with(
        policy: &str,
        origin: Option<SocketAddr>,
        roots: &[CertificateDer<'static>],
        secrets: &[(&str, &str)],
    ) -> Self {
        Self::under(false, policy, origin, roots, secrets)
    }

    /// The same, where all that would be refused passes if it `observes`.
    pub(super) fn under(
        observe: bool,
        policy: &str,
        origin: Option<SocketAddr>,
        roots: &[CertificateDer<'static>],
        secrets: &[(&str, &str)],
    ) -> Self {
        let names = [("a.test", PUBLIC), ("b.test", PUBLIC)];
        let routes = [(SECURE, origin)];
        let tls = Some(roots);
        let plan = Plan { policy, names: &names, routes: &routes, tls, secrets, observe, ..Plan::default() };
        let bench = Bench::start(&plan);
        bench.resolve("a.test");
        bench.resolve("b.test");
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), bench.authority.as_deref().unwrap()).unwrap();
        Self { bench, directory }
    }

    /// curl with the run's authority; whether it succeeded, and what it said.
    pub(super) fn curl(&self, arguments: &[&str]) -> (bool, String) {
        let ca = self.directory.path().join("ca.pem");
        self.curl_with(&["--cacert", ca.to_str().unwrap()], arguments)
    }

    fn curl_with(&self, trust: &[&str], arguments: &[&str]) -> (bool, String) {
        let inside = self.bench.transparent[&SECURE.parse().unwrap()];
        let to = format!("::127.0.0.1:{}", inside.port());
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "20", "--connect-to", &to]).args(trust).args(arguments);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn exchange(&self) -> Event {
        self.bench.wait_for("http.exchange", 1).remove(0)
    }
}

#[test]
fn https_is_read_and_recorded() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    for (option, version) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let reader = Reader::new("net: a.test:443", Some(origin), &[authority.root()]);
        let (ok, body) = reader.curl(&[option, "-d", "hello", "https://a.test/p?q=1"]);
        assert!(ok && body.starts_with("POST ") && body.contains("/p?q=1"), "{body}");
        assert!(body.contains(version) && body.ends_with("hello"), "{body}");
        let exchange = reader.exchange();
        assert_eq!(exchange.args["url"], "https://a.test/p?q=1");
        assert_eq!(exchange.args["version"], version);
        let result = exchange.result.as_ref().unwrap();
        assert_eq!(result["status"], 200);
        assert_eq!(result["address"], SECURE);
        let tls = &result["tls"];
        assert_eq!(tls["version"], "TLSv1.3");
        assert_eq!(tls["sni"], "a.test");
        assert_eq!(tls["verified"], true);
        assert_eq!(tls["alpn"], if version == "HTTP/2.0" { "h2" } else { "http/1.1" });
        assert_eq!(text(&tls["certificate_sha256"]).len(), 64);
        assert_eq!(exchange.args["body"]["text"], "hello");
        let stream = &reader.bench.wait_for("net.stream", 1)[0];
        let stream = stream.result.as_ref().unwrap();
        assert_eq!((&stream["protocol"], &stream["sni"]), (&"https".into(), &"a.test".into()));
        assert!(stream["up"].as_u64().unwrap() > 500 && stream["down"].as_u64().unwrap() > 500, "{stream}");
    }
}

#[test]
fn an_origin_that_proves_nothing_is_an_answer_that_says_why() {
    let authority = TestAuthority::new();
    let stranger = TestAuthority::new();
    let expired = Shown { expired: true, ..Shown::name("a.test") };
    let mutual = Shown { mutual: true, ..Shown::name("a.test") };
    let cases = [
        (stranger.origin(&Shown::name("a.test")).0, "signed by no authority"),
        (authority.origin(&expired).0, "expired"),
        (authority.origin(&Shown::name("b.test")).0, "not valid for"),
        (authority.origin(&mutual).0, "`tunnel` rule"),
    ];
    for (origin, reason) in cases {
        for version in ["--http1.1", "--http2"] {
            let reader = Reader::new("net: a.test", Some(origin), &[authority.root()]);
            let (ok, body) = reader.curl(&[version, "-w", "%{http_code}", "https://a.test/"]);
            assert!(ok && body.ends_with("502") && body.contains(reason), "{body}");
            let exchange = reader.exchange();
            let result = exchange.result.as_ref().unwrap();
            assert!(text(&result["error"]).contains(reason), "{result}");
            assert!(result.get("status").is_none(), "{result}");
        }
    }
}

#[test]
fn an_origin_that_is_not_there_is_an_answer_too() {
    let reader = Reader::new("net: a.test", None, &[]);
    let (ok, body) = reader.curl(&["-w", "%{http_code}", "https://a.test/"]);
    assert!(ok && body.ends_with("502") && body.contains("cannot connect to 93.184.216.34:443"), "{body}");
    assert_eq!(reader.exchange().args["url"], "https://a.test/");
}

#[test]
fn a_server_name_that_is_not_granted_gets_no_handshake() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("b.test"));
    let reader = Reader::new("net: a.test", Some(origin), &[authority.root()]);
    let (ok, said) = reader.curl(&["https://b.test/"]);
    assert!(!ok, "{said}");
    assert_eq!(reader.bench.denied(), ["b.test", "b.test:443"]);
}

#[test]
fn one_connection_is_for_one_name() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    for version in ["--http1.1", "--http2"] {
        let reader = Reader::new("net: a.test\nnet: b.test", Some(origin), &[authority.root()]);
        let other = ["-w", "%{http_code}", "-H", "Host: b.test", version, "https://a.test/"];
        let (ok, body) = reader.curl(&other);
        assert!(ok && body.ends_with("421"), "{body}");
        let foreign = ["-w", "%{http_code}", "-H", "Host: c.test", version, "https://a.test/"];
        let (ok, body) = reader.curl(&foreign);
        assert!(ok && body.ends_with("403") && body.contains("net: c.test"), "{body}");
        assert_eq!(reader.bench.events("http.exchange").len(), 0);
    }
}

#[test]
fn a_tunnel_is_relayed_unread() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let reader = Reader::new("net: a.test tunnel", Some(origin), &[]);
    let (ok, said) = reader.curl(&["https://a.test/"]);
    assert!(!ok && said.contains("certificate"), "the origin's own certificate is seen: {said}");
    let stream = &reader.bench.wait_for("net.stream", 1)[0];
    assert_eq!(stream.result.as_ref().unwrap()["protocol"], "tls");
    let (ok, body) = reader.curl_with(&["-k"], &["https://a.test/"]);
    assert!(ok && body.starts_with("GET "), "{body}");
    assert!(reader.bench.events("http.exchange").is_empty());
    let (ok, _) = reader.curl_with(&["-k"], &["https://b.test/"]);
    assert!(!ok, "the server name is judged all the same");
}

#[test]
fn a_client_that_does_not_trust_us_is_told_of_tunnels() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    for (policy, remedy) in
        [("net: a.test", "net: a.test tunnel"), ("net: a.test:443", "net: a.test:443 tunnel")]
    {
        let reader = Reader::new(policy, Some(origin), &[authority.root()]);
        let (ok, said) = reader.curl_with(&[], &["https://a.test/"]);
        assert!(!ok && said.contains("certificate"), "{said}");
        let denied = reader.bench.wait_for("net", 2);
        let denied = denied.iter().find(|event| event.args["target"] == "a.test:443").unwrap();
        assert_eq!(denied.args["remedy"], remedy);
        assert!(text(&denied.args["reason"]).contains("UnknownCA"), "{denied:?}");
        assert!(text(&denied.args["reason"]).contains("SSL_CERT_FILE"), "{denied:?}");
        let stream = &reader.bench.wait_for("net.stream", 1)[0];
        assert!(text(&stream.result.as_ref().unwrap()["end"]).contains("does not take"), "{stream:?}");
    }
}

#[test]
fn an_address_has_a_certificate_of_its_own() {
    let authority = TestAuthority::new();
    let (origin, connections) = authority.origin(&Shown::address(PUBLIC));
    let reader = Reader::new("net: 93.184.216.34:443", Some(origin), &[authority.root()]);
    let (ok, body) = reader.curl(&["https://93.184.216.34/x"]);
    assert!(ok && body.contains("/x"), "{body}");
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    assert_eq!(reader.exchange().args["url"], "https://93.184.216.34/x");
}

#[test]
fn a_connection_to_the_origin_outlives_its_client() {
    let authority = TestAuthority::new();
    for version in ["--http1.1", "--http2"] {
        let (origin, connections) = authority.origin(&Shown::name("a.test"));
        let reader = Reader::new("net: a.test", Some(origin), &[authority.root()]);
        for ended in 1..=3 {
            let (ok, body) = reader.curl(&[version, "https://a.test/"]);
            assert!(ok, "{body}");
            reader.bench.wait_for("net.stream", ended);
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1, "{version}");
        assert_eq!(reader.bench.wait_for("net.connect", 3).len(), 3);
        assert_eq!(reader.bench.wait_for("net.stream", 3).len(), 3);
        let (ok, _) = reader.curl(&[version, "-H", "Authorization: NTLM x", "https://a.test/"]);
        assert!(ok);
        let (ok, _) = reader.curl(&[version, "https://a.test/"]);
        assert!(ok);
        let expected = if version == "--http1.1" { 2 } else { 1 };
        assert_eq!(connections.load(Ordering::Relaxed), expected, "who proved itself is not taken over");
    }
}

#[test]
fn offers_of_quic_are_withheld() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let reader = Reader::new("net: a.test", Some(origin), &[authority.root()]);
    let (ok, answer) = reader.curl(&["-i", "https://a.test/"]);
    assert!(
        ok && answer.contains("strict-transport-security: max-age=1") && !answer.contains("alt-svc"),
        "{answer}"
    );
    assert_eq!(reader.exchange().result.unwrap()["withheld"], serde_json::json!(["alt-svc"]));
}

#[test]
fn a_tunnel_of_the_proxy_port_is_read_as_well() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let reader = Reader::new("net: a.test:443", Some(origin), &[authority.root()]);
    let proxy = format!("http://{}", reader.bench.http);
    for version in ["--http1.1", "--http2"] {
        let ca = reader.directory.path().join("ca.pem");
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "20", version, "-x", &proxy, "--cacert"])
            .arg(ca)
            .arg("https://a.test/through")
            .output()
            .unwrap();
        let body = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && body.contains("/through"), "{body}");
    }
    let exchanges = reader.bench.wait_for("http.exchange", 2);
    assert!(exchanges.iter().all(|one| one.args["url"] == "https://a.test/through"));
    assert_eq!(reader.bench.events("net.connect")[0].args["via"], "connect");
}

#[test]
fn a_certificate_that_the_user_names_is_trusted_for_its_name_alone() {
    let (config, own) = TestAuthority::self_signed("a.test", &[]);
    let (origin, _) = serve(config);
    let reader = Reader::new("net: a.test\nnet: b.test", Some(origin), std::slice::from_ref(&own));
    let (ok, body) = reader.curl(&["https://a.test/own"]);
    assert!(ok && body.contains("/own"), "{body}");
    let (ok, body) = reader.curl(&["https://b.test/own"]);
    assert!(ok && body.contains("not valid for"), "{body}");
    let other = Reader::new("net: a.test", Some(origin), &[TestAuthority::new().root()]);
    let (ok, body) = other.curl(&["https://a.test/own"]);
    assert!(ok && body.contains("`--upstream-ca FILE` adds it"), "{body}");
    for (usage, serves) in [(Usage::ServerAuth, true), (Usage::Any, true), (Usage::ClientAuth, false)] {
        let (config, own) = TestAuthority::self_signed("a.test", &[Usage::EmailProtection, usage.clone()]);
        let reader = Reader::new("net: a.test", Some(serve(config).0), &[own]);
        let (ok, body) = reader.curl(&["https://a.test/own"]);
        assert!(ok && body.contains("/own") == serves, "{usage:?} {body}");
    }
}

#[test]
fn a_client_sees_the_allowed_names_of_the_origin() {
    let authority = TestAuthority::new();
    let names = ["a.test", "b.test", "c.test"].map(|name| rcgen::SanType::DnsName(name.try_into().unwrap()));
    let (origin, _) = authority.origin(&Shown { names: names.to_vec(), ..Shown::name("a.test") });
    let reader = Reader::new("net: a.test\nnet: b.test", Some(origin), &[authority.root()]);
    for (version, seen) in [("--http1.1", "DNS:a.test, DNS:b.test"), ("--http2", "DNS:a.test")] {
        let (ok, said) = reader.curl(&[version, "-o", "/dev/null", "-w", "%{certs}", "https://a.test/"]);
        let names = said.lines().find_map(|line| line.strip_prefix("X509v3 Subject Alternative Name:"));
        assert!(ok && names.map(str::trim) == Some(seen), "{said}");
    }
}
