//! One recorded stream, played to a client: the origin's bytes when the client has said what it had said before
//! they came, and a break where the client says something else.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::super::delays;
use super::super::error::NetproxyError;
use super::super::failure::{Failure, NOT_RECORDED};
use super::super::moments;
use super::super::segments::Way;
use super::super::tls::Facts;
use super::super::transcript::Stop;
use super::Recording;
use super::framing::Framing;
use super::records::{Record, Records, What};
use super::streams::{Played, told};

/// The client's bytes that are compared at once.
const PIECE: usize = 4096;

/// What of an origin's first bytes is told before they are played.
const OPENING: usize = 16;

/// What came so many microseconds apart was read apart, and is read so again.
pub(super) const APART: u64 = 1_000;

/// The time for that.
const MOMENT: Duration = Duration::from_millis(1);

/// Such a time.
pub(super) type Pause = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// Why a replay cannot go on with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Diverged {
    /// Nothing like it was recorded.
    NotRecorded,
    /// The client said something else than it had said, from this byte on.
    At {
        /// From 0.
        byte: u64,
        /// The record of TLS that holds it.
        record: Option<String>,
    },
}

impl Diverged {
    /// The kind of the failure.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::NotRecorded => NOT_RECORDED,
            Self::At { .. } => "diverged",
        }
    }
}

impl Diverged {
    fn place(&self) -> String {
        match self {
            Self::NotRecorded => "nowhere".to_owned(),
            Self::At { byte, record: None } => format!("byte {byte}"),
            Self::At { byte, record: Some(record) } => format!("byte {byte}, in {record}"),
        }
    }
}

impl fmt::Display for Diverged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRecorded => formatter.write_str("replay: nothing like it was recorded"),
            Self::At { .. } => write!(formatter, "replay: diverged at {}", self.place()),
        }
    }
}

impl Error for Diverged {}

impl From<Diverged> for io::Error {
    fn from(diverged: Diverged) -> Self {
        Self::other(diverged)
    }
}

/// A recorded stream that is played.
pub struct Playback {
    /// None for what an exchange has become.
    played: Option<Arc<Played>>,
    ending: Ending,
    script: Option<Script>,
    diverged: Option<Diverged>,
    reader: Option<Waker>,
    /// Keeps what came apart apart.
    pause: Option<Pause>,
    /// When it began.
    begun: Duration,
    /// Keeps the recorded pace.
    pace: Option<(Instant, Pin<Box<Sleep>>)>,
}

/// How a stream ended, as it was recorded.
#[derive(Clone, Default)]
pub(super) struct Ending {
    pub(super) reason: String,
    pub(super) failure: Option<Failure>,
}

impl Ending {
    /// That of a result, or of a part of one.
    pub(super) fn of(result: &Value) -> Option<Self> {
        let reason = result.get("end")?.as_str()?.to_owned();
        Some(Self { reason, failure: Failure::recorded(result) })
    }

    /// How the origin broke off.
    fn break_off(&self) -> io::Error {
        match self.reason.strip_prefix("upstream: ") {
            Some(reason) => told(reason, self.failure),
            None => io::ErrorKind::ConnectionReset.into(),
        }
    }
}

/// What was said, as it is compared and as it is played.
struct Script {
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
}

impl Playback {
    /// Plays the transcripts of these names; without any, the stream is answered otherwise, request by request.
    pub(super) fn new(
        recording: &Recording,
        played: Option<Arc<Played>>,
        names: Vec<String>,
        ending: Ending,
    ) -> io::Result<Self> {
        let script = if names.is_empty() { None } else { Some(Script::new(recording, names)?) };
        let pace = recording.is_paced().then(|| (Instant::now(), Box::pin(sleep_until(Instant::now()))));
        let begun = delays::now();
        let mut playback =
            Self { played, ending, script, diverged: None, reader: None, pause: None, begun, pace };
        playback.await_next(None);
        Ok(playback)
    }

    pub(crate) fn played(&self) -> Option<&Arc<Played>> {
        self.played.as_ref()
    }

