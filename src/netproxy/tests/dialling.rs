//! A host by its name: both families are asked for and tried, and a silent address costs a moment.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::Family;
use super::socks;
use super::world::{
    Bench, PUBLIC, Plan, mirror, names_query, open, query_bytes, read_head, read_response, reply_of, until,
};

const V6: &str = "2606:2800:220:1::1";
const POLICY: &str = "net: a.test:80\nnet: slow.test";

fn bench(silent: &[&str]) -> Bench {
    let server = Some(mirror());
    let routes = [("93.184.216.34:80", server), ("[2606:2800:220:1::1]:80", server)];
    let names = [("a.test", PUBLIC), ("a.test", V6)];
    let bench = Bench::start(&Plan { policy: POLICY, names: &names, routes: &routes, ..Plan::default() });
    let silent = silent.iter().map(|address| address.parse::<SocketAddr>().unwrap());
    bench.world.silent.lock().unwrap().extend(silent);
    bench
}

/// Fetches by each way that names the host; the longest that one took.
fn fetch(bench: &Bench) -> Duration {
    let mut longest = Duration::ZERO;
    for way in ["socks", "connect", "absolute"] {
        let begun = Instant::now();
        let mut stream = open(bench.http);
        match way {
            "socks" => assert_eq!(socks::ask(&mut stream, "a.test", 80), 0),
            "connect" => {
                write!(stream, "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n").unwrap();
                assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
            }
            _ => {}
        }
        let target = if way == "absolute" { "http://a.test/x" } else { "/x" };
        write!(stream, "GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        assert!(read_response(&mut stream).1.starts_with("GET /x"), "{way}");
        longest = longest.max(begun.elapsed());
    }
    longest
}

#[test]
fn a_silent_address_is_passed_over() {
    let bench = bench(&["[2606:2800:220:1::1]:80"]);
    assert!(fetch(&bench) < Duration::from_secs(5));
    // Every attempt is recorded.
    let addresses: Vec<_> =
        bench.events("net.connect").iter().map(|event| event.args["address"].clone()).collect();
    assert_eq!(addresses, [V6, PUBLIC, V6, PUBLIC, V6, PUBLIC]);
    let ends = bench.wait_for("net.stream", 3);
    let lost = ends.iter().filter(|event| event.args["address"] == V6);
    for event in lost {
        assert_eq!(event.result.as_ref().unwrap()["end"], "another address answered first", "{event:?}");
    }
}

#[test]
fn ipv6_is_first_where_it_answers() {
    let bench = bench(&[]);
    assert!(fetch(&bench) < Duration::from_secs(5));
    assert!(bench.events("net.connect").iter().all(|event| event.args["address"] == V6));
}

#[test]
fn a_refused_address_gives_way_at_once() {
    let bench = bench(&[]);
    bench.world.routes.lock().unwrap().remove(&"[2606:2800:220:1::1]:80".parse().unwrap());
    fetch(&bench);
    assert_eq!(bench.events("net.connect").len(), 6);
}

#[test]
fn a_family_without_an_answer_is_not_waited_for() {
    for family in [Family::V4, Family::V6] {
        let bench = bench(&[]);
        bench.world.mute.lock().unwrap().push(("a.test".to_owned(), family));
        assert!(fetch(&bench) < Duration::from_secs(5));
        let lookups = bench.events("dns.lookup");
        assert_eq!(lookups.len(), 6);
        let failed = lookups.iter().filter(|event| event.result.as_ref().unwrap()["code"] == "SERVFAIL");
        assert!(failed.clone().count() == 3, "{lookups:#?}");
        for event in failed {
            assert_eq!(event.args["type"], family.record_type());
        }
    }
}

#[test]
fn queries_of_one_connection_do_not_wait_for_each_other() {
    let bench = bench(&[]);
    bench.world.mute.lock().unwrap().push(("slow.test".to_owned(), Family::V4));
    let mut stream = open(bench.dns);
    for name in ["slow.test", "a.test", "a.test"] {
        let query = query_bytes(name, "A");
        let length = u16::try_from(query.len()).unwrap();
        stream.write_all(&[&length.to_be_bytes(), &query[..]].concat()).unwrap();
    }
    for _ in 0..2 {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply_of(&reply).1.len(), 1);
    }
    // A client that says that it asks nothing more still gets what it asked for.
    let mut stream = open(bench.dns);
    let query = query_bytes("a.test", "AAAA");
    let length = u16::try_from(query.len()).unwrap();
    stream.write_all(&[&length.to_be_bytes(), &query[..]].concat()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert_eq!(reply_of(&reply[2..]).1, [V6.parse::<std::net::IpAddr>().unwrap()]);
}

/// An origin that keeps what it is told.
fn keeping(listener: TcpListener) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&kept);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                told.lock().unwrap().extend_from_slice(&bytes[..read]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        }
    });
    kept
}

