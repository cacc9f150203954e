//! The bodies that the proxy sends: an origin's, or one line of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::Response;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};

use super::error::{Blame, NetproxyError};
use super::exchange::Tapped;
use super::http::status_of;

/// The body of a response to the confined program.
pub(crate) enum Reply {
    /// One line of ours, or nothing.
    Line(Option<Bytes>),
    /// The origin's.
    Origin(Tapped),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = NetproxyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NetproxyError>>> {
        match self.get_mut() {
            Self::Line(line) => Poll::Ready(line.take().map(|line| Ok(Frame::data(line)))),
            Self::Origin(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Line(line) => line.is_none(),
            Self::Origin(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Line(line) => SizeHint::with_exact(line.as_ref().map_or(0, Bytes::len) as u64),
            Self::Origin(body) => body.size_hint(),
        }
    }
}

/// The answer that says why a request did not reach its origin.
pub(crate) fn refusal(error: &NetproxyError) -> Response<Reply> {
    let mut response = Response::new(Reply::Line(Some(format!("agentbox: {error}\n").into())));
    *response.status_mut() = status_of(error);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    let unclear = matches!(error, NetproxyError::Request { .. });
    if unclear || error.blame() == Blame::Proxy {
        // Where this request ends, and the next begins, is not certain any more.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