    /// What the origin had proved, or why it had not.
    pub(crate) fn facts(&self) -> Result<Facts, NetproxyError> {
        match &self.played {
            Some(played) => played.facts(),
            None => Err(NetproxyError::NotRecorded { what: "TLS within it".to_owned() }),
        }
    }

    /// The first bytes of an origin that speaks before its client does.
    pub(crate) fn opening(&self) -> Option<&[u8]> {
        let script = self.script.as_ref()?;
        let begins = script.up == 0 && script.due.up == 0 && !script.due.ended && script.due.next.is_some();
        begins.then_some(&script.opening[..])
    }

    fn poll_play(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(diverged) = &self.diverged {
            return Poll::Ready(Err(diverged.clone().into()));
        }
        self.reader = Some(cx.waker().clone());
        let Some(script) = &mut self.script else { return Poll::Pending };
        let Some((what, micros)) = script.due.next.filter(|_| script.is_due()) else { return Poll::Pending };
        if let Some((begun, sleep)) = &mut self.pace {
            let at = *begun + Duration::from_micros(micros);
            if sleep.deadline() != at {
                sleep.as_mut().reset(at);
            }
            ready!(sleep.as_mut().poll(cx));
        } else if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        match what {
            What::Stop(Stop::End) => Poll::Ready(Ok(())),
            What::Stop(Stop::Reset) => Poll::Ready(Err(self.ending.break_off())),
            What::Piece(_) => {
                let read = script.play(buf.initialize_unfilled())?;
                buf.advance(read);
                self.await_next(Some(micros));
                Poll::Ready(Ok(()))
            }
        }
    }

    /// What comes next is read apart from what came at `last`, and does not come before its time.
    fn await_next(&mut self, last: Option<u64>) {
        let next = self.script.as_ref().and_then(|script| script.due.next);
        let Some((_, next)) = next.filter(|_| self.pace.is_none()) else { return };
        let is_apart = last.is_some_and(|last| next >= last.saturating_add(APART));
        let at = self.begun + Duration::from_micros(next);
        self.pause = Some(Box::pin(async move {
            if is_apart {
                moments::pass(MOMENT).await;
            }
            delays::until(at).await;
        }));
    }

    /// Compares what the client says.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(diverged) = &self.diverged {
            return Err(diverged.clone().into());
        }
        let compared = match &mut self.script {
            // Each request is compared by itself.
            None => return Ok(()),
            Some(script) => script.compare(bytes)?,
        };
        if let (Some(played), Some(script)) = (&self.played, &self.script)
            && script.framing.is_tls()
        {
            played.set_tls();
        }
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
        match compared {
            None => Ok(()),
            Some(diverged) => {
                if let Some(played) = &self.played {
                    played.set_diverged(diverged.place());
                }
                self.diverged = Some(diverged.clone());
                Err(diverged.into())
            }
        }
    }
}

impl Script {
    fn new(recording: &Recording, names: Vec<String>) -> io::Result<Self> {
        let said = Records::new(recording.blobs(), names.clone());
        let heard = Records::new(recording.blobs(), names);
        let due = Due { up: 0, ended: false, next: None };
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
                filled += script.heard.read(&mut script.opening[filled..])?;
            }
        }
        Ok(script)
    }

    /// Finds what the origin does next.
    fn advance(&mut self) -> io::Result<()> {
        self.due.next = None;
        while let Some(Record { way, what, micros }) = self.heard.next()? {
            match (way, what) {
                (Way::Up, What::Piece(length)) => self.due.up = self.due.up.saturating_add(length),
                (Way::Up, What::Stop(_)) => self.due.ended = true,
                (Way::Down, What::Piece(0)) => {}
                (Way::Down, what) => {
                    self.due.next = Some((what, micros));
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

    fn play(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
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
    fn compare(&mut self, bytes: &[u8]) -> io::Result<Option<Diverged>> {
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

impl AsyncRead for Playback {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_play(cx, buf)
    }
}

impl AsyncWrite for Playback {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.take(bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(script) = &mut self.script {
            script.ended = true;
        }
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}
