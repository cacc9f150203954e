//! Paths and socket addresses as another process composed them.
#![no_main]

use std::os::unix::ffi::OsStrExt as _;
use std::path::Component;

use agentbox::netproxy::authority::{Authority, Host, normalize};
use agentbox::supervisor::sockaddr::{Address, parse};
use agentbox::supervisor::spelling::{MagicLink, component, lexical, squeeze, trim_slashes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    path(bytes);
    socket(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        authority(text);
    }
});

fn path(bytes: &[u8]) {
    let plain = lexical(bytes);
    assert!(plain.is_absolute());
    assert!(plain.components().skip(1).all(|part| matches!(part, Component::Normal(_))));
    assert_eq!(lexical(plain.as_os_str().as_bytes()), plain);

    let squeezed = squeeze(bytes);
    assert!(!squeezed.windows(2).any(|part| part == b"//"));
    assert!(!squeezed.windows(3).any(|part| part == b"/./"));
    assert_eq!(lexical(&squeezed), plain);
    assert_eq!(squeeze(&squeezed), squeezed);

    let trimmed = trim_slashes(bytes);
    assert!(bytes.starts_with(trimmed) && (trimmed.len() <= 1 || !trimmed.ends_with(b"/")));
    assert!(!component(bytes).contains(&b'/'));

    // A process name space of our own in front, so that links are reached often.
    for path in [bytes.to_vec(), [b"/proc/", bytes].concat(), [b"/proc/1/", bytes].concat()] {
        if path.starts_with(b"/proc/")
            && let Some(magic) = MagicLink::parse(&path)
        {
            assert_eq!([magic.directory, b"/", magic.name, magic.rest].concat(), path);
            assert!(magic.rest.is_empty() || magic.rest.starts_with(b"/"));
        }
    }
}

fn socket(raw: &[u8]) {
    match parse(raw) {
        Address::Inet(to) if to.is_ipv4() => assert_eq!(raw[2..4], to.port().to_be_bytes()),
        Address::Inet(_) => assert!(raw.len() >= 24, "SIN6_LEN_RFC2133"),
        Address::UnixPath(path) => {
            assert!(!path.is_empty() && !path.contains(&0) && raw[2..].starts_with(&path));
        }
        Address::UnixAbstract => assert_eq!(raw[2], 0),
        Address::Other => {}
    }
}

fn authority(text: &str) {
    if let Some(name) = normalize(text) {
        assert_eq!(normalize(&name), Some(name.clone()));
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)));
        assert!(!name.is_empty() && !name.starts_with('.') && !name.ends_with('.'));
    }
    let Some(read) = Authority::parse(text) else { return };
    if let Host::Name(name) = &read.host {
        assert!(name.parse::<std::net::IpAddr>().is_err());
    }
    let spelled = match read.port {
        Some(port) => format!("{}:{port}", read.host),
        None => read.host.to_string(),
    };
    assert_eq!(Authority::parse(&spelled), Some(read), "{spelled:?}");
}
