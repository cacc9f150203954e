//! One recorded stream, played to a client: the origin's bytes when the client has said what it had said before
//! they came, and a break where the client says something else.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::super::delays;
use super::super::error::NetproxyError;
use super::super::failure::Failure;
use super::super::moments;
use super::super::standstill::{self, Standstill};
use super::super::tls::Facts;
use super::super::transcript::Stop;
use super::carries::Carries;
use super::diverged::Diverged;
use super::records::What;
use super::script::Script;
use super::streams::{Played, told};
use super::{Blobs, Recording};

/// What came so many microseconds apart was read apart, and is read so again.
pub(super) const APART: u64 = 1_000;

/// The time for that.
const MOMENT: Duration = Duration::from_millis(1);

/// Such a time.
pub(super) type Pause = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A recorded stream that is played.
pub struct Playback {
    /// None for what an exchange has become.
    played: Option<Arc<Played>>,
    /// The entry that the script is of.
    entry: Option<u64>,
    blobs: Blobs,
    ending: Ending,
    script: Option<Script>,
    diverged: Option<Diverged>,
    reader: Option<Waker>,
    /// Keeps what came apart apart.
    pause: Option<Pause>,
    /// When it began.
    begun: Duration,
    /// Where the recorded pace is kept: when the last of it came.
    pace: Option<Instant>,
    /// Comes when nothing of the run can go on but by what is read here.
    standstill: Option<Standstill>,
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

impl Playback {
    /// Plays the transcripts of these names; without any, the stream is answered otherwise, request by request.
    pub(super) fn new(
        recording: &Recording,
        played: Option<Arc<Played>>,
        names: Vec<String>,
        ending: Ending,
    ) -> io::Result<Self> {
        let blobs = Arc::clone(recording.blobs());
        let script = Script::of(&blobs, names).map_err(|error| Diverged::unreadable(&error))?;
        let pace = recording.is_paced().then(Instant::now);
        let mut playback = Self {
            entry: played.as_ref().and_then(|played| played.entry()),
            played,
            blobs,
            ending,
            script,
            diverged: None,
            reader: None,
            pause: None,
            begun: delays::now(),
            pace,
            standstill: None,
        };
        playback.await_next(None);
        Ok(playback)
    }

    /// It is known what the client speaks: it is played from what carried the same, or not at all.
    pub(crate) fn settle(&mut self, carries: Carries, name: Option<&str>) -> io::Result<()> {
        let Some(played) = &self.played else { return Ok(()) };
        if let Err(diverged) = played.settle(carries, name) {
            self.diverged = Some(diverged.clone());
            return Err(diverged.into());
        }
        // Another may have got what was to be played here.
        if self.entry != played.entry() {
            self.entry = played.entry();
            self.ending = played.ending();
            // What was to be played before is another connection's by now.
            let script = Script::of(&self.blobs, played.transcripts());
            self.script = script.map_err(|error| self.break_off(&error))?;
            self.await_next(None);
        }
        Ok(())
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
        self.script.as_ref().and_then(Script::opening)
    }

    /// Whether there may be two minds about who speaks first: the recorded connections to this place differ in what
    /// they carried.
    pub(crate) fn is_mixed(&self) -> bool {
        self.played.as_ref().is_some_and(|played| played.is_mixed())
    }

    fn poll_play(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(diverged) = &self.diverged {
            return Poll::Ready(Err(diverged.clone().into()));
        }
        self.reader = Some(cx.waker().clone());
        let due = self.script.as_ref().and_then(Script::due);
        let (Some((what, micros)), Some(script)) = (due, &mut self.script) else {
            return self.poll_standstill(cx).map(Err);
        };
        self.standstill = None;
        if let (Some(last), None) = (&mut self.pace, &self.pause) {
            let from = if script.follows() { *last } else { Instant::now() };
            *last = from + script.gap();
            self.pause = Some(Box::pin(sleep_until(*last)));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        match what {
            What::Stop(Stop::End) => Poll::Ready(Ok(())),
            What::Stop(Stop::Reset) => Poll::Ready(Err(self.ending.break_off())),
            What::Piece(_) => {
                let read = script.play(buf.initialize_unfilled());
                let read = read.map_err(|error| self.break_off(&error))?;
                buf.advance(read);
                self.await_next(Some(micros));
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Nothing is due before the client says more. When nothing else of the run can go on, it never does.
    fn poll_standstill(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let standstill = self.standstill.get_or_insert_with(standstill::comes);
        ready!(standstill.as_mut().poll(cx));
        self.standstill = None;
        let diverged = Diverged::Waits { byte: self.script.as_ref().map_or(0, Script::said) };
        if let Some(played) = &self.played {
            played.set_diverged(diverged.place());
        }
        self.diverged = Some(diverged.clone());
        Poll::Ready(diverged.into())
    }

    /// What comes next is read apart from what came at `last`, and does not come before its time.
    fn await_next(&mut self, last: Option<u64>) {
        let Some(script) = self.script.as_ref().filter(|_| self.pace.is_none()) else { return };
        let Some((_, next)) = script.next() else { return };
        let gap = script.gap();
        let is_apart = last.is_some_and(|last| next >= last.saturating_add(APART));
        let at = self.begun + Duration::from_micros(next);
        self.pause = Some(Box::pin(async move {
            if is_apart {
                moments::pass(MOMENT).await;
            }
            delays::until(at, gap).await;
        }));
    }

    /// What was recorded cannot be read: nothing is played from here on.
    fn break_off(&mut self, error: &io::Error) -> io::Error {
        self.diverged.insert(Diverged::unreadable(error)).clone().into()
    }

    /// Compares what the client says.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(diverged) = &self.diverged {
            return Err(diverged.clone().into());
        }
        let compared = match &mut self.script {
            // Each request is compared by itself.
            None => return Ok(()),
            Some(script) => script.compare(bytes),
        };
        let compared = compared.map_err(|error| self.break_off(&error))?;
        if let (Some(played), Some(script)) = (&self.played, &self.script)
            && script.is_tls()
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
            script.end();
        }
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}
