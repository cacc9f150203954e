//! A request whose connection its origin closed as it was sent: what changes nothing may be sent once more (RFC 9110
//! section 9.2.2, RFC 9112 section 9.3.1).

use std::error::Error;

use http_body::Body as _;
use hyper::{Method, Request};

use super::failure;
use super::link::Wire;
use super::tapped::Tapped;

/// What a request asks of its connection.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// The version of HTTP, where none was agreed on.
    pub(crate) wire: Wire,
    /// None that an earlier client has left.
    pub(crate) is_new: bool,
}

impl Need {
    /// Whether one without TLS that an earlier client has left will do.
    pub(crate) fn takes_kept(self) -> bool {
        self.wire == Wire::Http1 && !self.is_new
    }
}

/// A request that got no answer.
pub(crate) struct Unanswered {
    pub(crate) error: Box<dyn Error + Send + Sync>,
    /// The request itself, where nothing of it was sent.
    pub(crate) unsent: Option<Request<Tapped>>,
    /// Nothing of an answer has come, and what comes on another connection would be the same.
    pub(crate) is_unheard: bool,
}

impl Unanswered {
    /// Whether the connection has ended without a word.
    pub(crate) fn was_closed(&self) -> bool {
        self.is_unheard && failure::is_end(&*self.error)
    }
}

/// The head of a request that may be sent once more.
pub(super) fn copy(request: &Request<Tapped>) -> Option<Box<http::request::Parts>> {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE];
    if !safe.contains(request.method()) || !request.body().is_end_stream() {
        return None;
    }
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.version = request.version();
    head.headers = request.headers().clone();
    head.extensions = request.extensions().clone();
    Some(Box::new(head))
}
