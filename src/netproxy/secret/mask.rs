//! Takes secrets out of bytes that pass, wherever they are cut.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::needle::Needle;

/// The forms of the secrets that one host knows.
pub(super) type Needles = Arc<[Needle]>;

/// One direction of one message. The end of what came waits for more where a secret could have begun in it.
///
/// What waits depends on the kind of its letters alone. Were it what begins as the secret does, a client that makes
/// the host say its guesses would learn from the size of the pieces how far each is right.
pub(super) struct Mask {
    needles: Needles,
    held: BytesMut,
    /// The most that waits.
    most: usize,
    /// Some secret holds more than the letters of tokens.
    is_text: bool,
}

impl Mask {
    pub(super) fn new(needles: Needles) -> Self {
        let most = needles.iter().map(|needle| needle.bytes().len() - 1).max().unwrap_or(0);
        let is_text = needles.iter().any(|needle| !needle.bytes().iter().all(|byte| is_token(*byte)));
        Self { needles, held: BytesMut::new(), most, is_text }
    }

    /// The same for other bytes.
    pub(super) fn again(&self) -> Self {
        Self { needles: Arc::clone(&self.needles), held: BytesMut::new(), ..*self }
    }

    /// What may pass now.
    pub(super) fn pass(&mut self, bytes: Bytes) -> Bytes {
        let is_plain = self.held.is_empty()
            && self.needles.iter().all(|needle| needle.finder.find(&bytes).is_none())
            && self.beginning(&bytes) == 0;
        if is_plain {
            return bytes;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(&bytes);
        let done = replace(&self.needles, &mut all);
        let held = self.beginning(&all[done..]);
        self.held = all.split_off(all.len() - held);
        all.freeze()
    }

    /// Nothing comes any more: what waited was no secret.
    pub(super) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held).freeze()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many of the last bytes could be the beginning of any secret of the kind.
    fn beginning(&self, bytes: &[u8]) -> usize {
        let tail = &bytes[bytes.len() - bytes.len().min(self.most)..];
        let could_be = |byte: &&u8| if self.is_text { !byte.is_ascii_control() } else { is_token(**byte) };
        tail.iter().rev().take_while(could_be).count()
    }
}

/// Writes over every form; the end of the last one. The bytes behind it are as they were.
pub(super) fn replace(needles: &[Needle], bytes: &mut [u8]) -> usize {
    let mut done = 0;
    // Where each form comes next.
    let mut next: Vec<Option<usize>> = needles.iter().map(|needle| needle.finder.find(bytes)).collect();
    loop {
        for (needle, at) in needles.iter().zip(&mut next) {
            if at.is_some_and(|at| at < done) {
                *at = needle.finder.find(&bytes[done..]).map(|found| done + found);
            }
        }
        // Of two that begin in one place the longer.
        let first = needles.iter().zip(&next).filter_map(|(needle, at)| Some(((*at)?, needle)));
        let Some((at, needle)) = first.min_by_key(|(at, needle)| (*at, usize::MAX - needle.instead.len()))
        else {
            return done;
        };
        done = at + needle.instead.len();
        bytes[at..done].copy_from_slice(&needle.instead);
    }
}

/// Letters of tokens, of base64, and of what stands for them in URLs and JSON.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=%\\".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::needle::forms;
    use super::*;

    fn masked(needles: &Needles, pieces: &[&[u8]]) -> Vec<u8> {
        let mut mask = Mask::new(Arc::clone(needles));
        let mut out = Vec::new();
        for piece in pieces {
            out.extend_from_slice(&mask.pass(Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&mask.finish());
        out
    }

    #[test]
    fn only_what_could_be_a_beginning_waits() {
        let needles: Needles = forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into();
        let mut mask = Mask::new(needles);
        assert_eq!(mask.pass("data: {\"x\": 1}\n\n".into()), "data: {\"x\": 1}\n\n");
        assert!(mask.is_empty());
        assert_eq!(mask.pass("token ghp_01".into()), "token ");
        assert_eq!(mask.pass("2345678".into()), "");
        assert_eq!(mask.pass("9 and ghp_012".into()), "ghp_XXXXXXXXXX and ");
        assert_eq!(mask.pass("!".into()), "ghp_012!");
        assert!(mask.is_empty());
    }

    #[test]
    fn pieces_do_not_tell_how_far_a_guess_is_right() {
        let needles: Needles = forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into();
        let sizes = |guess: &'static str| {
            let mut mask = Mask::new(Arc::clone(&needles));
            [mask.pass(guess.into()).len(), mask.pass(" ".into()).len()]
        };
        for length in 1..14 {
            let (right, wrong) = (&"ghp_0123456789"[..length], &"AbC-987654321xyz"[..length]);
            assert_eq!(sizes(right), sizes(wrong), "{right}");
        }
    }

    proptest! {
        #[test]
        fn no_cut_lets_a_secret_pass(
            value in "[ab%\"/]{8,12}",
            around in proptest::collection::vec("[ab%\"/]{0,9}", 1..5),
            cuts in proptest::collection::vec(0usize..200, 0..12),
        ) {
            let placeholder = "P".repeat(value.len());
            let needles: Needles = forms(value.as_bytes(), placeholder.as_bytes()).into();
            let text = around.join(&value);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            for out in [masked(&needles, &pieces), masked(&needles, &[text.as_bytes()])] {
                prop_assert_eq!(out.len(), text.len());
                prop_assert_eq!(memchr::memmem::find(&out, value.as_bytes()), None);
            }
        }

        #[test]
        fn what_holds_none_passes_as_it_is(text: Vec<u8>, cut in 0usize..100) {
            let needles: Needles = forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into();
            let cut = cut.min(text.len());
            prop_assert_eq!(masked(&needles, &[&text[..cut], &text[cut..]]), text);
        }
    }
}
