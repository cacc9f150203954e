//! CONNECT: the same judgement, then the tunnel is carried like a stream that came by itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::authority::{Authority, Host};
use super::body::{Reply, refusal};
use super::client::Client;
use super::decide::{Claim, Grant};
use super::egress::Egress;
use super::error::NetproxyError;
use super::failure::NOT_RECORDED;
use super::flow::{Door, Flow};
use super::hear;
use super::http::Service;
use super::idle::IdleClock;
use super::metered::Metered;
use super::names::Answer;
use super::origin::OriginStream;
use super::resolve::Pending;
use super::{attempts, stream};

/// Answers a CONNECT request on the proxy's port.
pub(crate) async fn answer(
    service: &Arc<Service>,
    authority: Option<Authority>,
    upgrade: Option<OnUpgrade>,
) -> Response<Reply> {
    service.heads.stop();
    match dial_authority(service, authority).await {
        Err(error) => refusal(&error),
        Ok(way) => {
            if let Some(upgrade) = upgrade {
                let tunnel = tunnel(Arc::clone(&service.egress), upgrade, way);
                service.idle.clone().spawn(tunnel);
            }
            Response::new(Reply::Line(None))
        }
    }
}

async fn dial_authority(service: &Arc<Service>, authority: Option<Authority>) -> Result<Way, NetproxyError> {
    let unnamed = || NetproxyError::Request { reason: "CONNECT needs host:port".to_owned() };
    let Authority { host, port } = authority.ok_or_else(unnamed)?;
    let port = port.ok_or_else(unnamed)?;
    let proc = service.proc.as_deref();
    dial(&service.egress, &host, port, Door::Connect, proc, &service.idle).await
}

/// Where what a client of the proxy's port says goes.
pub(crate) struct Way {
    grant: Grant,
    door: Door,
    reach: Reach,
}

enum Reach {
    Dialled(Metered<OriginStream>),
    /// What the client says is judged first. The other addresses, and the record of the stream.
    Waits(Vec<Grant>, Arc<Flow>),
    Failed(Arc<Flow>, NetproxyError),
}

impl Way {
    /// Carries the stream once the client has its answer.
    pub(crate) async fn carry(self, egress: Arc<Egress>, client: Client) {
        let Self { grant, door, reach } = self;
        match reach {
            Reach::Dialled(upstream) => stream::carry(egress, client, upstream, grant, door).await,
            Reach::Waits(others, flow) => stream::serve(egress, client, grant, others, door, flow).await,
            Reach::Failed(flow, error) => {
                stream::unreachable(egress, client, grant, door, (flow, error)).await
            }
        }
    }

    /// The client has gone.
    pub(crate) fn give_up(&self) {
        let flow = match &self.reach {
            Reach::Dialled(upstream) => upstream.flow(),
            Reach::Waits(_, flow) | Reach::Failed(flow, _) => flow,
        };
        flow.set_end("the client went away");
    }
}

/// Dials the addresses of a host that are granted, until one answers; or none of them yet, where what is said
/// there may be refused.
pub(crate) async fn dial(
    egress: &Arc<Egress>,
    host: &Host,
    port: u16,
    door: Door,
    proc: Option<&str>,
    idle: &IdleClock,
) -> Result<Way, NetproxyError> {
    let mut grants = egress.grants(host, port, Claim::Silent, proc).await?;
    let begun = match grants.first().filter(|grant| hear::decides(egress, grant)) {
        Some(first) => Some(Flow::open(egress, first, door, proc, idle)?),
        None => None,
    };
    if let (Some(flow), None) = (&begun, egress.played()) {
        let grant = grants.remove(0);
        return Ok(Way { grant, door, reach: Reach::Waits(grants, Arc::clone(flow)) });
    }
    // In a replay nothing is dialled anyway, but the client is told of a failure as late as it was.
    match (attempts::first(egress, &grants, begun.clone(), door, proc, idle).await, begun) {
        (Ok((grant, upstream)), _) => Ok(Way { grant, door, reach: Reach::Dialled(upstream) }),
        (Err(error @ NetproxyError::Dial { .. }), Some(flow)) => {
            Ok(Way { grant: grants.remove(0), door, reach: Reach::Failed(flow, error) })
        }
        (Err(error), _) => Err(error),
    }
}

