//! The life of one granted stream: dial, sniff, then HTTP, TLS or plain bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::authority::target;
use super::client::Client;
use super::decide::{Claim, Grant, Refusal};
use super::egress::Egress;
use super::error::NetproxyError;
use super::failure::Failure;
use super::flow::{Door, Flow, Metered};
use super::http;
use super::relay::{End, relay};
use super::sniff::{Speech, listen};
use super::tls;
use super::unread;

/// How long a client whose origin cannot be reached is waited for: an HTTP client gets an answer
/// that says why, every other one a reset.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a stream whose destination is its own address.
pub(crate) async fn accept(egress: Arc<Egress>, client: Client, destination: SocketAddr, door: Door) {
    let proc = client.proc.clone();
    let Ok(grant) = egress.judge(destination, Claim::Silent, proc.as_deref()) else {
        return client.reset();
    };
    match open(&egress, &grant, door, proc.as_deref()).await {
        Ok(upstream) => carry(egress, client, upstream, grant, door).await,
        Err(NetproxyError::Dial { .. }) => unreachable(egress, client, grant, door).await,
        Err(_) => client.reset(),
    }
}

/// Records the connect and dials.
pub(crate) async fn open(
    egress: &Arc<Egress>,
    grant: &Grant,
    door: Door,
    proc: Option<&str>,
) -> Result<Metered<TcpStream>, NetproxyError> {
    let dialled = Flow::open(egress, grant, door, proc)?.dial(grant.destination).await;
    let (Err(NetproxyError::Dial { .. }), Some(twin)) = (&dialled, loopback_twin(grant.destination)) else {
        return dialled;
    };
    // A client of `localhost` tries both addresses, but inside the first is always accepted; the
    // host's server may listen on the other alone.
    match egress.judge.destination(twin, Claim::Silent) {
        Ok(grant) => Flow::open(egress, &grant, door, proc)?.dial(twin).await,
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
    upstream: Metered<TcpStream>,
    grant: Grant,
    door: Door,
) {
    let speech = match listen(&mut client, Some(upstream.stream())).await {
        Ok(speech) => speech,
        Err(error) => return give_up(&egress, client, &upstream, &grant, &error),
    };
    match speech {
        Speech::Http => {
            upstream.flow().set_protocol("http");
            http::serve(egress, client, http::Scope::Bound { grant, door }, Some(upstream)).await;
        }
        Speech::Opaque => pass(&egress, client, upstream, &grant).await,
        Speech::Tls => match check_hello(&egress, &mut client, &upstream, &grant).await {
            Ok(grant) => pass(&egress, client, upstream, &grant).await,
            Err(error) => give_up(&egress, client, &upstream, &grant, &error),
        },
    }
}

/// Holds the server name against the names that the stream was granted for; the grant of that name alone.
async fn check_hello(
    egress: &Egress,
    client: &mut Client,
    upstream: &Metered<TcpStream>,
    grant: &Grant,
) -> Result<Grant, NetproxyError> {
    upstream.flow().set_protocol("tls");
    let name = tls::server_name(client).await?;
    upstream.flow().set_server_name(name.as_deref());
    let claim = name.as_deref().map_or(Claim::Literal, Claim::Name);
    egress.judge_claim(grant, claim, client.proc.as_deref())
}

/// Relays bytes that nobody reads, where they may pass so.
async fn pass(egress: &Egress, mut client: Client, mut upstream: Metered<TcpStream>, grant: &Grant) {
    if let Err(error) = unread::admit(egress, grant, client.proc.as_deref()) {
        return give_up(egress, client, &upstream, grant, &error);
    }
    client.heads().stop();
    let transcript = upstream.flow().transcribe();
    let end = relay(&mut client, &mut upstream, &transcript).await;
    upstream.flow().set_relayed(&end);
    if !matches!(end, End::Closed) {
        // What broke off must not look as if it had ended.
        let _ = upstream.stream().set_zero_linger();
        client.reset();
    }
}

/// Ends a stream that may not go on, and records why unless the judgement did.
fn give_up(
    egress: &Egress,
    client: Client,
    upstream: &Metered<TcpStream>,
    grant: &Grant,
    error: &NetproxyError,
) {
    upstream.flow().fail(&error.to_string(), Failure::of(error));
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
async fn unreachable(egress: Arc<Egress>, mut client: Client, grant: Grant, door: Door) {
    let speech = tokio::time::timeout(UNREACHABLE_TIMEOUT, listen(&mut client, None)).await;
    if matches!(speech, Ok(Ok(Speech::Http))) {
        http::serve(egress, client, http::Scope::Bound { grant, door }, None).await;
    } else {
        client.reset();
    }
}
