//! What was said on a stream, as it is compared and as it is played.

use std::io;
use std::time::Duration;

use super::super::segments::Way;
use super::Blobs;
use super::diverged::Diverged;
use super::framing::Framing;
use super::records::{Record, Records, What};

/// The client's bytes that are compared at once.
const PIECE: usize = 4096;

/// What of an origin's first bytes is told before they are played.
const OPENING: usize = 16;

/// What was said, as it is compared and as it is played.
pub(super) struct Script {
    /// What the client said.
    said: Records,
    /// What the origin said.
    heard: Records,
    due: Due,
    opening: Vec<u8>,
    framing: Framing,
    /// Bytes of the client's so far.
    up: u64,
    /// It has ended its half.
    ended: bool,
    /// It has said all that it had said, and goes on.
    beyond: bool,
}

/// What the origin does next, and what the client must have done before.
struct Due {
    up: u64,
    ended: bool,
    next: Option<(What, u64)>,
    /// Since what was before it, of either side.
    gap: Duration,
    /// That was the origin's.
    follows: bool,
}

impl Script {
    /// Of the transcripts of these names; none where there is none.
    pub(super) fn of(blobs: &Blobs, names: Vec<String>) -> io::Result<Option<Self>> {
        if names.is_empty() { Ok(None) } else { Self::new(blobs, names).map(Some) }
    }

    fn new(blobs: &Blobs, names: Vec<String>) -> io::Result<Self> {
        let said = Records::new(blobs, names.clone());
        let heard = Records::new(blobs, names);
        let due = Due { up: 0, ended: false, next: None, gap: Duration::ZERO, follows: false };
        let (opening, framing) = (Vec::new(), Framing::default());
        let mut script = Self { said, heard, due, opening, framing, up: 0, ended: false, beyond: false };
        script.advance()?;
        if script.due.up == 0
            && let Some((What::Piece(length), _)) = script.due.next
        {
            let most = usize::try_from(length).unwrap_or(OPENING).min(OPENING);
            script.opening.resize(most, 0);
            let mut filled = 0;
            while filled < most {
                match script.heard.read(&mut script.opening[filled..])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => filled += read,
                }
            }
        }
        Ok(script)
    }

    /// The first bytes of an origin that speaks before its client does.
    pub(super) fn opening(&self) -> Option<&[u8]> {
        let begins = self.up == 0 && self.due.up == 0 && !self.due.ended && self.due.next.is_some();
        begins.then_some(&self.opening[..])
    }

    /// What the origin does next, and when it did.
    pub(super) fn next(&self) -> Option<(What, u64)> {
        self.due.next
    }

    /// The same, if it is due.
    pub(super) fn due(&self) -> Option<(What, u64)> {
        self.due.next.filter(|_| self.is_due())
    }

    /// How long after what was before it that is, once it is due.
    pub(super) fn gap(&self) -> Duration {
        self.due.gap
    }

    /// Whether the origin did what was before it.
    pub(super) fn follows(&self) -> bool {
        self.due.follows
    }

    /// Bytes that the client has said.
    pub(super) fn said(&self) -> u64 {
        self.up
    }

    pub(super) fn is_tls(&self) -> bool {
        self.framing.is_tls()
    }

    /// The client has ended its half.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Finds what the origin does next.
    fn advance(&mut self) -> io::Result<()> {
        let mut before = self.due.next.take().map_or(0, |(_, micros)| micros);
        self.due.follows = before > 0;
        while let Some(Record { way, what, micros }) = self.heard.next()? {
            if way == Way::Up {
                (before, self.due.follows) = (micros, false);
            }
            match (way, what) {
                (Way::Up, What::Piece(length)) => self.due.up = self.due.up.saturating_add(length),
                (Way::Up, What::Stop(_)) => self.due.ended = true,
                (Way::Down, What::Piece(0)) => {}
                (Way::Down, what) => {
                    self.due.next = Some((what, micros));
                    self.due.gap = Duration::from_micros(micros.saturating_sub(before));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A client that has ended its half says no more: what was due after more is due as well.
    fn is_due(&self) -> bool {
        self.ended || (self.up >= self.due.up && !self.due.ended)
    }

    pub(super) fn play(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The rest of it does not wait again.
        (self.due.gap, self.due.follows) = (Duration::ZERO, true);
        let taken = self.opening.len().min(buffer.len());
        let read = if taken > 0 {
            buffer[..taken].copy_from_slice(&self.opening[..taken]);
            self.opening.drain(..taken);
            taken
        } else {
            self.heard.read(buffer)?
        };
        if self.opening.is_empty() && self.heard.left() == 0 {
            self.advance()?;
        }
        Ok(read)
    }

    /// Where the client's next bytes differ from those that were recorded.
    pub(super) fn compare(&mut self, bytes: &[u8]) -> io::Result<Option<Diverged>> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut recorded = [0; PIECE];
            let most = rest.len().min(PIECE);
            let read = self.said.read(&mut recorded[..most])?;
            if read == 0 {
                if self.next_said()? {
                    continue;
                }
                // The end of TLS may have been lost in a race with the end of the stream.
                self.framing.see(rest);
                let place = self.framing.place();
                let byte = self.up;
                return Ok((!self.framing.is_closing()).then_some(Diverged::At { byte, record: place }));
            }
            let same = recorded[..read].iter().zip(rest).take_while(|(one, other)| one == other).count();
            self.framing.see(&rest[..same]);
            self.up += same as u64;
            if same < read {
                let record = self.framing.place();
                return Ok(Some(Diverged::At { byte: self.up, record }));
            }
            rest = &rest[read..];
        }
        Ok(None)
    }

    /// Goes on to what the client said next; false when that was all.
    fn next_said(&mut self) -> io::Result<bool> {
        if self.beyond {
            return Ok(false);
        }
        while let Some(record) = self.said.next()? {
            if let (Way::Up, What::Piece(1..)) = (record.way, record.what) {
                return Ok(true);
            }
        }
        self.beyond = true;
        self.framing.begin_rest();
        Ok(false)
    }
}
