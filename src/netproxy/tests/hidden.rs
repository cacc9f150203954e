//! Placeholders in what is packed, masked or cut.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::world::{Bench, PUBLIC, Plan, read_head, read_request, server, until};

const WEB: &str = "93.184.216.34:80";
const SECRETS: [(&str, &str); 1] = [("TOKEN", "ghp_0123456789abcdefghijklmnopqrstuvwxyz")];

fn bench(origin: SocketAddr) -> (Bench, String) {
    let bench = Bench::start(&Plan {
        policy: "net: *.test\nsecret: TOKEN -> b.test\n",
        names: &[("a.test", PUBLIC)],
        routes: &[(WEB, Some(origin))],
        secrets: &SECRETS,
        ..Plan::default()
    });
    bench.resolve("a.test");
    let placeholder = bench.placeholders[0].1.clone();
    (bench, placeholder)
}

fn packed(coding: &str, text: &[u8]) -> Vec<u8> {
    fn end<W: std::io::Write>(mut encoder: W, text: &[u8]) -> W {
        encoder.write_all(text).unwrap();
        encoder
    }
    match coding {
        "gzip" => end(GzEncoder::new(Vec::new(), Compression::default()), text).finish().unwrap(),
        "zlib" => end(ZlibEncoder::new(Vec::new(), Compression::default()), text).finish().unwrap(),
        "deflate" => end(DeflateEncoder::new(Vec::new(), Compression::default()), text).finish().unwrap(),
        "br" => {
            let mut out = Vec::new();
            brotli::BrotliCompress(&mut &text[..], &mut out, &Default::default()).unwrap();
            out
        }
        _ => zstd::encode_all(text, 3).unwrap(),
    }
}

/// The first line of the answer to a body that is sent in chunks of so many bytes.
fn post(bench: &Bench, coding: &str, body: &[u8], cut: usize) -> String {
    let mut stream = bench.connect(WEB);
    let coding = if coding == "zlib" { "deflate" } else { coding };
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Encoding: {coding}\r\n\r\n"
    )
    .unwrap();
    for piece in body.chunks(cut) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n");
    read_head(&mut stream).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn accepting() -> SocketAddr {
    server(|mut stream| {
        while read_request(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    })
}

#[test]
fn a_placeholder_is_found_in_a_packed_body() {
    let (bench, placeholder) = bench(accepting());
    let text = format!("{{\"a\": \"{}\", \"key\": \"{placeholder}\"}}", "b".repeat(5000));
    for (count, coding) in ["gzip", "zlib", "deflate", "br", "zstd", "identity"].into_iter().enumerate() {
        let body =
            if coding == "identity" { text.clone().into_bytes() } else { packed(coding, text.as_bytes()) };
        let cut = if coding == "identity" { 50 } else { 7 };
        assert!(post(&bench, coding, &body, cut).contains(" 403 "), "{coding}");
        assert_eq!(bench.denied(), vec!["a.test:80"; count + 1]);
        assert!(post(&bench, coding, &packed(coding, b"nothing"), 7).contains(" 200 "), "{coding}");
    }
    let reason = bench.events("net")[0].args["reason"].to_string();
    assert!(reason.contains("its body, unpacked, holds the placeholder of the secret TOKEN"), "{reason}");
}

#[test]
fn a_body_that_grows_without_end_is_not_searched_for_ever() {
    let (bench, _) = bench(accepting());
    let bomb = packed("gzip", &vec![0; 512 << 20]);
    let start = std::time::Instant::now();
    assert!(post(&bench, "gzip", &bomb, 64 << 10).contains(" 403 "));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    let reason = bench.events("net")[0].args["reason"].to_string();
    assert!(reason.contains("grows too much to be searched"), "{reason}");
}

#[test]
fn a_placeholder_is_found_in_masked_frames() {
    let origin = server(|mut stream| {
        let (head, _) = read_request(&mut stream).unwrap();
        assert!(!head.to_ascii_lowercase().contains("sec-websocket-extensions"), "{head}");
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|read| read > 0) {
            let _ = stream.write_all(&byte);
        }
    });
    let (bench, placeholder) = bench(origin);
    let mut stream = bench.connect(WEB);
    let asked = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    stream.write_all(asked.as_bytes()).unwrap();
    assert!(read_head(&mut stream).unwrap().contains(" 101 "));
    let frame = |opcode: u8, payload: &[u8]| {
        let head = [opcode, 0x80 | u8::try_from(payload.len()).unwrap(), 1, 2, 3, 4];
        let masked = payload.iter().enumerate().map(|(at, byte)| byte ^ [1, 2, 3, 4][at % 4]);
        head.into_iter().chain(masked).collect::<Vec<u8>>()
    };
    let hello = frame(0x81, b"hello");
    stream.write_all(&hello).unwrap();
    let mut back = vec![0; hello.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, hello);
    let (one, two) = placeholder.as_bytes().split_at(20);
    stream.write_all(&frame(0x01, one)).unwrap();
    stream.read_exact(&mut [0; 26]).unwrap();
    let _ = stream.write_all(&frame(0x80, two));
    assert!(!stream.read(&mut back).is_ok_and(|read| read > 0));
    assert_eq!(bench.denied(), ["a.test:80"]);
    let exchange = &bench.wait_for("http.exchange", 1)[0];
    assert!(exchange.result.as_ref().unwrap()["upgraded"]["end"].as_str().unwrap().contains("TOKEN"));
}

#[test]
fn packed_bodies_are_searched_by_so_many_at_once() {
    let (bench, _) = bench(accepting());
    let begin = || {
        let mut stream = bench.connect(WEB);
        let head = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Encoding: br\r\nContent-Length: 9\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut held: Vec<_> = (0..40).map(|_| begin()).collect();
    let denial = &bench.wait_for("net", 1)[0];
    assert!(denial.args["reason"].as_str().unwrap().contains("packed bodies"), "{denial:?}");
    held.clear();
    until("there is room again", || post(&bench, "br", &packed("br", b"x"), 9).contains(" 200 "));
}
