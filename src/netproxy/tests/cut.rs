//! Requests of which not all is taken, with origins that answer early and clients that send no more: what is recorded of
//! them is found again.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::replays::twice;
use super::world::{Bench, PUBLIC, Plan, read_head, read_response, server};

const WEB: &str = "93.184.216.34:80";

fn plan<'a>(routes: &'a [(&'a str, Option<SocketAddr>)]) -> Plan<'a> {
    Plan { policy: "net: a.test:80", names: &[("a.test", PUBLIC)], routes, ..Plan::default() }
}

fn begin(bench: &Bench) -> TcpStream {
    bench.resolve("a.test");
    let mut stream = bench.connect(WEB);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n").unwrap();
    stream
}

#[test]
fn an_answer_to_a_head_alone_is_found_again() {
    let early = server(|mut stream| {
        if read_head(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno");
            let _ = stream.read(&mut [0]);
        }
    });
    let routes = [(WEB, Some(early))];
    let (recorded, _) = twice(&plan(&routes), |bench| {
        let mut stream = begin(bench);
        let answer = read_response(&mut stream);
        drop(stream);
        bench.wait_for("http.exchange", 1);
        answer
    });
    let body = &recorded.compared("http.exchange")[0]["args"]["body"];
    assert_eq!(*body, serde_json::json!({"size": 0, "whole": false}));
}

#[test]
fn a_failure_before_the_end_of_a_request_is_found_again() {
    let deaf = server(|mut stream| {
        if read_head(&mut stream).is_some() {
            let _ = stream.read_exact(&mut [0; 4]);
        }
    });
    let routes = [(WEB, Some(deaf))];
    twice(&plan(&routes), |bench| {
        let mut stream = begin(bench);
        stream.write_all(b"some").unwrap();
        let (head, _) = read_response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        drop(stream);
        bench.wait_for("http.exchange", 1);
    });
}

#[test]
fn a_length_beside_chunks_counts_as_little_as_before() {
    let both = server(|mut stream| {
        if read_head(&mut stream).is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n";
            let _ = write!(stream, "{head}X-Twice: a\r\nx-twice: b\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        }
    });
    let routes = [(WEB, Some(both))];
    twice(&plan(&routes), |bench| {
        bench.resolve("a.test");
        let mut stream = bench.connect(WEB);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("\r\nX-Twice: a\r\nx-twice: b\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{answer}");
        bench.wait_for("http.exchange", 1);
        answer
    });
}
