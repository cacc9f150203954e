//! What was recorded is answered again, and what was not is told.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{RData, RecordType};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};

use super::replays::{again, rest, twice};
use super::world::{Bench, PUBLIC, Plan, names_query, open, read_head, read_request, read_response, server};

const WEB: &str = "93.184.216.34:80";
const OPAQUE: &str = "93.184.216.34:7";
const POLICY: &str = "net: 93.184.216.34\nnet: a.test";

fn web(server: SocketAddr) -> [(&'static str, Option<SocketAddr>); 1] {
    [(WEB, Some(server))]
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n")
}

fn ask(bench: &Bench, request: &str) -> (TcpStream, String, String) {
    let mut stream = bench.connect(WEB);
    stream.write_all(request.as_bytes()).unwrap();
    let (head, body) = read_response(&mut stream);
    (stream, head, body)
}

/// A server that counts its answers, so that no two are the same.
fn counting() -> SocketAddr {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    server(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let text = format!("{count} to {}", String::from_utf8_lossy(&body));
            let head = format!(
                "HTTP/1.1 200 OK\r\nSet-Cookie: session=hunter{count}; Path=/\r\nDate: yesterday\r\n\
                 Content-Length: {}\r\n\r\n{text}",
                text.len()
            );
            let _ = stream.write_all(head.as_bytes());
        }
    })
}

fn only<'a>(entries: &'a [Value], op: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["op"] == op).collect()
}

#[test]
fn requests_get_the_answers_that_were_recorded() {
    let plan =
        Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(counting()), ..Plan::default() };
    let (recorded, replayed) = twice(&plan, |bench| {
        assert_eq!(bench.resolve("a.test"), [PUBLIC.parse::<std::net::IpAddr>().unwrap()]);
        let (mut stream, head, body) = ask(bench, &get("/x", "Cookie: id=secret\r\n"));
        assert!(head.contains("hunter"), "the client gets the cookie itself: {head}");
        stream.write_all(get("/x", "Cookie: id=secret\r\n").as_bytes()).unwrap();
        let second = read_response(&mut stream);
        let post =
            "POST /y HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let (_, _, third) = ask(bench, post);
        (head, body, second, third)
    });
    assert!(!format!("{:?}", recorded.entries).contains("hunter"), "it stands in a private blob alone");
    let exchanges = only(&recorded.entries, "http.exchange");
    assert_eq!(exchanges[0]["result"]["wire"]["private"], true);
    for (one, other) in exchanges.iter().zip(only(&replayed.entries, "http.exchange")) {
        assert_eq!(other["result"]["replayed"], json!({"entry": one["i"], "tier": 0, "exact": true}));
    }
}

