//! Bytes that were passed on before it was clear what they are. What follows is looked at until it is:
//! else a request, or TLS, could pass unread by a pause after its first byte.

use super::request_line::blank_or_token;
use super::sniff::{Glance, Speech, classify};

/// What is kept of a first line; of a longer one the middle goes, which tells nothing.
const KEPT: usize = 4096;

/// As many bytes as tell a version of HTTP, with the blank before it.
const TELLING: usize = 6;

/// A stream's beginning.
pub(crate) struct Doubt {
    seen: Vec<u8>,
}

impl Doubt {
    /// Begins with what was passed on.
    pub(crate) fn new(prefix: &[u8]) -> Self {
        let mut doubt = Self { seen: prefix.to_vec() };
        doubt.shorten();
        doubt
    }

    /// Adds what came; what the stream turns out to be, once that is clear.
    pub(crate) fn see(&mut self, bytes: &[u8]) -> Option<Speech> {
        // A part at a time: a line of any length is looked at to its end.
        for part in bytes.chunks(KEPT) {
            self.seen.extend_from_slice(part);
            if let Glance::Clear(speech) = classify(&self.seen) {
                return Some(speech);
            }
            self.shorten();
        }
        None
    }

    fn shorten(&mut self) {
        if self.seen.len() <= KEPT {
            return;
        }
        let end = self.seen.split_off(self.seen.len() - TELLING);
        self.seen = blank_or_token(&self.seen);
        self.seen.extend(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_any_length_is_told() {
        let long = vec![b'X'; 3 * KEPT];
        let rest = vec![b'/'; 2 * KEPT];
        let blanks = vec![b'\t'; 2 * KEPT];
        for (pieces, expected) in [
            (&[&long[..], b" / HTTP/1.1\r\n"][..], Some(Speech::Http)),
            (&[&long, b" ", &rest, b" HT", b"TP/1.1\n"], Some(Speech::Http)),
            (&[&long, b" ", &rest, b"HTTP/1.1\n"], Some(Speech::Opaque)),
            (&[&long, b"\x01"], Some(Speech::Opaque)),
            (&[&blanks, &blanks, b"GET / HTTP/1.1\n"], Some(Speech::Http)),
            (&[&long, &long], None),
        ] {
            let mut doubt = Doubt::new(b"X");
            let told = pieces.iter().find_map(|piece| doubt.see(piece));
            let mut late = Doubt::new(pieces[0]);
            let told_late = pieces[1..].iter().find_map(|piece| late.see(piece));
            // What blanks stand before is no matter, but a token before them is.
            if pieces[0] != blanks {
                assert_eq!(told, expected);
            }
            assert_eq!(told_late, expected);
        }
    }
}
