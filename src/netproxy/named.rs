//! Where requests go that name their origins by themselves: to a connection that an earlier client has left, or to one
//! that is dialled. Either way the client has asked for one, and it is recorded as such.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::attempts;
use super::decide::Grant;
use super::error::NetproxyError;
use super::flow::Flow;
use super::http::{Scope, Service};
use super::link::Link;
use super::plain::destination;
use super::repeat::Need;
use super::target::Origin;

/// What the requests of such a stream have in common.
#[derive(Default)]
pub(crate) struct Named {
    /// What was recorded for a connection that had ended before anything was sent on it: the next one is its.
    begun: Mutex<Option<(SocketAddr, Arc<Flow>)>>,
}

impl Named {
    /// A connection for a request of `service` that may go to any of `origins`.
    pub(crate) async fn link(
        &self,
        service: &Service,
        origins: &[Origin],
        need: Need,
    ) -> Result<(Grant, Link), NetproxyError> {
        let egress = &service.egress;
        let (door, proc) = (origins[0].door, service.proc.as_deref());
        let grants: Vec<Grant> = origins.iter().map(|origin| origin.grant.clone()).collect();
        let first = &grants[0];
        let begun = self.lock().take();
        let begun = begun.filter(|(to, _)| *to == first.destination).map(|(_, flow)| flow);
        // Another address only where this one does not answer: what is tried is the same for each client.
        if need.takes_kept()
            && let Some(host) = &origins[0].host
            && let Some(mut link) = egress.pool.take(&destination(host, first.destination))
        {
            let opened = || Flow::open(egress, first, door, proc, &service.idle);
            link.lend(begun.map_or_else(opened, Ok)?);
            return Ok((first.clone(), link));
        }
        let (grant, upstream) = attempts::first(egress, &grants, begun, door, proc, &service.idle).await?;
        let link = Link::lent(upstream, need.wire, grant.destination).await?;
        Ok((grant, link))
    }

    fn lock(&self) -> MutexGuard<'_, Option<(SocketAddr, Arc<Flow>)>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Takes a request out of the count of those on `link`: not a byte of it was sent.
    pub(crate) fn uncount(&self, link: &Link) {
        link.uncount(self.stream());
        if let Scope::Open(named) = &self.scope {
            *named.lock() = link.unsaid().map(|flow| (link.destination, flow));
        }
    }
}
