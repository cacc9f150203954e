//! The life of one granted stream: dial, sniff, then HTTP, TLS or plain bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
use super::http;
use super::idle::IdleClock;
use super::intercept::{self, Leg, Reading};
use super::link::{Link, Wire};
use super::metered::Metered;
use super::moments;
use super::origin::OriginStream;
use super::relay::{End, relay};
use super::resolve::Wanted;
use super::secret::{self, Watching};
use super::sniff::{Glance, Server, Speech, classify, listen};
use super::tls::Hello;
use super::unread;

/// How long a client whose origin cannot be reached is waited for: an HTTP client gets an answer
/// that says why, every other one a reset.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the first bytes of a client are waited for, that may need no new connection: the last one to
/// this port spoke TLS, and there the client speaks first.
const FIRST_BYTES: Duration = Duration::from_millis(200);

/// Serves a stream whose destination is its own address.
pub(crate) async fn accept(egress: Arc<Egress>, client: Client, destination: SocketAddr, door: Door) {
    let proc = client.proc.clone();
    let Ok(grant) = egress.judge(destination, Claim::Silent, proc.as_deref()) else {
        return client.reset();
    };
    let idle = client.idle();
    let Ok(flow) = Flow::open(&egress, &grant, door, proc.as_deref(), &idle) else { return client.reset() };
    // What follows is boxed: a stream that waits must not cost the room of all that it may become.
    let client = match Box::pin(take_over(&egress, client, &grant, door, &flow)).await {
        Ok(()) => return,
        Err(client) => client,
    };
    match dial(&egress, flow, &grant, door, proc.as_deref(), &idle).await {
        Ok(upstream) => Box::pin(carry(egress, client, upstream, grant, door)).await,
        Err(error @ NetproxyError::Dial { .. }) => {
            Box::pin(unreachable(egress, client, grant, door, error)).await;
        }
        Err(_) => client.reset(),
    }
}

/// Serves a client by a connection that an earlier one has left. Gives the client back when there is
/// none, or when the client does not begin with TLS at once.
async fn take_over(
    egress: &Arc<Egress>,
    mut client: Client,
    grant: &Grant,
    door: Door,
    flow: &Arc<Flow>,
) -> Result<(), Client> {
    let Some(tls) = egress.tls.as_ref().filter(|tls| tls.pool.knows(grant.destination)) else {
        return Err(client);
    };
    let first = moments::within(FIRST_BYTES, client.read_ahead()).await;
    if !matches!(first, Some(Ok(1..))) || !matches!(classify(client.prefix()), Glance::Clear(Speech::Tls)) {
        return Err(client);
    }
    let (hello, grant) = match check_hello(egress, &mut client, Some(flow), grant).await {
        Ok(checked) => checked,
        Err(error) => {
            flow.set_protocol("tls");
            give_up(egress, client, Some(flow), grant, &error);
            return Ok(());
        }
    };
    let Some(link) = egress.reads(&grant).and_then(|_| intercept::kept(tls, &hello, &grant)) else {
        return Err(client);
    };
    let reading = Reading { client, hello, grant, door, flow: Some(Arc::clone(flow)) };
    Box::pin(intercept::serve(Arc::clone(egress), Arc::clone(tls), reading, Leg::Kept(link))).await;
    Ok(())
}

/// Dials for a connect that is recorded.
pub(crate) async fn dial(
    egress: &Arc<Egress>,
    flow: Arc<Flow>,
    grant: &Grant,
    door: Door,
    proc: Option<&str>,
    idle: &IdleClock,
) -> Result<Metered<OriginStream>, NetproxyError> {
    let dialled = flow.dial(grant.destination).await;
    drop(flow);
    let (Err(NetproxyError::Dial { .. }), Some(twin)) = (&dialled, loopback_twin(grant.destination)) else {
        return dialled;
    };
    // A client of `localhost` tries both addresses, but inside the first is always accepted; the
    // host's server may listen on the other alone.
    match egress.judge.destination(twin, Claim::Silent) {
        Ok(grant) => Flow::open(egress, &grant, door, proc, idle)?.dial(twin).await,
        Err(_) => dialled,
    }
}

/// The machine's own address of the other family.
fn loopback_twin(destination: SocketAddr) -> Option<SocketAddr> {
    let ip = match destination.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => return None,
    };
    Some(SocketAddr::new(ip, destination.port()))
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
            let link = Link::open(upstream, wire, grant.destination).await.ok();
            let scope = http::Scope::Bound { grant, door, secure: None };
            Box::pin(http::serve(egress, client, scope, link, wire)).await;
        }
        Speech::Opaque => pass(&egress, client, upstream, &grant).await,
        Speech::Tls => {
            upstream.flow().set_protocol("tls");
            let (hello, grant) = match check_hello(&egress, &mut client, Some(upstream.flow()), &grant).await
            {
                Ok(checked) => checked,
                Err(error) => return give_up(&egress, client, Some(upstream.flow()), &grant, &error),
            };
            match egress.reads(&grant) {
                None => pass(&egress, client, upstream, &grant).await,
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
async fn check_hello(
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
async fn pass(egress: &Egress, mut client: Client, mut upstream: Metered<OriginStream>, grant: &Grant) {
    if let Err(error) = unread::admit(egress, grant, client.proc.as_deref()) {
        return give_up(egress, client, Some(upstream.flow()), grant, &error);
    }
    client.heads().stop();
    let transcript = upstream.flow().transcribe();
    let proc = client.proc.clone();
    let whereto = secret::refusal(grant, String::new(), "");
    let mut watching = Watching::new(&mut client, egress, whereto, proc.as_deref());
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
fn give_up(egress: &Egress, client: Client, flow: Option<&Arc<Flow>>, grant: &Grant, error: &NetproxyError) {
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
async fn unreachable(
    egress: Arc<Egress>,
    mut client: Client,
    grant: Grant,
    door: Door,
    error: NetproxyError,
) {
    match timeout(UNREACHABLE_TIMEOUT, listen(&mut client, Server::None)).await {
        Ok(Ok(speech @ (Speech::Http | Speech::Http2))) => {
            let wire = speech.wire().unwrap_or(Wire::Http1);
            let scope = http::Scope::Bound { grant, door, secure: None };
            Box::pin(http::serve(egress, client, scope, None, wire)).await;
        }
        Ok(Ok(Speech::Tls)) => {
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
    let mut connected = outside.connect(Wanted { destination, proc: None }).await;
    // As at the first dial.
    if connected.is_err()
        && let Some(twin) = loopback_twin(destination)
        && egress.judge.destination(twin, Claim::Silent).is_ok()
    {
        let other = outside.connect(Wanted { destination: twin, proc: None }).await;
        connected = other.or(connected);
    }
    let connected = connected.and_then(|stream| stream.set_nodelay().map(|()| stream));
    connected.map_err(|source| NetproxyError::Dial { address: destination, source })
}
