//! Bodies on their way through: as they are, searched for placeholders, or with values taken out.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::super::decide::Refusal;
use super::super::error::{Blame, NetproxyError};
use super::super::received::Received;
use super::super::recorded::RecordedBody;
use super::admit::Alarm;
use super::coding::Decoder;
use super::mask::Mask;
use super::messages::{self, Messages};
use super::place::Place;
use super::unpacked::{Found, Opened, Unpacked};
use super::watch::Watch;

/// What is searched at once: what comes in small pieces is searched together, for the end of what came before is
/// searched with each. What is here of more than that waits its turn.
const AT_ONCE: usize = 32 << 10;

/// Turns of others in which the next piece comes where it is there.
const TURNS: usize = 4;

type Polled = Poll<Option<Result<Frame<Bytes>, NetproxyError>>>;

/// A body of either side.
pub(crate) enum Passing {
    Plain(Received),
    Watched(Box<Watched>),
    Masked(Box<Masked>),
    /// A response's in a replay: values were taken out when it was recorded.
    Recorded(Box<RecordedBody>),
}

/// A request's body, in which some placeholders may not stand.
pub(crate) struct Watched {
    body: Received,
    watch: Watch,
    /// The same without its coding.
    unpacked: Option<Unpacked>,
    alarm: Alarm,
}

/// A response's body, decoded and without values.
pub(crate) struct Masked {
    body: Received,
    decoder: Decoder,
    _opened: Option<Opened>,
    /// Decoded, and not searched yet.
    plain: Plain,
    /// For so many turns no more has come of it than this.
    let_come: (usize, usize),
    mask: Mask,
    messages: Option<Messages>,
    place: Arc<Place>,
    /// What comes when all that was decoded has passed.
    after: VecDeque<Result<Frame<Bytes>, NetproxyError>>,
    ended: bool,
}

/// Pieces that come together. One by itself is not copied.
#[derive(Default)]
struct Plain {
    one: Bytes,
    many: BytesMut,
}

impl Plain {
    fn push(&mut self, bytes: Bytes) {
        if self.is_empty() {
            self.one = bytes;
        } else {
            self.many.extend_from_slice(&std::mem::take(&mut self.one));
            self.many.extend_from_slice(&bytes);
        }
    }

    fn len(&self) -> usize {
        self.one.len() + self.many.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&mut self, most: usize) -> Bytes {
        match self.many.is_empty() {
            true => self.one.split_to(self.one.len().min(most)),
            false => self.many.split_to(self.many.len().min(most)).freeze(),
        }
    }
}

impl From<Received> for Passing {
    fn from(body: Received) -> Self {
        Self::Plain(body)
    }
}

impl Passing {
    /// A request's body; what was refused in it stands in `alarm` then.
    pub(super) fn watched(body: Received, watch: Watch, unpacked: Option<Unpacked>, alarm: Alarm) -> Self {
        Self::Watched(Box::new(Watched { body, watch, unpacked, alarm }))
    }

    /// A response's body from `place`, behind these fields; `decoder` is counted.
    pub(crate) fn masked(
        body: Received,
        headers: &HeaderMap,
        (decoder, opened): (Decoder, Option<Opened>),
        place: &Arc<Place>,
    ) -> Self {
        let (mask, messages) = (place.mask_bytes(), Messages::of_body(headers));
        let (place, after, plain) = (Arc::clone(place), VecDeque::new(), Plain::default());
        Self::Masked(Box::new(Masked {
            body,
            decoder,
            _opened: opened,
            plain,
            let_come: (0, 0),
            mask,
            messages,
            place,
            after,
            ended: false,
        }))
    }

    /// The next frame. `blame` is the side that sends it.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>, blame: Blame) -> Polled {
        match self {
            Self::Plain(body) => poll(body, cx, blame),
            Self::Watched(watched) => watched.poll_frame(cx, blame),
            Self::Masked(masked) => masked.poll_frame(cx, blame),
            Self::Recorded(body) => body.poll_frame(cx),
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain(body) => body.is_end_stream(),
            Self::Watched(watched) => watched.body.is_end_stream(),
            Self::Masked(masked) => masked.is_end_stream(),
            Self::Recorded(body) => body.is_end_stream(),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(body) => body.size_hint(),
            Self::Watched(watched) => watched.body.size_hint(),
            // What takes values out keeps the length; what undoes a coding does not.
            Self::Masked(masked) if masked.decoder.is_identity() && masked.holds_nothing() => {
                masked.body.size_hint()
            }
            Self::Masked(_) => SizeHint::default(),
            Self::Recorded(body) => body.size_hint(),
        }
    }
}

