//! What was said and heard over a stream: the bytes of its transcript without the times at which they passed.

use std::io::{self, BufRead, BufReader, Read};

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::trace::{StoredBlobs, hex};

/// The members that [`add`] adds: what went up, and what came down.
pub(super) const ADDED: [&str; 2] = ["said", "heard"];

/// Longest line that begins a record.
const LONGEST: u64 = 200;

/// Adds to an entry of a stream, or of an exchange that was upgraded to one, the digests of its bytes. Where
/// they are encrypted they differ from run to run, and nothing is added.
pub(super) fn add(entry: &mut Map<String, Value>, blobs: Option<&StoredBlobs>) {
    let Some(blobs) = blobs else { return };
    let Some(result) = entry.get_mut("result").and_then(Value::as_object_mut) else { return };
    if let Some(Value::Object(upgraded)) = result.get_mut("upgraded") {
        add_to(upgraded, blobs);
        return;
    }
    if result.get("protocol").is_none_or(|protocol| protocol != "tls") {
        add_to(result, blobs);
    }
}

/// Takes them out again.
pub(super) fn remove(entry: &mut Map<String, Value>) {
    let Some(result) = entry.get_mut("result").and_then(Value::as_object_mut) else { return };
    for name in ADDED {
        result.remove(name);
        if let Some(Value::Object(upgraded)) = result.get_mut("upgraded") {
            upgraded.remove(name);
        }
    }
}

fn add_to(result: &mut Map<String, Value>, blobs: &StoredBlobs) {
    let Some(name) = result.get("transcript").and_then(|transcript| transcript.get("blob")?.as_str()) else {
        return;
    };
    let digests = match blobs.open(name).and_then(|content| contents(BufReader::new(content))) {
        Ok(digests) => digests.map(|digest| Value::from(hex(&digest))),
        Err(error) => [0, 1].map(|_| Value::from(format!("unreadable: {error}"))),
    };
    result.extend(ADDED.map(str::to_owned).into_iter().zip(digests));
}

/// The SHA-256 of what went up and of what came down.
fn contents(mut transcript: impl BufRead) -> io::Result<[[u8; 32]; 2]> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let mut hashes = [Sha256::new(), Sha256::new()];
    let mut line = Vec::new();
    loop {
        line.clear();
        if transcript.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(hashes.map(|hash| hash.finalize().into()));
        }
        let (way, size): (String, Value) = match serde_json::from_slice::<(String, Value, Value)>(&line) {
            Ok((way, size, _)) => (way, size),
            Err(_) => return Err(malformed()),
        };
        let hash = &mut hashes[usize::from(way == "down")];
        let Some(size) = size.as_u64() else { continue };
        let mut left = size;
        while left > 0 {
            let piece = transcript.fill_buf()?;
            if piece.is_empty() {
                return Err(malformed());
            }
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            hash.update(&piece[..taken]);
            transcript.consume(taken);
            left -= taken as u64;
        }
        // The newline after the bytes.
        transcript.read_exact(&mut [0])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_pieces_do_not_count() {
        let one = b"[\"up\",6,412]\nPING\r\n\n[\"down\",2,655]\n+P\n[\"down\",5,656]\nONG\r\n\n[\"up\",\"end\",702]\n";
        let other =
            b"[\"up\",2,1]\nPI\n[\"up\",4,2]\nNG\r\n\n[\"down\",7,3]\n+PONG\r\n\n[\"down\",\"reset\",9]\n";
        assert_eq!(contents(&one[..]).expect("it reads"), contents(&other[..]).expect("it reads"));
        let changed = String::from_utf8_lossy(one).replace("PING", "PINK");
        let (changed, one) =
            (contents(changed.as_bytes()).expect("it reads"), contents(&one[..]).expect("it reads"));
        assert_ne!(changed[0], one[0]);
        assert_eq!(changed[1], one[1]);
    }

    #[test]
    fn what_is_no_transcript_is_refused() {
        for bytes in [&b"PING"[..], b"[\"up\",9,1]\nshort", b"[\"up\",3,1]\nabc", &[b'x'; 500]] {
            assert!(contents(bytes).is_err());
        }
    }
}
