//! The answer of a recorded exchange: its head, its body piece by piece as it had come, and how it broke off.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Response, StatusCode, response};
use http_body::{Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep_until};

use super::super::delays;
use super::super::error::{Blame, NetproxyError};
use super::super::failure::Failure;
use super::super::informational::Informational;
use super::super::reader::{LOOK_AGAIN, Reader};
use super::super::spelling::respell;
use super::Blobs;
use super::exchanges::{RecordedExchange, fields};
use super::gate::Gate;
use super::pieces::{Piece, pieces};
use super::playback::{APART, Pause};

/// The most that is read of a body at once.
const PIECE: usize = 64 * 1024;

/// The longest stored list of header fields.
const MOST_FIELDS: u64 = 4 << 20;

/// How a recorded exchange went on after its request.
pub(super) enum Answer {
    Head(Box<response::Parts>, Box<RecordedBody>),
    Failed(NetproxyError),
    /// The client had gone away before there was an answer, or the run had ended: there is none now either.
    Silence,
}

/// A body that was recorded.
pub(crate) struct RecordedBody {
    content: Option<Box<dyn Read + Send>>,
    /// The pieces of it that came apart from each other.
    pieces: VecDeque<Piece>,
    /// The present one.
    piece: Option<Piece>,
    /// Where it began before all of the request had come.
    gate: Option<Arc<Gate>>,
    trailers: Option<HeaderMap>,
    broken: Option<NetproxyError>,
    /// It was never whole, and nobody knows how it would have gone on.
    is_endless: bool,
    /// The length that its head tells.
    length: Option<u64>,
    /// Bytes that were given.
    given: u64,
    is_empty: bool,
    /// Its end comes by itself, in HTTP/2: a piece of no bytes.
    ends_apart: bool,
    /// A piece has just been given: it is read before the next comes.
    pause: Option<Pause>,
    /// Who reads it.
    reader: Reader,
    /// When it was asked for.
    asked: Duration,
    /// Comes when nobody waits for the rest any more.
    leaves: Option<Pause>,
    pace: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl RecordedExchange {
    /// The answer to a request by `method`.
    pub(super) fn answer(&self, method: &Method, blobs: &Blobs, is_paced: bool) -> Answer {
        let error = self.failure();
        let recorded = self.result.get("status");
        let status = recorded.and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
        let Some(status) = status.and_then(|status| StatusCode::from_u16(status).ok()) else {
            if recorded.is_some() {
                // Nobody would come to a client that waits for it.
                return Answer::Failed(unreadable(self.entry, &std::io::ErrorKind::InvalidData.into()));
            }
            return match error {
                Some(NetproxyError::Replayed { failure, .. }) if is_ours(failure) => Answer::Silence,
                Some(error) => Answer::Failed(error),
                None => Answer::Silence,
            };
        };
        match self.head(status, blobs) {
            Ok((head, trailers)) => {
                let body = self.content(method, &head, trailers, blobs, is_paced);
                match body {
                    Ok(body) => Answer::Head(Box::new(head), Box::new(body)),
                    Err(error) => Answer::Failed(unreadable(self.entry, &error)),
                }
            }
            Err(error) => Answer::Failed(unreadable(self.entry, &error)),
        }
    }

    /// How long it was until the first of its answer had come, or the failure in its place.
    pub(super) fn first_byte(&self) -> Duration {
        let timing = |name: &str| self.result.get("timing")?.get(name)?.as_f64();
        let first = timing("first_byte").or_else(|| timing("end"));
        let seconds = first.zip(timing("start")).map(|(first, start)| first - start);
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
    }

    /// What writes its fields as they were spelled. In HTTP/2 all are in lower case.
    pub(super) async fn respelled(&self, fields: &HeaderMap) -> Option<http::Extensions> {
        if self.is_http_2() {
            return None;
        }
        let unusual =
            self.result.get("spelled").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let unusual: Vec<String> =
            unusual.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        respell(fields, &unusual).await
    }

    /// The phrase beside the status, where it is its own.
    pub(super) fn reason(&self) -> Option<ReasonPhrase> {
        self.result.get("reason")?.as_str()?.to_owned().into_bytes().try_into().ok()
    }

    fn is_http_2(&self) -> bool {
        match self.result.get("tls") {
            Some(tls) => tls.get("alpn").is_some_and(|alpn| alpn == "h2"),
            // In cleartext the origin is spoken to as the client speaks.
            None => self.version.as_deref() == Some("HTTP/2.0"),
        }
    }

    /// What it failed with.
    fn failure(&self) -> Option<NetproxyError> {
        let failure = Failure::recorded(&self.result)?;
        let reason =
            self.result.get("error").and_then(Value::as_str).unwrap_or_else(|| failure.kind()).to_owned();
        Some(NetproxyError::Replayed { reason, failure })
    }

    /// The answers that came before it.
    pub(super) fn informational(&self, blobs: &Blobs) -> std::io::Result<Vec<Informational>> {
        let Some(shown) = self.result.get("informational") else { return Ok(Vec::new()) };
        let wire = self.wire(blobs)?;
        let list =
            wire.get("informational").unwrap_or(shown).as_array().map(Vec::as_slice).unwrap_or_default();
        let one = |one: &Value| {
            let status = u16::try_from(one.get("status")?.as_u64()?).ok()?;
            let status = StatusCode::from_u16(status).ok().filter(StatusCode::is_informational)?;
            Some(Informational { status, headers: fields(one.get("headers")) })
        };
        Ok(list.iter().filter_map(one).collect())
    }

    /// What was kept of the fields as they had come.
    fn wire(&self, blobs: &Blobs) -> std::io::Result<Value> {
        let wire = self.result.get("wire").and_then(|wire| wire.get("blob")).and_then(Value::as_str);
        match wire {
            Some(name) => Ok(serde_json::from_reader(blobs(name)?.take(MOST_FIELDS))?),
            None => Ok(Value::Null),
        }
    }

    /// The status and the fields as they had come, credentials too where those were kept.
    fn head(
        &self,
        status: StatusCode,
        blobs: &Blobs,
    ) -> std::io::Result<(response::Parts, Option<HeaderMap>)> {
        let mut head = Response::new(()).into_parts().0;
        head.status = status;
        let wire = self.wire(blobs)?;
        let list = |key: &str| wire.get(key).or_else(|| self.result.get(key));
        head.headers = fields(list("headers"));
        Ok((head, list("trailers").map(|trailers| fields(Some(trailers)))))
    }

    fn content(
        &self,
        method: &Method,
        head: &response::Parts,
        trailers: Option<HeaderMap>,
        blobs: &Blobs,
        is_paced: bool,
    ) -> std::io::Result<RecordedBody> {
        let body = self.result.get("body");
        let content: Option<Box<dyn Read + Send>> = match body {
            None => None,
            Some(body) => {
                match (body.get("text").and_then(Value::as_str), body.get("blob").and_then(Value::as_str)) {
                    (Some(text), _) => Some(Box::new(std::io::Cursor::new(text.as_bytes().to_vec()))),
                    (None, Some(name)) => Some(blobs(name)?),
                    (None, None) => None,
                }
            }
        };
        let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        // The chunks say where the body ends, whatever the other says (RFC 9112 section 6.3).
        let length = length.filter(|_| !head.headers.contains_key(TRANSFER_ENCODING));
        let ends_with_head = *method == Method::HEAD
            || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || head.status.is_informational();
        let failure = self.failure();
        let size = body.and_then(|body| body.get("size"));
        let ends_apart = self.is_http_2() && size.is_some_and(|size| size == 0);
        let is_empty = content.is_none()
            && !ends_apart
            && trailers.is_none()
            && failure.is_none()
            && (ends_with_head || length == Some(0) || (self.is_http_2() && length.is_none()));
        let is_ours = Failure::recorded(&self.result).is_some_and(is_ours);
        // Where all of it was there, the rest of the request was what failed.
        let is_endless = is_ours && body.is_none_or(|body| body.get("whole").is_some());
        Ok(RecordedBody {
            content,
            pieces: pieces(self.result.get("segments"), blobs)?,
            piece: None,
            gate: None,
            trailers,
            broken: failure.filter(|_| !is_ours),
            is_endless,
            length,
            given: 0,
            is_empty,
            ends_apart,
            pause: None,
            reader: Reader::default(),
            asked: delays::now().saturating_sub(self.first_byte()),
            leaves: None,
            pace: is_paced.then(|| {
                // The head has just come.
                let asked = Instant::now().checked_sub(self.first_byte()).unwrap_or_else(Instant::now);
                (asked, Box::pin(sleep_until(asked)))
            }),
        })
    }
}

/// Whether it was the client or the run that ended it: that happens again by itself.
fn is_ours(failure: Failure) -> bool {
    failure.blame() == Blame::Agent || failure.kind() == "idle"
}

pub(super) fn unreadable(entry: u64, error: &std::io::Error) -> NetproxyError {
    NetproxyError::NotRecorded { what: format!("it that can be read: entry {entry}: {error}") }
}

impl RecordedBody {
    /// What its pieces wait for.
    pub(super) fn read_by(self, reader: Reader) -> Self {
        Self { reader, ..self }
    }