#[test]
fn unread_bytes_reach_no_further_address_where_they_must_be_read() {
    for deny in ["", "deny: net POST cidr/93.184.216.35/32:81/**\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let routes = [("93.184.216.34:81", None), ("93.184.216.35:81", listener.local_addr().ok())];
        let names = [("a.test", PUBLIC), ("a.test", "93.184.216.35")];
        let policy = format!("net: a.test:81 @1000/min\n{deny}");
        let bench =
            Bench::start(&Plan { policy: &policy, names: &names, routes: &routes, ..Plan::default() });
        let kept = keeping(listener);
        let mut stream = open(bench.http);
        write!(stream, "CONNECT a.test:81 HTTP/1.1\r\nHost: a.test:81\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
        stream.write_all(b"\x00\x01POST unread").unwrap();
        let mut answer = [0; 4];
        let passed = stream.read_exact(&mut answer).is_ok();
        assert_eq!((passed, kept.lock().unwrap().is_empty()), (deny.is_empty(), !deny.is_empty()), "{deny}");
    }
}

#[test]
fn what_reaches_the_other_loopback_address_is_judged_there() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
    let port = listener.local_addr().unwrap().port();
    let inside = SocketAddr::from(([127, 0, 0, 1], port));
    let policy = format!("net: localhost:{port}\ndeny: net POST cidr/::1/128:{port}/**\n");
    let bench = Bench::start(&Plan { policy: &policy, loopback: &[inside], ..Plan::default() });
    let kept = keeping(listener);
    let ask = |method: &str, way: &str| {
        let mut stream = open(if way == "direct" { bench.loopback[&inside] } else { bench.http });
        if way == "connect" {
            write!(stream, "CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
            assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
        }
        let authority = if way == "absolute" { format!("http://localhost:{port}") } else { String::new() };
        write!(stream, "{method} {authority}/x HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").unwrap();
        read_response(&mut stream).0
    };
    for way in ["direct", "connect", "absolute"] {
        assert!(ask("GET", way).starts_with("HTTP/1.1 200"), "{way}");
        assert!(!ask("POST", way).starts_with("HTTP/1.1 200"), "{way}");
        assert!(!String::from_utf8_lossy(&kept.lock().unwrap()).contains("POST"), "{way}");
    }
    let reached = || {
        let exchanges = bench.events("http.exchange").into_iter().filter(|one| one.args["method"] == "GET");
        exchanges.map(|one| one.result.unwrap()["address"].clone()).collect::<Vec<_>>()
    };
    until("all are recorded", || reached().len() == 3);
    assert_eq!(reached(), vec![format!("[::1]:{port}"); 3]);
    let mut stream = open(bench.loopback[&inside]);
    stream.write_all(b"\x00\x01POST unread").unwrap();
    assert!(stream.read_exact(&mut [0; 4]).is_err());
    assert!(!String::from_utf8_lossy(&kept.lock().unwrap()).contains("POST"));
}

#[test]
fn what_is_judged_is_what_is_dialled() {
    // Mapped, compatible, NAT64 and 6to4; nothing answers at those addresses themselves.
    let wrapped = ["[::ffff:93.184.216.34]:80", "[::93.184.216.34]:80", "[64:ff9b::5db8:d822]:80"];
    let wrapped = [wrapped.as_slice(), &["[2002:5db8:d822::1]:80"]].concat();
    let mut routes = vec![("93.184.216.34:80", Some(mirror()))];
    routes.extend(wrapped.iter().map(|address| (*address, None)));
    let names = [("a.test", "64:ff9b::5db8:d822")];
    let plan = Plan {
        policy: "net: 93.184.216.34:80\nnet: a.test:80",
        names: &names,
        routes: &routes,
        ..Plan::default()
    };
    let bench = Bench::start(&plan);
    names_query(bench.dns, "a.test", "AAAA");
    for address in &wrapped {
        let mut stream = bench.connect(address);
        write!(stream, "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        assert!(read_response(&mut stream).1.starts_with("GET /x"), "{address}");
    }
    let addresses: Vec<_> =
        bench.events("net.connect").iter().map(|event| event.args["address"].clone()).collect();
    assert_eq!(addresses, [PUBLIC; 4]);
}
