//! The outer leg of a connection that clients have one after another: whoever has it has its bytes counted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error::Blame;
use super::failure::Failure;
use super::flow::Flow;

/// The record of the stream that a connection serves at present; none where the client's own leg is counted. Weak,
/// for that record ends with the stream and not with the connection.
#[derive(Default)]
pub(crate) struct Holder(Mutex<Weak<Flow>>);

impl Holder {
    /// From now on it serves this stream.
    pub(crate) fn set(&self, flow: &Arc<Flow>) {
        *self.lock() = Arc::downgrade(flow);
    }

    /// It serves none.
    pub(crate) fn clear(&self) {
        *self.lock() = Weak::new();
    }

    pub(crate) fn flow(&self) -> Option<Arc<Flow>> {
        self.lock().upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, Weak<Flow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leg, and who has it.
pub(crate) struct Lent<S> {
    pub(crate) stream: S,
    pub(crate) holder: Arc<Holder>,
}

impl<S> Lent<S> {
    fn note_written(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &polled
            && let Some(flow) = self.holder.flow()
        {
            flow.count_up(*written);
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lent<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(read) = &polled
            && let Some(flow) = self.holder.flow()
        {
            match read {
                Ok(()) => flow.count_down(buf.filled().len() - before),
                Err(error) => flow.fail(&format!("upstream: {error}"), Failure::io(error, Blame::Upstream)),
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lent<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_written(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_written(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
