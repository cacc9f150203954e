//! The outer leg of a stream, with its bytes counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error::Blame;
use super::failure::Failure;
use super::flow::Flow;
use super::gathered::writes_through;

/// The outer leg of a stream, with its bytes counted.
pub(crate) struct Metered<S, O = Arc<Flow>> {
    pub(super) stream: S,
    pub(super) flow: O,
}

/// Whose bytes they are.
pub(crate) trait Owner {
    /// Tells the record of the stream, if there is one.
    fn tell(&self, what: impl FnOnce(&Flow));
}

impl Owner for Arc<Flow> {
    fn tell(&self, what: impl FnOnce(&Flow)) {
        what(self);
    }
}

impl<S> Metered<S> {
    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The leg and its record, which counts it no longer.
    pub(crate) fn into_inner(self) -> (S, Arc<Flow>) {
        (self.stream, self.flow)
    }
}

impl<S: AsyncRead + Unpin, O: Owner + Unpin> AsyncRead for Metered<S, O> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(read) = &polled {
            self.flow.tell(|flow| match read {
                Ok(()) => flow.count_down(buf.filled().len() - before),
                Err(error) => flow.fail(&format!("upstream: {error}"), Failure::io(error, Blame::Upstream)),
            });
        }
        polled
    }
}

writes_through!(
    [S: AsyncWrite + Unpin, O: Owner + Unpin] Metered<S, O>,
    |this| &mut this.stream,
    |written| this.flow.tell(|flow| flow.count_up(written))
);
