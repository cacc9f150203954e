//! Takes secrets out of bytes that pass, wherever they are cut.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::needle::Needle;

/// The forms of the secrets that one host knows.
pub(super) type Needles = Arc<[Needle]>;

/// One direction of one message. What could be the beginning of a secret waits for more, and nothing else.
pub(super) struct Mask {
    needles: Needles,
    held: BytesMut,
}

impl Mask {
    pub(super) fn new(needles: Needles) -> Self {
        Self { needles, held: BytesMut::new() }
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

    /// How many of the last bytes could be the beginning of a form.
    fn beginning(&self, bytes: &[u8]) -> usize {
        self.needles.iter().map(|needle| overlap(bytes, needle.bytes())).max().unwrap_or(0)
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

/// The length of the longest end of `bytes` that begins `needle`, and is not all of it.
fn overlap(bytes: &[u8], needle: &[u8]) -> usize {
    let most = bytes.len().min(needle.len().saturating_sub(1));
    let tail = &bytes[bytes.len() - most..];
    let Some(first) = needle.first() else { return 0 };
    let begins = memchr::memchr_iter(*first, tail).find(|at| needle.starts_with(&tail[*at..]));
    begins.map_or(0, |at| most - at)
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
    fn only_a_beginning_waits() {
        let needles: Needles = forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into();
        let mut mask = Mask::new(needles);
        assert_eq!(mask.pass("data: x\n\n".into()), "data: x\n\n");
        assert!(mask.is_empty());
        assert_eq!(mask.pass("token ghp_01".into()), "token ");
        assert_eq!(mask.pass("2345678".into()), "");
        assert_eq!(mask.pass("9 and ghp_012".into()), "ghp_XXXXXXXXXX and ");
        assert_eq!(mask.pass("!".into()), "ghp_012!");
        assert!(mask.is_empty());
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
