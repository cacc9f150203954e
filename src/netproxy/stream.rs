//! The life of one granted stream: dial, sniff, then HTTP, TLS or plain bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::authority::target;
use super::client::Client;
use super::decide::{Claim, Grant, Refusal};
use super::egress::Egress;
use super::error::NetproxyError;
use super::failure::Failure;
use super::flow::{Door, Flow};
use super::hear::{Heard, hear};
use super::http::{self, Beneath};
use super::intercept::{self, Leg, Reading};
use super::link::{Link, Wire};
use super::metered::Metered;
use super::origin::OriginStream;
use super::plain::Plain;
use super::relay::{End, relay};
use super::resolve::Wanted;
use super::secret::{Lookout, Watching};
use super::sniff::{Server, Speech, listen};
use super::tls::Hello;
use super::{attempts, unread};

/// How long a client whose origin cannot be reached is waited for: an HTTP client gets an answer
/// that says why, every other one a reset.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a stream whose destination is its own address.
pub(crate) async fn accept(egress: Arc<Egress>, client: Client, destination: SocketAddr, door: Door) {
    let proc = client.proc.clone();
    let Ok(grant) = egress.judge(destination, Claim::Silent, proc.as_deref()) else {
        return client.reset();
    };
    let flow = Flow::open(&egress, &grant, door, proc.as_deref(), &client.idle());
    let Ok(flow) = flow else { return client.reset() };
    let others = attempts::twin(&egress, destination, Claim::Silent).into_iter().collect();
    serve(egress, client, grant, others, door, flow).await;
}

/// Serves a stream to a host that was granted, at the address of `grant` or at `others`.
pub(crate) async fn serve(
    egress: Arc<Egress>,
    client: Client,
    mut grant: Grant,
    mut others: Vec<Grant>,
    door: Door,
    flow: Arc<Flow>,
) {
    let (proc, idle) = (client.proc.clone(), client.idle());
    // What follows is boxed: a stream that waits must not cost the room of all that it may become.
    let (client, is_admitted) = match Box::pin(hear(&egress, client, (&grant, &others), door, &flow)).await {
        Heard::Served => return,
        Heard::Admitted(client, admitted) => {
            // It was admitted at one address, for the names that count for it now.
            let names = admitted.name_list();
            others.retain(|other| other.name_list() == names && unread::may_pass(&egress, other));
            grant = admitted;
            (client, true)
        }
        Heard::Unclear(client) => (client, false),
    };
    let grants: Vec<Grant> = std::iter::once(grant).chain(others).collect();
    let begun = Some(Arc::clone(&flow));
    match Box::pin(attempts::first(&egress, &grants, begun, door, proc.as_deref(), &idle)).await {
        Ok((grant, upstream)) => {
            drop(flow);
            if is_admitted {
                Box::pin(pass(&egress, client, upstream, &grant)).await;
            } else {
                Box::pin(carry(egress, client, upstream, grant, door)).await;
            }
        }
        Err(error @ NetproxyError::Dial { .. }) => {
            let grant = grants.into_iter().next();
            if let Some(grant) = grant {
                Box::pin(unreachable(egress, client, grant, door, (flow, error))).await;
            }
        }
        Err(_) => client.reset(),
    }
}

/// Carries a stream between the client and the origin that was dialled for it.
pub(crate) async fn carry(
    egress: Arc<Egress>,
    mut client: Client,
    upstream: Metered<OriginStream>,
    grant: Grant,
    door: Door,
) {
    let speech = match listen(&mut client, Server::of(upstream.stream())).await {
        Ok(speech) => speech,
        Err(error) => return give_up(&egress, client, Some(upstream.flow()), &grant, &error),
    };
    match speech {
        Speech::Http | Speech::Http2 => {
            let wire = speech.wire().unwrap_or(Wire::Http1);
            let (upstream, flow) = upstream.into_inner();
            client.count_for(&flow);
            let link = Link::plain(upstream, wire, grant.destination, &flow).await.ok();
            let beneath = Beneath::Plain(Box::new(Plain::dialled(flow)));
            let scope = http::Scope::Bound { grant, door, beneath };
            Box::pin(http::serve(egress, client, scope, link, wire)).await;
        }
        Speech::Opaque => relay_admitted(&egress, client, upstream, &grant).await,
        Speech::Tls => {
            upstream.flow().set_protocol("tls");
            let (hello, grant) = match check_hello(&egress, &mut client, Some(upstream.flow()), &grant).await
            {
                Ok(checked) => checked,
                Err(error) => return give_up(&egress, client, Some(upstream.flow()), &grant, &error),
            };
            match egress.reads(&grant) {
                None => relay_admitted(&egress, client, upstream, &grant).await,
                Some(tls) => {
                    let (leg, flow) = upstream.into_inner();
                    let reading = Reading { client, hello, grant, door, flow: Some(flow) };
                    Box::pin(intercept::serve(egress, tls, reading, Leg::Dialled(leg))).await;
                }
            }
        }
    }
}