#[test]
fn requests_are_matched_by_tiers() {
    let plan =
        Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(counting()), ..Plan::default() };
    let act = |bench: &Bench, id: &str, cookie: &str| {
        bench.resolve("a.test");
        let body = if id == "1" { r#"{"a":1,"b":2}"# } else { r#"{"b": 2, "a": 1}"# };
        let request = format!(
            "POST /x HTTP/1.1\r\nHost: a.test\r\nX-Request-Id: {id}\r\nCookie: c={cookie}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        ask(bench, &request).2
    };
    let (recorded, _) = twice(&plan, |bench| act(bench, "1", "same"));
    let tier = |entries: &[Value]| only(entries, "http.exchange")[0]["result"]["replayed"]["tier"].clone();
    let replayed = again(&plan, &recorded.recording(), |bench| _ = act(bench, "2", "other"));
    assert_eq!(tier(&replayed.entries), 1);
    let mut elsewhere = recorded.entries.clone();
    for entry in &mut elsewhere {
        entry["proc"] = "0.7".into();
    }
    let replayed = again(&plan, &recorded.recording_of(elsewhere), |bench| _ = act(bench, "1", "same"));
    assert_eq!(tier(&replayed.entries), 2);
}

#[test]
fn durations_do_not_keep_a_request_from_its_answer() {
    let plan =
        Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(counting()), ..Plan::default() };
    let act = |bench: &Bench, times: [&str; 2]| {
        bench.resolve("a.test");
        times.map(|time| {
            let body = format!(r#"{{"out":"ok\nduration_ms {time}"}}"#);
            let length = body.len();
            let head = format!("POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n");
            ask(bench, &(head + &body)).2
        })
    };
    let (recorded, _) = twice(&plan, |bench| act(bench, ["1.5", "2.5"]));
    let exchanges = only(&recorded.entries, "http.exchange");
    let served = |times| {
        let replayed = again(&plan, &recorded.recording(), |bench| _ = act(bench, times));
        let all = only(&replayed.entries, "http.exchange");
        all.iter().map(|one| one["result"]["replayed"].clone()).collect::<Vec<_>>()
    };
    // What is the same comes first; of the others the next.
    let [one, two] = served(["2.5", "7.25"]).try_into().expect("both are answered");
    assert_eq!(one, json!({"entry": exchanges[1]["i"], "tier": 0, "exact": true}));
    assert_eq!((&two["entry"], &two["tier"]), (&exchanges[0]["i"], &1.into()));
    let differs = json!([{"field": "body /out", "recorded": "\"ok\\nduration_ms 1.5\"", "live": "\"ok\\nduration_ms 7.25\""}]);
    assert_eq!(two["durations"], differs);
    let entries: Vec<_> = served(["3.5", "4.5"]).iter().map(|one| one["entry"].clone()).collect();
    assert_eq!(entries, [exchanges[0]["i"].clone(), exchanges[1]["i"].clone()]);
}

#[test]
fn a_request_that_was_not_recorded_gets_a_distinct_answer() {
    let plan =
        Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(counting()), ..Plan::default() };
    let (recorded, _) = twice(&plan, |bench| {
        bench.resolve("a.test");
        ask(bench, &get("/x?n=1", "Accept: a\r\n")).2
    });
    let replayed = again(&plan, &recorded.recording(), |bench| {
        bench.resolve("a.test");
        let (_, head, body) = ask(bench, &get("/x?n=2", "Accept: b\r\n"));
        assert!(head.starts_with("HTTP/1.1 502"), "{head}");
        assert!(body.contains("replay: no recorded answer to GET http://a.test/x?n=2"), "{body}");
    });
    let result = &only(&replayed.entries, "http.exchange")[0]["result"];
    assert_eq!(result["failure"], json!({"kind": "not recorded", "side": "proxy", "received": 0}));
    let differs = json!([
        {"field": "url", "recorded": "http://a.test/x?n=1", "live": "http://a.test/x?n=2"},
        {"field": "header accept", "recorded": "a", "live": "b"},
    ]);
    assert_eq!(result["closest"]["differs"], differs);
}

#[test]
fn what_was_not_recorded_is_nowhere() {
    let canary = counting();
    let plan = Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(canary), ..Plan::default() };
    let (recorded, _) = twice(&plan, |bench| bench.resolve("a.test"));
    let replayed = again(&plan, &recorded.recording(), |bench| {
        bench.resolve("a.test");
        let (code, _) = names_query(bench.dns, "a.test", "TXT");
        assert_eq!(code, "NXDomain");
        let (_, head, body) = ask(bench, &get("/", ""));
        assert!(head.starts_with("HTTP/1.1 502") && body.contains("nothing like it"), "{head}{body}");
    });
    let lookup = only(&replayed.entries, "dns.lookup")[1];
    assert_eq!(lookup["result"]["failure"], "not recorded");
    let stream = only(&replayed.entries, "net.stream")[0];
    assert_eq!(stream["result"]["failure"]["kind"], "not recorded");
}

