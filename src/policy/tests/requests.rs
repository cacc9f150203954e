//! Decisions about requests: methods, paths, changes of protocol.

use std::net::IpAddr;

use proptest::prelude::*;

use super::super::{Asked, Denied, Policy, Transport, UrlPathFault, Verdict, normal_path};
use super::policy;

const SOMEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(1, 1, 1, 1));

fn verdict(policy: &Policy, host: &str, request: &str) -> Verdict {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let (method, upgrade) = method.strip_suffix('!').map_or((method, false), |method| (method, true));
    let (host, port) = host.split_once(':').unwrap_or((host, "443"));
    let asked = Asked { method, path, upgrade };
    policy.decide_request(&[host.to_owned()], SOMEWHERE, port.parse().expect("a port"), &asked)
}

#[track_caller]
fn table(text: &str, allowed: &[&str], denied: &[&str]) {
    let policy = policy(text);
    for (requests, expected) in [(allowed, true), (denied, false)] {
        for request in requests {
            let (host, request) = request.split_once("  ").unwrap_or(("x.org", request));
            assert_eq!(verdict(&policy, host, request).is_allow(), expected, "{text}: {host} {request}");
        }
    }
}

#[test]
fn methods_and_paths() {
    table(
        "net: GET|HEAD x.org/repos/**, POST x.org:8443/v1/messages\n",
        &["GET /repos", "GET /repos/", "HEAD /repos/a/b", "GET /%72epos/a", "x.org:8443  POST /v1/messages"],
        &[
            "GET /",
            "GET /reposx",
            "GET /Repos/a",
            "POST /repos/a",
            "get /repos/a",
            "GET* /repos/a",
            "OPTIONS *",
            "POST /v1/messages",
            "x.org:8443  POST /v1/messages/",
            "x.org:8443  POST /v1/messages/batches",
            "y.org  GET /repos/a",
            "GET! /repos/a",
            "UPGRADE /repos/a",
            "UPGRADE! /repos/a",
        ],
    );
    table("net: x.org/repos/**\n", &["BREW /repos/a", "DELETE /repos/a"], &["BREW /x", "GET! /repos/a"]);
    table("net: GET *.x.org\n", &["a.x.org  GET /any", "a.b.x.org  GET //"], &["GET /", "a.x.org  PUT /"]);
    table("net: GET x.org/**\n", &["GET /a//%2f/..", "GET *"], &["PUT /a"]);
    table("net: PROPFIND|M-SEARCH x.org\n", &["PROPFIND /", "M-SEARCH *"], &["GET /"]);
    table("net: GET x.org/\n", &["GET /"], &["GET /a"]);
    table("net: x.org/, GET x.org/**\n", &["GET /", "PUT /"], &["CONNECT /", "connect /"]);
}

#[test]
fn stars() {
    table(
        "net: GET x.org/a/*/c/v*.tar, GET x.org/**/info/refs\n",
        &[
            "GET /a/b/c/v1.tar",
            "GET /a//c/v.tar".replace("//", "/b/").as_str(),
            "GET /info/refs",
            "GET /o/r/info/refs",
        ],
        &["GET /a/b/d/c/v1.tar", "GET /a/b/c/v1.tar/", "GET /o/r/info/refs/x", "GET /o/r/info/refsx"],
    );
    table("net: GET x.org/a%2Ab\n", &["GET /a*b", "GET /a%2ab"], &["GET /axb", "GET /a**b"]);
    table(
        "net: GET x.org/**/a/**/b\n",
        &["GET /a/b", "GET /x/a/y/z/b", "GET /a/a/b/b"],
        &["GET /b/a", "GET /a"],
    );
}

