//! Requests that name a whole URL on the proxy's port: who gets a connection that an earlier client has left.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::kept::{WEB, bench, counting, kept, once, status};
use super::replays::twice;
use super::world::{Bench, PUBLIC, Plan, open, read_head, read_request, server};

/// What whole-URL requests send on the proxy's port: heads, all by one client, whose stream the proxy has seen the end of.
fn by_url(bench: &Bench, heads: &[&str]) {
    let streams = bench.events("net.stream").len();
    let mut stream = open(bench.http);
    for head in heads {
        stream.write_all(head.as_bytes()).unwrap();
        assert!(read_head(&mut stream).unwrap().contains("200 OK"), "{head}");
        stream.read_exact(&mut [0; 2]).unwrap();
    }
    drop(stream);
    bench.wait_for("net.stream", streams + 1);
    std::thread::sleep(Duration::from_millis(50));
}

const BY_URL: &str = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";

#[test]
fn a_connection_for_whole_urls_outlives_its_client() {
    let (origin, count) = counting("");
    let bench = bench("net: a.test\nnet: b.test\n", origin);
    for _ in 0..3 {
        by_url(&bench, &[BY_URL, BY_URL]);
        kept(&bench, WEB);
    }
    // Either way in has what the other has left.
    once(&bench, "a.test");
    by_url(&bench, &[BY_URL]);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    by_url(&bench, &["GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n"]);
    assert_eq!(count.load(Ordering::Relaxed), 2);
    // Each client has asked for one, and what passed is its own.
    let streams = bench.events("net.stream");
    assert_eq!((streams.len(), bench.events("net.connect").len()), (6, 6));
    for (stream, requests) in streams.iter().zip([2, 2, 2, 1, 1, 1]) {
        let result = stream.result.as_ref().unwrap();
        assert_eq!(result["requests"], requests, "{result}");
        assert_eq!(result["protocol"], "http");
        assert_eq!(
            (&result["up"], &result["down"]),
            (&json!(32 * requests), &json!(40 * requests)),
            "{result}"
        );
    }
    assert_eq!(bench.events("http.exchange").len(), 9);
}

#[test]
fn what_must_not_be_shared_is_not_where_urls_are_whole() {
    let other = BY_URL.replace("a.test", "b.test");
    let body = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nXX";
    let ntlm = BY_URL.replace("\r\n\r\n", "\r\nAuthorization: NTLM x\r\n\r\n");
    let negotiate = ntlm.replace("NTLM", "negotiate");
    for heads in [&[BY_URL, &other][..], &[body], &[&ntlm], &[BY_URL, &negotiate]] {
        let (origin, count) = counting("");
        let bench = bench("net: a.test\nnet: b.test\n", origin);
        by_url(&bench, heads);
        by_url(&bench, &[BY_URL]);
        assert_eq!(count.load(Ordering::Relaxed), 2, "{heads:?}");
    }
    let (origin, count) = counting("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    let bench = bench("net: a.test", origin);
    for _ in 0..2 {
        by_url(&bench, &[BY_URL]);
    }
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

/// It has no way to tell where such a body ends.
#[test]
fn a_body_in_chunks_reaches_an_origin_that_has_spoken_http_1_0() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (bodies, count) = (Arc::clone(&heard), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let origin = server(move |mut stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        while let Some(head) = read_head(&mut stream) {
            if head.to_lowercase().contains("transfer-encoding: chunked") {
                let mut body = [0; 15];
                stream.read_exact(&mut body).unwrap();
                bodies.lock().unwrap().push(String::from_utf8(body.to_vec()).unwrap());
            }
            let answer = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let bench = bench("net: a.test", origin);
    let chunked = "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    by_url(&bench, &[BY_URL, BY_URL, chunked]);
    assert_eq!(count.load(Ordering::Relaxed), 2);
    by_url(&bench, &[chunked]);
    assert_eq!(*heard.lock().unwrap(), ["5\r\nhello\r\n0\r\n\r\n"; 2]);
}

#[test]
fn a_switched_protocol_is_one_clients_and_counted_to_its_end() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let origin = server(move |mut stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        read_request(&mut stream);
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut said = [0; 1000];
        while stream.read_exact(&mut said).is_ok() && stream.write_all(&said).is_ok() {}
    });
    let bench = bench("net: a.test", origin);
    for ended in 1..=2 {
        let mut stream = open(bench.http);
        let asks = "\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(BY_URL.replace("\r\n\r\n", asks).as_bytes()).unwrap();
        assert!(read_head(&mut stream).unwrap().contains(" 101 "));
        for _ in 0..3 {
            stream.write_all(&[7; 1000]).unwrap();
            stream.read_exact(&mut [0; 1000]).unwrap();
        }
        drop(stream);
        let streams = bench.wait_for("net.stream", ended);
        let result = streams[ended - 1].result.as_ref().unwrap();
        assert!(result["up"].as_u64() > Some(3000) && result["down"].as_u64() > Some(3000), "{result}");
        std::thread::sleep(Duration::from_millis(30));
    }
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn a_client_of_several_hosts_leaves_each_its_connection() {
    let ((origin, count), (other, others)) = (counting(""), counting(""));
    let elsewhere = "93.184.216.35";
    let names = [("a.test", PUBLIC), ("b.test", elsewhere)];
    let routes = [(WEB, Some(origin)), ("93.184.216.35:80", Some(other))];
    let plan =
        Plan { policy: "net: a.test\nnet: b.test\n", names: &names, routes: &routes, ..Plan::default() };
    let (recorded, _) = twice(&plan, |bench| {
        let mut stream = open(bench.http);
        for host in ["a.test", "b.test", "a.test", "b.test"] {
            let line = format!("GET http://{host}/");
            assert_eq!(status(&mut stream, &line, host), "200");
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    assert_eq!((count.load(Ordering::Relaxed), others.load(Ordering::Relaxed)), (1, 1));
    let connects = recorded.entries.iter().filter(|entry| entry["op"] == "net.connect").count();
    assert_eq!(connects, 4);
}
