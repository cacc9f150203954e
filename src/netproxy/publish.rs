//! Ports that servers inside offer on the host's loopback: each connection there is carried to one
//! inside, made on a socket of the run's network.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde_json::Map;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::egress::Egress;
use super::error::{Blame, NetproxyError};
use super::failure::Failure;
use super::flow::{Door, Flow};
use super::idle::IdleClock;
use super::relay::{End, relay};
use crate::sys::scm;

/// A port of the host's loopback that stands for the same one inside.
#[derive(Debug)]
pub struct Published {
    /// The port.
    pub port: u16,
    /// The rule that names it.
    pub rule: String,
    /// Listeners on the host's loopback addresses.
    pub listeners: Vec<OwnedFd>,
}

/// Who makes stream sockets of the run's network, not connected yet.
#[derive(Debug)]
pub struct Inside {
    /// Where to ask, a socket that keeps messages apart.
    pub channel: OwnedFd,
    /// The request for a socket that can reach an address.
    pub request: fn(IpAddr) -> u8,
    /// Reads the answer.
    pub made: fn(&[u8], Vec<OwnedFd>) -> io::Result<OwnedFd>,
}

/// Streams from outside that may be open at once; further ones wait to be accepted. The run's own have other places: any
/// user of the host may take these.
const MAX_STREAMS: usize = 1024;

/// The longest answer.
const ANSWER: usize = 64;

/// Asks for sockets, one at a time.
struct Dialler {
    channel: Mutex<UnixStream>,
    request: fn(IpAddr) -> u8,
    made: fn(&[u8], Vec<OwnedFd>) -> io::Result<OwnedFd>,
}

impl Dialler {
    /// Must be called within the runtime.
    fn new(inside: Inside) -> io::Result<Self> {
        let Inside { channel, request, made } = inside;
        // The type says how the event loop watches it; messages are kept apart all the same.
        let channel = std::os::unix::net::UnixStream::from(channel);
        channel.set_nonblocking(true)?;
        let channel = UnixStream::from_std(channel)?;
        Ok(Self { channel: Mutex::new(channel), request, made })
    }

    async fn socket(&self, address: IpAddr) -> io::Result<OwnedFd> {
        let channel = self.channel.lock().await;
        let request = [(self.request)(address)];
        channel.async_io(Interest::WRITABLE, || scm::send(&*channel, &request, &[])).await?;
        let receive = || {
            let mut answer = [0; ANSWER];
            let (length, descriptors) = scm::receive(&*channel, &mut answer)?;
            Ok((answer[..length].to_vec(), descriptors))
        };
        let (answer, descriptors) = channel.async_io(Interest::READABLE, receive).await?;
        (self.made)(&answer, descriptors)
    }

    /// The server may listen on either address.
    async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        let mut failure = io::Error::from(io::ErrorKind::ConnectionRefused);
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            match self.connect(SocketAddr::new(address, port)).await {
                Ok(stream) => return Ok(stream),
                // A host without IPv6 says so of the second.
                Err(error) if address.is_ipv4() => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
    }

    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = std::net::TcpStream::from(self.socket(to.ip()).await?);
        TcpSocket::from_std_stream(socket).connect(to).await
    }
}

/// What serves them.
pub(crate) struct Publisher {
    ports: Vec<(TcpListener, u16, String)>,
    dialler: Option<Arc<Dialler>>,
}

impl Publisher {
    /// Takes the sockets over. Must be called within the runtime.
    pub(crate) fn new(published: Vec<Published>, inside: Option<Inside>) -> Result<Self, NetproxyError> {
        let mut ports = Vec::new();
        for Published { port, rule, listeners } in published {
            for listener in listeners {
                let listener = std::net::TcpListener::from(listener);
                let ready = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
                let kind = "published";
                let listener = ready.map_err(|source| NetproxyError::Listener { kind, source })?;
                ports.push((listener, port, rule.clone()));
            }
        }
        let dialler = inside.map(Dialler::new).transpose();
        let dialler = dialler.map_err(|source| NetproxyError::Listener { kind: "dialling", source })?;
        Ok(Self { ports, dialler: dialler.map(Arc::new) })
    }

    /// Starts a task for each.
    pub(crate) fn spawn(self, egress: &Arc<Egress>) {
        let Some(dialler) = self.dialler else { return };
        let places = Arc::new(Semaphore::new(MAX_STREAMS));
        for (listener, port, rule) in self.ports {
            let (egress, places, dialler) = (Arc::clone(egress), Arc::clone(&places), Arc::clone(&dialler));
            tokio::spawn(async move {
                let rule: Arc<str> = rule.into();
                loop {
                    let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                    match listener.accept().await {
                        Ok((client, _)) => {
                            let (egress, dialler, rule) =
                                (Arc::clone(&egress), Arc::clone(&dialler), Arc::clone(&rule));
                            tokio::spawn(async move {
                                carry(&egress, &dialler, client, port, &rule, place).await;
                            });
                        }
                        Err(_) => tokio::time::sleep(super::listen::PAUSE).await,
                    }
                }
            });
        }
    }
}

/// Carries one connection. The run's side is the client in the record: `up` is what it says.
async fn carry(
    egress: &Arc<Egress>,
    dialler: &Dialler,
    client: TcpStream,
    port: u16,
    rule: &str,
    _place: OwnedSemaphorePermit,
) {
    let mut args = Map::new();
    args.insert("port".to_owned(), port.into());
    let idle = IdleClock::start(egress.idle_timeout);
    let Ok(flow) = Flow::begin(egress, args, rule, Door::Listen, None, &idle) else { return reset(&client) };
    let mut server = match dialler.dial(port).await {
        Ok(server) => server,
        Err(error) => {
            flow.fail(&format!("nothing listens there inside: {error}"), Failure::io(&error, Blame::Agent));
            return reset(&client);
        }
    };
    // Small writes must not wait for acknowledgements; the kernel refuses it for dead sockets alone.
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let transcript = flow.transcribe();
    let mut client = flow.meter(client);
    let end = idle.limit(Box::pin(relay(&mut server, &mut client, &transcript))).await;
    if let Some(end) = &end {
        flow.set_relayed(end);
    }
    if !matches!(end, Some(End::Closed)) {
        // What broke off must not look as if it had ended.
        reset(&server);
        reset(client.stream());
    }
}

/// A reset at the end (SO_LINGER 0, man 7 socket).
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
