//! Bytes in both directions until both ends have closed, each noted before it is passed on.
//!
//! All relays share one buffer, for all run on one thread: an idle stream costs no buffer, and one
//! whose reader is slow keeps at most [`CHUNK`] bytes. There is no deadline here: a stream
//! may be silent for hours, unless the run has an idle limit.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error::{Blame, NetproxyError};
use super::failure::Failure;
use super::segments::Way;
use super::transcript::{Stop, Transcript};

/// The most that is read at once.
const CHUNK: usize = 64 * 1024;

/// Chunks moved before other tasks get their turn.
const TURNS: usize = 16;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into_boxed_slice());
}

/// How a relay ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides have closed in order.
    Closed,
    /// The client's side failed.
    Client(io::Error),
    /// The outer side failed.
    Upstream(io::Error),
    /// What passed cannot be recorded any more.
    Unrecorded(NetproxyError),
}

impl End {
    /// One phrase for the record.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Closed => "closed".to_owned(),
            Self::Client(error) => format!("client: {error}"),
            Self::Upstream(error) => format!("upstream: {error}"),
            Self::Unrecorded(error) => error.to_string(),
        }
    }

    /// What failed, if anything did.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Closed => None,
            Self::Client(error) => Some(Failure::io(error, Blame::Agent)),
            Self::Upstream(error) => Some(Failure::io(error, Blame::Upstream)),
            Self::Unrecorded(error) => Some(Failure::of(error)),
        }
    }
}

/// Copies between `client` and `upstream`. When one side ends its half, the other's half is ended
/// too, and the other direction goes on.
pub(crate) async fn relay<C, U>(client: &mut C, upstream: &mut U, transcript: &Transcript) -> End
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let mut up = Half::new(Way::Up);
    let mut down = Half::new(Way::Down);
    let end = std::future::poll_fn(|cx| {
        let up_done = match up.poll(cx, client, upstream, transcript) {
            Poll::Ready(Err(Fault::Read(error))) => return Poll::Ready(End::Client(error)),
            Poll::Ready(Err(Fault::Write(error))) => return Poll::Ready(End::Upstream(error)),
            Poll::Ready(Err(Fault::Record(error))) => return Poll::Ready(End::Unrecorded(error)),
            Poll::Ready(Ok(())) => true,
            Poll::Pending => false,
        };
        let down_done = match down.poll(cx, upstream, client, transcript) {
            Poll::Ready(Err(Fault::Read(error))) => return Poll::Ready(End::Upstream(error)),
            Poll::Ready(Err(Fault::Write(error))) => return Poll::Ready(End::Client(error)),
            Poll::Ready(Err(Fault::Record(error))) => return Poll::Ready(End::Unrecorded(error)),
            Poll::Ready(Ok(())) => true,
            Poll::Pending => false,
        };
        if up_done && down_done { Poll::Ready(End::Closed) } else { Poll::Pending }
    })
    .await;
    match &end {
        End::Client(_) => transcript.stop(Way::Up, Stop::Reset),
        End::Upstream(_) => transcript.stop(Way::Down, Stop::Reset),
        End::Closed | End::Unrecorded(_) => {}
    }
    end
}

enum Fault {
    Read(io::Error),
    Write(io::Error),
    Record(NetproxyError),
}

/// One direction.
struct Half {
    way: Way,
    /// What was read and not yet taken by the writer.
    pending: Vec<u8>,
    taken: usize,
    unflushed: bool,
    state: Phase,
}

#[derive(PartialEq, Eq)]
enum Phase {
    Copying,
    Closing,
    Closed,
}

impl Half {
    fn new(way: Way) -> Self {
        Self { way, pending: Vec::new(), taken: 0, unflushed: false, state: Phase::Copying }
    }

    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        transcript: &Transcript,
    ) -> Poll<Result<(), Fault>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        for _ in 0..TURNS {
            if self.state == Phase::Closed {
                return Poll::Ready(Ok(()));
            }
            ready!(self.drain(cx, to)).map_err(Fault::Write)?;
            if self.state == Phase::Closing {
                // A peer that is gone already has no half left to close (ENOTCONN).
                let _ = ready!(Pin::new(&mut *to).poll_shutdown(cx));
                self.state = Phase::Closed;
                return Poll::Ready(Ok(()));
            }
            ready!(transcript.poll_ready(cx)).map_err(Fault::Record)?;
            match self.fill(cx, from, to, transcript)? {
                Poll::Ready(()) => {}
                Poll::Pending => {
                    if self.unflushed {
                        ready!(Pin::new(&mut *to).poll_flush(cx)).map_err(Fault::Write)?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what is left of an earlier chunk.
    fn drain<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>> {
        while self.taken < self.pending.len() {
            let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.pending[self.taken..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.taken += written;
        }
        self.pending = Vec::new();
        self.taken = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads one chunk and writes as much of it as goes at once.
    fn fill<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        transcript: &Transcript,
    ) -> Result<Poll<()>, Fault>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match Pin::new(from).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(read) => read.map_err(Fault::Read)?,
            }
            let chunk = buffer.filled();
            if chunk.is_empty() {
                transcript.stop(self.way, Stop::End);
                self.state = Phase::Closing;
                return Ok(Poll::Ready(()));
            }
            transcript.add(self.way, chunk).map_err(Fault::Record)?;
            self.unflushed = true;
            let written = match Pin::new(to).poll_write(cx, chunk) {
                Poll::Pending => 0,
                Poll::Ready(written) => written.map_err(Fault::Write)?,
            };
            self.pending.extend_from_slice(&chunk[written..]);
            Ok(Poll::Ready(()))
        })
    }
}
