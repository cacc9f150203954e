//! The first bytes of a stream: what a TLS library takes for a ClientHello is never passed on as something else.
#![no_main]

use agentbox::netproxy::authority::normalize;
use agentbox::netproxy::sniff::{Glance, Speech, classify};
use libfuzzer_sys::fuzz_target;
use rustls::server::Acceptor;

fuzz_target!(|bytes: &[u8]| {
    let mut acceptor = Acceptor::default();
    let mut unfed = bytes;
    while !unfed.is_empty() {
        match acceptor.read_tls(&mut unfed) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    let Ok(Some(accepted)) = acceptor.accept() else { return };
    assert_eq!(classify(bytes), Glance::Clear(Speech::Tls), "{bytes:?}");
    for end in 1..bytes.len().min(16) {
        let glance = classify(&bytes[..end]);
        assert!(matches!(glance, Glance::Clear(Speech::Tls) | Glance::Text), "{glance:?} of {end} bytes");
    }
    let hello = accepted.client_hello();
    if let Some(name) = hello.server_name().and_then(normalize) {
        assert_eq!(normalize(&name).as_deref(), Some(name.as_str()));
    }
});
