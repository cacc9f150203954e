//! The ClientHello, read by rustls from bytes that can still be relayed.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{Accepted, Acceptor};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::{Accept, StartHandshake};

use super::super::authority::normalize;
use super::super::client::{Client, MAX_HEAD};
use super::super::error::NetproxyError;

/// How long a ClientHello may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client asks for before anything is agreed on.
pub(crate) struct Hello {
    /// The server name (RFC 6066 section 3), if there is one. With an encrypted ClientHello it is
    /// the outer one.
    pub(crate) name: Option<String>,
    /// The protocols that it offers (RFC 7301), the one that it wants most first.
    pub(crate) protocols: Vec<Vec<u8>>,
    accepted: Accepted,
}

impl Hello {
    /// Reads the ClientHello. All of the bytes stay in the client's prefix.
    pub(crate) async fn read(client: &mut Client) -> Result<Self, NetproxyError> {
        let deadline = Instant::now() + HELLO_TIMEOUT;
        let mut acceptor = Acceptor::default();
        let mut fed = 0;
        loop {
            let mut unfed = &client.prefix()[fed..];
            while !unfed.is_empty() {
                acceptor.read_tls(&mut unfed).map_err(|error| unreadable(error.to_string()))?;
            }
            fed = client.prefix().len();
            match acceptor.accept() {
                Ok(Some(accepted)) => return Self::of(accepted),
                Ok(None) if fed >= MAX_HEAD => return Err(unreadable("it is too long".to_owned())),
                Ok(None) => {}
                Err((error, _alert)) => return Err(unreadable(error.to_string())),
            }
            match timeout_at(deadline, client.read_ahead()).await {
                Ok(Ok(0)) => return Err(unreadable("the stream ended within it".to_owned())),
                Ok(Ok(_)) => {}
                Ok(Err(source)) => return Err(NetproxyError::Client { source }),
                Err(_) => return Err(unreadable("it did not come in time".to_owned())),
            }
        }
    }

    fn of(accepted: Accepted) -> Result<Self, NetproxyError> {
        let hello = accepted.client_hello();
        let name = match hello.server_name() {
            None => None,
            Some(name) => {
                let normal = normalize(name);
                Some(normal.ok_or_else(|| unreadable(format!("{name:?} is no host name")))?)
            }
        };
        let protocols = hello.alpn().map(|all| all.map(<[u8]>::to_vec).collect()).unwrap_or_default();
        Ok(Self { name, protocols, accepted })
    }

    /// Answers it; what the client has sent so far is part of the handshake.
    pub(crate) fn answer(self, mut client: Client, config: Arc<ServerConfig>) -> Accept<Client> {
        client.forget_prefix();
        StartHandshake::from_parts(self.accepted, client).into_stream(config)
    }
}

fn unreadable(reason: String) -> NetproxyError {
    NetproxyError::Hello { reason }
}
