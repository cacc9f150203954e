//! Bytes that are no HTTP: placeholders do not pass outwards, values do not pass inwards.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::decide::{Grant, Refusal};
use super::super::egress::Egress;
use super::super::error::NetproxyError;
use super::super::gathered::writes_through;
use super::admit::refusal;
use super::fragments::Fragments;
use super::frames::Frames;
use super::mask::Mask;
use super::messages::{self, Messages};
use super::place::Place;
use super::watch::Watch;

/// Bytes that are searched at once.
const CHUNK: usize = 16 * 1024;

/// Looks for placeholders in a stream that goes on unread.
pub(crate) struct Lookout {
    egress: Arc<Egress>,
    watch: Option<Watch>,
    /// The same in what WebSocket frames hold.
    frames: Option<Frames>,
    /// What a denial says about the stream.
    refusal: Refusal,
    proc: Option<String>,
}

impl Lookout {
    /// For a stream to where `grant` leads; to `place`, its own placeholders may go.
    pub(crate) fn new(
        egress: &Arc<Egress>,
        grant: &Grant,
        place: Option<&Arc<Place>>,
        proc: Option<&str>,
    ) -> Self {
        let watch = egress.secrets.watch(place.map_or_else(Vec::new, |place| place.secrets()));
        let refusal = refusal(grant, String::new(), "");
        Self { egress: Arc::clone(egress), watch, frames: None, refusal, proc: proc.map(str::to_owned) }
    }

    /// The same for what has no address; `refusal` says where it leads.
    pub(crate) fn to(egress: &Arc<Egress>, refusal: Refusal) -> Self {
        let watch = egress.secrets.watch(Vec::new());
        Self { egress: Arc::clone(egress), watch, frames: None, refusal, proc: None }
    }

    /// The stream is a WebSocket's.
    pub(crate) fn unmask(&mut self) {
        self.frames = self.watch.as_ref().map(Frames::new);
    }

    fn see(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let found = watch.see(bytes).or_else(|| self.frames.as_mut()?.see(bytes));
        if self.frames.as_ref().is_some_and(Frames::is_broken) {
            return Err(broken());
        }
        let Some(secret) = found else { return Ok(()) };
        // Once is enough under --observe.
        self.watch = None;
        let refusal = self.egress.refusal_of(secret, "the stream", self.refusal.clone());
        self.egress.refuse(&refusal, self.proc.as_deref()).map_err(io::Error::other)?;
        match self.egress.enforce {
            true => Err(io::Error::other(NetproxyError::Denied(Box::new(refusal)))),
            false => Ok(()),
        }
    }
}

/// The client's side of such a stream.
pub(crate) struct Watching<'a, C> {
    client: &'a mut C,
    lookout: Lookout,
}

impl<'a, C> Watching<'a, C> {
    pub(crate) fn new(client: &'a mut C, lookout: Lookout) -> Self {
        Self { client, lookout }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Watching<'_, C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut *self.client).poll_read(cx, buf))?;
        Poll::Ready(self.lookout.see(&buf.filled()[before..]))
    }
}

writes_through!([C: AsyncWrite + Unpin] Watching<'_, C>, |this| &mut *this.client);

/// The origin's side of a stream that an upgrade has made.
pub(crate) struct Masking<S> {
    stream: S,
    /// None where the origin knows no secret.
    mask: Option<Mask>,
    /// Of a WebSocket.
    messages: Option<Messages>,
    /// May be given to the reader.
    clear: Bytes,
}

impl<S> Masking<S> {
    /// `is_framed` where the stream is a WebSocket's.
    pub(crate) fn new(stream: S, place: Option<&Arc<Place>>, is_framed: bool) -> Self {
        let mask = place.map(|place| place.mask_bytes());
        let messages = mask
            .as_ref()
            .filter(|_| is_framed)
            .map(|mask| Messages::WebSocket(Box::new(Fragments::new(mask))));
        Self { stream, mask, messages, clear: Bytes::new() }
    }
}

fn broken() -> io::Error {
    let reason =
        "a control frame of a WebSocket is too long, or a part of one, or too many come within a message";
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl<S: AsyncRead + Unpin> AsyncRead for Masking<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, mask, messages, clear } = &mut *self;
        let Some(mask) = mask else { return Pin::new(stream).poll_read(cx, buf) };
        while clear.is_empty() {
            if mask.has_worked(cx) || messages::have_worked(messages.as_mut(), cx) {
                return Poll::Pending;
            }
            let mut scratch = [0; CHUNK];
            let mut read = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
            let is_over = read.filled().is_empty();
            *clear = match is_over {
                true => messages::finish(mask, messages.as_mut()),
                false => messages::pass(mask, messages.as_mut(), Bytes::copy_from_slice(read.filled())),
            };
            if messages::is_broken(messages.as_ref()) {
                return Poll::Ready(Err(broken()));
            }
            if is_over {
                break;
            }
        }
        let taken = clear.len().min(buf.remaining());
        buf.put_slice(&clear[..taken]);
        clear.advance(taken);
        Poll::Ready(Ok(()))
    }
}

writes_through!([S: AsyncWrite + Unpin] Masking<S>, |this| &mut this.stream);

impl Egress {
    /// The refusal of `what`, which holds a placeholder; `whereto` says where it goes.
    fn refusal_of(&self, secret: usize, what: &str, whereto: Refusal) -> Refusal {
        let reason = self.secrets.reason(secret, what);
        Refusal { reason, rule: Some(self.secrets.all[secret].rule.clone()), remedy: None, ..whereto }
    }

    /// The refusal of a name that holds a placeholder.
    pub(crate) fn secret_in_name(&self, name: &str) -> Option<Refusal> {
        let secret = self.secrets.in_name(name)?;
        let whereto = Refusal {
            target: name.to_owned(),
            name: Some(name.to_owned()),
            address: None,
            port: None,
            reason: String::new(),
            rule: None,
            remedy: None,
        };
        Some(self.refusal_of(secret, "the name", whereto))
    }

    /// Whether a datagram may go: it holds no placeholder.
    ///
    /// # Errors
    /// Why not; it is recorded.
    pub(crate) fn check_datagram(
        &self,
        destination: SocketAddr,
        bytes: &[u8],
        proc: impl FnOnce() -> Option<String>,
    ) -> Result<(), NetproxyError> {
        let Some(secret) = self.secrets.find(bytes) else { return Ok(()) };
        let whereto = Refusal {
            target: format!("udp:{destination}"),
            name: None,
            address: Some(destination.ip()),
            port: Some(destination.port()),
            reason: String::new(),
            rule: None,
            remedy: None,
        };
        let refusal = self.refusal_of(secret, "the datagram", whereto);
        self.refuse(&refusal, proc().as_deref())?;
        if self.enforce { Err(NetproxyError::Denied(Box::new(refusal))) } else { Ok(()) }
    }
}
