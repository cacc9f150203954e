//! Small bodies of text: they stand in the entry itself, for a file of its own costs more than the exchange.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::event::hex;
use super::{BlobRef, BlobStore, BlobWriter};
use crate::trace::{TraceError, canonical};

/// The most bytes of such a body.
const MOST: usize = 4 << 10;

/// What an entry says of a body.
#[derive(Debug)]
pub enum BodyRef<'a> {
    /// It stands there itself.
    Text {
        /// SHA-256 of the content, in lower-case hex.
        sha256: String,
        /// The content.
        text: &'a str,
    },
    /// It is stored.
    Blob(BlobRef),
}

impl BodyRef<'_> {
    /// Appends it as canonical text, where that has no reference to a blob; else false.
    pub fn write_text(&self, out: &mut String) -> bool {
        let Self::Text { sha256, text } = self else { return false };
        out.push_str("{\"sha256\":\"");
        out.push_str(sha256);
        // Writing to a string does not fail.
        let _ = write!(out, "\",\"size\":{},\"text\":", text.len());
        canonical::write_string(out, text);
        out.push('}');
        true
    }
}

impl From<BodyRef<'_>> for Value {
    fn from(body: BodyRef<'_>) -> Self {
        match body {
            BodyRef::Text { sha256, text } => json!({"sha256": sha256, "size": text.len(), "text": text}),
            BodyRef::Blob(blob) => blob.into(),
        }
    }
}

impl BlobWriter {
    /// Ends the body. A small one of nothing but text, which `may_stand` in the entry, is said by what is returned, and
    /// stored nowhere else; any other is stored and named by it.
    pub fn finish_in_entry(self, may_stand: impl FnOnce(&str) -> bool) -> Result<Value, TraceError> {
        let is_small = self.file.is_none() && self.size <= MOST as u64;
        let text = is_small.then(|| std::str::from_utf8(&self.held).ok()).flatten();
        match text.filter(|text| is_plain(text) && may_stand(text)) {
            Some(text) => Ok(BodyRef::Text { sha256: hex(&self.hash.clone().finalize()), text }.into()),
            None => self.finish().map(BlobRef::into),
        }
    }
}

impl BlobStore {
    /// The same of a body that is here as a whole, for which so many bytes are held.
    pub(in crate::trace) fn small<'a>(
        &self,
        bytes: &'a [u8],
        held: u64,
        may_stand: impl FnOnce(&str) -> bool,
    ) -> Result<BodyRef<'a>, TraceError> {
        let text = std::str::from_utf8(bytes).ok();
        if let Some(text) = text.filter(|text| is_plain(text) && may_stand(text)) {
            if let Self::Directory(directory) = self {
                directory.ballast.settle(held);
            }
            return Ok(BodyRef::Text { sha256: hex(&Sha256::digest(text)), text });
        }
        let mut writer = self.start_held();
        writer.write_held(bytes, held).map_err(|source| TraceError::StoreBlob { source })?;
        writer.finish().map(BodyRef::Blob)
    }
}

/// Whether it is small and nothing but text.
fn is_plain(text: &str) -> bool {
    // Most are ASCII, whose letters are bytes: without a branch for each, many are looked at by one instruction.
    let is_shown =
        |byte: u8| ((byte >= b' ') & (byte != 0x7f)) | (byte == b'\t') | (byte == b'\r') | (byte == b'\n');
    let by_letters =
        || text.chars().all(|letter| !letter.is_control() || matches!(letter, '\t' | '\r' | '\n'));
    text.len() <= MOST
        && if text.is_ascii() {
            text.bytes().fold(true, |is_plain, byte| is_plain & is_shown(byte))
        } else {
            by_letters()
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_text_is_that_of_its_value() {
        let text = "a \"quoted\" line\n\u{7f}\u{e9}\t";
        let body = BodyRef::Text { sha256: "ab".repeat(32), text };
        let mut written = String::new();
        assert!(body.write_text(&mut written));
        assert_eq!(written, canonical::to_string(&body.into()));
        let blob = BodyRef::Blob(BlobRef { sha256: "ab".repeat(32), size: 1, private: false });
        assert!(!blob.write_text(&mut written));
    }

    #[test]
    fn plain_text_has_no_other_controls() {
        for text in ["", "a\tb\r\n", "\u{e9}\n", " ~"] {
            assert!(is_plain(text), "{text:?}");
        }
        for text in ["\0", "a\u{1f}", "\u{7f}", "\u{e9}\u{7f}", "\u{85}"] {
            assert!(!is_plain(text), "{text:?}");
        }
    }
}