#[test]
fn names_are_answered_again_and_withheld_again() {
    let names = [("a.test", PUBLIC), ("a.test", "10.0.0.7"), ("b.test", "10.0.0.8")];
    let plan = Plan { policy: "net: *.test", names: &names, ..Plan::default() };
    let (recorded, replayed) = twice(&plan, |bench| {
        let text = RData::TXT(TXT::new(vec!["v=1 x".to_owned()]));
        bench.world.records.lock().unwrap().insert(("a.test".to_owned(), RecordType::TXT), text);
        let asked =
            [("a.test", "A"), ("a.test", "AAAA"), ("a.test", "TXT"), ("b.test", "A"), ("c.test", "A")];
        asked.map(|(name, kind)| names_query(bench.dns, name, kind))
    });
    let denied = |entries: &[Value]| only(entries, "net").len();
    assert_eq!((denied(&recorded.entries), denied(&replayed.entries)), (2, 2));
    assert_eq!(only(&replayed.entries, "dns.lookup")[2]["result"]["answers"], json!(["v=1 x"]));
}

#[test]
fn failures_are_met_again() {
    for (answer, broken) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", true),
        ("", false),
        ("", true),
        ("HTTP/9 what\r\n\r\n", false),
        ("HTTP/1.1 429 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", false),
    ] {
        let origin = server(move |mut stream| {
            if read_request(&mut stream).is_some() {
                let _ = stream.write_all(answer.as_bytes());
                std::thread::sleep(Duration::from_millis(50));
                if broken {
                    reset(&stream);
                }
            }
        });
        let plan =
            Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(origin), ..Plan::default() };
        twice(&plan, |bench| {
            bench.resolve("a.test");
            let mut stream = bench.connect(WEB);
            stream.write_all(get("/", "Connection: close\r\n").as_bytes()).unwrap();
            rest(&mut stream)
        });
    }
    let plan = Plan { policy: POLICY, routes: &[(WEB, None), (OPAQUE, None)], ..Plan::default() };
    twice(&plan, |bench| {
        let mut stream = bench.connect(WEB);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: 93.184.216.34\r\nConnection: close\r\n\r\n").unwrap();
        let mut opaque = bench.connect(OPAQUE);
        opaque.write_all(b"\x01").unwrap();
        (rest(&mut stream), rest(&mut opaque))
    });
}

fn reset(stream: &TcpStream) {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(stream, sockopt::Linger, &linger).unwrap();
}

#[test]
fn a_streamed_answer_comes_in_the_same_pieces_at_once() {
    let events = server(|mut stream| {
        if read_request(&mut stream).is_none() {
            return;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(90));
            let _ = stream.write_all(b"9\r\ndata: x\n\n\r\n");
        }
        let _ = stream.write_all(b"0\r\nX-Sum: 27\r\n\r\n");
        let _ = stream.read(&mut [0]);
    });
    let plan = Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(events), ..Plan::default() };
    let took = Mutex::new(Vec::new());
    let (_, replayed) = twice(&plan, |bench| {
        bench.resolve("a.test");
        let begun = std::time::Instant::now();
        let mut stream = bench.connect(WEB);
        stream.write_all(get("/", "Connection: close\r\n").as_bytes()).unwrap();
        let all = rest(&mut stream);
        took.lock().unwrap().push(begun.elapsed());
        all
    });
    // The recorded pauses are 0.45 s.
    let took = took.into_inner().unwrap();
    assert!(took[1] < took[0], "{took:?}");
    let result = &only(&replayed.entries, "http.exchange")[0]["result"];
    assert_eq!(result["trailers"], json!([["x-sum", "27"]]));
}

