//! Requests and connections that cannot be read: refused, and recorded.

use std::error::Error;
use std::io;

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
            Scope::Open(_) => head.uri.host().unwrap_or("<none>").to_owned(),
        };
        match self.record_malformed(target, error.to_string()) {
            Ok(()) => refusal(error),
            Err(failed) => refusal(&failed),
        }
    }

    /// The library answers what is no HTTP by itself (400, 431, GOAWAY): the refusal is recorded all the same.
    pub(super) fn note_malformed(&self, error: &(dyn Error + 'static)) {
        let Some(reason) = of_http1(error).or_else(|| of_http2(error)) else { return };
        let target = match &self.scope {
            Scope::Bound { grant, .. } => grant.destination.to_string(),
            Scope::Open(_) => "<none>".to_owned(),
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
            let cause = source.source().map_or_else(|| source.to_string(), ToString::to_string);
            Some(NetproxyError::Request { reason: format!("its body cannot be read: {cause}") })
        }
        NetproxyError::Unclear(refusal) => Some(NetproxyError::Unclear(refusal.clone())),
        _ => None,
    }
}

/// What cannot be read, or does not come: the connection was ended by its [`HeadClock`](super::head_clock::HeadClock).
fn of_http1(error: &(dyn Error + 'static)) -> Option<String> {
    let error = error.downcast_ref::<hyper::Error>()?;
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_late = source.is_some_and(|source| source.kind() == io::ErrorKind::TimedOut);
    let is_malformed = error.is_parse() || error.is_parse_too_large() || is_late;
    is_malformed.then(|| format!("the request cannot be read: {error}"))
}

/// What the library ended an HTTP/2 connection for by itself: the client has broken the protocol.
fn of_http2(error: &(dyn Error + 'static)) -> Option<String> {
    let error = error.downcast_ref::<h2::Error>()?;
    let is_malformed = !error.is_io() && !error.is_remote();
    is_malformed.then(|| format!("the HTTP/2 connection is malformed: {error}"))
}