    /// Its pieces wait for the request.
    pub(super) fn behind(self, gate: Arc<Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NetproxyError>>> {
        self.skip_empty_piece();
        if let Some(pause) = &mut self.pause {
            // The library writes what it has when nothing more is there.
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if std::mem::take(&mut self.ends_apart) {
            self.is_empty = self.broken.is_none() && self.trailers.is_none() && !self.is_endless;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::new()))));
        }
        if let Some(bytes) = ready!(self.poll_piece(cx)) {
            return Poll::Ready(Some(bytes.map(Frame::data)));
        }
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if self.is_endless {
            let reader = &self.reader;
            let leaves = self.leaves.get_or_insert_with(|| Box::pin(reader.clone().leaves(LOOK_AGAIN)));
            ready!(leaves.as_mut().poll(cx));
            self.is_endless = false;
            return Poll::Ready(Some(Err(NetproxyError::Abandoned)));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    /// The next bytes, none at the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, NetproxyError>>> {
        let Some(content) = &mut self.content else { return Poll::Ready(None) };
        if self.piece.is_none() {
            self.piece = self.pieces.pop_front();
        }
        if let (Some(piece), Some(gate)) = (self.piece, &self.gate) {
            ready!(gate.poll(piece.up, cx));
        }
        if let (Some(piece), Some((begun, sleep))) = (self.piece, &mut self.pace) {
            let at = *begun + Duration::from_micros(piece.micros);
            if sleep.deadline() != at {
                sleep.as_mut().reset(at);
            }
            ready!(sleep.as_mut().poll(cx));
        }
        let most = self.piece.map_or(PIECE, |piece| usize::try_from(piece.left).unwrap_or(PIECE).min(PIECE));
        let mut bytes = vec![0; most];
        let read = match read_full(content, &mut bytes) {
            Ok(read) => read,
            Err(error) => {
                self.content = None;
                let what = format!("it that can be read to its end: {error}");
                return Poll::Ready(Some(Err(NetproxyError::NotRecorded { what })));
            }
        };
        if read == 0 {
            self.content = None;
            return Poll::Ready(None);
        }
        bytes.truncate(read);
        self.given += read as u64;
        if let Some(mut piece) = self.piece.take() {
            piece.left -= read as u64;
            self.piece = (piece.left > 0).then_some(piece);
            if piece.left == 0 {
                self.end_piece(piece.micros);
            }
        }
        Poll::Ready(Some(Ok(bytes.into())))
    }

