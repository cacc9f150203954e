//! A body on its way through: copied into the record as it passes, and how it breaks off.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::error::{Blame, NetproxyError};
use super::exchange::{Exchange, Side};
use super::head_tap::HeadTap;
use super::malformed::told;
use super::reader::PATIENCE;
use super::secret::Passing;
use super::trailers::Trailers;

/// A body on its way through, copied into the record as it passes.
pub(crate) struct Tapped {
    body: Passing,
    exchange: Arc<Exchange>,
    side: Side,
    heads: Arc<HeadTap>,
    finished: bool,
    ends_by_close: bool,
    /// Something of it has passed.
    begun: bool,
    /// Since when nothing more of it comes.
    waits: Option<Instant>,
    /// Ready when nobody waits for more.
    is_left: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    trailers: Option<Box<Trailers>>,
    /// Why it broke off: told when what came before is on its way.
    broken: Option<NetproxyError>,
    /// What of it has passed before, and does once more.
    again: Option<Bytes>,
}

impl Tapped {
    pub(crate) fn new(body: Passing, exchange: &Arc<Exchange>, side: Side, heads: &Arc<HeadTap>) -> Self {
        let mut tapped = Self {
            body,
            exchange: Arc::clone(exchange),
            side,
            heads: Arc::clone(heads),
            finished: false,
            ends_by_close: false,
            begun: false,
            waits: None,
            is_left: None,
            trailers: None,
            broken: None,
            again: None,
        };
        tapped.finish_at_end();
        tapped
    }

    /// The client takes the connection's end for the body's: when the body breaks off it must be a reset.
    pub(crate) fn ending_by_close(self) -> Self {
        Self { ends_by_close: true, ..self }
    }

    /// What stands behind it is judged.
    pub(crate) fn with_trailers(self, trailers: Option<Box<Trailers>>) -> Self {
        Self { trailers, ..self }
    }

    /// A request's body from its beginning, for another connection; none where that is not known any more.
    pub(crate) fn unspent(self) -> Option<Self> {
        let again = self.exchange.passed().filter(|_| self.broken.is_none())?;
        Some(Self { again: Some(again), ..self })
    }

    /// What passes once more, or the end of what had one before.
    fn once_more(&mut self) -> Option<Option<Bytes>> {
        match self.again.as_mut()? {
            again if !again.is_empty() => Some(Some(std::mem::take(again))),
            _ => self.finished.then_some(None),
        }
    }

    fn holds(&self) -> usize {
        self.again.as_ref().map_or(0, Bytes::len)
    }

    /// Notes that the body broke off. It is told with the next poll, for the library drops what it has
    /// not sent when it hears of it.
    fn break_off(&mut self, error: NetproxyError, cx: &Context<'_>) {
        self.exchange.fail(&error);
        if self.side == Side::Request {
            self.exchange.set_refused(told(&error));
        }
        if self.ends_by_close {
            self.heads.break_off();
        }
        self.broken = Some(error);
        cx.waker().wake_by_ref();
    }

    /// Whether nobody waits for more. In a replay the recording says whether it comes.
    fn is_left(&mut self, cx: &mut Context<'_>) -> bool {
        if self.exchange.egress.played().is_some() {
            return false;
        }
        let heads = &self.heads;
        let is_left = self.is_left.get_or_insert_with(|| Box::pin(heads.reader().leaves(PATIENCE)));
        is_left.as_mut().poll(cx).is_ready()
    }

    fn finish_at_end(&mut self) {
        if !self.finished && self.body.is_end_stream() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.finished = true;
        self.exchange.finish(self.side, &self.heads);
        if self.side == Side::Request {
            self.heads.resume();
        }
    }
}

impl Body for Tapped {
    type Data = Bytes;
    type Error = NetproxyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NetproxyError>>> {
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(again) = self.once_more() {
            return Poll::Ready(again.map(|data| Ok(Frame::data(data))));
        }
        ready!(self.exchange.egress.scribe.poll_ready(cx))?;
        let blame = match self.side {
            Side::Request => Blame::Agent,
            Side::Response => Blame::Upstream,
        };
        let polled = self.body.poll_frame(cx, blame);
        if polled.is_pending() && self.side == Side::Response {
            self.exchange.pause(!self.begun);
            self.waits.get_or_insert_with(Instant::now);
            if self.is_left(cx) {
                self.break_off(NetproxyError::Abandoned, cx);
                return Poll::Pending;
            }
        }
        self.begun = true;
        if polled.is_ready()
            && let Some(since) = self.waits.take()
            && self.exchange.is_abandoned(since.elapsed(), &self.heads)
        {
            self.break_off(NetproxyError::Abandoned, cx);
            return Poll::Pending;
        }
        let frame = match ready!(polled) {
            None => {
                self.finish();
                return Poll::Ready(None);
            }
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                self.break_off(error, cx);
                return Poll::Pending;
            }
        };
        if let Some(data) = frame.data_ref() {
            self.exchange.copy(self.side, data, &self.heads)?;
        }
        if let Some(trailers) = frame.trailers_ref() {
            if let Some(Err(error)) = self.trailers.as_ref().map(|judge| judge.admit(trailers)) {
                self.break_off(error, cx);
                return Poll::Pending;
            }
            self.exchange.set_trailers(self.side, trailers);
            // Nothing follows them, and who has them does not ask again (RFC 9110 section 6.5).
            if !self.finished {
                self.finish();
            }
        }
        self.finish_at_end();
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.holds() == 0 && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        match (self.holds() as u64, rest.exact()) {
            (0, _) => rest,
            (held, Some(rest)) => SizeHint::with_exact(held + rest),
            (_, None) => SizeHint::default(),
        }
    }
}
