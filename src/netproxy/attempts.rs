//! Dialling a host by its name: one address after another, each a little later than the one before,
//! and the first that answers is taken (RFC 8305 section 5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::decide::{Claim, Grant};
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::{Door, Flow};
use super::idle::IdleClock;
use super::metered::Metered;
use super::moments;
use super::origin::OriginStream;

/// How long an address may be silent before the next one is tried beside it.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Attempts under way at once: a name with silent addresses alone must not use up the descriptors.
const MAX_ATTEMPTS: usize = 6;

/// What an attempt came to, and for which of the destinations it was.
type Outcome = (usize, Result<Metered<OriginStream>, NetproxyError>);

/// Where a client of the host's loopback may get as well: it tries both addresses, but inside the first is always
/// accepted, and the host's server may listen on the other alone. None where that is no loopback address, or refused.
pub(crate) fn twin(egress: &Egress, destination: SocketAddr, claim: Claim<'_>) -> Option<Grant> {
    let ip = match destination.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => return None,
    };
    egress.judge.destination(SocketAddr::new(ip, destination.port()), claim).ok()
}

/// Dials judged destinations of one host: the grant of the one that answered. Each attempt is recorded; those that are
/// still under way when one has answered are given up. `begun` is the record of the first, where there is one.
pub(crate) async fn first(
    egress: &Arc<Egress>,
    grants: &[Grant],
    mut begun: Option<Arc<Flow>>,
    door: Door,
    proc: Option<&str>,
    idle: &IdleClock,
) -> Result<(Grant, Metered<OriginStream>), NetproxyError> {
    // The machine itself refuses at once: nothing is tried beside it.
    if let Some(first) = grants.first()
        && (grants.len() == 1 || first.destination.ip().is_loopback())
    {
        return in_turn(egress, grants, begun, door, proc, idle).await;
    }
    let mut attempts: JoinSet<Outcome> = JoinSet::new();
    let mut flows = Vec::new();
    let mut waiting = grants.iter().enumerate();
    let mut failure = NetproxyError::Request { reason: "its target names no origin".to_owned() };
    loop {
        if let Some((index, grant)) = waiting.next() {
            let flow = match begun.take() {
                Some(flow) => flow,
                None => Flow::open(egress, grant, door, proc, idle)?,
            };
            flows.push(Arc::downgrade(&flow));
            let destination = grant.destination;
            attempts.spawn(async move { (index, flow.dial(destination).await) });
        }
        let alone = waiting.len() == 0 || attempts.len() == MAX_ATTEMPTS;
        let next = attempts.join_next();
        let ended = if alone { Some(next.await) } else { moments::within(ATTEMPT_DELAY, next).await };
        match ended {
            Some(Some(Ok((index, Ok(upstream))))) => {
                flows.swap_remove(index);
                give_up(&flows);
                return Ok((grants[index].clone(), upstream));
            }
            Some(Some(Ok((_, Err(error @ NetproxyError::Dial { .. }))))) => failure = error,
            Some(Some(Ok((_, Err(error))))) => return Err(error),
            Some(Some(Err(panicked))) => {
                return Err(NetproxyError::Thread { source: std::io::Error::other(panicked) });
            }
            Some(None) => return Err(failure),
            // It is silent: the next one is tried beside it.
            None => {}
        }
    }
}

/// The same, each after the one before has failed.
async fn in_turn(
    egress: &Arc<Egress>,
    grants: &[Grant],
    mut begun: Option<Arc<Flow>>,
    door: Door,
    proc: Option<&str>,
    idle: &IdleClock,
) -> Result<(Grant, Metered<OriginStream>), NetproxyError> {
    let mut failure = NetproxyError::Request { reason: "its target names no origin".to_owned() };
    for grant in grants {
        let flow = match begun.take() {
            Some(flow) => flow,
            None => Flow::open(egress, grant, door, proc, idle)?,
        };
        match flow.dial(grant.destination).await {
            Ok(upstream) => return Ok((grant.clone(), upstream)),
            Err(error @ NetproxyError::Dial { .. }) => failure = error,
            Err(error) => return Err(error),
        }
    }
    Err(failure)
}

/// Dropping an attempt ends its flow; that is no failure of the address.
fn give_up(flows: &[Weak<Flow>]) {
    for flow in flows.iter().filter_map(Weak::upgrade) {
        flow.set_end("another address answered first");
    }
}
