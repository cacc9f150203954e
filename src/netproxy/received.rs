//! Bodies as they come in: from the library for both versions of HTTP, or from a stream of HTTP/2.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, HeaderMap};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::http2::Responder;

type Polled<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// A body that comes in.
pub(crate) enum Received {
    /// There is none.
    None,
    Library(Incoming),
    Stream(Streamed),
}

/// The body of a request or of an answer on a stream of HTTP/2.
pub(crate) struct Streamed {
    stream: RecvStream,
    /// What is still to come, where its head says so; the library holds it to that.
    rest: Option<u64>,
    /// Only trailers may follow.
    has_ended: bool,
    /// Whom a request's answer goes to.
    responder: Option<Arc<Responder>>,
    /// It may wait until it is told to go on (RFC 9110 section 10.1.1).
    waits: bool,
}

impl Streamed {
    /// What follows a head with these fields.
    pub(super) fn new(stream: RecvStream, fields: &HeaderMap) -> Self {
        let length = fields.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let rest = length.or_else(|| stream.is_end_stream().then_some(0));
        Self { stream, rest, has_ended: false, responder: None, waits: false }
    }

    /// The same of a request that is answered there; whether the client waits for a word that its body is wanted.
    pub(super) fn answered_by(mut self, responder: &Arc<Responder>, waits: bool) -> Self {
        self.responder = Some(Arc::clone(responder));
        self.waits = waits;
        self
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled<h2::Error> {
        if !self.has_ended {
            let polled = self.stream.poll_data(cx);
            // Whoever has sent something waits for nothing.
            if std::mem::take(&mut self.waits)
                && polled.is_pending()
                && let Some(responder) = &self.responder
            {
                responder.go_on();
            }
            match ready!(polled) {
                Some(Ok(data)) => {
                    // It is taken: as much again may be sent. A stream that has ended needs no room.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    self.rest = self.rest.map(|rest| rest.saturating_sub(data.len() as u64));
                    self.tell_end();
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => {
                    return Poll::Ready(unless_done(error).map(|error| Err(self.told(error))));
                }
                None => self.has_ended = true,
            }
            self.tell_end();
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(unless_done(error).map(|error| Err(self.told(error)))),
        }
    }

    /// Tells whoever answers that nothing more comes.
    fn tell_end(&self) {
        if let Some(responder) = &self.responder
            && self.stream.is_end_stream()
        {
            responder.end();
        }
    }

    /// As it may be told.
    fn told(&self, error: h2::Error) -> h2::Error {
        if self.responder.is_none() { without_words(error) } else { error }
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.tell_end();
    }
}

/// Without what the other side says of it: anything can stand there, a secret that it was sent as well.
pub(super) fn without_words(error: h2::Error) -> h2::Error {
    match error.reason() {
        Some(reason) if error.is_go_away() && error.is_remote() => reason.into(),
        _ => error,
    }
}

/// A reset without an error tells that the rest is not needed (RFC 9113 section 8.1).
fn unless_done(error: h2::Error) -> Option<h2::Error> {
    (error.reason() != Some(Reason::NO_ERROR)).then_some(error)
}

impl From<Incoming> for Received {
    fn from(body: Incoming) -> Self {
        Self::Library(body)
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<Self::Error> {
        match self.get_mut() {
            Self::None => Poll::Ready(None),
            Self::Library(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Stream(body) => body.poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Library(body) => body.is_end_stream(),
            Self::Stream(body) => body.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Library(body) => body.size_hint(),
            Self::Stream(body) => body.rest.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
