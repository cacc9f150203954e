//! Values of the variables that a command got, from the private part of a trace: compared, and never told.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::Field;
use crate::trace::StoredBlobs;

/// The longest private part that is read, in bytes.
const MOST: u64 = 16 << 20;

/// The variables by name; none where the trace has no private part, or it was taken out.
pub(super) fn read(replay: &Map<String, Value>, blobs: &StoredBlobs) -> BTreeMap<String, String> {
    let private = private(replay, blobs);
    let variables = private.get("environment").and_then(Value::as_array).into_iter().flatten();
    let pair = |variable: &Value| {
        let (name, value) = variable.as_str()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    variables.filter_map(pair).collect()
}

/// The private part that a `run.replay` names; null where it is not there.
pub(super) fn private(replay: &Map<String, Value>, blobs: &StoredBlobs) -> Value {
    let reference = replay.get("private").and_then(|reference| reference.get("blob")).and_then(Value::as_str);
    let private = reference.and_then(|sha256| blobs.read(sha256, MOST).ok());
    private.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Those that both runs had, with different values.
pub(super) fn changed(ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>) -> Vec<Field> {
    let differs = |(name, value): &(&String, &String)| theirs.get(*name).is_some_and(|other| other != *value);
    let field = |(name, _): (&String, &String)| Field {
        name: name.clone(),
        recorded: Some("a value".into()),
        live: Some("another value".into()),
    };
    ours.iter().filter(differs).map(field).collect()
}
