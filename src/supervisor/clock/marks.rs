//! Marks: how far a thread had read its tape at each call that the supervisor saw of it.
//!
//! A thread that waits for others reads the clock now and then more often, or less, than it did while it was
//! recorded. At the next mark it is put back to its place, and sees the recorded times from there on.
//!
//! A mark stands where the thread had read the clock since the mark before. It is packed as three LEB128
//! numbers: calls since that mark, the number of the call, reads since that mark.

use std::collections::VecDeque;

/// Calls in a row that may be others.
const OTHERS: u32 = 16;

/// Where a thread was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Mark {
    /// Calls of the thread, this one among them.
    calls: u64,
    /// The number of the call.
    number: u64,
    /// Reads before the call.
    reads: u64,
}

/// Makes marks.
#[derive(Debug, Default)]
pub(super) struct Marker {
    calls: u64,
    last: Mark,
    bytes: Vec<u8>,
}

impl Marker {
    /// The thread, which has read the clock so often, makes a call.
    pub(super) fn call(&mut self, number: u64, reads: u64) {
        self.calls += 1;
        let Some(since) = reads.checked_sub(self.last.reads).filter(|since| *since > 0) else { return };
        for number in [self.calls - self.last.calls, number, since] {
            pack(&mut self.bytes, number);
        }
        self.last = Mark { calls: self.calls, number, reads };
    }

    /// The packed marks since the last time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// Finds marks again.
#[derive(Debug, Default)]
pub(super) struct Marks {
    calls: u64,
    last: Mark,
    next: Option<Mark>,
    bytes: VecDeque<u8>,
    /// Calls in a row that were others than then.
    others: u32,
}

impl Marks {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let mut marks = Self { bytes: bytes.into(), ..Self::default() };
        marks.advance();
        marks
    }

    fn advance(&mut self) {
        let numbers = [(); 3].map(|()| unpack(&mut self.bytes));
        self.next = match numbers {
            [Some(calls), Some(number), Some(reads)] => Some(Mark {
                calls: self.last.calls.saturating_add(calls),
                number,
                reads: self.last.reads.saturating_add(reads),
            }),
            _ => None,
        };
        self.last = self.next.unwrap_or_default();
    }

    /// The thread makes a call: how often it had read the clock when it was recorded, if there is a mark. Two calls
    /// may come in the other order than then. Where several in a row are others there are no more marks: nothing
    /// says where the thread is.
    pub(super) fn call(&mut self, number: u64) -> Option<u64> {
        self.calls += 1;
        let mark = self.next.filter(|mark| mark.calls <= self.calls)?;
        self.advance();
        if (mark.calls, mark.number) == (self.calls, number) {
            self.others = 0;
            return Some(mark.reads);
        }
        self.others += 1;
        if self.others > OTHERS {
            self.next = None;
            self.bytes.clear();
        }
        None
    }
}

fn pack(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let [lowest, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return bytes.push(lowest);
        }
        bytes.push(lowest | 0x80);
    }
}

fn unpack(bytes: &mut VecDeque<u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.pop_front()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_mark_is_found_again(calls in proptest::collection::vec((0_u64..500, 0_u64..300), 0..100), cut in 0_usize..100) {
            let mut marker = Marker::default();
            let mut bytes = Vec::new();
            let (mut reads, mut marked, mut expected) = (0, 0, Vec::new());
            for (index, (number, since)) in calls.iter().enumerate() {
                reads += since;
                marker.call(*number, reads);
                expected.push((reads > marked).then_some(reads));
                marked = reads;
                if index == cut {
                    bytes = marker.take();
                }
            }
            bytes.extend(marker.take());
            let mut marks = Marks::new(bytes);
            let found: Vec<_> = calls.iter().map(|(number, _)| marks.call(*number)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn anything_can_be_unpacked(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut marks = Marks::new(bytes);
            (0..300).for_each(|number| { marks.call(number); });
        }
    }

    #[test]
    fn other_calls_end_the_marks() {
        let mut marker = Marker::default();
        for call in 1..=20 {
            marker.call(call, call * 5);
        }
        let bytes = marker.take();
        let followed = |calls: &[u64]| {
            let mut marks = Marks::new(bytes.clone());
            calls.iter().map(|number| marks.call(*number)).collect::<Vec<_>>()
        };
        assert_eq!(followed(&[1, 2]), [Some(5), Some(10)]);
        assert_eq!(followed(&[1, 3, 2, 4]), [Some(5), None, None, Some(20)]);
        assert_eq!(followed(&[2, 3, 4, 4]), [None, None, None, Some(20)]);
        let others: Vec<_> = (2..=18).chain(18..=20).collect();
        assert!(followed(&others).iter().all(Option::is_none));
    }
}
