//! Takes secrets out of the messages of a WebSocket, whose parts may come in frames of their own (RFC 6455 section 5.4):
//! the heads of these stand between the letters of a value. What waits at the end of a part waits for the next one, and
//! with it whatever comes in between.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use super::frames::Unmasking;
use super::mask::Mask;

/// Pieces that may wait, each as long as a control frame may be. A stream of which more would have to is broken off: a
/// value could stand in what waits.
const MOST: usize = 256;

/// The frames of one direction.
pub(super) struct Fragments {
    unmasking: Unmasking,
    /// Of control frames, which are no part of a message.
    controls: Mask,
    waiting: VecDeque<Piece>,
    /// What may pass, of messages.
    clear: BytesMut,
    /// And of control frames.
    clear_controls: BytesMut,
    /// More would have to wait than may.
    is_crowded: bool,
}

enum Piece {
    Head(Bytes),
    /// So many bytes of a message.
    Message(usize),
    /// And of a control frame.
    Control(usize),
}

/// What came of messages, or of control frames.
#[derive(Default)]
struct Run {
    bytes: BytesMut,
    /// So much of it is whole; none where nothing is.
    ended: Option<usize>,
}

impl Run {
    /// Nothing more is waited for.
    fn end(&mut self) {
        self.ended = Some(self.bytes.len());
    }

    fn search(mut self, mask: &mut Mask, clear: &mut BytesMut) {
        if let Some(ended) = self.ended {
            clear.extend_from_slice(&mask.pass(self.bytes.split_to(ended).freeze()));
            clear.extend_from_slice(&mask.finish());
        }
        clear.extend_from_slice(&mask.pass(self.bytes.freeze()));
    }
}

impl Fragments {
    /// `mask` is that of the messages.
    pub(super) fn new(mask: &Mask) -> Self {
        Self {
            unmasking: Unmasking::default(),
            controls: mask.again(),
            waiting: VecDeque::new(),
            clear: BytesMut::new(),
            clear_controls: BytesMut::new(),
            is_crowded: false,
        }
    }

    /// What of these bytes may pass now. However small the frames are, each kind is searched once or twice.
    pub(super) fn pass(&mut self, mask: &mut Mask, mut bytes: Bytes) -> Bytes {
        if self.is_crowded {
            return Bytes::new();
        }
        let (mut messages, mut controls) = (Run::default(), Run::default());
        while !bytes.is_empty() {
            let mut rest = &bytes[..];
            let payload = self.unmasking.next(&mut rest);
            let mut taken = bytes.split_to(bytes.len() - rest.len());
            let (length, is_control) =
                payload.map_or((0, false), |payload| (payload.plain.len(), payload.is_control));
            let payload = taken.split_off(taken.len() - length);
            if !taken.is_empty() {
                self.waiting.push_back(Piece::Head(taken));
            }
            // A frame may come in any number of pieces.
            match (self.waiting.back_mut(), is_control) {
                (Some(Piece::Control(waiting)), true) | (Some(Piece::Message(waiting)), false) => {
                    *waiting += length;
                }
                (_, true) => self.waiting.push_back(Piece::Control(length)),
                (_, false) => self.waiting.push_back(Piece::Message(length)),
            }
            let run = if is_control { &mut controls } else { &mut messages };
            run.bytes.extend_from_slice(&payload);
            if self.unmasking.is_between() {
                controls.end();
                if !self.unmasking.goes_on() {
                    messages.end();
                }
            }
        }
        controls.search(&mut self.controls, &mut self.clear_controls);
        messages.search(mask, &mut self.clear);
        let mut passed = BytesMut::new();
        self.drain(&mut passed);
        self.is_crowded = self.waiting.len() > MOST;
        passed.freeze()
    }

    /// What searches control frames.
    pub(super) fn controls(&mut self) -> &mut Mask {
        &mut self.controls
    }

    /// Whether nothing more may pass: what came is no WebSocket's any more, or holds more than can wait.
    pub(super) fn is_broken(&self) -> bool {
        self.unmasking.is_broken() || self.is_crowded
    }

    /// Nothing comes any more: what waited.
    pub(super) fn finish(&mut self, mask: &mut Mask) -> Bytes {
        if self.is_crowded {
            return Bytes::new();
        }
        self.clear.extend_from_slice(&mask.finish());
        self.clear_controls.extend_from_slice(&self.controls.finish());
        let mut passed = BytesMut::new();
        self.drain(&mut passed);
        passed.freeze()
    }

