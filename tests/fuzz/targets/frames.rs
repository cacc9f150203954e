//! The frames of a WebSocket (RFC 6455 section 5.2): what is read of them is what they carry, however the bytes are cut.
#![no_main]

use agentbox::netproxy::secret::frames::{Payload, Unmasking};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let expected = naive(bytes);
    assert_eq!(read(bytes, bytes.len().max(1)), expected);
    assert_eq!(read(bytes, usize::from(*cut).max(1)), expected);
});

/// What messages carry, and what control frames do.
type Carried = [Vec<u8>; 2];

fn read(bytes: &[u8], piece: usize) -> Carried {
    let (mut unmasking, mut carried) = (Unmasking::default(), Carried::default());
    for mut bytes in bytes.chunks(piece) {
        while let Some(Payload { is_control, plain }) = unmasking.next(&mut bytes) {
            assert!(!plain.is_empty());
            carried[usize::from(is_control)].extend(plain);
        }
        assert!(bytes.is_empty());
    }
    carried
}

/// The same, frame by frame from the whole.
fn naive(mut bytes: &[u8]) -> Carried {
    let mut carried = Carried::default();
    loop {
        let [first, second, rest @ ..] = bytes else { return carried };
        let long = match second & 127 {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if rest.len() < long {
            return carried;
        }
        let (length, rest) = rest.split_at(long);
        let length = match long {
            0 => u64::from(second & 127),
            _ => length.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        let masked = second & 128 != 0;
        if masked && rest.len() < 4 {
            return carried;
        }
        let (mask, rest) = rest.split_at(if masked { 4 } else { 0 });
        // A control frame is short and whole; what follows another one is read no further (section 5.5).
        if first & 8 != 0 && (first & 128 == 0 || length > 125) {
            return carried;
        }
        let end = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
        let plain = rest[..end].iter().enumerate().map(|(at, byte)| byte ^ mask.get(at % 4).unwrap_or(&0));
        carried[usize::from(first & 8 != 0)].extend(plain);
        bytes = &rest[end..];
    }
}
