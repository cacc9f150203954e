//! Dialling a host by its name: one address after another, each a little later than the one before,
//! and the first that answers is taken (RFC 8305 section 5).

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::decide::Grant;
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::{Door, Flow};
use super::idle::IdleClock;
use super::metered::Metered;
use super::moments;
use super::origin::OriginStream;
use super::stream;

/// How long an address may be silent before the next one is tried beside it.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Attempts under way at once: a name with silent addresses alone must not use up the descriptors.
const MAX_ATTEMPTS: usize = 6;

/// What an attempt came to, and for which of the destinations it was.
type Outcome = (usize, Result<Metered<OriginStream>, NetproxyError>);

/// Dials judged destinations of one host. Each attempt is recorded; those that are still under way
/// when one has answered are given up. `begun` is the record of the first, where there is one.
pub(crate) async fn first(
    egress: &Arc<Egress>,
    grants: &[Grant],
    mut begun: Option<Arc<Flow>>,
    door: Door,
    proc: Option<&str>,
    idle: &IdleClock,
) -> Result<(usize, Metered<OriginStream>), NetproxyError> {
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
            let (egress, grant, proc) = (Arc::clone(egress), grant.clone(), proc.map(str::to_owned));
            let idle = idle.clone();
            attempts.spawn(async move {
                (index, stream::dial(&egress, &flow, &grant, door, proc.as_deref(), &idle).await)
            });
        }
        let alone = waiting.len() == 0 || attempts.len() == MAX_ATTEMPTS;
        let next = attempts.join_next();
        let ended = if alone { Some(next.await) } else { moments::within(ATTEMPT_DELAY, next).await };
        match ended {
            Some(Some(Ok((index, Ok(upstream))))) => {
                flows.swap_remove(index);
                give_up(&flows);
                return Ok((index, upstream));
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

/// Dropping an attempt ends its flow; that is no failure of the address.
fn give_up(flows: &[Weak<Flow>]) {
    for flow in flows.iter().filter_map(Weak::upgrade) {
        flow.set_end("another address answered first");
    }
}
