//! Points of the timeline, packed: what a tape is in the trace.
//!
//! A point is what a lane holds (`image.c`): nanoseconds in the lower 58 bits, the kind of read above.
//! Packed it is the distance from the point before, as a LEB128 number of which the lowest bit says whether the
//! kind of read has changed (then a byte with the new kind follows) and the next one whether the distance
//! is negative. The first point of a part is the distance from 0, of kind 0.

const KIND_SHIFT: u32 = 58;
const NANOSECONDS: u64 = (1 << KIND_SHIFT) - 1;

/// One read of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    /// Which clock, and for some of them who asked.
    pub(super) kind: u8,
    /// On the timeline, in nanoseconds.
    pub(super) at: u64,
}

impl Point {
    pub(super) fn new(kind: u8, at: u64) -> Self {
        Self { kind: kind & 63, at: at & NANOSECONDS }
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self { kind: (word >> KIND_SHIFT) as u8, at: word & NANOSECONDS }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.kind) << KIND_SHIFT | self.at
    }
}

/// Packs points.
#[derive(Debug)]
pub(super) struct Packer {
    bytes: Vec<u8>,
    before: Point,
    reads: u64,
}

impl Default for Packer {
    fn default() -> Self {
        Self { bytes: Vec::new(), before: Point::new(0, 0), reads: 0 }
    }
}

impl Packer {
    pub(super) fn push(&mut self, point: Point) {
        let (distance, negative) = match point.at.checked_sub(self.before.at) {
            Some(distance) => (distance, 0),
            None => (self.before.at - point.at, 1),
        };
        let changed = point.kind != self.before.kind;
        let mut number = distance << 2 | negative << 1 | u64::from(changed);
        while number > 0x7f {
            self.bytes.push(lowest(number) | 0x80);
            number >>= 7;
        }
        self.bytes.push(lowest(number));
        if changed {
            self.bytes.push(point.kind);
        }
        self.before = point;
        self.reads += 1;
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// What was packed, and how many points it is.
    pub(super) fn take(&mut self) -> (Vec<u8>, u64) {
        let Self { bytes, reads, .. } = std::mem::take(self);
        (bytes, reads)
    }
}

fn lowest(number: u64) -> u8 {
    let [lowest, ..] = number.to_le_bytes();
    lowest
}

/// Unpacks points, part after part. Bytes that are no points end a part.
#[derive(Debug, Default)]
pub(super) struct Unpacker {
    parts: std::vec::IntoIter<Vec<u8>>,
    bytes: std::vec::IntoIter<u8>,
    before: Option<Point>,
}

impl Unpacker {
    pub(super) fn new(parts: Vec<Vec<u8>>) -> Self {
        Self { parts: parts.into_iter(), ..Self::default() }
    }

    fn in_part(&mut self) -> Option<Point> {
        let before = self.before.unwrap_or_else(|| Point::new(0, 0));
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes.next()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let kind = if number & 1 == 1 { self.bytes.next()? } else { before.kind };
                let distance = number >> 2;
                let at = match number & 2 {
                    0 => before.at.wrapping_add(distance),
                    _ => before.at.wrapping_sub(distance),
                };
                return Some(Point::new(kind, at));
            }
        }
        None
    }
}

impl Iterator for Unpacker {
    type Item = Point;

    fn next(&mut self) -> Option<Point> {
        loop {
            if let Some(point) = self.in_part() {
                self.before = Some(point);
                return Some(point);
            }
            self.bytes = self.parts.next()?.into_iter();
            self.before = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_out(words in proptest::collection::vec(any::<u64>(), 0..200), cut in 0_usize..200) {
            let points: Vec<Point> = words.iter().map(|word| Point::from_word(*word)).collect();
            prop_assert!(points.iter().zip(&words).all(|(point, word)| point.word() == *word));
            let mut packer = Packer::default();
            let mut parts = Vec::new();
            for (index, point) in points.iter().enumerate() {
                if index == cut {
                    parts.push(packer.take().0);
                }
                packer.push(*point);
            }
            parts.push(packer.take().0);
            prop_assert_eq!(Unpacker::new(parts).collect::<Vec<_>>(), points);
        }

        #[test]
        fn anything_can_be_unpacked(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..4)) {
            let bytes: usize = parts.iter().map(Vec::len).sum();
            prop_assert!(Unpacker::new(parts).count() <= bytes);
        }
    }

    #[test]
    fn reads_in_a_row_take_a_byte_each() {
        let mut packer = Packer::default();
        (0..100).for_each(|read| packer.push(Point::new(1, 5_000_000_000_000 + read * 25)));
        assert!(packer.size() < 110, "{}", packer.size());
        assert_eq!(packer.take().1, 100);
        assert_eq!(packer.size(), 0);
    }
}
