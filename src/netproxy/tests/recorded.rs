//! What is kept of streams and exchanges, so that they can be given again.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};

use super::world::{Bench, Plan, read_head, read_request, server, text};
use crate::trace::Recorder;

const OPAQUE: &str = "93.184.216.34:7";
const WEB: &str = "93.184.216.34:80";

fn bench(destination: &'static str, server: Option<SocketAddr>) -> Bench {
    let policy = "net: 93.184.216.34";
    Bench::start(&Plan { policy, routes: &[(destination, server)], ..Plan::default() })
}

/// The records of a transcript: direction, and what it said or how it ended. Neighbours of one
/// direction are joined, for how bytes arrive is not certain.
fn spoken(recorder: &Recorder, transcript: &Value) -> Vec<(String, String)> {
    assert_eq!(transcript["private"], true);
    let bytes = recorder.blob_content(transcript["blob"].as_str().unwrap()).unwrap();
    assert_eq!(transcript["size"], bytes.len());
    let mut rest = &bytes[..];
    let (mut spoken, mut last): (Vec<(String, String)>, u64) = (Vec::new(), 0);
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n').unwrap();
        let record: (String, Value, u64) = serde_json::from_slice(&rest[..end]).unwrap();
        rest = &rest[end + 1..];
        assert!(record.2 >= last, "time goes on");
        last = record.2;
        if let Some(length) = record.1.as_u64() {
            let length = usize::try_from(length).unwrap();
            let said = String::from_utf8_lossy(&rest[..length]).into_owned();
            assert_eq!(rest[length], b'\n');
            rest = &rest[length + 1..];
            match spoken.last_mut() {
                Some((way, before)) if *way == record.0 => before.push_str(&said),
                _ => spoken.push((record.0, said)),
            }
        } else {
            spoken.push((record.0, format!("({})", text(&record.1))));
        }
    }
    spoken
}

fn expected(spoken: &[(&str, &str)]) -> Vec<(String, String)> {
    spoken.iter().map(|(way, what)| ((*way).to_owned(), (*what).to_owned())).collect()
}

fn reset(stream: &TcpStream) {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(stream, sockopt::Linger, &linger).unwrap();
}

#[test]
fn both_sides_of_an_opaque_stream_are_kept_in_order() {
    let redis = server(|mut stream| {
        let mut bytes = [0; 6];
        while stream.read_exact(&mut bytes).is_ok() {
            if stream.write_all(b"+PONG\r\n").is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"bye");
    });
    let bench = bench(OPAQUE, Some(redis));
    let mut stream = bench.connect(OPAQUE);
    for _ in 0..2 {
        stream.write_all(b"\x01ING\r\n").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "bye");
    let event = &bench.wait_for("net.stream", 1)[0];
    let result = event.result.as_ref().unwrap();
    let said = spoken(&bench.recorder, &result["transcript"]);
    let turns = [("up", "\x01ING\r\n"), ("down", "+PONG\r\n")];
    let ends = [("up", "(end)"), ("down", "bye"), ("down", "(end)")];
    assert_eq!(said, expected(&[&turns[..], &turns[..], &ends[..]].concat()));
    assert_eq!((&result["up"], &result["down"]), (&12.into(), &17.into()));
    assert!(result.get("failure").is_none());
}

#[test]
fn a_stream_that_breaks_off_says_where() {
    let breaking = server(|mut stream| {
        let _ = stream.read(&mut [0]);
        let _ = stream.write_all(b"half");
        // The client has it before the reset comes, which discards what was not read.
        let _ = stream.read(&mut [0]);
        reset(&stream);
    });
    let bench = bench(OPAQUE, Some(breaking));
    let mut stream = bench.connect(OPAQUE);
    stream.write_all(b"\x01").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    stream.write_all(b"\x02").unwrap();
    assert!(stream.read(&mut [0]).is_err(), "a reset is passed on as one");
    let event = &bench.wait_for("net.stream", 1)[0];
    let result = event.result.as_ref().unwrap();
    assert_eq!(result["failure"], json!({"kind": "reset", "side": "origin", "received": 4}));
    let said = spoken(&bench.recorder, &result["transcript"]);
    assert_eq!(said, expected(&[("up", "\x01"), ("down", "half"), ("up", "\x02"), ("down", "(reset)")]));
}

#[test]
fn a_client_that_breaks_off_breaks_the_other_leg() {
    let (report, seen) = std::sync::mpsc::channel();
    let origin = server(move |mut stream| {
        for _ in 0..2 {
            let _ = report.send(stream.read(&mut [0]).map_err(|error| error.kind()));
        }
    });
    let bench = bench(OPAQUE, Some(origin));
    let mut stream = bench.connect(OPAQUE);
    stream.write_all(b"\x01").unwrap();
    assert_eq!(seen.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(1));
    reset(&stream);
    drop(stream);
    let seen = seen.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(seen, Err(std::io::ErrorKind::ConnectionReset), "no end that looks like one in order");
    let event = &bench.wait_for("net.stream", 1)[0];
    let result = event.result.as_ref().unwrap();
    assert_eq!((&result["failure"]["kind"], &result["failure"]["side"]), (&json!("reset"), &json!("agent")));
}

