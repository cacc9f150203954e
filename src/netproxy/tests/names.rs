//! The name server: what is answered, what is not, and what goes outside.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::SRV;
use hickory_proto::rr::{Name, RData, RecordType};
use serde_json::json;

use super::world::{Bench, PUBLIC, Plan, names_query, open, query_bytes, read_head, reply_of, text};

#[test]
fn only_names_that_a_rule_matches_are_asked_outside() {
    let names = [("a.test", PUBLIC), ("b.test", PUBLIC), ("x.c.test", PUBLIC)];
    let bench =
        Bench::start(&Plan { policy: "net: a.test\nnet: *.c.test", names: &names, ..Plan::default() });
    assert_eq!(bench.resolve("A.Test"), [PUBLIC.parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(bench.resolve("x.c.test").len(), 1);
    for refused in ["b.test", "c.test", "secret-payload.b.test", "a.test.evil.test"] {
        let (code, addresses) = names_query(bench.dns, refused, "A");
        assert_eq!((code.as_str(), addresses.len()), ("NXDomain", 0), "{refused}");
    }
    assert_eq!(*bench.world.asked.lock().unwrap(), ["a.test", "x.c.test"]);
    assert_eq!(bench.denied(), ["b.test", "c.test", "secret-payload.b.test", "a.test.evil.test"]);
    let lookup = &bench.events("dns.lookup")[0];
    assert_eq!(lookup.args["name"], "a.test");
    assert_eq!(lookup.args["type"], "A");
    assert_eq!(lookup.result, Some(json!({"code": "NOERROR", "answers": [PUBLIC], "ttl": 60})));
    assert_eq!(lookup.proc.as_deref(), Some("0.1"));
    assert_eq!(lookup.rule.as_deref(), Some("t.policy:1"));
}

#[test]
fn a_name_that_leads_into_a_private_range_is_not_answered() {
    let names = [("a.test", "169.254.169.254"), ("b.test", "10.0.0.5"), ("b.test", PUBLIC)];
    let names = [names[0], names[1], names[2], ("c.test", "127.0.0.1")];
    let bench = Bench::start(&Plan {
        policy: "net: a.test\nnet: b.test\nnet: c.test:8080 private",
        names: &names,
        ..Plan::default()
    });
    assert_eq!(names_query(bench.dns, "a.test", "A").0, "NXDomain");
    let denial = &bench.wait_for("net", 1)[0];
    assert_eq!(denial.args["target"], "a.test");
    assert_eq!(denial.args["address"], "169.254.169.254");
    assert!(text(&denial.args["remedy"]).contains("private"), "{denial:?}");
    assert_eq!(bench.resolve("b.test"), [PUBLIC.parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(bench.resolve("c.test").len(), 1);
    // The address that was left out of the answer is told as well.
    assert_eq!(bench.denied(), ["a.test", "b.test"]);
}

#[test]
fn the_rule_that_is_named_is_one_for_the_port_that_was_asked_for() {
    let names = [("a.test", "127.0.0.1")];
    let bench = Bench::start(&Plan { policy: "net: a.test:80", names: &names, ..Plan::default() });
    let mut stream = open(bench.http);
    write!(stream, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 403"));
    let denial = &bench.wait_for("net", 1)[0];
    assert_eq!(denial.args["target"], "a.test:443");
    assert_eq!(denial.args["remedy"], "net: a.test:443 private");
}

#[test]
fn other_types_have_no_data() {
    let bench =
        Bench::start(&Plan { policy: "net: a.test", names: &[("a.test", PUBLIC)], ..Plan::default() });
    for kind in ["TXT", "MX", "SRV", "HTTPS", "SVCB", "PTR", "ANY"] {
        let (code, addresses) = names_query(bench.dns, "a.test", kind);
        assert_eq!((code.as_str(), addresses.len()), ("NoError", 0), "{kind}");
        assert_eq!(names_query(bench.dns, "b.test", kind).0, "NXDomain");
    }
    assert_eq!(names_query(bench.dns, "a.test", "AAAA"), ("NoError".to_owned(), Vec::new()));
    assert_eq!(bench.events("dns.lookup").len(), 8);
    assert_eq!(bench.denied().len(), 7);
    assert_eq!(*bench.world.asked.lock().unwrap(), ["a.test TXT", "a.test MX", "a.test SRV", "a.test"]);
}

#[test]
fn addresses_are_known_by_the_names_of_this_run_alone() {
    let bench =
        Bench::start(&Plan { policy: "net: a.test", names: &[("a.test", PUBLIC)], ..Plan::default() });
    let reverse = |address: &str| {
        let address: std::net::IpAddr = address.parse().unwrap();
        let asked = hickory_proto::rr::Name::from(address).to_ascii();
        names_query(bench.dns, asked.trim_end_matches('.'), "PTR").0
    };
    for own in ["127.0.0.1", "127.0.0.7", "::1"] {
        assert_eq!(reverse(own), "NoError", "{own}");
    }
    assert_eq!(reverse(PUBLIC), "NXDomain");
    assert_eq!(bench.denied().len(), 1);
    bench.resolve("a.test");
    assert_eq!(reverse(PUBLIC), "NoError");
    let lookups = bench.events("dns.lookup");
    let answers = |at: usize| lookups[at].result.as_ref().unwrap()["answers"].clone();
    assert_eq!((answers(0), answers(4)), (json!(["localhost"]), json!(["a.test"])));
    assert_eq!(names_query(bench.dns, "0.127.in-addr.arpa", "PTR").0, "NXDomain");
    assert_eq!(*bench.world.asked.lock().unwrap(), ["a.test"]);
}

#[test]
fn services_of_an_allowed_host_are_asked_for_and_open_nothing() {
    let policy = "net: a.test\nnet: *.w.test\ndeny: net _bad._tcp.a.test";
    let bench = Bench::start(&Plan { policy, names: &[("other.test", PUBLIC)], ..Plan::default() });
    let service = "_pg._tcp.a.test";
    let target = Name::from_ascii("other.test.").unwrap();
    let record = RData::SRV(SRV::new(0, 5, 5432, target));
    bench.world.records.lock().unwrap().insert((service.to_owned(), RecordType::SRV), record);
    let reply = ask(&bench, service, "SRV");
    assert_eq!(reply.answers[0].data.to_string(), "0 5 5432 other.test.");
    assert_eq!((reply.answers[0].name.to_string(), reply.answers[0].ttl), (format!("{service}."), 60));
    assert!(bench.resolve("other.test").is_empty(), "the target needs a rule of its own");
    for (name, code) in [
        ("_x._udp.a.test", "NoError"),
        ("_x.n.w.test", "NoError"),
        ("_bad._tcp.a.test", "NXDomain"),
        ("_x._tcp.b.test", "NXDomain"),
        ("_x._y._z.a.test", "NXDomain"),
        ("secret._tcp.a.test", "NXDomain"),
    ] {
        assert_eq!(names_query(bench.dns, name, "SRV").0, code, "{name}");
    }
    assert_eq!(
        *bench.world.asked.lock().unwrap(),
        ["_pg._tcp.a.test SRV", "_x._udp.a.test SRV", "_x.n.w.test SRV"]
    );
    let lookup = &bench.events("dns.lookup")[0];
    assert_eq!(lookup.args["type"], "SRV");
    let result = lookup.result.as_ref().expect("a result");
    assert_eq!(result["code"], "NOERROR");
    assert_eq!(result["answers"], json!(["0 5 5432 other.test."]));
}

#[test]
fn names_of_the_link_and_of_tor_stay_here() {
    let names = [("printer.local", PUBLIC), ("x.onion", PUBLIC)];
    let bench = Bench::start(&Plan { policy: "net: *", names: &names, ..Plan::default() });
    for name in ["printer.local", "x.onion", "local", "PRINTER.LOCAL."] {
        assert_eq!(
            names_query(bench.dns, name.trim_end_matches('.'), "A"),
            ("NXDomain".to_owned(), Vec::new())
        );
        assert_eq!(names_query(bench.dns, name.trim_end_matches('.'), "SRV").0, "NoError");
    }
    for name in ["app.localhost", "a.b.LOCALHOST"] {
        assert_eq!(names_query(bench.dns, name, "A").1[0].to_string(), "127.0.0.1");
    }
    assert!(bench.world.asked.lock().unwrap().is_empty() && bench.denied().is_empty());
    assert_eq!(bench.events("dns.lookup").len(), 10);
}

#[test]
fn the_letters_of_a_query_come_back_as_they_were() {
    let bench =
        Bench::start(&Plan { policy: "net: a.test", names: &[("a.test", PUBLIC)], ..Plan::default() });
    let reply = ask(&bench, "a.TeSt", "A");
    assert_eq!(reply.queries[0].name().to_ascii(), "a.TeSt.");
    assert_eq!(reply.answers[0].name.to_ascii(), "a.TeSt.");
}

fn ask(bench: &Bench, name: &str, kind: &str) -> Message {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&query_bytes(name, kind), bench.dns).unwrap();
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

#[test]
fn the_machine_itself_is_loopback_and_never_asked_outside() {
    let bench = Bench::start(&Plan::default());
    for name in ["localhost", "sandbox", "LOCALHOST"] {
        assert_eq!(names_query(bench.dns, name, "A").1[0].to_string(), "127.0.0.1");
        assert_eq!(names_query(bench.dns, name, "AAAA").1[0].to_string(), "::1");
    }
    assert!(bench.world.asked.lock().unwrap().is_empty());
}

#[test]
fn addresses_once_given_stay() {
    let bench =
        Bench::start(&Plan { policy: "net: a.test", names: &[("a.test", PUBLIC)], ..Plan::default() });
    bench.resolve("a.test");
    bench.world.names.lock().unwrap().clear();
    bench.world.give("a.test", "93.184.216.35");
    bench.resolve("a.test");
    let pins = bench.proxy.as_ref().unwrap().pins();
    assert_eq!(pins.addresses_of("a.test").len(), 2);
    assert_eq!(pins.names_for(PUBLIC.parse().unwrap()), ["a.test"]);
}

#[test]
fn tcp_answers_several_queries_and_garbage_is_recorded() {
    let bench =
        Bench::start(&Plan { policy: "net: a.test", names: &[("a.test", PUBLIC)], ..Plan::default() });
    let mut stream = open(bench.dns);
    for _ in 0..2 {
        let query = query_bytes("a.test", "A");
        let length = u16::try_from(query.len()).unwrap();
        stream.write_all(&[&length.to_be_bytes(), &query[..]].concat()).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply_of(&reply).1.len(), 1);
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"\x00\x4d\x01\x00\xff\xff\x00\x00\x00\x00\x00\x00", bench.dns).unwrap();
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(reply_of(&buffer[..length]).0, "FormErr");
    socket.send_to(b"no query", bench.dns).unwrap();
    bench.wait_for("net", 2);
    assert_eq!(bench.denied(), ["<none>", "<none>"]);
}

#[test]
fn a_reply_comes_from_the_address_that_was_asked() {
    let bench =
        Bench::start(&Plan { policy: "net: a.test", names: &[("a.test", PUBLIC)], ..Plan::default() });
    // A connected socket takes datagrams from its peer alone.
    let other = SocketAddr::from(([127, 0, 0, 53], bench.dns.port()));
    assert_eq!(names_query(other, "a.test", "A").1.len(), 1);
}

#[test]
fn observing_resolves_everything_and_says_so() {
    let bench = Bench::start(&Plan {
        names: &[("b.test", PUBLIC), ("c.test", "10.0.0.1")],
        observe: true,
        ..Plan::default()
    });
    assert_eq!(bench.resolve("b.test").len(), 1);
    assert_eq!(bench.resolve("c.test").len(), 1);
    let denials = bench.events("net");
    assert!(denials.iter().all(|denial| denial.args["enforced"] == json!(false)));
    assert_eq!(bench.denied(), ["b.test", "c.test"]);
}
