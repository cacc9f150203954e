//! Where in a stream of TLS a byte stands: for the report, which cannot read what is said there.

/// The header of a record (RFC 8446 section 5.1).
const HEADER: usize = 5;

/// The types of records.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// An alert in TLS 1.3, sealed: two bytes, their type, and the tag of the cipher (RFC 8446 section 5.2).
const SEALED_ALERT: usize = 2 + 1 + 16;

/// The longest that an alert of TLS 1.2 gets by any cipher.
const LONGEST_ALERT: usize = 64;

/// Follows the records of one direction.
#[derive(Default)]
pub(super) struct Framing {
    state: State,
    header: Vec<u8>,
    /// Bytes of the present record that have not come.
    left: usize,
    /// Records that have begun.
    records: u64,
    /// Whole records since [`begin_rest`](Self::begin_rest) that were no alerts.
    others: u64,
}

#[derive(Default, PartialEq, Eq)]
enum State {
    /// Nothing has come yet.
    #[default]
    Unknown,
    Tls,
    /// It is no TLS.
    Other,
}

impl Framing {
    pub(super) fn see(&mut self, mut bytes: &[u8]) {
        if self.state == State::Unknown
            && let Some(&first) = bytes.first()
        {
            self.state = if first == HANDSHAKE { State::Tls } else { State::Other };
        }
        while self.state == State::Tls && !bytes.is_empty() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            if self.header.len() == HEADER {
                self.header.clear();
            }
            if self.header.is_empty() {
                self.records += 1;
            }
            let taken = (HEADER - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let [kind, _, _, high, low] = self.header[..] {
                self.left = usize::from(u16::from_be_bytes([high, low]));
                self.others += u64::from(!is_alert(kind, self.left));
            }
        }
    }

    /// What comes now was not recorded.
    pub(super) fn begin_rest(&mut self) {
        self.others = 0;
    }

    /// Whether no more than alerts has come since: the end of TLS.
    pub(super) fn is_closing(&self) -> bool {
        self.state == State::Tls && self.others == 0
    }

    /// Whether it is TLS at all.
    pub(super) fn is_tls(&self) -> bool {
        self.state == State::Tls
    }

    /// The record that the next byte belongs to.
    pub(super) fn place(&self) -> Option<String> {
        if self.state != State::Tls {
            return None;
        }
        let is_between = self.left == 0 && self.header.len() == HEADER;
        if is_between {
            return Some(format!("TLS record {}", self.records + 1));
        }
        let kind = match self.header.first() {
            Some(&20) => "change of cipher",
            Some(&ALERT) => "alert",
            Some(&HANDSHAKE) => "handshake",
            Some(&APPLICATION_DATA) => "application data",
            _ => "unknown",
        };
        Some(format!("TLS record {} ({kind})", self.records))
    }
}

fn is_alert(kind: u8, length: usize) -> bool {
    match kind {
        ALERT => length <= LONGEST_ALERT,
        APPLICATION_DATA => length == SEALED_ALERT,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_across_pieces() {
        let mut framing = Framing::default();
        for byte in b"\x16\x03\x01\x00\x02ab\x17\x03\x03\x00\x03c" {
            framing.see(&[*byte]);
        }
        assert_eq!(framing.place().unwrap(), "TLS record 2 (application data)");
        framing.see(b"de");
        assert_eq!(framing.place().unwrap(), "TLS record 3");
    }

    #[test]
    fn an_end_of_tls_is_told_from_what_is_said() {
        let mut framing = Framing::default();
        framing.see(b"\x16\x03\x01\x00\x01a");
        framing.begin_rest();
        framing.see(&[&b"\x17\x03\x03\x00\x13"[..], &[0; 19]].concat());
        assert!(framing.is_closing());
        framing.see(b"\x17\x03\x03\x00\x14");
        assert!(!framing.is_closing());
        let mut plain = Framing::default();
        plain.see(b"hello");
        assert!(!plain.is_closing() && plain.place().is_none());
    }
}
