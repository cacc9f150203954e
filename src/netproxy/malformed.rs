//! Requests and connections that cannot be read: refused, and recorded.

use hyper::Response;

use super::body::{Reply, refusal};
use super::decide::Refusal;
use super::error::{Blame, NetproxyError};
use super::http::{Scope, Service};

impl Service {
    /// Answers and records a request that cannot be judged.
    pub(super) fn refuse_request(
        &self,
        head: &http::request::Parts,
        error: &NetproxyError,
    ) -> Response<Reply> {
        let target = match &self.scope {
            Scope::Bound { grant, .. } => grant.destination.to_string(),
            // Without what stands before the host: a password.
            Scope::Open => head.uri.host().unwrap_or("<none>").to_owned(),
        };
        match self.record_malformed(target, error.to_string()) {
            Ok(()) => refusal(error),
            Err(failed) => refusal(&failed),
        }
    }

    /// The library answers what is no HTTP by itself (400, 431, GOAWAY): the refusal is recorded all the same.
    pub(super) fn note_malformed(&self, error: &hyper::Error) {
        let many = of_http2(error);
        if !(error.is_parse() || error.is_parse_too_large() || is_late(error) || many.is_some()) {
            return;
        }
        let target = match &self.scope {
            Scope::Bound { grant, .. } => grant.destination.to_string(),
            Scope::Open => "<none>".to_owned(),
        };
        let reason = match many {
            Some(error) => format!("the HTTP/2 connection is malformed: {error}"),
            None => format!("the request cannot be read: {error}"),
        };
        // The connection has ended already.
        let _ = self.record_malformed(target, reason);
    }

    fn record_malformed(&self, target: String, reason: String) -> Result<(), NetproxyError> {
        let refusal =
            Refusal { target, name: None, address: None, port: None, reason, rule: None, remedy: None };
        self.egress.refuse_always(&refusal, self.proc.as_deref())
    }
}

/// What a client hears of its own body that breaks off; none where that is not its fault.
pub(super) fn told(error: &NetproxyError) -> Option<NetproxyError> {
    match error {
        NetproxyError::Body { blame: Blame::Agent, source } => {
            let cause =
                std::error::Error::source(source).map_or_else(|| source.to_string(), ToString::to_string);
            Some(NetproxyError::Request { reason: format!("its body cannot be read: {cause}") })
        }
        NetproxyError::Unclear(refusal) => Some(NetproxyError::Unclear(refusal.clone())),
        _ => None,
    }
}

/// Whether the connection was ended by its [`HeadClock`](super::head_clock::HeadClock).
fn is_late(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::TimedOut)
}

/// What the library ended an HTTP/2 connection for by itself: the client has broken the protocol.
fn of_http2(error: &hyper::Error) -> Option<&h2::Error> {
    let source = std::error::Error::source(error)?.downcast_ref::<h2::Error>()?;
    (!source.is_io() && !source.is_remote()).then_some(source)
}
