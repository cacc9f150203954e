//! TLS in a replay: what is read is answered by the recording, what is relayed is played byte by byte.

use std::net::SocketAddr;
use std::process::Command;

use rustls::pki_types::CertificateDer;
use serde_json::Value;

use super::super::ca::StoredAuthority;
use super::origin::{Shown, TestAuthority};
use super::replays::{again, twice};
use super::world::{Bench, PUBLIC, Plan, new_authority};

const SECURE: &str = "93.184.216.34:443";
const POLICY: &str = "net: a.test:443";

/// A plan in which `a.test` is `origin`.
fn plan<'a>(
    routes: &'a [(&'a str, Option<SocketAddr>)],
    roots: &'a [CertificateDer<'static>],
    authority: &'a StoredAuthority,
) -> Plan<'a> {
    let names = &[("a.test", PUBLIC), ("b.test", PUBLIC)];
    Plan { policy: POLICY, names, routes, tls: Some(roots), authority: Some(authority), ..Plan::default() }
}

/// Whether curl succeeded, and all that it said.
fn curl(bench: &Bench, arguments: &[&str]) -> (bool, String) {
    bench.resolve("a.test");
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, bench.authority.as_deref().unwrap()).unwrap();
    let inside = bench.transparent[&SECURE.parse().unwrap()];
    let mut command = Command::new("curl");
    command.args(["-sSi", "--max-time", "20", "--connect-to", &format!("::127.0.0.1:{}", inside.port())]);
    command.arg("--cacert").arg(&ca);
    let output = command.args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn tiers(entries: &[Value]) -> Vec<Value> {
    let exchanges = entries.iter().filter(|entry| entry["op"] == "http.exchange");
    exchanges.map(|entry| entry["result"]["replayed"]["tier"].clone()).collect()
}

#[test]
fn what_is_read_is_answered_in_both_versions() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let (routes, roots, own) = ([(SECURE, Some(origin))], [authority.root()], new_authority().store());
    for version in ["--http1.1", "--http2"] {
        let (_, replayed) = twice(&plan(&routes, &roots, &own), |bench| {
            let data = ["-d", "hello", "-H", "Authorization: Bearer hunter2"];
            let one = curl(bench, &[&[version, "https://a.test/p?q=1"], &data[..]].concat());
            let two = curl(bench, &[version, "https://a.test/x", "https://a.test/y", "-o", "/dev/null"]);
            assert!(one.0 && one.1.contains("hunter2"), "{one:?}");
            (one, two)
        });
        assert_eq!(tiers(&replayed.entries), [0, 0, 0]);
    }
}

#[test]
fn clients_are_shown_the_same_certificate() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let (routes, roots, own) = ([(SECURE, Some(origin))], [authority.root()], new_authority().store());
    twice(&plan(&routes, &roots, &own), |bench| {
        let (ok, text) = curl(bench, &["https://a.test/", "-w", "%{certs}", "-o", "/dev/null"]);
        assert!(ok && text.contains("BEGIN CERTIFICATE"), "{text}");
        text
    });
}

#[test]
fn an_origin_that_proved_nothing_proves_nothing_again() {
    let authority = TestAuthority::new();
    let stranger = TestAuthority::new();
    let own = new_authority().store();
    let expired = Shown { expired: true, ..Shown::name("a.test") };
    let mutual = Shown { mutual: true, ..Shown::name("a.test") };
    for origin in [
        Some(stranger.origin(&Shown::name("a.test")).0),
        Some(authority.origin(&expired).0),
        Some(authority.origin(&mutual).0),
        None,
    ] {
        let (routes, roots) = ([(SECURE, origin)], [authority.root()]);
        for version in ["--http1.1", "--http2"] {
            twice(&plan(&routes, &roots, &own), |bench| {
                let (_, text) = curl(bench, &[version, "https://a.test/"]);
                assert!(text.contains(" 502"), "{text}");
                text
            });
        }
    }
}

#[test]
fn a_host_that_was_not_asked_is_not_there() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let (routes, roots, own) = ([(SECURE, Some(origin))], [authority.root()], new_authority().store());
    let plan = plan(&routes, &roots, &own);
    let (recorded, _) = twice(&plan, |bench| curl(bench, &["https://a.test/x"]));
    let replayed = again(&plan, &recorded.recording(), |bench| {
        let (_, text) = curl(bench, &["https://a.test/y"]);
        assert!(
            text.contains(" 502") && text.contains("no recorded answer to GET https://a.test/y"),
            "{text}"
        );
        let (_, text) = curl(bench, &["https://a.test/x"]);
        // On a connection that was not recorded HTTP/2 is not agreed on: the request is another one.
        assert!(
            text.contains(" 502") && text.contains("no recorded answer to GET https://a.test/x"),
            "{text}"
        );
    });
    let exchanges: Vec<&Value> =
        replayed.entries.iter().filter(|entry| entry["op"] == "http.exchange").collect();
    assert_eq!(exchanges[0]["result"]["closest"]["differs"][0]["field"], "url");
}
