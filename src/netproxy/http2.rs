//! HTTP/2 on the inner side: many requests at once, each answered by a task of its own.
//!
//! The library that serves HTTP/1.1 cannot send what precedes an answer in HTTP/2. The one beneath it can.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, EXPECT, HeaderMap, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body::Body as _;

use super::client::Client;
use super::http::Service;
use super::link::MAX_HEADER_LIST;
use super::moments::within;
use super::outgoing::strip;
use super::received::{Received, Streamed};
use super::sending::give;

/// Requests that may be under way at once on one connection. Clients that have not heard of it yet take it for
/// 100 (RFC 9113 section 6.5.2), and what they send beyond it is refused.
const MAX_STREAMS: u32 = 128;

/// What a client may send ahead, on one stream and on all of them together.
const WINDOW: u32 = 1024 * 1024;

/// What is kept of one response for a client that does not read it.
const MAX_SENT_AHEAD: usize = 128 * 1024;

/// Streams that may be reset here for what the client did, before its connection is closed (CVE-2023-44487).
const MAX_RESET: usize = 1024;

/// How long a client that has its answer may take to see that the rest of its request is not wanted. Then it is told by
/// a reset (RFC 9113 section 8.1), for which some drop the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves a connection until the client ends it, or has broken the protocol.
pub(super) async fn serve(client: Client, service: &Arc<Service>) -> Result<(), h2::Error> {
    client.heads().stop();
    // Extended CONNECT (RFC 8441) is not offered. Requests that are reset without end close the connection: that is
    // the library's own limit.
    let mut connection = Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_send_buffer_size(MAX_SENT_AHEAD)
        .max_local_error_reset_streams(Some(MAX_RESET))
        .handshake::<_, Bytes>(client)
        .await?;
    while let Some(accepted) = connection.accept().await {
        let (request, reply) = accepted?;
        let service = Arc::clone(service);
        tokio::spawn(async move { answer(&service, request, reply).await });
    }
    Ok(())
}

/// Answers one request. One that the client has reset is dropped with all that it began.
async fn answer(service: &Arc<Service>, request: Request<RecvStream>, reply: SendResponse<Bytes>) {
    let (mut head, body) = request.into_parts();
    let has_all = body.is_end_stream();
    let responder = Arc::new(Responder(Mutex::new(Answering { reply, has_begun: false, has_all })));
    let expected = head.headers.get(EXPECT);
    let waits = expected.is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let body = Received::Stream(Streamed::new(body, &head.headers).answered_by(&responder, waits));
    head.extensions.insert(Arc::clone(&responder));
    let response = {
        let mut answer = pin!(service.answer(Request::from_parts(head, body)));
        poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => responder.poll_reset(cx).map(|()| None),
        })
        .await
    };
    let Some(response) = response else { return };
    let (mut head, body) = response.into_parts();
    // These fields are of HTTP/1.1 (RFC 9113 section 8.2.2).
    strip(&mut head.headers);
    head.headers.remove(UPGRADE);
    let has_ended = body.is_end_stream();
    if let Some(length) = body.size_hint().exact().filter(|_| !has_ended) {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    // Where it fails, the client has gone, or has been told by a reset.
    let Ok(mut stream) = responder.begin(Response::from_parts(head, ()), has_ended) else { return };
    let given = if has_ended {
        drop(body); // What it holds is recorded now.
        Ok(())
    } else {
        give(&mut { body }, &mut stream).await
    };
    // Whoever holds the rest of the request lets go of it with the answer, or a little later.
    if given.is_ok() && !responder.lock().has_all {
        let _ = within(PATIENCE, poll_fn(|cx| stream.poll_reset(cx))).await;
    }
}

/// Where the answer to one request goes, and what precedes it.
pub(crate) struct Responder(Mutex<Answering>);

struct Answering {
    reply: SendResponse<Bytes>,
    /// What precedes it comes too late.
    has_begun: bool,
    /// All of the request has come.
    has_all: bool,
}

impl Responder {
    /// Ready once the client has reset the request, its connection has ended, or the answer has begun.
    fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.lock().reply.poll_reset(cx).map(|_| ())
    }

    /// Tells a client that its body is wanted. Only who has just found it to be still open may do so: what is sent on a
    /// stream that was reset is an error of ours.
    pub(super) fn go_on(&self) {
        self.precede(StatusCode::CONTINUE, HeaderMap::new());
    }

    /// Sends an answer that precedes the one, from the task that answers.
    pub(super) async fn inform(&self, status: StatusCode, headers: HeaderMap) {
        let is_reset = poll_fn(|cx| Poll::Ready(self.poll_reset(cx).is_ready()));
        if !is_reset.await {
            self.precede(status, headers);
        }
    }

    /// All of the request has come.
    pub(super) fn end(&self) {
        self.lock().has_all = true;
    }

    fn precede(&self, status: StatusCode, headers: HeaderMap) {
        let mut answering = self.lock();
        if answering.has_begun {
            return;
        }
        let mut one = Response::new(());
        *one.status_mut() = status;
        *one.headers_mut() = headers;
        // A client may go without it.
        let _ = answering.reply.send_informational(one);
    }

    fn begin(&self, head: Response<()>, is_all: bool) -> Result<SendStream<Bytes>, h2::Error> {
        let mut answering = self.lock();
        answering.has_begun = true;
        let begun = answering.reply.send_response(head, is_all);
        if begun.is_err() {
            answering.reply.send_reset(Reason::INTERNAL_ERROR);
        }
        begun
    }

    fn lock(&self) -> MutexGuard<'_, Answering> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
