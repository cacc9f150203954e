//! Secrets: what an origin gets, what comes back, and what is refused on the way.

use std::io::Write as _;
use std::net::TcpStream;

use super::origin::{Shown, TestAuthority};
use super::secure::Reader;
use super::world::{Bench, PUBLIC, Plan, names_query, open, read_response, server};

const VALUE: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
const POLICY: &str = "net: *.test\nsecret: TOKEN -> a.test\nsecret: OTHER -> b.test header X-Own\n";
const SECRETS: [(&str, &str); 2] = [("TOKEN", VALUE), ("OTHER", "other-value-of-b")];

/// A reader whose command has two secrets, and the placeholder of the first.
fn reader() -> (Reader, String) {
    let authority = TestAuthority::new();
    let mut shown = Shown::name("a.test");
    shown.names.extend(Shown::name("b.test").names);
    let (origin, _) = authority.origin(&shown);
    let reader = Reader::with(POLICY, Some(origin), &[authority.root()], &SECRETS);
    let placeholder = reader.bench.placeholders[0].1.clone();
    assert!(placeholder.starts_with("ghp_") && placeholder.len() == VALUE.len());
    (reader, placeholder)
}

fn turned(text: &str) -> String {
    text.chars().rev().collect()
}

/// What the run keeps, entries and bodies, holds no value.
fn assert_clean(bench: &Bench) {
    for event in bench.recorder.events() {
        let shown = format!("{event:?}");
        assert!(!shown.contains(VALUE) && !shown.contains(SECRETS[1].1), "{shown}");
        let result = event.result.unwrap_or_default();
        for body in [event.args.get("body"), result.get("body")].into_iter().flatten() {
            // Where it stands in the entry, it was looked at above.
            let Some(blob) = body["blob"].as_str() else { continue };
            let blob = bench.recorder.blob_content(blob).unwrap();
            assert!(memchr::memmem::find(&blob, VALUE.as_bytes()).is_none());
        }
    }
}

#[test]
fn the_pinned_host_alone_gets_the_value_and_its_echo_is_masked() {
    for version in ["--http1.1", "--http2"] {
        let (reader, placeholder) = reader();
        let field = format!("Authorization: Bearer {placeholder}");
        let (ok, body) = reader.curl(&[version, "-i", "-H", &field, "https://a.test/p"]);
        assert!(ok && body.contains(&format!("x-turned: {} reraeB", turned(VALUE))), "{body}");
        assert!(body.contains(&format!("x-echo: Bearer {placeholder}")), "{body}");
        assert!(
            body.contains(&format!("authorization: Bearer {placeholder}")) && !body.contains(VALUE),
            "{body}"
        );
        let (_, body) = reader.curl(&[version, "-H", &field, "https://b.test/p", "-w", "%{http_code}"]);
        assert!(body.ends_with("403") && body.contains("goes to a.test:443 alone"), "{body}");
        assert_eq!(reader.bench.denied(), ["b.test:443"]);
        let exchange = reader.bench.wait_for("http.exchange", 1).remove(0);
        assert_eq!(exchange.result.unwrap()["secrets"], serde_json::json!(["TOKEN"]));
        assert_clean(&reader.bench);
    }
}

#[test]
fn basic_credentials_are_opened_and_closed_again() {
    use base64::Engine as _;
    let (reader, placeholder) = reader();
    let (ok, body) = reader.curl(&["-i", "-u", &format!("user:{placeholder}"), "https://a.test/"]);
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("user:{VALUE}"));
    assert!(ok && body.contains(&format!("x-turned: {} cisaB", turned(&encoded))), "{body}");
    let core = &encoded[8..encoded.len() - 4];
    assert!(!body.contains(core), "{body}");
    assert_clean(&reader.bench);
}

#[test]
fn a_rule_may_name_the_field() {
    let (reader, token) = reader();
    let own = reader.bench.placeholders[1].1.clone();
    let (ok, body) = reader.curl(&["-H", &format!("X-Own: {own}"), "https://b.test/"]);
    // The value is short: its echo is as long as it was, and begins as the placeholder does.
    assert!(ok && body.contains(&format!("x-own: {}\n", &own[..16])), "{body}");
    for field in [format!("Authorization: {own}"), format!("X-Api-Key: {token}"), format!("X-Own: {token}")] {
        let (_, body) = reader.curl(&["-H", &field, "https://b.test/", "-w", "%{http_code}"]);
        assert!(body.ends_with("403"), "{field} {body}");
    }
    assert_clean(&reader.bench);
}

