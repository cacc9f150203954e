//! The bodies that the proxy sends: an origin's, or one line of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::error::{Blame, NetproxyError};
use super::http::status_of;
use super::tapped::Tapped;

/// The body of a response to the confined program.
pub(crate) enum Reply {
    /// One line of ours, or nothing.
    Line(Option<Bytes>),
    /// The origin's.
    Origin(Box<Tapped>),
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
    if let NetproxyError::Exhausted { seconds, .. } = error {
        headers.insert(RETRY_AFTER, HeaderValue::from(*seconds));
    }
    let unclear = matches!(error, NetproxyError::Request { .. });
    if unclear || error.blame() == Blame::Proxy {
        // Where this request ends, and the next begins, is not certain any more.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The same to a request with these fields, in the words of its protocol.
pub(crate) fn refusal_to(fields: &HeaderMap, error: &NetproxyError) -> Response<Reply> {
    let plain = refusal(error);
    let grpc = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).filter(|kind| is_grpc(kind));
    let Some(kind) = grpc.and_then(|kind| HeaderValue::from_str(kind).ok()) else { return plain };
    // PERMISSION_DENIED, RESOURCE_EXHAUSTED, INVALID_ARGUMENT (gRPC over HTTP/2, "Responses").
    let status = match plain.status() {
        StatusCode::FORBIDDEN => "7",
        StatusCode::TOO_MANY_REQUESTS => "8",
        StatusCode::BAD_REQUEST => "3",
        _ => return plain,
    };
    let mut response = Response::new(Reply::Line(None));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert("grpc-status", HeaderValue::from_static(status));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&format!("agentbox: {error}"))) {
        headers.insert("grpc-message", message);
    }
    response
}

/// `application/grpc`, with a subtype or without; gRPC-Web reads the status of HTTP.
fn is_grpc(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    kind == "application/grpc" || kind.starts_with("application/grpc+")
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
        encoded
    })
}
