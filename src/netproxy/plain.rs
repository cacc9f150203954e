//! Where the requests of one stream without TLS go: to a connection that an earlier client has left, or to one
//! that is dialled once a request may go there.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::attempts;
use super::authority::Host;
use super::decide::Grant;
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::Flow;
use super::http::Service;
use super::link::{Link, Wire};
use super::pool::{Carrier, Destination};
use super::repeat::Need;
use super::target::Origin;

/// What the requests of such a stream have in common.
pub(crate) struct Plain {
    /// The record of the client's stream.
    flow: Arc<Flow>,
    /// Further addresses of the host, which are dialled beside the first.
    others: Vec<Grant>,
    first: Mutex<First>,
}

/// What becomes of the first request that needs a connection.
enum First {
    /// It is dialled for.
    Waits,
    /// It has been.
    Served,
    /// The origin could not be reached.
    Failed(NetproxyError),
}

impl Plain {
    /// Nothing has been dialled yet.
    pub(crate) fn waiting(flow: &Arc<Flow>, others: Vec<Grant>) -> Self {
        Self { flow: Arc::clone(flow), others, first: Mutex::new(First::Waits) }
    }

    /// It was dialled for before it was clear what the client speaks.
    pub(crate) fn dialled(flow: Arc<Flow>) -> Self {
        Self { flow, others: Vec::new(), first: Mutex::new(First::Served) }
    }

    /// The dial has failed.
    pub(crate) fn failed(flow: Arc<Flow>, error: NetproxyError) -> Self {
        Self { flow, others: Vec::new(), first: Mutex::new(First::Failed(error)) }
    }

    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    pub(crate) fn others(&self) -> &[Grant] {
        &self.others
    }

    /// A connection for a request of `service` that may go to any of `origins`. None where the stream's own has ended,
    /// and another is to be dialled and recorded.
    pub(crate) async fn link(
        &self,
        service: &Service,
        origins: &[Origin],
        need: Need,
    ) -> Result<Option<(Grant, Link)>, NetproxyError> {
        let egress = &service.egress;
        for origin in origins.iter().filter(|_| need.takes_kept()) {
            if let Some(host) = &origin.host
                && let Some(link) = egress.pool.take(&destination(host, origin.grant.destination))
            {
                return Ok(Some((origin.grant.clone(), link)));
            }
        }
        match std::mem::replace(&mut *self.lock(), First::Served) {
            First::Failed(error) => return Err(error),
            First::Served => return Ok(None),
            First::Waits => {}
        }
        let grants: Vec<Grant> = origins.iter().map(|origin| origin.grant.clone()).collect();
        let (begun, door, proc) = (Some(Arc::clone(&self.flow)), origins[0].door, service.proc.as_deref());
        let (grant, upstream) = attempts::first(egress, &grants, begun, door, proc, &service.idle).await?;
        let link = if Arc::ptr_eq(upstream.flow(), &self.flow) {
            let (upstream, flow) = upstream.into_inner();
            Link::plain(upstream, need.wire, grant.destination, &flow).await?
        } else {
            // Another address, with a record of its own.
            Link::open(upstream, need.wire, grant.destination).await?
        };
        Ok(Some((grant, link)))
    }

    /// Leaves a connection to whoever comes next.
    pub(crate) fn leave(egress: &Egress, link: Link) {
        if let (Wire::Http1, Some(host)) = (link.wire(), link.only_host()) {
            egress.pool.keep(destination(&host, link.destination), link);
        }
    }

    fn lock(&self) -> MutexGuard<'_, First> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn destination(host: &Host, address: SocketAddr) -> Destination {
    Destination { host: host.clone(), address, carrier: Carrier::Plain }
}
