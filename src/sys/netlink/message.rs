//! The netlink message format: a builder for requests and a bounds-checked reader for answers.

use std::io;

use nix::errno::Errno;

/// `sizeof(struct nlmsghdr)`.
const HEADER: usize = 16;
/// `sizeof(struct nlattr)`.
const ATTRIBUTE_HEADER: usize = 4;
/// Messages and attributes are padded to this (NLMSG_ALIGNTO, NLA_ALIGNTO).
const ALIGNMENT: usize = 4;

const _: () = assert!(HEADER == size_of::<libc::nlmsghdr>());
const _: () = assert!(ATTRIBUTE_HEADER == size_of::<libc::nlattr>());

/// Marks an attribute that holds attributes.
const NESTED: u16 = 1 << 15;
const NLMSG_ERROR: u16 = 2;

/// Writes messages one after another into one buffer.
#[derive(Default)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// Appends a message whose family header and attributes are written by `body`.
    pub(super) fn message(&mut self, kind: u16, flags: u16, sequence: u32, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.put(&[0; 4]);
        self.put(&kind.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&sequence.to_ne_bytes());
        self.put(&[0; 4]); // port id: the kernel knows the sender
        body(self);
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.align();
    }

    /// Appends raw bytes: the fixed header of a family.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends an attribute with `payload`.
    pub(super) fn attribute(&mut self, kind: u16, payload: &[u8]) {
        self.wrapped(kind, |encoder| encoder.put(payload));
    }

    /// Appends an attribute that holds a number in network order, as nf_tables wants it.
    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// Appends an attribute that holds a text with its closing NUL.
    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.wrapped(kind, |encoder| {
            encoder.put(value.as_bytes());
            encoder.put(&[0]);
        });
    }

    /// Appends an attribute whose attributes are written by `body`.
    pub(super) fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.wrapped(kind | NESTED, body);
    }

    /// The encoded messages.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn wrapped(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.put(&[0; 2]);
        self.put(&kind.to_ne_bytes());
        body(self);
        // A length that does not fit is refused by the kernel: it passes the end of the message.
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

/// One answer of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    /// `nlmsg_type`.
    pub(super) kind: u16,
    /// `nlmsg_seq`: that of the request.
    pub(super) sequence: u32,
    /// What follows the header.
    pub(super) payload: &'a [u8],
}

impl Message<'_> {
    /// What the kernel said of a request, when this is such an answer (`struct nlmsgerr`; 0 means accepted).
    pub(super) fn acknowledgement(&self) -> io::Result<Option<io::Result<()>>> {
        if self.kind != NLMSG_ERROR {
            return Ok(None);
        }
        let code = i32::from_ne_bytes(field(self.payload, 0)?);
        Ok(Some(match code {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        }))
    }
}

/// Reads the messages of one datagram.
pub(super) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    pub(super) fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    fn read(&mut self) -> io::Result<Message<'a>> {
        let length = u32::from_ne_bytes(field(self.rest, 0)?);
        let length = usize::try_from(length).map_err(|_| Errno::EBADMSG)?;
        let payload = self.rest.get(HEADER..length).ok_or(Errno::EBADMSG)?;
        let message = Message {
            kind: u16::from_ne_bytes(field(self.rest, 4)?),
            sequence: u32::from_ne_bytes(field(self.rest, 8)?),
            payload,
        };
        self.rest = self.rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Ok(message)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = io::Result<Message<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = self.read();
        if message.is_err() {
            self.rest = &[];
        }
        Some(message)
    }
}

/// The `N` bytes at `offset`; EBADMSG when there are fewer.
pub(super) fn field<const N: usize>(bytes: &[u8], offset: usize) -> io::Result<[u8; N]> {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().ok_or_else(|| Errno::EBADMSG.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_padded_and_read_back() {
        let mut encoder = Encoder::default();
        encoder.message(7, 1, 42, |m| m.text(3, "abcd"));
        encoder.message(8, 1, 43, |m| m.nested(4, |m| m.number(1, 0x0102_0304)));
        let bytes = encoder.into_bytes();
        let read: Vec<_> = Messages::new(&bytes).map(|m| m.expect("valid")).collect();

        assert_eq!((read[0].kind, read[0].sequence), (7, 42));
        assert_eq!(read[0].payload[..9], [9, 0, 3, 0, b'a', b'b', b'c', b'd', 0]);
        assert_eq!((read[1].kind, read[1].sequence), (8, 43));
        assert_eq!(
            read[1].payload,
            [12, 0, 4, 0x80, 8, 0, 1, 0, 1, 2, 3, 4],
            "little-endian attribute headers, numbers in network order"
        );
    }

    #[test]
    fn malformed_answers_are_errors() {
        let short = [20u8, 0, 0];
        let longer_than_datagram = [200u8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let shorter_than_header = [4u8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for bytes in [&short[..], &longer_than_datagram, &shorter_than_header] {
            let read: Vec<_> = Messages::new(bytes).collect();
            assert_eq!(read.len(), 1);
            assert!(read[0].is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn an_acknowledgement_without_a_code_is_an_error() {
        let message = Message { kind: NLMSG_ERROR, sequence: 0, payload: &[0, 0] };
        assert!(message.acknowledgement().is_err());
    }
}
