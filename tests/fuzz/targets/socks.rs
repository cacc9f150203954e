//! The messages of SOCKS: what is read is the same however the bytes are cut, and names are those
//! that the policy judges.
#![no_main]

use agentbox::netproxy::authority::Host;
use agentbox::netproxy::socks::message::{Read, Request, methods, password, request_4, request_5};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    grows(bytes, methods);
    grows(bytes, password);
    for read in [request_4, request_5] {
        grows(bytes, read);
        let Ok(Some((Request { host, .. }, length))) = read(bytes) else { continue };
        match host {
            Ok(Host::Name(name)) => {
                assert_eq!(agentbox::policy::canonical_name(&name).as_deref(), Some(&*name));
                let spelled = bytes[..length].to_ascii_lowercase();
                assert!(spelled.windows(name.len()).any(|window| window == name.as_bytes()));
            }
            Ok(Host::Address(address)) => assert_eq!(address, address.to_canonical()),
            Err(text) => assert!(text.is_ascii()),
        }
    }
});

/// Fewer bytes give the same message or none yet, more bytes the same.
fn grows<T: PartialEq + std::fmt::Debug>(bytes: &[u8], read: impl Fn(&[u8]) -> Read<T>) {
    let whole = read(bytes);
    let Ok(Some((_, length))) = &whole else { return };
    assert!(*length <= bytes.len());
    assert_eq!(read(&bytes[..*length]), whole);
    for end in 0..*length {
        assert_eq!(read(&bytes[..end]), Ok(None));
    }
}
