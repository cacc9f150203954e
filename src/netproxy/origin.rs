//! The outer leg of a stream: a socket of the host's network, or what was recorded of one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::recorded::{Playback, Played};

/// What leads to an origin.
pub enum OriginStream {
    /// A connection.
    Socket(TcpStream),
    /// None: the recording answers.
    Recorded(Box<Playback>),
}

impl From<TcpStream> for OriginStream {
    fn from(stream: TcpStream) -> Self {
        Self::Socket(stream)
    }
}

impl OriginStream {
    /// What it is played from.
    pub(crate) fn played(&self) -> Option<&Arc<Played>> {
        match self {
            Self::Socket(_) => None,
            Self::Recorded(playback) => playback.played(),
        }
    }

    /// Sends small pieces at once.
    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Socket(stream) => stream.set_nodelay(true),
            Self::Recorded(_) => Ok(()),
        }
    }

    /// Lets it end with a reset.
    pub(crate) fn set_zero_linger(&self) {
        if let Self::Socket(stream) = self {
            // The kernel refuses it for dead sockets alone.
            let _ = stream.set_zero_linger();
        }
    }
}

impl AsyncRead for OriginStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(stream) => {
                let before = buf.filled().len();
                let polled = Pin::new(&mut *stream).poll_read(cx, buf);
                acknowledge_head(&buf.filled()[before..], stream);
                polled
            }
            Self::Recorded(playback) => Pin::new(playback.as_mut()).poll_read(cx, buf),
        }
    }
}

/// Acknowledges the head of a response whose body was not read with it, at once: many servers send that when they have
/// heard so (Nagle), which a kernel puts off for 40 ms on a connection that has been used (TCP_QUICKACK, tcp(7)).
pub(crate) fn acknowledge_head(read: &[u8], socket: &TcpStream) {
    // A body in chunks ends like a head.
    if read.ends_with(b"\r\n\r\n") && !read.ends_with(b"\r\n0\r\n\r\n") {
        // A dead socket says so when it is read.
        let _ = socket.set_quickack(true);
    }
}

impl AsyncWrite for OriginStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Recorded(playback) => Pin::new(playback.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_flush(cx),
            Self::Recorded(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Recorded(playback) => Pin::new(playback.as_mut()).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Socket(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Recorded(playback) => Pin::new(playback.as_mut()).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self, Self::Socket(_))
    }
}
