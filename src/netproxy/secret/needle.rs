//! The forms in which a secret, or its placeholder, may stand in a message.

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
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
    /// The letters before and behind it.
    shared: [Option<Shared>; 2],
}

/// A letter of base64 that holds bits of a secret and of what stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shared {
    /// Those of the secret, and what is written there.
    bits: u8,
    instead: u8,
}

impl Shared {
    /// Writes over what is the secret's.
    pub(super) fn write(self, letter: &mut u8) {
        if let Some(value) = value_of(*letter) {
            *letter =
                STANDARD.as_str().as_bytes()[usize::from(value & !self.bits | self.instead & self.bits)];
        }
    }
}

/// The bits of a letter, in either alphabet.
fn value_of(letter: u8) -> Option<u8> {
    let at = |alphabet: &Alphabet| alphabet.as_str().bytes().zip(0..).find(|(known, _)| *known == letter);
    at(&STANDARD).or_else(|| at(&URL_SAFE)).map(|(_, value)| value)
}

impl Needle {
    fn new(form: &[u8], instead: &[u8], is_base64: bool) -> Self {
        let instead = instead.iter().copied().cycle().take(form.len()).collect();
        let escaped = Escaped::new(form, is_base64);
        Self { finder: Finder::new(form).into_owned(), instead, escaped, is_base64, shared: [None; 2] }
    }

    /// Writes over it at `at`, and over what is shared with it; what is shared of a letter that is still to come.
    pub(super) fn write(&self, bytes: &mut [u8], at: usize) -> Option<Shared> {
        let end = at + self.instead.len();
        bytes[at..end].copy_from_slice(&self.instead);
        let [before, behind] = self.shared;
        if let Some((shared, letter)) = before.zip(bytes[..at].last_mut()) {
            shared.write(letter);
        }
        let Some(letter) = bytes.get_mut(end) else { return behind };
        behind?.write(letter);
        None
    }

    /// The letters that must be there for all of it to be written over.
    pub(super) fn span(&self) -> usize {
        self.bytes().len() + usize::from(self.shared[0].is_some())
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
    let mut forms = vec![(value.to_vec(), placeholder.to_vec(), None)];
    if value.contains(&b' ') {
        let form = value.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte });
        forms.push((form.collect(), placeholder.to_vec(), None));
    }
    for before in 0..3 {
        for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let core = |bytes: &[u8]| {
                core(&alphabet.encode([&[0; 2][..before], bytes].concat()), before, bytes.len())
            };
            let instead: Vec<u8> = placeholder.iter().copied().cycle().take(value.len()).collect();
            let instead = alphabet.encode([&[0; 2][..before], &instead].concat());
            forms.push((core(value), core(placeholder), Some(shared(&instead, before, value.len()))));
        }
    }
    forms.sort();
    forms.dedup_by(|one, other| one.0 == other.0);
    let needle = |(form, instead, shared): (Vec<u8>, Vec<u8>, Option<[Option<Shared>; 2]>)| {
        let needle = Needle::new(&form, &instead, shared.is_some());
        Needle { shared: shared.unwrap_or_default(), ..needle }
    };
    forms.into_iter().map(needle).collect()
}

/// The letters around them that depend on the bytes as well, where `instead` stands in their place.
fn shared(instead: &str, before: usize, length: usize) -> [Option<Shared>; 2] {
    let one = |bit: usize, is_behind: bool| {
        let lower = 0b11_1111 >> (bit % 6);
        let bits = if is_behind { 0b11_1111 & !lower } else { lower };
        let letter = instead.as_bytes().get(bit / 6).copied().and_then(value_of);
        (!bit.is_multiple_of(6)).then_some(Shared { bits, instead: letter.unwrap_or_default() })
    };
    [one(before * 8, false), one((before + length) * 8, true)]
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
    fn nothing_of_it_is_left_in_letters_that_it_shares() {
        let (value, placeholder) = (b"hunter2-hunter2?>", b"PLACEHOLDERPLACEH");
        let needles = forms(value, placeholder);
        for before in 0..6 {
            for behind in 0..4 {
                let text = |middle: &[u8]| [&b"before"[..before], middle, &b"tail"[..behind]].concat();
                for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                    let mut encoded = alphabet.encode(text(value)).into_bytes();
                    replace(&needles, &mut encoded, 0);
                    assert_eq!(alphabet.decode(encoded).unwrap(), text(placeholder));
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