#[test]
fn an_answer_in_the_middle_of_a_request_comes_there_again() {
    let talk = server(|mut stream| {
        if read_head(&mut stream).is_none() {
            return;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut said = [0; 6];
        for _ in 0..2 {
            let _ = stream.read_exact(&mut said);
            let _ = stream.write_all(b"1\r\n.\r\n");
        }
        let _ = stream.read_exact(&mut [0; 5]);
        let _ = stream.write_all(b"0\r\n\r\n");
    });
    let plan = Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(talk), ..Plan::default() };
    twice(&plan, |bench| {
        bench.resolve("a.test");
        let mut stream = bench.connect(WEB);
        let post =
            "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        stream.write_all(post.as_bytes()).unwrap();
        let head = read_head(&mut stream).unwrap();
        for _ in 0..2 {
            stream.write_all(b"1\r\nx\r\n").unwrap();
            stream.read_exact(&mut [0; 6]).unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
        (head, rest(&mut stream))
    });
}

#[test]
fn what_follows_an_upgrade_is_played() {
    let socket = server(|mut stream| {
        if read_head(&mut stream).is_none() {
            return;
        }
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi";
        let _ = stream.write_all(head.as_bytes());
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest.reverse();
        let _ = stream.write_all(&rest);
    });
    let plan = Plan { policy: POLICY, names: &[("a.test", PUBLIC)], routes: &web(socket), ..Plan::default() };
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let act = |bench: &Bench, word: &str| {
        bench.resolve("a.test");
        let mut stream = bench.connect(WEB);
        stream.write_all(get("/", upgrade).as_bytes()).unwrap();
        let head = read_head(&mut stream).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        stream.write_all(word.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        (head, rest(&mut stream))
    };
    let (recorded, _) = twice(&plan, |bench| act(bench, "abc"));
    let replayed = again(&plan, &recorded.recording(), |bench| {
        assert_ne!(act(bench, "abX").1, Ok("cba".to_owned()));
    });
    let result = &only(&replayed.entries, "http.exchange")[0]["result"];
    assert_eq!(result["upgraded"]["failure"]["kind"], "diverged", "{result}");
}

#[test]
fn opaque_streams_are_played_by_what_the_client_says() {
    let redis = server(|mut stream| {
        let _ = stream.write_all(b"hello\r\n");
        let mut bytes = [0; 6];
        while stream.read_exact(&mut bytes).is_ok() {
            if stream.write_all(b"+PONG\r\n").is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"bye");
    });
    let plan = Plan { policy: POLICY, routes: &[(OPAQUE, Some(redis))], ..Plan::default() };
    let act = |bench: &Bench, words: [&[u8]; 2]| {
        let mut stream = bench.connect(OPAQUE);
        stream.read_exact(&mut [0; 7]).unwrap();
        for word in words {
            stream.write_all(word).unwrap();
            if let Err(error) = stream.read_exact(&mut [0; 7]) {
                return Err((error.kind(), String::new()));
            }
        }
        stream.shutdown(Shutdown::Write).unwrap();
        rest(&mut stream)
    };
    let (recorded, _) = twice(&plan, |bench| act(bench, [b"\x01ING\r\n", b"\x02ING\r\n"]));
    let replayed = again(&plan, &recorded.recording(), |bench| {
        assert!(act(bench, [b"\x01ING\r\n", b"\x02InG\r\n"]).is_err());
    });
    let result = &only(&replayed.entries, "net.stream")[0]["result"];
    assert_eq!(result["failure"]["kind"], "diverged", "{result}");
    assert!(result["end"].as_str().unwrap().contains("diverged at byte 8"), "{result}");
}

#[test]
fn a_host_without_an_address_is_an_exchange_that_failed() {
    let plan = Plan { policy: "net: a.test", ..Plan::default() };
    let (recorded, replayed) = twice(&plan, |bench| {
        let mut stream = open(bench.http);
        stream
            .write_all(b"GET http://a.test:8080/x?token=hunter2 HTTP/1.1\r\nHost: a.test:8080\r\n\r\n")
            .unwrap();
        read_response(&mut stream)
    });
    let exchanges = recorded.compared("http.exchange");
    assert_eq!(exchanges.len(), 1);
    let url = exchanges[0]["args"]["url"].as_str().unwrap();
    assert!(url.starts_with("http://a.test:8080/x?token=redacted:"), "{url}");
    assert_eq!(exchanges[0]["result"]["failure"]["kind"], "unresolved");
    assert_eq!(exchanges[0]["rule"], "t.policy:1");
    let again = replayed.entries.iter().find(|entry| entry["op"] == "http.exchange").unwrap();
    assert_eq!(again["result"]["replayed"]["exact"], true, "{again}");
}
