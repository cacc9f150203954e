//! The pieces of a recorded answer, which came apart from each other.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};

use serde_json::Value;

use super::Blobs;

/// A part of a body. One of no bytes is the head that came before it, or its end after it.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// Bytes of it that are left.
    pub(super) left: u64,
    /// When it came.
    pub(super) micros: u64,
    /// Bytes of the request that had come before.
    pub(super) up: u64,
}

/// The pieces of the answer, from the entry or the blob that holds them.
pub(super) fn pieces(value: Option<&Value>, blobs: &Blobs) -> std::io::Result<VecDeque<Piece>> {
    let mut up = 0;
    let mut piece = |segment: &Value| {
        let (left, micros) = (segment.get(1)?.as_u64()?, segment.get(2)?.as_u64()?);
        if segment.get(0)? == "down" {
            return Some(Piece { left, micros, up });
        }
        up += left;
        None
    };
    match value {
        Some(Value::Array(list)) => Ok(list.iter().filter_map(piece).collect()),
        Some(other) => {
            let Some(name) = other.get("blob").and_then(Value::as_str) else { return Ok(VecDeque::new()) };
            let mut pieces = VecDeque::new();
            for line in BufReader::new(blobs(name)?).lines() {
                pieces.extend(piece(&serde_json::from_str(&line?)?));
            }
            Ok(pieces)
        }
        None => Ok(VecDeque::new()),
    }
}