#[test]
fn a_placeholder_anywhere_else_is_refused() {
    let (reader, placeholder) = reader();
    let percent: String = placeholder.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let (cookie, body, long) = (
        format!("Cookie: key={placeholder}"),
        format!("key={placeholder}"),
        format!("{}{placeholder}", "x".repeat(300_000)),
    );
    let cases: [&[&str]; 7] = [
        &["-H", &cookie, "https://a.test/"],
        &[&format!("https://a.test/?key={placeholder}")],
        &[&format!("https://a.test/{percent}")],
        &["-d", &body, "https://b.test/"],
        &["-d", "@-", "https://b.test/"],
        &["--http1.1", "-d", "@-", "https://b.test/"],
        &["-H", &format!("Authorization: Bearer {placeholder}"), "-X", "TRACE", "https://a.test/"],
    ];
    for (number, case) in cases.iter().enumerate() {
        let words = [&["-w", "%{http_code}"], *case].concat();
        let (_, answer) =
            if case.contains(&"@-") { reader.curl_saying(&words, &long) } else { reader.curl(&words) };
        assert!(answer.ends_with("403") && answer.contains("of the secret TOKEN"), "{case:?} {answer}");
        assert_eq!(reader.bench.denied().len(), number + 1, "{case:?}");
    }
    // In the body of a request to its own host it stays what it is.
    let (ok, answer) = reader.curl(&["-d", &body, "https://a.test/"]);
    assert!(ok && answer.ends_with(&body), "{answer}");
    assert_clean(&reader.bench);
}

#[test]
fn no_other_way_out_takes_it() {
    let echo = server(|mut stream: TcpStream| {
        let _ = stream.write_all(b"220 hello\r\n");
        let mut copy = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut copy);
    });
    let mirror = super::world::mirror();
    let (smtp, web) = ("93.184.216.34:25", "93.184.216.34:80");
    let plan = Plan {
        policy: "net: *.test\nsecret: TOKEN -> a.test\n",
        names: &[("a.test", PUBLIC)],
        routes: &[(smtp, Some(echo)), (web, Some(mirror))],
        tls: Some(&[]),
        secrets: &[("TOKEN", VALUE)],
        ..Plan::default()
    };
    let bench = Bench::start(&plan);
    bench.resolve("a.test");
    let placeholder = bench.placeholders[0].1.clone();
    let mut stream = bench.connect(smtp);
    let _ = stream.write_all(format!("AUTH {placeholder}\r\n").as_bytes());
    let mut all = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut all);
    assert!(!String::from_utf8_lossy(&all).contains("AUTH"));
    let mut stream = open(bench.transparent[&web.parse().unwrap()]);
    let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer {placeholder}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (head, body) = read_response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 403") && body.contains("TOKEN"), "{head}{body}");
    let (code, _) = names_query(bench.dns, &format!("{}.test", placeholder.replace('_', "")), "A");
    assert_eq!(code, "NXDomain");
    assert_eq!(bench.denied().len(), 3, "{:?}", bench.denied());
    assert_clean(&bench);
}

impl Reader {
    /// curl with a file in place of `@-`.
    fn curl_saying(&self, words: &[&str], input: &str) -> (bool, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), input).unwrap();
        let data = format!("@{}", file.path().display());
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "@-" { data.as_str() } else { *word }).collect();
        self.curl(&words)
    }
}

#[test]
fn messages_are_not_asked_for_in_a_packing_that_nobody_searches() {
    let (reader, placeholder) = reader();
    let field = format!("Authorization: Bearer {placeholder}");
    let mut words = vec!["-H", field.as_str()];
    for accepts in [
        "content-type: application/grpc+proto",
        "grpc-accept-encoding: gzip",
        "connect-accept-encoding: gzip",
        "a-im: gzip",
    ] {
        words.extend(["-H", accepts]);
    }
    words.push("https://a.test/");
    let (ok, body) = reader.curl(&words);
    assert!(ok && body.contains("grpc-accept-encoding: identity\n") && !body.contains("gzip"), "{body}");
}

#[test]
fn nothing_is_packed_by_a_change_of_protocol() {
    let authority = TestAuthority::new();
    let (origin, _) = authority.origin(&Shown::name("a.test"));
    let upgrade = "net: UPGRADE a.test/**\n";
    for (rules, secrets, passes) in [("net: GET a.test/**\n", &[][..], true), (POLICY, &SECRETS, false)] {
        let policy = format!("{upgrade}{rules}");
        let reader = Reader::with(&policy, Some(origin), &[authority.root()], secrets);
        let fields = ["-H", "Connection: Upgrade", "-H", "Upgrade: h2c"];
        let (ok, body) = reader.curl(&[&["--http1.1"][..], &fields, &["https://a.test/"]].concat());
        assert!(ok && body.contains("upgrade: h2c") == passes, "{body}");
    }
}