#[test]
fn paths_that_are_read_in_two_ways_are_none() {
    let odd = [
        "/repos/%2f",
        "/repos/..",
        "/repos/../admin",
        "/repos/%2e%2E/admin",
        "/repos/.%2e/admin",
        "/repos/./a",
        "/repos/..;/admin",
        "/repos/..;x=1/admin",
        "/repos/..%3b/admin",
        "/repos//admin",
        "//repos/a",
        "/repos/a\\..\\b",
        "/repos/%5c..%5c",
        "/;/repos/a",
        "/repos/;x/a",
        "/repos/%3bx/a",
        "/repos/%253Bx/a",
        "/repos/%00",
        "/repos/%0a",
        "/repos/%7F",
        "/repos/\x7f",
        "/repos/é",
        "/repos/%c0%ae%c0%ae/admin",
        "/repos/%252e%252e/admin",
        "/repos/%252fadmin",
        "/repos/%25252525252e",
        "/repos/%u002e",
        "/repos/%",
        "/repos/%4",
        "repos/a",
        "",
    ];
    let (strict, open) = (policy("net: GET x.org/repos/**\n"), policy("net: GET x.org\n"));
    let wide = policy("net: x.org\ndeny: net x.org/admin/**\n");
    for path in odd {
        let request = format!("GET {path}");
        assert!(!verdict(&strict, "x.org", &request).is_allow(), "{path}");
        assert!(!verdict(&wide, "x.org", &request).is_allow(), "{path}");
        assert!(verdict(&open, "x.org", &request).is_allow(), "no rule looks at the path: {path}");
        assert!(normal_path(path).is_err(), "{path}");
    }
    assert_eq!(normal_path("/%7e/%e2%82%ac/a%2ab/%41"), Ok("/~/%E2%82%AC/a%2Ab/A".to_owned()));
    assert_eq!(normal_path("/100%25"), Ok("/100%25".to_owned()));
    assert_eq!(normal_path("*"), Ok("*".to_owned()));
    assert_eq!(normal_path("/a;x=1/b"), Ok("/a;x=1/b".to_owned()));
    assert_eq!(normal_path("/;x=1"), Ok("/;x=1".to_owned()));
    assert_eq!(normal_path("/..."), Ok("/...".to_owned()));
    assert_eq!(normal_path("/%25252525252525252525"), Err(UrlPathFault::Depth));
}

#[test]
fn a_denial_holds_for_every_reading() {
    table(
        "net: x.org\ndeny: net x.org/admin/**, DELETE x.org, GET x.org/@me/keys, UPGRADE x.org/ws\n",
        &["GET /", "GET /public", "POST /ws", "GET! /other", "GET /admins"],
        &[
            "GET /admin",
            "POST /admin/",
            "GET /admin;x/users",
            "GET /admin/;x",
            "GET /admin/%3bx",
            "GET /;/admin",
            "GET /public/;x/../admin",
            "GET /%61dmin/x",
            "GET /ADMIN/x",
            "GET /%41dmin",
            "GET /%2561dmin/x",
            "GET /%252541dmin/x",
            "GET /%25%2536%2531dmin/x",
            "DELETE /public",
            "delete /public",
            "GET /%40me/keys",
            "GET /@me/keys/",
            "GET /@me%2Fkeys",
            "get /@me/keys",
            "GET! /ws",
            "GET! /ws/",
        ],
    );
    table(
        "net: GET|DELETE x.org/a/**\ndeny: net DELETE x.org/a/keep/**\n",
        &["DELETE /a/b", "GET /a/keep/x"],
        &["DELETE /a/keep/x", "DELETE /b"],
    );
}

#[test]
fn grants_add_up() {
    table("net: x.org\nnet: GET x.org/a\n", &["PUT /b", "GET! /b", "PUT /b//%2f"], &[]);
    table("net: GET x.org/a/**, POST *.org/a/b\n", &["GET /a/b", "POST /a/b"], &["POST /a/c"]);
    let policy = policy("net: *.org\nnet: GET x.org/a/**, GET x.org/a/b\n");
    let ruled = |request: &str| verdict(&policy, "x.org", request).rule().map(|rule| rule.0);
    assert_eq!((ruled("GET /a/b"), ruled("GET /a/c"), ruled("PUT /a/b")), (Some(2), Some(1), Some(0)));
}