#[test]
fn what_refuses_is_recorded_as_that() {
    let bench = bench(OPAQUE, None);
    assert!(bench.connect(OPAQUE).read(&mut [0]).is_err());
    let event = &bench.wait_for("net.stream", 1)[0];
    let result = event.result.as_ref().unwrap();
    assert_eq!(result["failure"], json!({"kind": "refused", "side": "origin", "received": 0}));
}

fn ask(bench: &Bench, request: &str) -> (TcpStream, String) {
    let mut stream = bench.connect(WEB);
    stream.write_all(request.as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap();
    (stream, head)
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: 93.184.216.34\r\n\r\n";

#[test]
fn a_streamed_body_keeps_its_segments() {
    // Each piece waits for the one before to have arrived, however busy the machine is.
    let (arrived, arrivals) = std::sync::mpsc::channel();
    let arrivals = std::sync::Arc::new(std::sync::Mutex::new(arrivals));
    let events = server(move |mut stream| {
        if read_request(&mut stream).is_none() {
            return;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        // The end comes with the last piece: later it would be a segment of its own.
        for end in ["", "", "0\r\nX-Sum: 27\r\n\r\n"] {
            let _ = arrivals.lock().unwrap().recv_timeout(Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(150));
            let _ = stream.write_all(format!("9\r\ndata: x\n\n\r\n{end}").as_bytes());
        }
        let _ = stream.read(&mut [0]);
    });
    let bench = bench(WEB, Some(events));
    let (mut stream, _) = ask(&bench, GET);
    arrived.send(()).unwrap();
    let mut body = Vec::new();
    while !body.ends_with(b"0\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        body.push(byte[0]);
        if body.ends_with(b"\n\n\r\n") {
            arrived.send(()).unwrap();
        }
    }
    let event = &bench.wait_for("http.exchange", 1)[0];
    let result = event.result.as_ref().unwrap();
    let (head, segments) = result["segments"].as_array().unwrap().split_first().unwrap();
    assert_eq!((&head[0], &head[1]), (&json!("down"), &json!(0)), "{result}");
    assert_eq!(segments.len(), 3, "{result}");
    let at = |n: usize| segments[n][2].as_u64().unwrap();
    assert!(segments.iter().all(|segment| (&segment[0], &segment[1]) == (&json!("down"), &json!(9))));
    assert!(at(0) >= 25_000 && at(1) >= at(0) + 25_000 && at(2) >= at(1) + 25_000, "{result}");
    assert_eq!(result["trailers"], json!([["x-sum", "27"]]));
}

#[test]
fn what_follows_an_upgrade_belongs_to_its_exchange() {
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
    let bench = bench(WEB, Some(socket));
    let request =
        "GET /ws HTTP/1.1\r\nHost: 93.184.216.34\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (mut stream, head) = ask(&bench, request);
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream.read_exact(&mut [0; 2]).unwrap();
    stream.write_all(b"abc").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "cba");
    let event = &bench.wait_for("http.exchange", 1)[0];
    let result = event.result.as_ref().unwrap();
    assert_eq!(result["status"], 101);
    let upgraded = &result["upgraded"];
    assert_eq!((&upgraded["up"], &upgraded["down"]), (&3.into(), &5.into()));
    assert_eq!(upgraded["end"], "closed");
    let said = spoken(&bench.recorder, &upgraded["transcript"]);
    let all = [("down", "hi"), ("up", "abc"), ("up", "(end)"), ("down", "cba"), ("down", "(end)")];
    assert_eq!(said, expected(&all));
}

#[test]
fn a_failed_exchange_says_how_and_where() {
    let answer = |head: &'static str, broken: bool| {
        let origin = server(move |mut stream| {
            if read_request(&mut stream).is_none() {
                return;
            }
            let _ = stream.write_all(head.as_bytes());
            std::thread::sleep(Duration::from_millis(50));
            if broken {
                reset(&stream);
            }
        });
        let bench = bench(WEB, Some(origin));
        let mut stream = bench.connect(WEB);
        stream.write_all(GET.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        let event = bench.wait_for("http.exchange", 1).remove(0);
        let result = event.result.unwrap();
        (
            text(&result["failure"]["kind"]),
            text(&result["failure"]["side"]),
            result["failure"]["received"].as_u64(),
        )
    };
    let origin = |kind: &str, received| (kind.to_owned(), "origin".to_owned(), Some(received));
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    assert_eq!(answer(cut, false), origin("truncated", 4));
    assert_eq!(answer(cut, true), origin("reset", 4));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    assert_eq!(answer(chunked, false), origin("truncated", 4));
    assert_eq!(answer("", false), origin("truncated", 0));
    assert_eq!(answer("", true), origin("reset", 0));
    assert_eq!(answer("HTTP/9 what\r\n\r\n", false), origin("malformed", 0));
}
