//! What the supervisor asks about the destination of a connection, and the answers: whoever knows
//! the names and the network of the run gives them.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// A connection that may not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedConnection {
    /// `name:port` or `address:port`.
    pub target: String,
    /// The names that stand for the address in this run.
    pub names: Vec<String>,
    /// The rule that refuses it, or why none allows it.
    pub label: String,
}

/// Decides on TCP connections: the refusal, if there is one.
pub type JudgeConnection = Box<dyn Fn(SocketAddr) -> Option<RefusedConnection>>;

/// Where a connection to a loopback address leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loopback {
    /// A rule allows it, or something inside listens there: should the kernel refuse it, nothing was
    /// kept from the program.
    Free,
    /// To the host's own, which this rule allows, and where nobody listens: the kernel will refuse it.
    Nobody(String),
    /// To the host's own, which this rule names and for which we listen inside, and where nobody listens: to be
    /// refused.
    Closed(String),
    /// To whatever listens inside. Where nothing does, the host's own is refused, for this reason.
    Inside(String),
}

/// Finds out where a connection of this socket to a loopback address leads, and prepares the socket for it;
/// the flag says that something inside has listened on that port.
pub type LeadLoopback = Box<dyn Fn(BorrowedFd<'_>, SocketAddr, bool) -> Loopback>;