#[test]
fn a_change_of_protocol_is_a_method() {
    table("net: UPGRADE x.org/ws\n", &["GET! /ws"], &["GET /ws", "POST! /ws", "GET! /other", "UPGRADE /ws"]);
    table(
        "net: UPGRADE|POST x.org/ws\n",
        &["GET! /ws", "POST! /ws", "POST /ws"],
        &["GET /ws", "DELETE! /ws"],
    );
    table("net: GET x.org/**, UPGRADE x.org/ws\n", &["GET! /ws", "GET /a"], &["GET! /a", "PUT! /ws"]);
    table("net: x.org\n", &["GET! /ws", "DELETE! /ws"], &[]);
}

#[test]
fn addresses_ports_and_suffixes_go_with_it() {
    let policy = policy(
        "net: GET 10.0.0.1:80/a/*, HEAD cidr/192.168.0.0/16:443/b, GET [2606:4700::1]/c, GET localhost:80/d, PUT db.org/e private\n",
    );
    let asked = |names: &[&str], address: &str, port: u16, method: &str, path: &str| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let address = address.parse().expect("an address");
        policy.decide_request(&names, address, port, &Asked { method, path, upgrade: false }).is_allow()
    };
    assert!(asked(&[], "10.0.0.1", 80, "GET", "/a/x") && !asked(&[], "10.0.0.1", 80, "GET", "/b"));
    assert!(!asked(&[], "10.0.0.1", 81, "GET", "/a/x"));
    assert!(asked(&[], "192.168.3.4", 443, "HEAD", "/b") && !asked(&[], "192.168.3.4", 443, "GET", "/b"));
    assert!(asked(&[], "2606:4700::1", 9, "GET", "/c") && asked(&[], "::1", 80, "GET", "/d"));
    assert!(
        asked(&["db.org"], "10.9.9.9", 1, "PUT", "/e") && !asked(&["db.org"], "10.9.9.9", 1, "PUT", "/f")
    );
}

#[test]
fn a_connection_is_possible_where_some_request_is() {
    let policy = policy(
        "net: GET a.org/x, b.org, c.org:443\nnet: GET c.org:443/x\ndeny: net PUT b.org, d.org/x, POST e.org\nnet: d.org tunnel\n"
            .replace(", d.org/x", "")
            .as_str(),
    );
    let connect =
        |name: &str| policy.decide_connect(&[name.to_owned()], SOMEWHERE, 443, Transport::Tcp).is_allow();
    let reads = |name: &str| policy.must_read(&[name.to_owned()], SOMEWHERE, 443);
    for (name, connects, must) in
        [("a.org", true, true), ("b.org", true, true), ("c.org", true, false), ("d.org", true, false)]
    {
        assert_eq!((connect(name), reads(name)), (connects, must), "{name}");
        assert!(policy.decide_name(name).is_allow(), "{name}");
    }
    assert!(!connect("e.org") && !policy.decide_name("e.org").is_allow());
    let conditions = policy.conditions(&["b.org".to_owned()], SOMEWHERE, 443);
    assert!(conditions.methods && !conditions.paths && conditions.denies);
}

