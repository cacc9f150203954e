//! Bytes in both directions until both ends have closed.
//!
//! All relays share one buffer, for all run on one thread: an idle stream costs no buffer, and one
//! whose reader is slow keeps at most [`CHUNK`] bytes. There is no deadline of any kind: a stream
//! may be silent for hours.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
}

impl End {
    /// One phrase for the record.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Closed => "closed".to_owned(),
            Self::Client(error) => format!("client: {error}"),
            Self::Upstream(error) => format!("upstream: {error}"),
        }
    }
}

/// Copies between `client` and `upstream`. When one side ends its half, the other's half is ended
/// too, and the other direction goes on.
pub(crate) async fn relay<C, U>(client: &mut C, upstream: &mut U) -> End
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let mut up = Half::default();
    let mut down = Half::default();
    std::future::poll_fn(|cx| {
        let up_done = match up.poll(cx, client, upstream) {
            Poll::Ready(Err(Fault::Read(error))) => return Poll::Ready(End::Client(error)),
            Poll::Ready(Err(Fault::Write(error))) => return Poll::Ready(End::Upstream(error)),
            Poll::Ready(Ok(())) => true,
            Poll::Pending => false,
        };
        let down_done = match down.poll(cx, upstream, client) {
            Poll::Ready(Err(Fault::Read(error))) => return Poll::Ready(End::Upstream(error)),
            Poll::Ready(Err(Fault::Write(error))) => return Poll::Ready(End::Client(error)),
            Poll::Ready(Ok(())) => true,
            Poll::Pending => false,
        };
        if up_done && down_done { Poll::Ready(End::Closed) } else { Poll::Pending }
    })
    .await
}

enum Fault {
    Read(io::Error),
    Write(io::Error),
}

/// One direction.
#[derive(Default)]
struct Half {
    /// What was read and not yet taken by the writer.
    pending: Vec<u8>,
    taken: usize,
    unflushed: bool,
    state: Phase,
}

#[derive(Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Copying,
    Closing,
    Closed,
}

impl Half {
    fn poll<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<Result<(), Fault>>
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
            match self.fill(cx, from, to)? {
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
    fn fill<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> Result<Poll<()>, Fault>
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
                self.state = Phase::Closing;
                return Ok(Poll::Ready(()));
            }
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
