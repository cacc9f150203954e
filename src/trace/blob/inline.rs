//! Small bodies of text: they stand in the entry itself, for a file of its own costs more than the exchange.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::event::hex;
use super::{BlobRef, BlobStore, BlobWriter};
use crate::trace::TraceError;

/// The most bytes of such a body.
const MOST: usize = 4 << 10;

impl BlobWriter {
    /// Ends the body. A small one of nothing but text, which `may_stand` in the entry, is said by what is returned, and
    /// stored nowhere else; any other is stored and named by it.
    pub fn finish_in_entry(self, may_stand: impl FnOnce(&str) -> bool) -> Result<Value, TraceError> {
        let is_small = self.file.is_none() && self.size <= MOST as u64;
        let text = is_small.then(|| std::str::from_utf8(&self.held).ok()).flatten();
        match text.filter(|text| is_plain(text) && may_stand(text)) {
            Some(text) => Ok(in_entry(&hex(&self.hash.clone().finalize()), text.to_owned())),
            None => self.finish().map(BlobRef::into),
        }
    }
}

impl BlobStore {
    /// The same of a body that is here as a whole, for which so many bytes are held.
    pub(in crate::trace) fn small(
        &self,
        bytes: &[u8],
        held: u64,
        may_stand: impl FnOnce(&str) -> bool,
    ) -> Result<Value, TraceError> {
        let text = std::str::from_utf8(bytes).ok();
        if let Some(text) = text.filter(|text| is_plain(text) && may_stand(text)) {
            if let Self::Directory(directory) = self {
                directory.ballast.settle(held);
            }
            return Ok(in_entry(&hex(&Sha256::digest(text)), text.to_owned()));
        }
        let mut writer = self.start_held();
        writer.write_held(bytes, held).map_err(|source| TraceError::StoreBlob { source })?;
        writer.finish().map(BlobRef::into)
    }
}

fn in_entry(sha256: &str, text: String) -> Value {
    json!({"sha256": sha256, "size": text.len(), "text": text})
}

/// Whether it is small and nothing but text.
fn is_plain(text: &str) -> bool {
    let is_plain = |letter: char| !letter.is_control() || matches!(letter, '\t' | '\r' | '\n');
    // Most are ASCII, whose letters are bytes.
    let by_letters = || text.chars().all(is_plain);
    text.len() <= MOST
        && if text.is_ascii() { text.bytes().all(|byte| is_plain(char::from(byte))) } else { by_letters() }
}
