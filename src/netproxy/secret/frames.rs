//! What a WebSocket carries, without its mask (RFC 6455 section 5.2), to be searched.

use super::watch::Watch;

/// Frames from here on are control frames, which may stand between the parts of a message.
const CONTROL: u8 = 8;

/// A control frame holds no more (RFC 6455 section 5.5), and is one by itself.
const LONGEST_CONTROL: u64 = 125;

/// The longest head: two bytes, a length of eight, a mask of four.
const LONGEST: usize = 14;

/// The frames of one direction, searched.
pub(super) struct Frames {
    messages: Watch,
    controls: Watch,
    unmasking: Unmasking,
}

impl Frames {
    pub(super) fn new(watch: &Watch) -> Self {
        Self { messages: watch.again(), controls: watch.again(), unmasking: Unmasking::default() }
    }

    /// Whether what came is no WebSocket's any more.
    pub(super) fn is_broken(&self) -> bool {
        self.unmasking.is_broken()
    }

    /// The secret whose placeholder is whole with these bytes.
    pub(super) fn see(&mut self, mut bytes: &[u8]) -> Option<usize> {
        let mut found = None;
        while let Some(Payload { is_control, plain }) = self.unmasking.next(&mut bytes) {
            let watch = if is_control { &mut self.controls } else { &mut self.messages };
            let seen = watch.see(&plain);
            found = found.or(seen);
        }
        found
    }
}

/// Takes the heads and the masks off frames, in whatever pieces they come.
#[derive(Default)]
pub struct Unmasking {
    head: [u8; LONGEST],
    filled: usize,
    /// The frame that is being read.
    open: Option<Open>,
    /// More frames of the message are to come.
    goes_on: bool,
    /// A frame came that there may not be. Nothing is read any more.
    is_broken: bool,
}

/// A part of what one frame carries.
#[derive(Debug, PartialEq, Eq)]
pub struct Payload {
    /// Of a control frame, which is no part of a message.
    pub is_control: bool,
    /// Its bytes without the mask.
    pub plain: Vec<u8>,
}

struct Open {
    is_control: bool,
    is_last: bool,
    mask: [u8; 4],
    left: u64,
    read: usize,
}

impl Unmasking {
    /// Takes bytes up to the end of the next part of a payload. None where there is none: then all bytes are taken.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<Payload> {
        while self.open.is_none() {
            if self.is_broken {
                *bytes = &[];
            }
            let (first, rest) = bytes.split_first()?;
            self.head[self.filled] = *first;
            self.filled += 1;
            *bytes = rest;
            if let Some(open) = frame(&self.head[..self.filled]) {
                self.filled = 0;
                if open.is_control && (!open.is_last || open.left > LONGEST_CONTROL) {
                    self.is_broken = true;
                    continue;
                }
                self.goes_on = if open.is_control { self.goes_on } else { !open.is_last };
                self.open = Some(open).filter(|open| open.left > 0);
            }
        }
        let open = self.open.as_mut().filter(|_| !bytes.is_empty())?;
        let length = usize::try_from(open.left).unwrap_or(usize::MAX).min(bytes.len());
        let (payload, rest) = bytes.split_at(length);
        *bytes = rest;
        let first = open.read;
        let plain = payload.iter().enumerate().map(|(at, byte)| byte ^ open.mask[(first + at) % 4]).collect();
        let is_control = open.is_control;
        open.read = (first + length) % 4;
        open.left -= length as u64;
        if open.left == 0 {
            self.open = None;
        }
        Some(Payload { is_control, plain })
    }

    /// Whether the last frame has ended and no further one has begun.
    pub(super) fn is_between(&self) -> bool {
        self.open.is_none() && self.filled == 0
    }

    /// Whether a control frame came that is too long, or a part of one (RFC 6455 section 5.5).
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether the message has parts that are still to come.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }
}

/// The frame whose head this is; none while it is not whole.
fn frame(head: &[u8]) -> Option<Open> {
    let &[first, second, ref rest @ ..] = head else { return None };
    let (left, rest) = match second & 0x7f {
        126 => {
            rest.split_first_chunk::<2>().map(|(length, rest)| (u16::from_be_bytes(*length).into(), rest))?
        }
        127 => rest.split_first_chunk::<8>().map(|(length, rest)| (u64::from_be_bytes(*length), rest))?,
        short => (short.into(), rest),
    };
    let mask = if second & 0x80 == 0 { [0; 4] } else { *rest.first_chunk::<4>()? };
    let (is_control, is_last) = (first & 0x0f >= CONTROL, first & 0x80 != 0);
    Some(Open { is_control, is_last, mask, left, read: 0 })
}

#[cfg(test)]
mod tests {
    use super::super::needle::forms;
    use super::*;

    const PLACEHOLDER: &[u8] = b"Zb3kQ9xLm2Vt7Rw1";

    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [7, 200, 0, 31];
        let mut frame = vec![opcode];
        match payload.len() {
            length @ 0..126 => frame.push(0x80 | u8::try_from(length).unwrap()),
            length => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
            }
        }
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
        frame
    }

    #[test]
    fn a_placeholder_is_found_across_frames_and_reads() {
        let long = [&[b'x'; 300][..], &PLACEHOLDER[..5]].concat();
        let bytes = [
            masked(0x81, b"nothing here"),
            masked(0x01, &long),
            masked(0x89, b"a ping in between"),
            masked(0x00, b""),
            masked(0x80, &PLACEHOLDER[5..]),
        ]
        .concat();
        for cut in [1, 3, 64, bytes.len()] {
            let marks = forms(PLACEHOLDER, b"x").into_iter().map(|needle| (4, needle)).collect();
            let mut frames = Frames::new(&Watch::new(marks, Vec::new()).unwrap());
            let found: Vec<usize> = bytes.chunks(cut).filter_map(|piece| frames.see(piece)).collect();
            assert_eq!(found, [4], "pieces of {cut}");
        }
    }
}
