//! The forms in which a secret, or its placeholder, may stand in a message.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;

/// One form, and what is written in its place.
pub(super) struct Needle {
    pub(super) finder: Finder<'static>,
    /// As long as the form: the length of a message stays what its head says.
    pub(super) instead: Vec<u8>,
}

impl Needle {
    pub(super) fn bytes(&self) -> &[u8] {
        self.finder.needle()
    }
}

/// All forms of `value` that are looked for; `placeholder` stands in their place.
pub(super) fn forms(value: &[u8], placeholder: &[u8]) -> Vec<Needle> {
    let mut forms: Vec<(Vec<u8>, Vec<u8>)> = vec![(value.to_vec(), placeholder.to_vec())];
    let escapes: [fn(u8) -> Option<String>; 10] = [
        |byte| (!unreserved(byte)).then(|| format!("%{byte:02X}")),
        |byte| (!unreserved(byte)).then(|| format!("%{byte:02x}")),
        |byte| (!(unreserved(byte) || b"!'()*".contains(&byte))).then(|| format!("%{byte:02X}")),
        |byte| {
            (byte == b' ')
                .then(|| "+".to_owned())
                .or_else(|| (!unreserved(byte)).then(|| format!("%{byte:02X}")))
        },
        |byte| json(byte),
        |byte| if byte == b'/' { Some("\\/".to_owned()) } else { json(byte) },
        |byte| json(byte).or_else(|| b"<>&'".contains(&byte).then(|| format!("\\u{byte:04x}"))),
        |byte| json(byte).or_else(|| b"<>&'+".contains(&byte).then(|| format!("\\u{byte:04X}"))),
        |byte| html(byte, "&#39;"),
        |byte| html(byte, "&#x27;"),
    ];
    for escape in escapes {
        let mut form = Vec::with_capacity(value.len());
        for byte in value {
            match escape(*byte) {
                Some(text) => form.extend_from_slice(text.as_bytes()),
                None => form.push(*byte),
            }
        }
        forms.push((form, placeholder.to_vec()));
    }
    for before in 0..3 {
        for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let core = |bytes: &[u8]| {
                core(&alphabet.encode([&[0; 2][..before], bytes].concat()), before, bytes.len())
            };
            forms.push((core(value), core(placeholder)));
        }
    }
    forms.sort();
    forms.dedup_by(|one, other| one.0 == other.0);
    let needle = |(form, instead): (Vec<u8>, Vec<u8>)| {
        let instead = instead.iter().copied().cycle().take(form.len()).collect();
        Needle { finder: Finder::new(&form).into_owned(), instead }
    };
    forms.into_iter().map(needle).collect()
}

/// The letters of base64 that depend on the bytes alone, whatever stands around them (RFC 4648 section 4).
fn core(encoded: &str, before: usize, length: usize) -> Vec<u8> {
    let from = (before * 8).div_ceil(6);
    let to = (before + length) * 8 / 6;
    encoded.as_bytes()[from..to].to_vec()
}

/// RFC 3986 section 2.3.
fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn json(byte: u8) -> Option<String> {
    matches!(byte, b'"' | b'\\').then(|| format!("\\{}", char::from(byte)))
}

fn html(byte: u8, apostrophe: &str) -> Option<String> {
    let entity = match byte {
        b'&' => "&amp;",
        b'<' => "&lt;",
        b'>' => "&gt;",
        b'"' => "&quot;",
        b'\'' => apostrophe,
        _ => return None,
    };
    Some(entity.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_in_base64_is_found() {
        let needles = forms(b"hunter2-hunter2?>", b"PLACEHOLDERPLACEHO");
        for before in 0..9 {
            for after in 0..4 {
                let text = [&b"user:longer"[..before], b"hunter2-hunter2?>", &b"tail"[..after]].concat();
                for encoded in [STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                    let found = needles.iter().any(|needle| needle.finder.find(encoded.as_bytes()).is_some());
                    assert!(found, "{encoded}");
                }
            }
        }
    }

    #[test]
    fn escapes_are_known() {
        let needles = forms(b"a/b\"c<d&e f", b"PLACEHOLDER");
        for form in [
            "a%2Fb%22c%3Cd%26e%20f",
            "a%2fb%22c%3cd%26e%20f",
            "a%2Fb%22c%3Cd%26e+f",
            "a/b\\\"c<d&e f",
            "a\\/b\\\"c<d&e f",
            "a/b\\\"c\\u003cd\\u0026e f",
            "a/b&quot;c&lt;d&amp;e f",
        ] {
            assert!(needles.iter().any(|needle| needle.bytes() == form.as_bytes()), "{form}");
        }
        assert!(needles.iter().all(|needle| needle.instead.len() == needle.bytes().len()));
        // A plain token has one form as text, and one for each place in base64.
        assert_eq!(forms(b"ghp_0123456789abcdef", b"P").len(), 4);
    }
}
