//! A request whose connection its origin closed as it was sent: what changes nothing may be sent once more (RFC 9110
//! section 9.2.2, RFC 9112 section 9.3.1).

use std::error::Error;
use std::sync::Arc;

use http::request;
use http_body::Body as _;
use hyper::client::conn::TrySendError;
use hyper::{Method, Request};

use super::disguise;
use super::error::NetproxyError;
use super::exchange::{Exchange, Side};
use super::failure;
use super::http::Service;
use super::link::{Link, Wire};
use super::received::Received;
use super::tapped::Tapped;
use super::tls::WANTS_CERTIFICATE;

/// What a request asks of its connection.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// The version of HTTP, where none was agreed on.
    pub(crate) wire: Wire,
    /// None that an earlier client has left.
    pub(crate) is_new: bool,
    /// So many origins have not begun with it.
    refused: usize,
}

impl Need {
    /// That of a request which has not gone out.
    pub(crate) fn of(wire: Wire) -> Self {
        Self { wire, is_new: false, refused: 0 }
    }

    /// The same once it has `failed` on `link`.
    pub(super) fn after(&mut self, failed: &mut Unanswered, link: &Link) {
        self.is_new |= failed.unsent.is_none();
        self.refused += usize::from(failed.is_unprocessed);
        if self.refused > 1 {
            // Its limit, which the first refusal can be for, was heard before that.
            link.leave();
        }
        failed.is_unprocessed &= self.refused < MOST_REFUSED;
    }

    /// Whether one without TLS that an earlier client has left will do.
    pub(crate) fn takes_kept(self) -> bool {
        self.wire == Wire::Http1 && !self.is_new
    }
}

/// A request that got no answer.
pub(crate) struct Unanswered {
    pub(crate) error: Box<dyn Error + Send + Sync>,
    /// The request itself, where nothing of it was sent, or where all of it may be sent again.
    pub(crate) unsent: Option<Request<Tapped>>,
    /// Nothing of an answer has come, and what comes on another connection would be the same.
    pub(crate) is_unheard: bool,
    /// The origin says that it has not begun with it.
    pub(crate) is_unprocessed: bool,
}

impl Unanswered {
    /// That no connection can take.
    pub(crate) fn before(request: Request<Tapped>, error: Box<dyn Error + Send + Sync>) -> Self {
        Self { error, unsent: Some(request), is_unheard: true, is_unprocessed: false }
    }

    /// As the library tells of it in HTTP/1.
    pub(crate) fn of(mut error: TrySendError<Request<Tapped>>, is_unheard: bool) -> Self {
        let unsent = error.take_message();
        Self { unsent, error: error.into_error().into(), is_unheard, is_unprocessed: false }
    }
}

/// How often a request goes out that no origin begins with.
const MOST_REFUSED: usize = 8;

impl Service {
    /// The request for another connection, where it may go out on one; else the error. `copy` is its head, where that
    /// is one which may be sent once more.
    pub(super) fn again(
        &self,
        failed: Unanswered,
        reused: bool,
        copy: Option<Box<request::Parts>>,
        exchange: &Arc<Exchange>,
    ) -> Result<Request<Tapped>, Box<dyn Error + Send + Sync>> {
        let was_closed = failed.is_unheard && failure::is_end(&*failed.error);
        match (failed.unsent, copy) {
            // The origin closed an idle connection before any byte of this request went out.
            (Some(unsent), _) if reused || failed.is_unprocessed => Ok(unsent),
            (None, Some(head)) if was_closed => {
                let body = Tapped::new(Received::None.into(), exchange, Side::Request, &self.heads);
                Ok(Request::from_parts(*head, body))
            }
            _ => Err(failed.error),
        }
    }
}

impl Link {
    /// The error of an exchange on it; `first` where it had brought no answer before.
    pub(crate) fn failure(&self, source: Box<dyn Error + Send + Sync>, first: bool) -> NetproxyError {
        let address = self.destination;
        match &self.facts {
            // With TLS 1.3 an origin says so after the handshake only, and the alert may be lost with
            // the connection (RFC 8446 section 4.4.2.4).
            Some(facts) if first && facts.wants_certificate => {
                let reason = WANTS_CERTIFICATE.to_owned();
                NetproxyError::Tls { name: facts.name.clone(), address, reason, source: None }
            }
            _ => NetproxyError::Origin { address, source },
        }
    }
}

/// The head of a request that may be sent once more.
pub(super) fn copy(request: &Request<Tapped>) -> Option<Box<request::Parts>> {
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
    // None that its origin may take for another one.
    disguise::methods(&head).is_ok_and(|others| others.is_empty()).then(|| Box::new(head))
}
