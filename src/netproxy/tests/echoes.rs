//! A host that says a secret where answers are not searched for it: in heads, and in the words of errors.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use super::origin::{Shown, TestAuthority};
use super::secure::Reader;
use super::world::server;

const VALUE: &str = "ghp_0123456789Abcdefghijklmnopqrstuvwxyz";
const POLICY: &str = "net: a.test\nsecret: TOKEN -> a.test\n";

/// A frame of HTTP/2 (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A reader of an origin that says `answer` once it has been asked.
fn reader(protocols: &'static [&'static [u8]], begin: Vec<u8>, answer: Vec<u8>) -> Reader {
    let authority = TestAuthority::new();
    let config = authority.config(&Shown { protocols, ..Shown::name("a.test") });
    let asked = if protocols == [b"h2"] { vec![1, 4 | 1, 0, 0, 0, 1] } else { b"\r\n\r\n".to_vec() };
    let origin = server(move |stream| {
        let Ok(connection) = rustls::ServerConnection::new(Arc::clone(&config)) else { return };
        let mut stream = rustls::StreamOwned::new(connection, stream);
        let _ = stream.write_all(&begin);
        let (mut got, mut part) = (Vec::new(), [0; 4096]);
        // The head of a request: an empty line, or a frame of that kind.
        while memchr::memmem::find(&got, &asked).is_none() {
            match stream.read(&mut part) {
                Ok(length @ 1..) => got.extend_from_slice(&part[..length]),
                _ => return,
            }
        }
        let _ = stream.write_all(&answer);
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    Reader::with(POLICY, Some(origin), &[authority.root()], &[("TOKEN", VALUE)])
}

/// Asks, and looks for the value in what comes back and in the record, in any case of its letters.
fn assert_unsaid(reader: &Reader, version: &str) {
    let field = format!("Authorization: Bearer {}", reader.bench.placeholders[0].1);
    let (_, shown) = reader.curl(&[version, "-i", "-H", &field, "https://a.test/"]);
    reader.bench.wait_for("http.exchange", 1);
    let record = format!("{:?}", reader.bench.recorder.events());
    for text in [shown, record] {
        assert!(!text.to_ascii_lowercase().contains(&VALUE.to_ascii_lowercase()), "{text}");
    }
}

#[test]
fn heads_are_kept_without_it() {
    for head in [
        format!("200 {VALUE}\r\nContent-Length: 0\r\n\r\n"),
        format!("200 OK\r\nX-{VALUE}: x\r\nContent-Length: 0\r\n\r\n"),
        format!("200 OK\r\nContent-Encoding: {VALUE}\r\nContent-Length: 1\r\n\r\nx"),
    ] {
        let answer = format!("HTTP/1.1 {head}").into_bytes();
        assert_unsaid(&reader(&[b"http/1.1"], Vec::new(), answer), "--http1.1");
    }
}

#[test]
fn words_of_an_error_are_not_passed_on() {
    // ENHANCE_YOUR_CALM, for all streams.
    let away = frame(7, 0, 0, &[&[0, 0, 0, 0, 0, 0, 0, 11], VALUE.as_bytes()].concat());
    let begun = frame(1, 4, 1, &[0x88]);
    for answer in [away.clone(), [begun, away].concat()] {
        assert_unsaid(&reader(&[b"h2"], frame(4, 0, 0, &[]), answer), "--http2");
    }
}
