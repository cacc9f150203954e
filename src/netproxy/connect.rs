//! CONNECT: the same judgement, then the tunnel is carried like a stream that came by itself.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::authority::{Authority, Host};
use super::body::{Reply, refusal};
use super::client::Client;
use super::decide::{Claim, Grant};
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::{Door, Metered};
use super::http::Service;
use super::idle::IdleClock;
use super::names::Answer;
use super::resolve::{Family, Pending};
use super::stream;

/// Answers a CONNECT request on the proxy's port.
pub(crate) async fn answer(
    service: &Arc<Service>,
    authority: Option<Authority>,
    upgrade: Option<OnUpgrade>,
) -> Response<Reply> {
    service.heads.stop();
    match dial_authority(service, authority).await {
        Err(error) => refusal(&error),
        Ok((grant, upstream)) => {
            if let Some(upgrade) = upgrade {
                let tunnel = tunnel(Arc::clone(&service.egress), upgrade, upstream, grant);
                service.idle.clone().spawn(tunnel);
            }
            Response::new(Reply::Line(None))
        }
    }
}

async fn dial_authority(
    service: &Arc<Service>,
    authority: Option<Authority>,
) -> Result<(Grant, Metered<TcpStream>), NetproxyError> {
    let unnamed = || NetproxyError::Request { reason: "CONNECT needs host:port".to_owned() };
    let Authority { host, port } = authority.ok_or_else(unnamed)?;
    let port = port.ok_or_else(unnamed)?;
    let proc = service.proc.as_deref();
    dial(&service.egress, &host, port, Door::Connect, proc, &service.idle).await
}

/// Dials the first address of a host that is granted and answers.
pub(crate) async fn dial(
    egress: &Arc<Egress>,
    host: &Host,
    port: u16,
    door: Door,
    proc: Option<&str>,
    idle: &IdleClock,
) -> Result<(Grant, Metered<TcpStream>), NetproxyError> {
    let mut failure = None;
    for grant in egress.grants(host, port, Claim::Silent, proc).await? {
        match stream::open(egress, &grant, door, proc, idle).await {
            Ok(upstream) => return Ok((grant, upstream)),
            Err(error @ NetproxyError::Dial { .. }) => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    let none = || NetproxyError::Request { reason: format!("{host} has no address") };
    Err(failure.unwrap_or_else(none))
}

/// Carries the tunnel once the client has its answer. Boxed, for what is carried may be HTTP again.
fn tunnel(
    egress: Arc<Egress>,
    upgrade: OnUpgrade,
    upstream: Metered<TcpStream>,
    grant: Grant,
) -> Pending<'static, ()> {
    Box::pin(async move {
        let Ok(upgraded) = upgrade.await else {
            return upstream.flow().set_end("the client went away");
        };
        let Ok(parts) = upgraded.downcast::<TokioIo<Client>>() else {
            return upstream.flow().set_end("the tunnel's stream is not the accepted one");
        };
        let mut client = parts.io.into_inner();
        client.put_back(&parts.read_buf);
        stream::carry(egress, client, upstream, grant, Door::Connect).await;
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
                return Ok(vec![self.judge(SocketAddr::new(*address, port), literal, proc)?]);
            }
            Host::Name(name) => name,
        };
        let mut outcome = Answer::NoName;
        for family in [Family::V4, Family::V6] {
            match self.resolve(name, family, Some(port), proc).await? {
                Answer::Addresses { addresses, .. } => {
                    let first = |address| SocketAddr::new(address, port);
                    let destinations = addresses.into_iter().map(first).collect();
                    return self.judge_any(destinations, name, proc);
                }
                Answer::Refused { refusal } => return Err(NetproxyError::Denied(refusal)),
                answer => outcome = answer,
            }
        }
        let reason = match outcome {
            Answer::Failed { reason } => reason,
            Answer::Empty => "it has no address".to_owned(),
            _ => "there is no such name".to_owned(),
        };
        Err(NetproxyError::Resolve { name: name.clone(), reason })
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
