//! Small bodies of text: they stand in the entry itself, for a file of its own costs more than the exchange.

use serde_json::{Value, json};
use sha2::Digest as _;

use super::super::event::hex;
use super::{BlobRef, BlobWriter};
use crate::trace::TraceError;

/// The most bytes of such a body.
const MOST: u64 = 4 << 10;

impl BlobWriter {
    /// Ends the body. A small one of nothing but text, which `may_stand` in the entry, is said by what is returned, and
    /// stored nowhere else; any other is stored and named by it.
    pub fn finish_in_entry(self, may_stand: impl FnOnce(&str) -> bool) -> Result<Value, TraceError> {
        match self.text().filter(|text| may_stand(text)) {
            Some(text) => {
                Ok(json!({"sha256": hex(&self.hash.clone().finalize()), "size": self.size, "text": text}))
            }
            None => self.finish().map(BlobRef::into),
        }
    }

    fn text(&self) -> Option<&str> {
        if self.size > MOST || self.file.is_some() {
            return None;
        }
        let text = std::str::from_utf8(&self.held).ok()?;
        let is_plain = |letter: char| !letter.is_control() || matches!(letter, '\t' | '\r' | '\n');
        text.chars().all(is_plain).then_some(text)
    }
}