/// Carries the tunnel once the client has its answer. Boxed, for what is carried may be HTTP again.
fn tunnel(egress: Arc<Egress>, upgrade: OnUpgrade, way: Way) -> Pending<'static, ()> {
    Box::pin(async move {
        let Ok(upgraded) = upgrade.await else {
            return way.give_up();
        };
        let Ok(parts) = upgraded.downcast::<TokioIo<Client>>() else {
            return way.give_up();
        };
        let mut client = parts.io.into_inner();
        client.put_back(&parts.read_buf);
        way.carry(egress, client).await;
    })
}

impl Egress {
    /// Where a request that names its host may go: at least one destination, or the error.
    /// `literal` is what naming an address claims: in CONNECT nothing yet, in a URL the address.
    pub(crate) async fn grants(
        &self,
        host: &Host,
        port: u16,
        literal: Claim<'_>,
        proc: Option<&str>,
    ) -> Result<Vec<Grant>, NetproxyError> {
        let name = match host {
            Host::Address(address) => {
                let destination = SocketAddr::new(*address, port);
                let first = self.judge(destination, literal, proc)?;
                return Ok(std::iter::once(first)
                    .chain(attempts::twin(self, destination, literal))
                    .collect());
            }
            Host::Name(name) => name,
        };
        let answers = self.resolve_all(name, port, proc).await?;
        let addresses = alternate(&answers);
        if addresses.is_empty() {
            return Err(no_address(name, answers));
        }
        let destinations = addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        let mut grants = self.judge_any(destinations, name, proc)?;
        if let [only] = &grants[..] {
            grants.extend(attempts::twin(self, only.destination, Claim::Name(name)));
        }
        Ok(grants)
    }

    /// The grants among the addresses of one name. One refusal is recorded when there is none.
    fn judge_any(
        &self,
        destinations: Vec<SocketAddr>,
        name: &str,
        proc: Option<&str>,
    ) -> Result<Vec<Grant>, NetproxyError> {
        let claim = Claim::Name(name);
        let granted: Vec<Grant> = destinations
            .iter()
            .filter_map(|destination| self.judge.destination(*destination, claim).ok())
            .collect();
        if !granted.is_empty() {
            return Ok(granted);
        }
        let first = destinations.into_iter().next();
        let first = first.ok_or_else(|| NetproxyError::Resolve {
            name: name.to_owned(),
            reason: "it has no address".to_owned(),
        })?;
        Ok(vec![self.judge(first, claim, proc)?])
    }
}

/// The addresses of both families by turns, so that none waits for all of the other (RFC 8305 section 4).
fn alternate([one, other]: &[Answer; 2]) -> Vec<IpAddr> {
    let (one, other) = (one.addresses(), other.addresses());
    let turns = 0..one.len().max(other.len());
    turns.flat_map(|turn| [one.get(turn), other.get(turn)]).flatten().copied().collect()
}

/// Why a name has no address of either family.
fn no_address(name: &str, answers: [Answer; 2]) -> NetproxyError {
    let mut reason = "there is no such name".to_owned();
    let mut failed = false;
    for answer in answers {
        match answer {
            Answer::Refused { refusal } => return NetproxyError::Denied(refusal),
            Answer::Failed { reason: why } => (reason, failed) = (why, true),
            Answer::NoName => {}
            Answer::NotRecorded => (reason, failed) = (NOT_RECORDED.to_owned(), true),
            _ if failed => {}
            _ => reason = "it has no address".to_owned(),
        }
    }
    NetproxyError::Resolve { name: name.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let answer = |list: &[&str]| {
            let addresses = list.iter().map(|address| address.parse().unwrap()).collect();
            Answer::Addresses { addresses, ttl: 1 }
        };
        let both = [answer(&["2001:db8::1"]), answer(&["192.0.2.1", "192.0.2.2"])];
        let turns: Vec<String> = alternate(&both).iter().map(IpAddr::to_string).collect();
        assert_eq!(turns, ["2001:db8::1", "192.0.2.1", "192.0.2.2"]);
        assert!(alternate(&[Answer::Empty, Answer::NoName]).is_empty());
    }

    #[test]
    fn what_failed_is_told_before_what_is_not_there() {
        let failed = Answer::Failed { reason: "late".to_owned() };
        for (answers, expected) in [
            ([failed.clone(), Answer::Empty], "late"),
            ([Answer::NoName, failed], "late"),
            ([Answer::Empty, Answer::NoName], "it has no address"),
            ([Answer::NoName, Answer::NoName], "there is no such name"),
        ] {
            assert!(no_address("a.test", answers).to_string().contains(expected), "{expected}");
        }
    }
}
