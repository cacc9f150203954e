//! The pieces of a recorded answer, which came apart from each other.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _};

use serde_json::Value;

use super::Blobs;

/// The longest line that holds a piece, in bytes.
const LONGEST_LINE: u64 = 256;
/// Most pieces of one answer.
const MOST: usize = 1 << 22;

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
pub(super) fn pieces(value: Option<&Value>, blobs: &Blobs) -> io::Result<VecDeque<Piece>> {
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
            let (mut lines, mut line) = (BufReader::new(blobs(name)?), Vec::new());
            while lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? > 0 {
                if pieces.len() == MOST {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                pieces.extend(piece(&serde_json::from_slice(&line)?));
                line.clear();
            }
            Ok(pieces)
        }
        None => Ok(VecDeque::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_no_piece() {
        let read = |spaces: usize| {
            let text = format!("[\"up\",1,2]\n{}[\"down\",1,2]\n", " ".repeat(spaces));
            let blobs: Blobs =
                Arc::new(move |_: &str| Ok(Box::new(io::Cursor::new(text.clone())) as Box<dyn Read + Send>));
            pieces(Some(&json!({"blob": "ab"})), &blobs)
        };
        let found = read(0).expect("pieces");
        assert_eq!(found.iter().map(|piece| (piece.left, piece.up)).collect::<Vec<_>>(), [(1, 1)]);
        assert!(read(300).is_err());
    }
}
