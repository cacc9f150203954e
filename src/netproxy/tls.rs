//! The server name of a TLS stream, read by rustls from the bytes that will be relayed.

use std::time::Duration;

use rustls::server::Acceptor;
use tokio::time::{Instant, timeout_at};

use super::authority::normalize;
use super::client::{Client, MAX_HEAD};
use super::error::NetproxyError;

/// How long a ClientHello may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the ClientHello and returns its server name (RFC 6066 section 3), if it has one. All of
/// the bytes stay in the client's prefix.
pub(crate) async fn server_name(client: &mut Client) -> Result<Option<String>, NetproxyError> {
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
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return match hello.server_name() {
                    None => Ok(None),
                    Some(name) => normalize(name)
                        .map(Some)
                        .ok_or_else(|| unreadable(format!("{name:?} is no host name"))),
                };
            }
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

fn unreadable(reason: String) -> NetproxyError {
    NetproxyError::Hello { reason }
}