fn poll(body: &mut Received, cx: &mut Context<'_>, blame: Blame) -> Polled {
    let frame = ready!(Pin::new(body).poll_frame(cx));
    Poll::Ready(frame.map(|frame| frame.map_err(|source| NetproxyError::Body { blame, source })))
}

impl Watched {
    fn poll_frame(&mut self, cx: &mut Context<'_>, blame: Blame) -> Polled {
        let frame = ready!(poll(&mut self.body, cx, blame));
        if let Some(Ok(frame)) = &frame
            && let Err(error) = self.look(frame)
        {
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(frame)
    }

    fn look(&mut self, frame: &Frame<Bytes>) -> Result<(), NetproxyError> {
        if let Some(trailers) = frame.trailers_ref() {
            let found = trailers.values().find_map(|value| self.watch.see(value.as_bytes()));
            return found.map_or(Ok(()), |secret| self.alarm.ring(secret, "its trailer"));
        }
        let Some(data) = frame.data_ref() else { return Ok(()) };
        if let Some(secret) = self.watch.see(data) {
            return self.alarm.ring(secret, "its body");
        }
        match self.unpacked.as_mut().map_or(Found::Nothing, |unpacked| unpacked.see(data)) {
            Found::Nothing => Ok(()),
            Found::Placeholder(secret) => {
                self.unpacked = None;
                self.alarm.ring(secret, "its body, unpacked,")
            }
            Found::Bomb => {
                self.unpacked = None;
                self.alarm.ring_for("its body grows too much to be searched for placeholders of secrets")
            }
        }
    }
}

impl Masked {
    fn poll_frame(&mut self, cx: &mut Context<'_>, blame: Blame) -> Polled {
        loop {
            if self.mask.has_worked(cx) {
                return Poll::Pending;
            }
            if self.plain.len() >= AT_ONCE {
                if let Some(frame) = self.search() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                continue;
            }
            if self.ended {
                return Poll::Ready(self.after.pop_front());
            }
            match self.decoder.step() {
                Ok(Some(bytes)) => {
                    self.plain.push(bytes);
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    let reason = format!("its body cannot be decoded: {error}");
                    self.break_off(NetproxyError::Unsearchable { reason });
                    continue;
                }
            }
            let Poll::Ready(next) = poll(&mut self.body, cx, blame) else {
                // Small pieces come one by one, each when the one before has been taken.
                let has_more = self.plain.len() > self.let_come.1;
                let turns = if has_more { 0 } else { self.let_come.0 + 1 };
                if self.mask.is_slow() && !self.plain.is_empty() && turns < TURNS {
                    self.let_come = (turns, self.plain.len());
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if let Some(frame) = self.search() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                let held = messages::pause(&mut self.mask, self.messages.as_mut());
                return if held.is_empty() {
                    Poll::Pending
                } else {
                    Poll::Ready(Some(Ok(Frame::data(held))))
                };
            };
            match next {
                None => self.end(None),
                Some(Err(error)) => self.break_off(error),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.decoder.take(data),
                    Err(frame) => self.end(frame.into_trailers().ok()),
                },
            }
        }
    }

    /// Searches what is here: what of it may pass.
    fn search(&mut self) -> Option<Frame<Bytes>> {
        self.let_come = (0, 0);
        let plain = self.plain.take(AT_ONCE);
        let bytes = messages::pass(&mut self.mask, self.messages.as_mut(), plain);
        (!bytes.is_empty()).then(|| Frame::data(bytes))
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        self.ended = true;
        let rest = self.search();
        self.after.extend(rest.map(Ok));
        let held = messages::finish(&mut self.mask, self.messages.as_mut());
        if !held.is_empty() {
            self.after.push_back(Ok(Frame::data(held)));
        }
        if let Some(mut trailers) = trailers {
            self.place.mask(&mut trailers);
            self.after.push_back(Ok(Frame::trailers(trailers)));
        }
    }

    fn break_off(&mut self, error: NetproxyError) {
        self.ended = true;
        let rest = self.search();
        self.after.extend(rest.map(Ok));
        self.after.push_back(Err(error));
    }

    fn holds_nothing(&self) -> bool {
        self.plain.is_empty() && self.mask.is_empty()
    }

    fn is_end_stream(&self) -> bool {
        let is_over = self.ended || self.body.is_end_stream();
        is_over && self.decoder.is_empty() && self.holds_nothing() && self.after.is_empty()
    }
}

/// What was refused in the middle of a body.
pub(crate) type Refused = Arc<OnceLock<Refusal>>;
