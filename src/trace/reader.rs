//! Reads a trace line by line, in constant memory.

use std::io::{self, Read};

use super::layout::LONGEST_READ_LINE;

/// Bytes that are read at a time.
const STEP: usize = 1 << 20;

/// One line of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// A line that ended with a newline, without it.
    Whole(&'a [u8]),
    /// Bytes at the end of the file that no newline follows.
    Torn(&'a [u8]),
    /// A line that is longer than any entry may be. Nothing after it is read.
    TooLong,
}

/// Splits what it reads into lines.
pub struct Reader<R> {
    input: R,
    buffer: Vec<u8>,
    /// The bytes of `buffer` that were read and not given out yet.
    from: usize,
    to: usize,
    longest: usize,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> Self {
        Self::with_longest(input, LONGEST_READ_LINE)
    }

    fn with_longest(input: R, longest: usize) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            from: 0,
            to: 0,
            longest,
            ended: false,
        }
    }

    /// Returns the next line, or `None` after the last.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.from;
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[searched..self.to]) {
                let (from, end) = (self.from, searched + length);
                if end - from > self.longest {
                    return Ok(Some(self.too_long()));
                }
                self.from = end + 1;
                return Ok(Some(Line::Whole(&self.buffer[from..end])));
            }
            if self.to - self.from > self.longest {
                return Ok(Some(self.too_long()));
            }
            if self.ended {
                let (from, to) = (self.from, self.to);
                self.from = to;
                return Ok((from < to).then(|| Line::Torn(&self.buffer[from..to])));
            }
            let pending = self.to - self.from;
            self.fill()?;
            searched = self.from + pending;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        // Growing by doubling keeps a long line from being copied over and over.
        let wanted = (self.to + STEP).max(if self.to > STEP { self.to * 2 } else { 0 });
        if self.buffer.len() < self.to + STEP {
            self.buffer.resize(wanted, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.to..]) {
                Ok(count) => {
                    self.to += count;
                    self.ended = count == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn too_long(&mut self) -> Line<'static> {
        self.ended = true;
        self.from = self.to;
        Line::TooLong
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn lines(mut reader: Reader<impl Read>) -> Vec<(Vec<u8>, bool)> {
        let mut found = Vec::new();
        while let Some(line) = reader.next_line().expect("it reads") {
            match line {
                Line::Whole(bytes) => found.push((bytes.to_vec(), true)),
                Line::Torn(bytes) => found.push((bytes.to_vec(), false)),
                Line::TooLong => found.push((b"too long".to_vec(), false)),
            }
        }
        found
    }

    proptest! {
        #[test]
        fn any_bytes_come_out_as_they_are(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..400), step in 1_usize..50) {
            let found = lines(Reader::new(Trickle(&bytes, step)));
            let mut joined = Vec::new();
            for (line, whole) in &found {
                joined.extend_from_slice(line);
                if *whole {
                    joined.push(b'\n');
                }
            }
            prop_assert_eq!(joined, bytes);
            prop_assert!(found.iter().rev().skip(1).all(|(_, whole)| *whole));
        }
    }

    #[test]
    fn a_long_line_is_not_held() {
        let bytes = [vec![b'a'; 5_000_000], b"\nnext\n".to_vec()].concat();
        let mut reader = Reader::with_longest(&bytes[..], 1_000_000);
        assert_eq!(reader.next_line().expect("it reads"), Some(Line::TooLong));
        assert_eq!(reader.next_line().expect("it reads"), None);
        assert!(reader.buffer.len() < 4_000_000);
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_whole() {
        let bytes = [vec![b'a'; 5_000_000], b"\nnext\n".to_vec()].concat();
        let found = lines(Reader::new(&bytes[..]));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].0.len(), 5_000_000);
    }
}
