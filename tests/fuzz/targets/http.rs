//! Requests and CONNECT: what a client's first bytes are taken for, and what is read of a head.
//!
//! The HTTP library reads from memory with the settings that the proxy gives it.
#![no_main]

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use agentbox::netproxy::authority::{Authority, Host};
use agentbox::netproxy::framing;
use agentbox::netproxy::sniff::{Glance, Speech, classify};
use http::header::TRANSFER_ENCODING;
use http::{Response, Version, request};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use libfuzzer_sys::fuzz_target;
use tokio::io::AsyncWriteExt as _;

const MAX_HEAD: usize = 64 * 1024;

thread_local! {
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
}

fuzz_target!(|bytes: &[u8]| {
    if bytes.len() > MAX_HEAD {
        return;
    }
    let glance = classify(bytes);
    // More bytes never change what was clear.
    for end in 0..bytes.len().min(80) {
        if let clear @ Glance::Clear(_) = classify(&bytes[..end]) {
            assert_eq!(glance, clear, "at {end}");
        }
    }
    if let Some(head) = first_request(bytes) {
        assert!(
            !matches!(glance, Glance::Clear(Speech::Opaque | Speech::Tls)),
            "a request passes unjudged: {}",
            bytes.escape_ascii()
        );
        judge(&head, bytes);
    }
});

/// What the library makes of the first request.
fn first_request(bytes: &[u8]) -> Option<request::Parts> {
    let seen = Rc::new(RefCell::new(None));
    let taken = Rc::clone(&seen);
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        taken.borrow_mut().get_or_insert_with(|| request.into_parts().0);
        async move {
            let close = Response::builder().header("connection", "close").status(400);
            Ok::<_, Infallible>(close.body(Empty::<Bytes>::new()).expect("a response"))
        }
    });
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(2 * MAX_HEAD);
            client.write_all(bytes).await.expect("room for a head");
            client.shutdown().await.expect("an open pipe");
            // An error is an answer of the library itself.
            let _ = http1::Builder::new()
                .max_buf_size(MAX_HEAD)
                .half_close(true)
                .auto_date_header(false)
                .preserve_header_case(true)
                .serve_connection(TokioIo::new(server), answer)
                .await;
        });
    });
    seen.take()
}

fn judge(head: &request::Parts, bytes: &[u8]) {
    let framed = framing::check_length(head, bytes);
    if framed.is_ok() && head.headers.contains_key(TRANSFER_ENCODING) {
        let text = bytes.to_ascii_lowercase();
        // Empty lines before the request, then the head up to the next one.
        let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let head = lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty());
        let lengths = head.filter(|line| line.starts_with(b"content-length:"));
        assert_eq!(lengths.count(), 0, "a length beside chunks: {}", bytes.escape_ascii());
    }
    let origin = framing::origin_form(&head.method, &head.uri);
    assert!(origin.authority().is_none() && origin.scheme().is_none());
    assert!(
        origin.path().starts_with('/') || origin.path() == "*",
        "{origin:?} {:?} {:?} {:?}",
        head.uri.scheme(),
        head.uri.authority(),
        head.uri.path_and_query()
    );
    match framing::authority(head) {
        Err(_) => {}
        Ok(None) => assert!(head.version == Version::HTTP_10 && head.uri.authority().is_none()),
        Ok(Some(authority)) => {
            let Authority { host, port } = &authority;
            if let Host::Name(name) = host {
                let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
                assert!(name.bytes().all(plain), "{name:?}");
            }
            let spelled = port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
            assert_eq!(Authority::parse(&spelled).as_ref(), Some(&authority), "{spelled:?}");
            if let Some(target) = head.uri.authority() {
                // User information and the like would be read in another way by others.
                assert!(!target.as_str().contains('@'));
                assert_eq!(target.port_u16().filter(|_| port.is_some()), *port);
            }
        }
    }
}