/// Holds the server name against the names that the stream was granted for; the grant of that name
/// alone.
pub(crate) async fn check_hello(
    egress: &Egress,
    client: &mut Client,
    flow: Option<&Arc<Flow>>,
    grant: &Grant,
) -> Result<(Hello, Grant), NetproxyError> {
    let hello = Hello::read(client).await?;
    if let Some(flow) = flow {
        flow.set_server_name(hello.name.as_deref());
    }
    let proc = client.proc.as_deref();
    let claim = hello.name.as_deref().map_or(Claim::Literal, Claim::Name);
    let narrowed = egress.judge_claim(grant, claim, proc)?;
    Ok((hello, narrowed))
}

/// Relays bytes that nobody reads, where they may pass so.
async fn relay_admitted(
    egress: &Arc<Egress>,
    client: Client,
    upstream: Metered<OriginStream>,
    grant: &Grant,
) {
    if let Err(error) = unread::admit(egress, grant, client.proc.as_deref()) {
        return give_up(egress, client, Some(upstream.flow()), grant, &error);
    }
    pass(egress, client, upstream, grant).await;
}

/// Relays bytes that nobody reads.
async fn pass(egress: &Arc<Egress>, mut client: Client, mut upstream: Metered<OriginStream>, grant: &Grant) {
    client.heads().stop();
    let flow = Arc::clone(upstream.flow());
    flow.settle_unread(upstream.stream_mut(), client.prefix().is_empty());
    let transcript = flow.transcribe();
    let lookout = Lookout::new(egress, grant, None, client.proc.as_deref());
    let mut watching = Watching::new(&mut client, lookout);
    let end = relay(&mut watching, &mut upstream, &transcript).await;
    upstream.flow().set_relayed(&end);
    break_off(egress, client, || upstream.stream().set_zero_linger(), grant, end);
}

/// What broke off must not look as if it had ended. Where it was broken off since it became what may not pass
/// unread, that is recorded.
pub(crate) fn break_off(egress: &Egress, client: Client, reset: impl FnOnce(), grant: &Grant, end: End) {
    if matches!(end, End::Closed) {
        return;
    }
    reset();
    if let End::Client(source) = end
        && client.is_unmasked()
    {
        // A failing trace closes the stream as well: there is nothing more to do.
        let error = NetproxyError::Client { source };
        let _ = egress.refuse_always(&unreadable(grant, &error), client.proc.as_deref());
    }
    client.reset();
}

/// Ends a stream that may not go on, and records why unless the judgement did.
pub(crate) fn give_up(
    egress: &Egress,
    client: Client,
    flow: Option<&Arc<Flow>>,
    grant: &Grant,
    error: &NetproxyError,
) {
    if let Some(flow) = flow {
        flow.fail(&error.to_string(), Failure::of(error));
    }
    if matches!(error, NetproxyError::Request { .. } | NetproxyError::Hello { .. }) {
        // A failing trace closes the stream as well: there is nothing more to do.
        let _ = egress.refuse_always(&unreadable(grant, error), client.proc.as_deref());
    }
    client.reset();
}

/// The refusal of bytes that cannot be judged.
pub(crate) fn unreadable(grant: &Grant, error: &NetproxyError) -> Refusal {
    let name = grant.names.first().map(|(name, _)| name.clone());
    Refusal {
        target: target(name.as_deref(), grant.destination),
        name,
        address: Some(grant.destination.ip()),
        port: Some(grant.destination.port()),
        reason: error.to_string(),
        rule: None,
        remedy: None,
    }
}

/// Answers an HTTP client with the reason, and resets every other.
pub(crate) async fn unreachable(
    egress: Arc<Egress>,
    mut client: Client,
    grant: Grant,
    door: Door,
    (flow, error): (Arc<Flow>, NetproxyError),
) {
    match timeout(UNREACHABLE_TIMEOUT, listen(&mut client, Server::None)).await {
        Ok(Ok(speech @ (Speech::Http | Speech::Http2))) => {
            let wire = speech.wire().unwrap_or(Wire::Http1);
            flow.set_protocol("http");
            client.count_for(&flow);
            let beneath = Beneath::Plain(Box::new(Plain::failed(flow, error)));
            let scope = http::Scope::Bound { grant, door, beneath };
            Box::pin(http::serve(egress, client, scope, None, wire)).await;
        }
        Ok(Ok(Speech::Tls)) => {
            drop(flow);
            let (hello, grant) = match check_hello(&egress, &mut client, None, &grant).await {
                Ok(checked) => checked,
                Err(error) => return give_up(&egress, client, None, &grant, &error),
            };
            let Some(tls) = egress.reads(&grant) else { return client.reset() };
            let reading = Reading { client, hello, grant, door, flow: None };
            Box::pin(intercept::serve(egress, tls, reading, Leg::Failed(error))).await;
        }
        _ => client.reset(),
    }
}

/// Dials for a stream whose connect is recorded already.
pub(crate) async fn reach(egress: &Egress, destination: SocketAddr) -> Result<OriginStream, NetproxyError> {
    let outside = egress.outside().await;
    let connected = outside.connect(Wanted { destination, proc: None }).await;
    let connected = connected.and_then(|stream| stream.set_nodelay().map(|()| stream));
    connected.map_err(|source| NetproxyError::Dial { address: destination, source })
}
