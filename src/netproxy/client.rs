//! The inner leg of a stream: what has been read of it while sniffing is read again.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;

use super::doubt::Doubt;
use super::flow::{Flow, now};
use super::gathered;
use super::head_clock::HeadClock;
use super::head_tap::HeadTap;
use super::idle::IdleClock;
use super::reader::Reader;
use super::sniff::Speech;

/// The longest request line, header section or ClientHello that is read.
pub(crate) const MAX_HEAD: usize = 64 * 1024;

/// One accepted stream of the confined program.
pub(crate) struct Client {
    stream: Transport,
    /// Counts this leg's bytes, where the outer leg is not this stream's alone.
    meter: Option<Arc<Flow>>,
    prefix: BytesMut,
    heads: Arc<HeadTap>,
    clock: HeadClock,
    idle: IdleClock,
    /// What it says may yet turn out to be what must not pass unread.
    doubt: Option<Doubt>,
    /// It has turned out to be that.
    unmasked: bool,
    /// The process that opened it.
    pub(crate) proc: Option<String>,
    /// When it was opened, in seconds since the epoch.
    pub(crate) opened: f64,
    /// Its place among the streams that may be open at once; within TLS the stream around it has it.
    _permit: Option<OwnedSemaphorePermit>,
}

/// What carries a client's bytes.
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<Client>>),
}

impl Client {
    pub(crate) fn new(
        stream: TcpStream,
        reader: Reader,
        proc: Option<String>,
        idle: IdleClock,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        // Failing to switch off delays is no reason to refuse; the kernel only fails for dead sockets.
        let _ = stream.set_nodelay(true);
        Self {
            stream: Transport::Plain(stream),
            meter: None,
            prefix: BytesMut::new(),
            heads: Arc::new(HeadTap::of(reader)),
            clock: HeadClock::default(),
            idle,
            doubt: None,
            unmasked: false,
            proc,
            opened: now(),
            _permit: Some(permit),
        }
    }

    /// What the client says within TLS.
    pub(crate) fn within(stream: TlsStream<Self>) -> Self {
        Self {
            proc: stream.get_ref().0.proc.clone(),
            opened: stream.get_ref().0.opened,
            idle: stream.get_ref().0.idle.clone(),
            heads: Arc::new(HeadTap::of(stream.get_ref().0.heads.reader())),
            stream: Transport::Tls(Box::new(stream)),
            meter: None,
            prefix: BytesMut::new(),
            clock: HeadClock::default(),
            doubt: None,
            unmasked: false,
            _permit: None,
        }
    }

    /// Counts this leg's bytes from now on, those of the prefix included.
    pub(crate) fn count_for(&mut self, flow: &Arc<Flow>) {
        flow.count_up(self.prefix.len());
        self.meter = Some(Arc::clone(flow));
    }

    /// What was read and will be read again.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Reads more of the prefix; the number of new bytes, 0 at the end of the stream.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        self.prefix.reserve(4096);
        self.stream.read_buf(&mut self.prefix).await
    }

    /// Drops the prefix: another reader has it.
    pub(crate) fn forget_prefix(&mut self) {
        self.prefix = BytesMut::new();
    }

    /// Puts back bytes that another reader has taken.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.prefix.extend_from_slice(bytes);
    }

    /// From now on reading fails once it is clear that the stream, whose prefix is passed on, is HTTP or TLS.
    pub(crate) fn doubt(&mut self) {
        self.doubt = Some(Doubt::new(&self.prefix));
    }

    fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.doubt.as_mut().and_then(|doubt| doubt.see(bytes)) {
            None => Ok(()),
            Some(Speech::Opaque) => {
                self.doubt = None;
                Ok(())
            }
            Some(_) => {
                self.unmasked = true;
                let reason = "a request or TLS began after bytes that were passed on unread";
                Err(io::Error::new(io::ErrorKind::InvalidData, reason))
            }
        }
    }

    /// Whether reading has failed for that reason.
    pub(crate) fn is_unmasked(&self) -> bool {
        self.unmasked
    }

    fn note_written(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &polled {
            self.idle.note_bytes();
            if let Some(flow) = &self.meter {
                flow.count_down(*written);
            }
        }
        polled
    }

    /// Takes bytes off the prefix: they have been read for good.
    pub(crate) fn discard(&mut self, length: usize) {
        self.prefix.advance(length);
    }

    /// The copy of each request's head.
    pub(crate) fn heads(&self) -> Arc<HeadTap> {
        Arc::clone(&self.heads)
    }

    /// The clock of its silence.
    pub(crate) fn idle(&self) -> IdleClock {
        self.idle.clone()
    }

    /// Ends the stream with a reset (SO_LINGER 0, man 7 socket), so that the program learns at once
    /// that it was refused.
    pub(crate) fn reset(self) {
        self.set_zero_linger();
    }

    fn set_zero_linger(&self) {
        match &self.stream {
            Transport::Plain(stream) => {
                let _ = stream.set_zero_linger();
            }
            Transport::Tls(stream) => stream.get_ref().0.set_zero_linger(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // What broke off must not look as if it had ended.
        if self.idle.has_expired() || self.heads.has_broken_off() {
            self.set_zero_linger();
        }
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.prefix.is_empty() {
            let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
            if polled.is_pending() {
                let begun = self.heads.begun();
                self.clock.check(cx, begun)?;
            }
            if !matches!(polled, Poll::Ready(Ok(()))) {
                return polled;
            }
            let read = buf.filled().len() - before;
            if read > 0 {
                self.idle.note_bytes();
            }
            if let Some(flow) = &self.meter {
                flow.count_up(read);
            }
            self.check(&buf.filled()[before..])?;
        } else {
            let taken = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix[..taken]);
            self.prefix.advance(taken);
            if self.prefix.is_empty() {
                self.prefix = BytesMut::new();
            }
        }
        self.heads.see(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_written(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Whoever flushes has nothing of its own left to write.
        while let Some(bytes) = self.heads.ahead() {
            let polled = Pin::new(&mut self.stream).poll_write(cx, &bytes);
            let written = ready!(self.note_written(polled))?;
            self.heads.sent(written);
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_written(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => gathered::poll_write(Pin::new(stream), cx, slices),
            Self::Tls(stream) => gathered::poll_write(Pin::new(stream), cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