    /// A head that came before the body, or an end that came after it, is a piece of no bytes.
    fn skip_empty_piece(&mut self) {
        if self.piece.is_none()
            && self.pause.is_none()
            && let Some(empty) = self.pieces.front().filter(|piece| piece.left == 0)
        {
            let micros = empty.micros;
            self.pieces.pop_front();
            self.end_piece(micros);
        }
    }

    /// What follows comes when the client has read the piece that came then, and not before its time.
    fn end_piece(&mut self, micros: u64) {
        let at = self.pieces.front().map(|next| self.asked + Duration::from_micros(next.micros));
        let gap = self.pieces.front().map(|next| next.micros.saturating_sub(micros));
        let next = gap.map(|gap| gap >= APART);
        // Of an answer that breaks off all is read that had come.
        let waits = next.or_else(|| self.broken.is_some().then_some(true));
        let reader = self.reader.clone();
        self.pause = waits.map(|waits| {
            Box::pin(async move {
                reader.read(waits).await;
                if let Some((at, gap)) = at.zip(gap) {
                    delays::until(at, Duration::from_micros(gap)).await;
                }
            }) as Pause
        });
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        // Who knows the length does not ask for the end.
        let is_whole = self.length == Some(self.given) && self.broken.is_none() && self.trailers.is_none();
        self.is_empty || (is_whole && !self.is_endless && !self.ends_apart)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        if self.is_empty {
            return SizeHint::with_exact(0);
        }
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Fills the buffer as far as there is something.
fn read_full(content: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match content.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
