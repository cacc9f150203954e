//! What the proxy of one run is given.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::packet::Answers;
use super::publish::{Inside, Published};
use super::recorded::Recording;
use super::secret::Secrets;
use super::tls::{Intention, Interception};
use crate::policy::{Policy, Transport};
use crate::trace::redact::{ChosenNames, Redactor};
use crate::trace::{Recorder, Turn};

/// Sockets of the program's network that were handed out.
#[derive(Debug, Default)]
pub struct Listeners {
    /// TCP; the local address of an accepted socket is the original destination.
    pub transparent: Vec<OwnedFd>,
    /// The same, for single ports.
    pub ports: Vec<OwnedFd>,
    /// The HTTP proxy's port, on 127.0.0.1 and ::1.
    pub proxy: Vec<OwnedFd>,
    /// The name server's port.
    pub dns_udp: Vec<OwnedFd>,
    /// The name server's port.
    pub dns_tcp: Vec<OwnedFd>,
    /// Datagrams to all other destinations.
    pub udp_trap: Vec<OwnedFd>,
    /// Loopback addresses inside that stand for the host's loopback at the same port.
    pub loopback: Vec<(SocketAddr, OwnedFd)>,
    /// The same for datagrams.
    pub udp_loopback: Vec<(SocketAddr, OwnedFd)>,
    /// What sends datagrams in the name of any address.
    pub answers: Answers,
    /// Ports of the host's loopback for servers inside.
    pub published: Vec<Published>,
    /// Makes the sockets on which those servers are reached.
    pub inside: Option<Inside>,
    /// The host's Unix sockets, each with the listener that stands for it.
    pub unix: Vec<(PathBuf, OwnedFd)>,
}

/// Tells the lineage of the process behind a client (first address) of a destination (second).
pub type WhoAsked = Arc<dyn Fn(Transport, SocketAddr, SocketAddr) -> Option<String> + Send + Sync>;

/// Tells how many bytes a client (first address) has yet to read of what was sent to it from the second; none where
/// nobody can tell.
pub type Unread = Arc<dyn Fn(SocketAddr, SocketAddr) -> Option<u32> + Send + Sync>;

/// Tells whether nobody holds the socket of a client (first address) of the second any more.
pub type HasLeft = Arc<dyn Fn(SocketAddr, SocketAddr) -> bool + Send + Sync>;

/// What the proxy of one run needs.
pub struct ProxySpec {
    /// The sockets.
    pub listeners: Listeners,
    /// What may pass.
    pub policy: Arc<Policy>,
    /// Where everything is recorded.
    pub recorder: Recorder,
    /// Hides credentials in what is recorded; the run's own.
    pub redactor: Redactor,
    /// Who asked.
    pub who: WhoAsked,
    /// What clients have read.
    pub unread: Unread,
    /// Which clients have left.
    pub has_left: HasLeft,
    /// False under `--observe`: everything passes, and what would have been refused is recorded.
    pub enforce: bool,
    /// What the program's own machine is called inside; answered with loopback.
    pub host_name: Option<String>,
    /// Reads TLS; none relays it unread.
    pub tls: Option<Interception>,
    /// What the program has placeholders of.
    pub secrets: Secrets,
    /// A stream on which no byte moves for so long is ended; none: it may be silent for ever.
    pub idle_timeout: Option<Duration>,
    /// Where what was granted leads.
    pub upstream: Upstream,
    /// Keeps what a replay needs besides the record: facts of connections, and in private blobs the fields of
    /// answers that hold credentials.
    pub replayable: bool,
}

/// Where streams and names lead that were granted.
#[derive(Debug, Default)]
pub enum Upstream {
    /// To the host's network.
    #[default]
    Live,
    /// To what was recorded of another run; nothing else is ever asked, dialled or sent to.
    Recorded(Arc<Recording>),
    /// The same until the turn comes; from then on to the host's network.
    Turning(Arc<Recording>, Arc<Turn>),
}

/// How the user wants streams to be treated.
#[derive(Default)]
pub struct StreamOptions {
    /// Becomes [`ProxySpec::tls`].
    pub tls: Option<Intention>,
    /// As [`ProxySpec::secrets`].
    pub secrets: Secrets,
    /// As [`ProxySpec::idle_timeout`].
    pub idle_timeout: Option<Duration>,
    /// What [`ProxySpec::redactor`] hides besides.
    pub redacted: ChosenNames,
    /// As [`ProxySpec::upstream`].
    pub upstream: Upstream,
    /// As [`ProxySpec::replayable`].
    pub replayable: bool,
}
