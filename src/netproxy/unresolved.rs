//! Requests whose host has no address: they have gone nowhere, and are exchanges all the same.

use std::sync::Arc;

use http::request;

use super::authority::{Authority, Host};
use super::error::NetproxyError;
use super::exchange::Exchange;
use super::framing;
use super::http::{HTTP_PORT, Service};

impl Service {
    /// Records a request that named its host itself, if `error` says that it has no address.
    pub(super) async fn note_unresolved(
        self: &Arc<Self>,
        head: &request::Parts,
        error: &NetproxyError,
    ) -> Result<(), NetproxyError> {
        let NetproxyError::Resolve { name, .. } = error else { return Ok(()) };
        let Some(authority) = framing::authority(head)? else { return Ok(()) };
        // Under `--observe` no rule may allow the name.
        let rule = self.egress.judge.name(name).unwrap_or_else(|refusal| refusal.reason);
        let place = self.egress.places.take(0).await?;
        let (proc, idle) = (self.proc.as_deref(), self.idle.clone());
        let exchange = Exchange::begin(&self.egress, head, url(&authority, head), &rule, proc, idle, place)?;
        if let Some(recording) = self.egress.played() {
            recording.note_unsent(&exchange, proc);
        }
        exchange.fail(error);
        Ok(())
    }
}

/// What was asked for: nobody but the proxy's port takes the names of hosts, and it takes those without TLS.
fn url(Authority { host, port }: &Authority, head: &request::Parts) -> String {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let host: &Host = host;
    match port {
        Some(port) if *port != HTTP_PORT => format!("http://{host}:{port}{path}"),
        _ => format!("http://{host}{path}"),
    }
}
