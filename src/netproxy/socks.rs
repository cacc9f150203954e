//! SOCKS on the proxy's port, told from HTTP by the first byte: the same judgement as CONNECT, then
//! the stream is carried like one that came by itself.
//!
//! A user name and password are taken and not looked at: some clients insist on sending them, and
//! nobody but the confined program reaches the port. BIND and UDP ASSOCIATE are refused.

pub mod message;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use self::message::{
    CONNECT, Malformed, NO_AUTHENTICATION, PASSWORD, Read, Request, VERSION_4, VERSION_5, methods, password,
    request_4, request_5,
};
use super::client::Client;
use super::connect::Way;
use super::decide::Refusal;
use super::egress::Egress;
use super::error::NetproxyError;
use super::flow::Door;
use super::link::Wire;
use super::{connect, http};

/// How long a client may take to say whom it wants, and how long it may be silent before.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// The replies of SOCKS 5 (RFC 1928 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Granted = 0,
    Failed = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    CommandUnknown = 7,
    AddressKindUnknown = 8,
}

/// Serves a connection to the proxy's port, whatever it speaks.
pub(crate) async fn serve(egress: Arc<Egress>, mut client: Client) {
    match timeout(HANDSHAKE, client.read_ahead()).await {
        Ok(Ok(0) | Err(_)) | Err(_) => return,
        Ok(Ok(_)) => {}
    }
    match client.prefix().first() {
        Some(&VERSION_5) => Box::pin(negotiate(egress, client, Version::Five)).await,
        Some(&VERSION_4) => Box::pin(negotiate(egress, client, Version::Four)).await,
        _ => {
            Box::pin(http::serve(egress, client, http::Scope::Open(Box::default()), None, Wire::Http1)).await
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Four,
    Five,
}

impl Version {
    fn reply(self, reply: Reply) -> Vec<u8> {
        match self {
            // The address that we dialled from is the host's own matter.
            Self::Five => vec![VERSION_5, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0],
            Self::Four => vec![0, if reply == Reply::Granted { 90 } else { 91 }, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// Why there is no stream.
enum Failure {
    /// The client is gone, or too slow.
    Gone,
    /// It is told why.
    Told(Reply),
    /// It is told that no method of authentication that it offers is served.
    Methods,
}

async fn negotiate(egress: Arc<Egress>, mut client: Client, version: Version) {
    let asked = timeout(HANDSHAKE, ask(&egress, &mut client, version)).await;
    let dialled = match asked {
        Err(_) => Err(Failure::Gone),
        Ok(Err(failure)) => Err(failure),
        Ok(Ok(request)) => dial(&egress, &client, request).await,
    };
    let answer = match &dialled {
        Ok(_) => version.reply(Reply::Granted),
        Err(Failure::Told(reply)) => version.reply(*reply),
        Err(Failure::Methods) => vec![VERSION_5, 0xff],
        Err(Failure::Gone) => return client.reset(),
    };
    let sent = client.write_all(&answer).await;
    match (dialled, sent) {
        (Ok(way), Ok(())) => Box::pin(way.carry(egress, client)).await,
        (Ok(way), Err(_)) => way.give_up(),
        // Closed in order, so that the reply arrives.
        (Err(_), _) => {}
    }
}

/// Reads up to the request.
async fn ask(egress: &Egress, client: &mut Client, version: Version) -> Result<Request, Failure> {
    if version == Version::Four {
        return read(egress, client, request_4).await;
    }
    let offered = read(egress, client, methods).await?;
    let method = [NO_AUTHENTICATION, PASSWORD].into_iter().find(|method| offered.contains(method));
    let Some(method) = method else {
        refuse(egress, client, "<none>", "a SOCKS client that offers no way without authentication")?;
        return Err(Failure::Methods);
    };
    write(client, &[VERSION_5, method]).await?;
    if method == PASSWORD {
        read(egress, client, password).await?;
        write(client, &[1, 0]).await?;
    }
    read(egress, client, request_5).await
}

/// Reads one message.
async fn read<T>(
    egress: &Egress,
    client: &mut Client,
    message: impl Fn(&[u8]) -> Read<T>,
) -> Result<T, Failure> {
    loop {
        match message(client.prefix()) {
            Ok(Some((message, length))) => {
                client.discard(length);
                return Ok(message);
            }
            Ok(None) => {}
            Err(Malformed { reason, address_kind }) => {
                refuse(egress, client, "<none>", reason)?;
                let reply = if address_kind { Reply::AddressKindUnknown } else { Reply::Failed };
                return Err(Failure::Told(reply));
            }
        }
        match client.read_ahead().await {
            Ok(0) | Err(_) => return Err(Failure::Gone),
            Ok(_) => {}
        }
    }
}

async fn write(client: &mut Client, bytes: &[u8]) -> Result<(), Failure> {
    client.write_all(bytes).await.map_err(|_| Failure::Gone)
}

/// Judges and dials.
async fn dial(egress: &Arc<Egress>, client: &Client, request: Request) -> Result<Way, Failure> {
    let Request { command, host, port } = request;
    let target = match &host {
        Ok(host) => format!("{host}:{port}"),
        Err(text) => format!("{text}:{port}"),
    };
    if command != CONNECT {
        let reason = "of SOCKS only CONNECT is served: nothing listens or sends datagrams for a client";
        refuse(egress, client, &target, reason)?;
        return Err(Failure::Told(Reply::CommandUnknown));
    }
    let Ok(host) = host else {
        refuse(egress, client, &target, "no host has such a name")?;
        return Err(Failure::Told(Reply::NotAllowed));
    };
    let proc = client.proc.as_deref();
    connect::dial(egress, &host, port, Door::Socks, proc, &client.idle())
        .await
        .map_err(|error| Failure::Told(reply_of(&error)))
}

/// Records what cannot be served.
fn refuse(egress: &Egress, client: &Client, target: &str, reason: &str) -> Result<(), Failure> {
    let refusal = Refusal {
        target: target.to_owned(),
        name: None,
        address: None,
        port: None,
        reason: reason.to_owned(),
        rule: None,
        remedy: None,
    };
    egress.refuse_always(&refusal, client.proc.as_deref()).map_err(|_| Failure::Gone)
}

fn reply_of(error: &NetproxyError) -> Reply {
    match error {
        NetproxyError::Denied(_) => Reply::NotAllowed,
        NetproxyError::Resolve { .. } => Reply::HostUnreachable,
        NetproxyError::Dial { source, .. } => match source.kind() {
            io::ErrorKind::ConnectionRefused => Reply::Refused,
            io::ErrorKind::NetworkUnreachable => Reply::NetworkUnreachable,
            io::ErrorKind::HostUnreachable | io::ErrorKind::TimedOut => Reply::HostUnreachable,
            _ => Reply::Failed,
        },
        _ => Reply::Failed,
    }
}
