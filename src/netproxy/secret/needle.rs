//! The forms in which a secret, or its placeholder, may stand in a message.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;

use super::escaped::Escaped;

/// One form, and what is written in its place.
pub(super) struct Needle {
    pub(super) finder: Finder<'static>,
    /// As long as the form: the length of a message stays what its head says.
    pub(super) instead: Vec<u8>,
    /// The same with escapes in it.
    pub(super) escaped: Escaped,
    is_base64: bool,
}

impl Needle {
    fn new(form: &[u8], instead: &[u8], is_base64: bool) -> Self {
        let instead = instead.iter().copied().cycle().take(form.len()).collect();
        let escaped = Escaped::new(form, is_base64);
        Self { finder: Finder::new(form).into_owned(), instead, escaped, is_base64 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.finder.needle()
    }

    /// The same where the case of letters is lost.
    pub(super) fn in_lowercase(&self) -> Self {
        Self::new(&self.bytes().to_ascii_lowercase(), &self.instead, self.is_base64)
    }

    /// Whether it may stand in `text`, before which stand `column` letters of tokens.
    pub(super) fn may_be_in(&self, text: &[u8], column: usize) -> bool {
        self.finder.find(text).is_some() || self.escaped.suspects(text, column).is_some()
    }
}

/// All forms of `value` that are looked for; `placeholder` stands in their place.
pub(super) fn forms(value: &[u8], placeholder: &[u8]) -> Vec<Needle> {
    let mut forms: Vec<(Vec<u8>, Vec<u8>, bool)> = vec![(value.to_vec(), placeholder.to_vec(), false)];
    if value.contains(&b' ') {
        let form = value.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte });
        forms.push((form.collect(), placeholder.to_vec(), false));
    }
    for before in 0..3 {
        for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let core = |bytes: &[u8]| {
                core(&alphabet.encode([&[0; 2][..before], bytes].concat()), before, bytes.len())
            };
            forms.push((core(value), core(placeholder), true));
        }
    }
    forms.sort();
    forms.dedup_by(|one, other| one.0 == other.0);
    forms.into_iter().map(|(form, instead, is_base64)| Needle::new(&form, &instead, is_base64)).collect()
}

/// The letters of base64 that depend on the bytes alone, whatever stands around them (RFC 4648 section 4).
fn core(encoded: &str, before: usize, length: usize) -> Vec<u8> {
    let from = (before * 8).div_ceil(6);
    let to = (before + length) * 8 / 6;
    encoded.as_bytes()[from..to].to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::mask::replace;
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
            let mut text = form.as_bytes().to_vec();
            assert_eq!(replace(&needles, &mut text, 0), form.len(), "{form}");
            assert_eq!(text, b"PLACEHOLDER".iter().copied().cycle().take(form.len()).collect::<Vec<_>>());
        }
        assert!(needles.iter().all(|needle| needle.instead.len() == needle.bytes().len()));
        // A plain token has one form as text, and one for each place in base64.
        assert_eq!(forms(b"ghp_0123456789abcdef", b"P").len(), 4);
    }
}
