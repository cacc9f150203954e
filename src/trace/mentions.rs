//! What an entry refers to: blobs, by their SHA-256.

use serde_json::{Map, Value};

use super::canonical;

/// Whether `text` is a SHA-256 in lower-case hex.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Adds the blobs that an object refers to, in the order of its text.
pub(super) fn find_blobs(map: &Map<String, Value>, found: &mut Vec<String>) {
    // The order of the stored text, which is what a verifier sees.
    canonical::for_each_member(map, |_, key, value| match value {
        Value::String(text) if key == "blob" && is_sha256(text) => found.push(text.clone()),
        other => find_blobs_in_value(other, found),
    });
}

/// The same of any value.
pub(super) fn find_blobs_in_value(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => find_blobs(map, found),
        Value::Array(items) => items.iter().for_each(|item| find_blobs_in_value(item, found)),
        _ => {}
    }
}