#[test]
fn suggestions_name_method_and_path() {
    let policy = policy("");
    let suggest = |names: &[&str], address: &str, method: &str, path: &str| {
        policy.suggestion(&Denied::Request {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            address: address.parse().expect("an address"),
            port: 443,
            method: method.to_owned(),
            path: path.to_owned(),
        })
    };
    assert_eq!(suggest(&["X.org"], "1.1.1.1", "GET", "/a/b"), "net: GET x.org:443/a/b");
    assert_eq!(suggest(&["x.org"], "10.0.0.1", "PUT", "/a"), "net: PUT x.org:443/a private");
    assert_eq!(suggest(&[], "1.1.1.1", "GET", "/"), "net: GET 1.1.1.1:443/");
    assert_eq!(suggest(&["x.org"], "1.1.1.1", "OPTIONS", "*"), "net: OPTIONS x.org:443");
    assert_eq!(suggest(&["x.org"], "1.1.1.1", "GET", "/a,b"), "net: \"GET x.org:443/a,b\"");
    assert_eq!(suggest(&["x.org"], "1.1.1.1", "GET", "/a*"), "net: GET x.org:443/a%2A");
    assert_eq!(suggest(&["x.org"], "1.1.1.1", "UPGRADE", "/ws"), "net: UPGRADE x.org:443/ws");
    for (method, path) in [("get", "/a"), ("CONNECT", "/a"), ("GET", "/a\"b"), ("GET", "/a|b"), ("X Y", "/a")]
    {
        assert!(suggest(&["x.org"], "1.1.1.1", method, path).starts_with('#'), "{method} {path}");
    }
}

fn path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "/", "//", ".", "..", "%2e", "%2E", "%2f", "%2F", "%5c", "\\", "%00", "%25", "2e", "2f", ";",
            "%3b", "*", "**", "%2a", "a", "admin", "%61", "%", "é", "%c3%a9", "%c0%af", "?", "@", "%40", "~",
            "|",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,3}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// What a lenient server may make of a path: decoded until nothing changes, backslashes turned, parameters cut,
/// dots resolved, slashes merged.
fn lenient(path: &str) -> String {
    let mut text = path.as_bytes().to_vec();
    loop {
        let mut next = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let hex = text.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
            let value = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| text[at] == b'%');
            next.push(value.unwrap_or(text[at]));
            at += if value.is_some() { 3 } else { 1 };
        }
        if next == text {
            break;
        }
        text = next;
    }
    let text = String::from_utf8_lossy(&text).replace('\\', "/");
    let mut places: Vec<&str> = Vec::new();
    for segment in text.split('/') {
        match segment.split(';').next().unwrap_or("") {
            "" | "." => {}
            ".." => drop(places.pop()),
            name => places.push(name),
        }
    }
    format!("/{}", places.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_normal_form_is_one(path in path()) {
        if let Ok(normal) = normal_path(&path) {
            prop_assert_eq!(normal_path(&normal), Ok(normal.clone()));
            prop_assert_eq!(lenient(&normal), lenient(&path));
            prop_assert!(normal.bytes().all(|byte| byte.is_ascii_graphic()), "{}", normal);
        }
    }

    #[test]
    fn nothing_gets_past_a_grant_or_a_denial(path in path()) {
        let grant = policy("net: GET x.org/a/**\n");
        if verdict(&grant, "x.org", &format!("GET {path}")).is_allow() {
            let place = lenient(&path);
            prop_assert!(place == "/a" || place.starts_with("/a/"), "{} is {}", path, place);
        }
        let deny = policy("net: x.org\ndeny: net x.org/admin/**\n");
        if verdict(&deny, "x.org", &format!("GET {path}")).is_allow() {
            let place = lenient(&path);
            prop_assert!(place != "/admin" && !place.starts_with("/admin/"), "{} is {}", path, place);
        }
    }

    #[test]
    fn a_suggestion_allows_what_was_denied(path in path(), method in "[A-Z]{1,8}") {
        let Ok(path) = normal_path(&path) else { return Ok(()) };
        let denied = Denied::Request {
            names: vec!["x.org".to_owned()], address: SOMEWHERE, port: 443, method: method.clone(), path: path.clone(),
        };
        let line = policy("").suggestion(&denied);
        if !line.starts_with('#') {
            let read = policy(&line);
            let allows = |request: &str| verdict(&read, "x.org", request).is_allow();
            let request = if method == "UPGRADE" { "GET!".to_owned() } else { method };
            prop_assert!(allows(&format!("{request} {path}")), "{}", line);
            prop_assert!(!allows(&format!("{request} {path}x")) || path == "*", "{}", line);
        }
    }
}
