//! What can go wrong in the proxy, and on whose side.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use super::decide::Refusal;
use super::failure::Failure;
use crate::sys::refused::{Named, remedy};

/// What helps where no limit is reached.
const ALLOW: &str = "allow the call in the host's seccomp profile";

/// The side that an error is to be blamed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The confined program: a refused destination, a malformed request, a reset.
    Agent,
    /// The outside: a name server or an origin.
    Upstream,
    /// The proxy itself, or the machine it runs on.
    Proxy,
}

/// An error of the proxy.
#[derive(Debug, Error)]
pub enum NetproxyError {
    /// The event loop could not be made.
    #[error("the event loop cannot start (epoll_create1, eventfd2): {}: {}", Named(source), remedy(source).unwrap_or(ALLOW))]
    Runtime {
        /// What the kernel said.
        source: io::Error,
    },
    /// The proxy's thread could not be started.
    #[error("the thread cannot start (clone): {}: {}", Named(source), remedy(source).unwrap_or(ALLOW))]
    Thread {
        /// What the kernel said.
        source: io::Error,
    },
    /// A socket that was handed over cannot be used.
    #[error("the {kind} socket that was handed to the proxy cannot be used: {source}")]
    Listener {
        /// Which of the listeners.
        kind: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A certificate of the run's own cannot be made.
    #[error("a certificate for the run: {what}: {reason}")]
    Certificate {
        /// What cannot be done.
        what: &'static str,
        /// What the library said.
        reason: String,
    },
    /// The proxy did not end in time.
    #[error("the proxy did not end within {seconds} s")]
    Stop {
        /// How long it was waited for.
        seconds: u64,
    },
    /// The trace does not take entries any more, so nothing may pass.
    #[error("the trace cannot be written, so the network is closed: {reason}")]
    Trace {
        /// Why the trace failed.
        reason: String,
    },
    /// The policy refuses.
    #[error("{0}")]
    Denied(Box<Refusal>),
    /// A request that servers could read in two ways; its refusal is recorded.
    #[error("the request is refused: {}", .0.reason)]
    Unclear(Box<Refusal>),
    /// A rate is used up.
    #[error("{refusal}; the next passes in {seconds} s")]
    Exhausted {
        /// The refusal.
        refusal: Box<Refusal>,
        /// When the next will pass.
        seconds: u64,
    },
    /// A request that cannot be judged, since it can be read in two ways or in none.
    #[error("the request is refused: {reason}")]
    Request {
        /// What is wrong with it.
        reason: String,
    },
    /// A ClientHello that cannot be read.
    #[error("the TLS ClientHello cannot be read: {reason}")]
    Hello {
        /// What is wrong with it.
        reason: String,
    },
    /// The client went away or reset the connection.
    #[error("the client's connection failed: {source}")]
    Client {
        /// What the kernel said.
        source: io::Error,
    },
    /// The client went away before the answer came.
    #[error("the client went away")]
    Abandoned,
    /// A name cannot be resolved.
    #[error("cannot resolve {name}: {reason}")]
    Resolve {
        /// The name.
        name: String,
        /// What the resolver said.
        reason: String,
    },
    /// An origin cannot be reached.
    #[error("cannot connect to {address}: {source}")]
    Dial {
        /// Where to.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// An origin broke off, or answered with what is no HTTP.
    #[error("the exchange with {address} failed: {source}")]
    Origin {
        /// Where to.
        address: SocketAddr,
        /// What was wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS with an origin cannot be had.
    #[error("TLS with {name} at {address} failed: {reason}")]
    Tls {
        /// Who it should have been.
        name: String,
        /// Where to.
        address: SocketAddr,
        /// Why, and what would help.
        reason: String,
        /// What the library or the kernel said.
        source: Option<io::Error>,
    },
    /// A request for another host than the one that its connection was made to.
    #[error(
        "{name} is not the host that this connection was made to, which is {connected}: connect to it anew"
    )]
    Misdirected {
        /// Whom the request names.
        name: String,
        /// Whom the connection is to.
        connected: String,
    },
    /// The client does not take the certificate that it is shown.
    #[error("the client does not take the run's certificate for {name}: {reason}")]
    Distrusted {
        /// Whom the client asked for.
        name: String,
        /// What it said.
        reason: String,
    },
    /// A file of roots that the user named cannot be used.
    #[error("{}: {reason}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A secret cannot be kept.
    #[error("the secret {name}: {reason}")]
    Secret {
        /// The variable.
        name: String,
        /// Why.
        reason: String,
    },
    /// An answer that could hold a secret's value, and cannot be searched for it.
    #[error("an answer of a host that knows a secret is withheld: {reason}")]
    Unsearchable {
        /// Why.
        reason: String,
    },
    /// An origin that goes on announcing its answer.
    #[error("the origin sent more than {most} informational answers (1xx) and no other")]
    Informational {
        /// How many are taken.
        most: usize,
    },
    /// An origin that goes on in a protocol that nobody asked for.
    #[error("the origin switched protocols (101), and the request had not asked for that")]
    Switched,
    /// In a replay: what failed when the run was recorded.
    #[error("{reason}")]
    Replayed {
        /// As the recording has it.
        reason: String,
        /// The same for those who act on it.
        failure: Failure,
    },
    /// In a replay: the recording has no answer.
    #[error("replay: no recorded answer to {what}")]
    NotRecorded {
        /// What was asked for.
        what: String,
    },
    /// A message's body broke off.
    #[error("the body broke off: {source}")]
    Body {
        /// Whose body it was.
        blame: Blame,
        /// What was wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl NetproxyError {
    /// The side whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Denied(_)
            | Self::Unclear(_)
            | Self::Exhausted { .. }
            | Self::Request { .. }
            | Self::Hello { .. }
            | Self::Client { .. }
            | Self::Abandoned
            | Self::Misdirected { .. }
            | Self::Distrusted { .. } => Blame::Agent,
            Self::Resolve { .. }
            | Self::Dial { .. }
            | Self::Origin { .. }
            | Self::Tls { .. }
            | Self::Unsearchable { .. }
            | Self::Informational { .. }
            | Self::Switched => Blame::Upstream,
            Self::Body { blame, .. } => *blame,
            Self::Replayed { failure, .. } => failure.blame(),
            Self::Runtime { .. }
            | Self::Thread { .. }
            | Self::Listener { .. }
            | Self::Certificate { .. }
            | Self::Roots { .. }
            | Self::Secret { .. }
            | Self::NotRecorded { .. }
            | Self::Stop { .. }
            | Self::Trace { .. } => Blame::Proxy,
        }
    }
}