    /// Moves what may pass, in the order in which it came.
    fn drain(&mut self, passed: &mut BytesMut) {
        while let Some(piece) = self.waiting.front_mut() {
            let (length, clear) = match piece {
                Piece::Head(head) => {
                    passed.extend_from_slice(head);
                    self.waiting.pop_front();
                    continue;
                }
                Piece::Message(length) => (length, &mut self.clear),
                Piece::Control(length) => (length, &mut self.clear_controls),
            };
            let now = clear.len().min(*length);
            passed.extend_from_slice(&clear[..now]);
            clear.advance(now);
            *length -= now;
            if *length > 0 {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::needle::forms;
    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        [&[first, u8::try_from(payload.len()).unwrap()], payload].concat()
    }

    fn passed(bytes: &[u8], cut: usize) -> Vec<u8> {
        let mut mask = Mask::new(forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into());
        let mut fragments = Fragments::new(&mask);
        let pieces = bytes.chunks(cut).map(|piece| fragments.pass(&mut mask, Bytes::copy_from_slice(piece)));
        let mut passed = pieces.collect::<Vec<_>>().concat();
        passed.extend_from_slice(&fragments.finish(&mut mask));
        passed
    }

    #[test]
    fn a_value_in_parts_is_masked() {
        let of = |one: &[u8], two: &[u8], three: &[u8], ping: &[u8]| {
            [
                frame(0x81, b"hello"),
                frame(0x01, one),
                frame(0x89, ping),
                frame(0x00, two),
                frame(0x00, b""),
                frame(0x80, three),
                frame(0x82, b"end"),
            ]
            .concat()
        };
        let bytes = of(b"a token ghp_01", b"2345", b"6789 it is", b"ghp_0123456789!");
        let expected = of(b"a token ghp_XX", b"XXXX", b"XXXX it is", b"ghp_XXXXXXXXXX!");
        for cut in 1..=bytes.len() {
            assert_eq!(passed(&bytes, cut), expected, "pieces of {cut}");
        }
    }

    #[test]
    fn a_part_waits_for_the_next_and_a_message_does_not() {
        let mut mask = Mask::new(forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into());
        let mut fragments = Fragments::new(&mask);
        let mut pass = |frame: Vec<u8>| fragments.pass(&mut mask, frame.into());
        assert_eq!(pass(frame(0x01, b"a ghp_01"))[..], b"\x01\x08a "[..]);
        assert_eq!(pass(frame(0x89, b""))[..], b""[..]);
        assert_eq!(pass(frame(0x80, b""))[..], b"ghp_01\x89\x00\x80\x00"[..]);
        assert_eq!(pass(frame(0x81, b"ghp_01"))[..], frame(0x81, b"ghp_01")[..]);
    }

    #[test]
    fn a_frame_may_come_byte_by_byte() {
        let value = format!("sk-proj-{}", "Real0Val".repeat(40));
        let mut mask = Mask::new(forms(value.as_bytes(), b"PLACEHOLDER").into());
        let mut fragments = Fragments::new(&mask);
        let length = u16::try_from(value.len()).unwrap().to_be_bytes();
        let bytes = [&[0x81, 126, length[0], length[1]], value.as_bytes()].concat();
        let pass = |byte: &u8| fragments.pass(&mut mask, Bytes::copy_from_slice(&[*byte]));
        let passed = bytes.iter().map(pass).collect::<Vec<_>>().concat();
        assert_eq!(passed.len(), bytes.len());
        assert!(passed[4..].starts_with(b"PLACEHOLDERPLACE"), "{}", String::from_utf8_lossy(&passed));
        assert!(memchr::memmem::find(&passed, b"Real").is_none());
    }

    #[test]
    fn a_control_frame_is_short_and_whole() {
        let long = [&[0x89, 126, 0, 126][..], &[b'x'; 126]].concat();
        for broken in [long, frame(0x09, b"part"), [&[0x89, 127][..], &[0; 3], &[1; 5]].concat()] {
            let mut mask = Mask::new(forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into());
            let mut fragments = Fragments::new(&mask);
            fragments.pass(&mut mask, [frame(0x01, b"ghp_01"), frame(0x89, &[b'x'; 125])].concat().into());
            assert!(!fragments.is_broken());
            fragments.pass(&mut mask, broken.into());
            fragments.pass(&mut mask, vec![b'x'; 1 << 20].into());
            assert!(fragments.is_broken() && fragments.clear_controls.len() <= 125);
        }
    }

    #[test]
    fn small_frames_are_searched_together() {
        let value = "Real0Val".repeat(40);
        for message in [frame(0x81, b"%61"), frame(0x89, b"%61"), frame(0x01, b"%61")] {
            let mut mask = Mask::new(forms(value.as_bytes(), b"PLACEHOLDER").into());
            let mut fragments = Fragments::new(&mask);
            for _ in 0..5 {
                fragments.pass(&mut mask, message.repeat(16 << 10 >> 3).into());
            }
            let searched = mask.worked().max(fragments.controls.worked());
            assert!(searched < 5 * 3 * (16 << 10) * 7 * 7, "{searched}");
        }
    }

    #[test]
    fn control_frames_in_between_let_nothing_pass() {
        for (ping, at_once) in [(&b"!"[..], true), (b"!", false), (b"", false)] {
            let mut mask = Mask::new(forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into());
            let mut fragments = Fragments::new(&mask);
            let mut passed = fragments.pass(&mut mask, frame(0x01, b"a ghp_0123").into()).to_vec();
            let pings = frame(0x89, ping).repeat(200);
            let length = if at_once { pings.len() } else { ping.len() + 2 };
            for piece in pings.chunks(length) {
                passed.extend(fragments.pass(&mut mask, Bytes::copy_from_slice(piece)));
            }
            passed.extend(fragments.pass(&mut mask, frame(0x80, b"456789").into()));
            assert!(fragments.is_broken());
            passed.extend(fragments.finish(&mut mask));
            assert_eq!(passed, b"\x01\x0aa ");
        }
    }

    #[test]
    fn little_waits() {
        let mut mask = Mask::new(forms(b"ghp_0123456789", b"ghp_XXXXXXXXXX").into());
        let mut fragments = Fragments::new(&mask);
        fragments.pass(&mut mask, frame(0x01, b"ghp_01").into());
        for _ in 0..10_000 {
            fragments.pass(&mut mask, frame(0x89, b"").into());
            assert!(fragments.waiting.len() <= MOST + 2);
        }
    }
}
