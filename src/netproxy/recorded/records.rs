//! Reads transcripts, in constant memory: what was said, by whom, in order.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::super::segments::Way;
use super::super::transcript::Stop;
use super::Blobs;

/// The longest line that begins a record.
const LONGEST_LINE: u64 = 256;

type Source = BufReader<Box<dyn Read + Send>>;

/// The beginning of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) way: Way,
    pub(super) what: What,
    /// Microseconds since the stream was opened.
    pub(super) micros: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// So many bytes follow.
    Piece(u64),
    Stop(Stop),
}

/// The records of the transcripts of one stream, one after another.
pub(super) struct Records {
    blobs: Blobs,
    waiting: VecDeque<String>,
    /// Locked by nobody: it makes the whole known to be used by one thread at a time.
    open: Option<Mutex<Source>>,
    /// Bytes of the present record that were not read yet, and whether its newline was not.
    left: u64,
    newline: bool,
}

impl Records {
    /// Those of the blobs of these names.
    pub(super) fn new(blobs: &Blobs, names: impl IntoIterator<Item = String>) -> Self {
        let waiting = names.into_iter().collect();
        Self { blobs: blobs.clone(), waiting, open: None, left: 0, newline: false }
    }

    /// The next record; what is left of the one before is passed over.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        self.pass_over()?;
        loop {
            let Some(open) = source(&mut self.open) else {
                let Some(name) = self.waiting.pop_front() else { return Ok(None) };
                self.open = Some(Mutex::new(BufReader::new((self.blobs)(&name)?)));
                continue;
            };
            let mut line = Vec::new();
            open.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                self.open = None;
                continue;
            }
            let record = parse(&line).ok_or_else(malformed)?;
            if let What::Piece(length) = record.what {
                (self.left, self.newline) = (length, true);
            }
            return Ok(Some(record));
        }
    }

    /// Reads of the present record; 0 at its end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(open) = source(&mut self.open).filter(|_| most > 0) else { return Ok(0) };
        let read = open.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(malformed());
        }
        self.left -= read as u64;
        Ok(read)
    }

    /// Bytes of the present record that were not read yet.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    fn pass_over(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(u64::from(self.newline));
        if let Some(open) = source(&mut self.open).filter(|_| rest > 0)
            && io::copy(&mut open.by_ref().take(rest), &mut io::sink())? != rest
        {
            return Err(malformed());
        }
        (self.left, self.newline) = (0, false);
        Ok(())
    }
}

fn source(open: &mut Option<Mutex<Source>>) -> Option<&mut Source> {
    open.as_mut().map(|open| open.get_mut().unwrap_or_else(PoisonError::into_inner))
}

fn parse(line: &[u8]) -> Option<Record> {
    let (way, what, micros): (String, Value, u64) = serde_json::from_slice(line).ok()?;
    let way = match way.as_str() {
        "up" => Way::Up,
        "down" => Way::Down,
        _ => return None,
    };
    let what = match &what {
        Value::String(stop) if stop == "end" => What::Stop(Stop::End),
        Value::String(stop) if stop == "reset" => What::Stop(Stop::Reset),
        length => What::Piece(length.as_u64()?),
    };
    Some(Record { way, what, micros })
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the recorded transcript cannot be read")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn records_come_in_order_whatever_is_read_of_them() {
        let text = b"[\"up\",3,1]\nabc\n[\"down\",0,2]\n\n[\"up\",\"end\",3]\n[\"down\",\"reset\",4]\n";
        let blobs: Blobs = Arc::new(|_: &str| Ok(Box::new(&text[..]) as Box<dyn Read + Send>));
        let mut records = Records::new(&blobs, ["a".to_owned(), "b".to_owned()]);
        for _ in 0..2 {
            let mut next = || records.next().unwrap().map(|record| (record.way, record.what));
            assert_eq!(next(), Some((Way::Up, What::Piece(3))));
            assert_eq!(next(), Some((Way::Down, What::Piece(0))));
            assert_eq!(next(), Some((Way::Up, What::Stop(Stop::End))));
            assert_eq!(next(), Some((Way::Down, What::Stop(Stop::Reset))));
        }
        assert!(records.next().unwrap().is_none());
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        for text in [&b"[\"up\",9,1]\nabc"[..], b"what\n", b"[\"up\",-1,2]\n"] {
            let blobs: Blobs = Arc::new(move |_: &str| Ok(Box::new(text) as Box<dyn Read + Send>));
            let mut records = Records::new(&blobs, ["a".to_owned()]);
            assert!(records.next().and_then(|_| records.next()).is_err());
        }
    }
}
