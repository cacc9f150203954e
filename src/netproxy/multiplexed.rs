//! A connection to an origin that takes many requests at once: HTTP/2.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::Reason;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::error::NetproxyError;
use super::informational::Arrivals;
use super::link::MAX_HEADER_LIST;
use super::received::{Received, Streamed, without_words};
use super::repeat::Unanswered;
use super::sending::give;
use super::tapped::Tapped;

/// What an origin may send ahead on one HTTP/2 stream, and on all of a connection together: a
/// client that reads slowly makes the origin wait.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// What all origins together may send ahead, roughly: each further connection gets its share of it alone, and at
/// least the window that every connection begins with (RFC 9113 section 6.9.2).
const ALL_WINDOWS: u32 = 64 * 1024 * 1024;
const LEAST_WINDOW: u32 = 65_535;

/// Connections in HTTP/2 that are open.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Counts one of them.
struct Opened;

impl Opened {
    /// With the window that is left for it.
    fn new() -> (Self, u32) {
        (Self, window(OPEN.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The window of a connection beside `open` others.
fn window(open: u32) -> u32 {
    (ALL_WINDOWS / open.saturating_add(1)).clamp(LEAST_WINDOW, CONNECTION_WINDOW)
}

/// What is kept of one request for an origin that does not read it.
const MAX_SENT_AHEAD: usize = 1024 * 1024;

/// Requests that are sent before the origin says how many may be under way.
const FIRST_STREAMS: usize = 100;

/// A handle of such a connection, which ends with the last one and the last request.
#[derive(Clone)]
pub(super) struct Multiplexed {
    sender: SendRequest<Bytes>,
    /// It takes no more, though the origin has not said so.
    is_left: Arc<AtomicBool>,
}

impl Multiplexed {
    /// Begins HTTP/2 on `stream`.
    pub(super) async fn open<S>(stream: S, destination: SocketAddr) -> Result<Self, NetproxyError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (opened, window) = Opened::new();
        let handshake = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(FIRST_STREAMS)
            .initial_window_size(STREAM_WINDOW.min(window))
            .initial_connection_window_size(window)
            .max_header_list_size(MAX_HEADER_LIST)
            .max_send_buffer_size(MAX_SENT_AHEAD)
            .handshake(stream);
        let (sender, connection) = handshake.await.map_err(|source| NetproxyError::Origin {
            address: destination,
            source: without_words(source).into(),
        })?;
        // Its end shows in each exchange that it takes with it.
        tokio::spawn(async move {
            let _ = connection.await;
            drop(opened);
        });
        Ok(Self { sender, is_left: Arc::default() })
    }

    /// Whether it takes requests.
    pub(super) fn is_open(&self) -> bool {
        if self.is_left.load(Ordering::Relaxed) {
            return false;
        }
        // A new handle waits for none of its own requests.
        let polled = self.sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Ok(())))
    }

    /// It takes no more.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// Sends a request; what precedes its answer is among `arrivals`. Dropped before the answer, it takes the request
    /// back by a reset.
    pub(super) async fn send(
        &mut self,
        request: Request<Tapped>,
        arrivals: &Arrivals,
    ) -> Result<Response<Received>, Unanswered> {
        if let Err(error) = poll_fn(|cx| self.sender.poll_ready(cx)).await {
            let is_unprocessed = is_unprocessed(&error);
            let failed = Unanswered::before(request, without_words(error).into());
            return Err(Unanswered { is_unprocessed, ..failed });
        }
        let (mut head, body) = request.into_parts();
        let ends = body.is_end_stream();
        if let Some(length) = body.size_hint().exact()
            && (length > 0 || means_its_body(&head.method))
        {
            head.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        let copy = head.clone();
        let failed = |error: h2::Error, body: Option<Tapped>| {
            let is_unheard = !arrivals.are_any();
            let is_unprocessed = is_unheard && is_unprocessed(&error);
            let body = body.and_then(Tapped::unspent).filter(|_| is_unprocessed);
            let unsent = body.map(|body| Request::from_parts(copy, body));
            Unanswered { error: without_words(error).into(), unsent, is_unheard, is_unprocessed }
        };
        let (mut answer, mut stream) = match self.sender.send_request(Request::from_parts(head, ()), ends) {
            Ok(sent) => sent,
            Err(error) => return Err(failed(error, Some(body))),
        };
        let (mut sending, mut body) = (JoinSet::new(), Some(body));
        if let Some(mut body) = body.take_if(|_| !ends) {
            // Where it fails, the answer tells.
            sending.spawn(async move {
                let _ = give(&mut body, &mut stream).await;
                body
            });
        }
        let response = match poll_fn(|cx| poll_answer(&mut answer, arrivals, cx)).await {
            Ok(response) => response,
            Err(error) => {
                // The stream has ended, and with it what sends on it.
                if is_unprocessed(&error) && body.is_none() {
                    body = sending.join_next().await.and_then(Result::ok);
                }
                return Err(failed(error, body));
            }
        };
        sending.detach_all();
        let (head, body) = response.into_parts();
        let body = Received::Stream(Streamed::new(body, &head.headers));
        Ok(Response::from_parts(head, body))
    }
}

/// Whether the origin says that it has not begun with a request, which may then be sent again whatever it asks (RFC
/// 9113 section 8.7). The library tells of GOAWAY those requests alone that are beyond the last that was taken.
fn is_unprocessed(error: &h2::Error) -> bool {
    let is_leaving = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (is_leaving || is_refused)
}

/// Whether a method says what a body means, so that its absence is told as well (RFC 9110 section 8.6).
fn means_its_body(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

/// The answer, once what precedes it has been taken: the library throws away what was not.
fn poll_answer(
    answer: &mut ResponseFuture,
    arrivals: &Arrivals,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<h2::RecvStream>, h2::Error>> {
    while let Some(one) = ready!(answer.poll_informational(cx)?) {
        arrivals.take(one.status(), one.headers());
    }
    Pin::new(answer).poll(cx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_share_what_one_may_hold() {
        assert_eq!(window(0), CONNECTION_WINDOW);
        assert_eq!(window(15), CONNECTION_WINDOW);
        assert_eq!(window(100_000), LEAST_WINDOW);
        let all: u64 = (0..1024).map(|open| u64::from(window(open))).sum();
        assert!(all < 6 * u64::from(ALL_WINDOWS), "{all}");
    }
}
