//! Looks for placeholders where they may not go.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::needle::Needle;

/// The forms of placeholders, each with the number of its secret.
pub(super) type Marks = Arc<[(usize, Needle)]>;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// The first secret, of those that count, whose placeholder stands in `bytes`.
pub(super) fn find(marks: &Marks, bytes: &[u8], counts: impl Fn(usize) -> bool) -> Option<usize> {
    let is_there = |(_, needle): &&(usize, Needle)| needle.finder.find(bytes).is_some();
    marks.iter().filter(|(secret, _)| counts(*secret)).find(is_there).map(|(secret, _)| *secret)
}

/// Base64 as it stands in a header field, strict or not.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let decode = |alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(text.trim_ascii()).ok();
    decode(&STANDARD).or_else(|| decode(&URL_SAFE))
}

/// Bytes on their way to where no placeholder may go, in whatever pieces.
pub(crate) struct Watch {
    marks: Marks,
    /// The secrets whose placeholder may pass.
    free: Vec<usize>,
    /// The end of what has passed.
    tail: Vec<u8>,
    longest: usize,
}

impl Watch {
    pub(super) fn new(marks: Marks, free: Vec<usize>) -> Option<Self> {
        let longest = marks.iter().filter(|(secret, _)| !free.contains(secret));
        let longest = longest.map(|(_, needle)| needle.bytes().len()).max()?;
        Some(Self { marks, free, tail: Vec::new(), longest })
    }

    /// The same for other bytes.
    pub(super) fn again(&self) -> Self {
        Self {
            marks: Arc::clone(&self.marks),
            free: self.free.clone(),
            tail: Vec::new(),
            longest: self.longest,
        }
    }

    /// The secret whose placeholder is whole with these bytes.
    pub(crate) fn see(&mut self, bytes: &[u8]) -> Option<usize> {
        let counts = |secret: usize| !self.free.contains(&secret);
        let kept = self.longest - 1;
        let mut seam = std::mem::take(&mut self.tail);
        seam.extend_from_slice(&bytes[..bytes.len().min(kept)]);
        let found = find(&self.marks, bytes, counts).or_else(|| find(&self.marks, &seam, counts));
        self.tail = match bytes.len() >= kept {
            true => bytes[bytes.len() - kept..].to_vec(),
            false => seam[seam.len() - seam.len().min(kept)..].to_vec(),
        };
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::needle::forms;
    use super::*;

    fn marks() -> Marks {
        let placeholder = "Zb3kQ9xLm2Vt7Rw1";
        forms(placeholder.as_bytes(), b"x").into_iter().map(|needle| (4, needle)).collect()
    }

    proptest! {
        #[test]
        fn any_cut_is_seen_through(before: Vec<u8>, after: Vec<u8>, cuts in proptest::collection::vec(0usize..99, 0..6)) {
            let text = [before.as_slice(), b"Zb3kQ9xLm2Vt7Rw1", after.as_slice()].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut watch = Watch::new(marks(), Vec::new()).unwrap();
            let seen = cuts.windows(2).any(|cut| watch.see(&text[cut[0]..cut[1]]) == Some(4));
            prop_assert!(seen);
            prop_assert!(Watch::new(marks(), vec![4]).is_none());
        }
    }
}
