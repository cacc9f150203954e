//! Connections to loopback: what listens inside comes first, then the host's own where a rule allows it.
//!
//! Nothing is held inside for that. A connection that shall reach the host's loopback bears a mark, by
//! which the ruleset of the run's network hands it to the proxy, which judges it again.

use std::cell::OnceCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::socket::{SockaddrStorage, getpeername};

use crate::netproxy::recorded::Recording;
use crate::netproxy::{Proxy, Refusal};
use crate::supervisor::Loopback;
use crate::sys::refused::Named;
use crate::sys::{netlink, sockopt};

/// Socket that is asked about the sockets of the run's network.
pub(super) type Diag = Arc<Mutex<OwnedFd>>;

/// No rule, and nothing inside.
const NOBODY: &str = "no rule names this port of the host, and nothing listens there inside";

/// The decision about a destination.
type Decide = Box<dyn Fn(SocketAddr) -> Result<String, Refusal>>;

/// Leads connections to loopback.
pub(super) struct HostLoopback {
    decide: Decide,
    inside: Option<Diag>,
    /// Where we listen inside for ports of the host that rules name.
    held: Vec<SocketAddr>,
    /// What tells who listens on the host's loopback: in a replay who accepted then.
    played: Box<dyn Fn() -> Option<Arc<Recording>>>,
    /// A host without such sockets is dialled to find out.
    host: OnceCell<Option<OwnedFd>>,
    /// The ruleset is in force.
    captures: bool,
    enforce: bool,
}

impl HostLoopback {
    /// `inside` is asked about the run's sockets, of which `held` are ours.
    pub(super) fn new(
        proxy: &Proxy,
        (inside, held): (Option<Diag>, Vec<SocketAddr>),
        captures: bool,
        enforce: bool,
    ) -> Self {
        let (decide, played) = (Box::new(proxy.judge()), Box::new(proxy.played()));
        Self { decide, inside, held, played, host: OnceCell::new(), captures, enforce }
    }

    /// Where a connection of `socket` to `to` leads; something inside has listened there if `served`.
    pub(super) fn lead(&self, socket: BorrowedFd<'_>, to: SocketAddr, served: bool) -> Loopback {
        // A socket can be connected a second time; without a mark so far nothing is done.
        if let Err(error) = sockopt::set_mark(socket, 0) {
            return unmarked(&error);
        }
        let to = own(to);
        let (refused, rule) = match (self.decide)(to) {
            Ok(rule) => (None, rule),
            Err(refusal) => {
                let label = refusal.rule.unwrap_or_else(|| NOBODY.to_owned());
                (Some(Loopback::Inside(label)), String::new())
            }
        };
        match refused {
            Some(refused) if self.enforce => refused,
            None if self.held.contains(&to) => {
                let is_open = is_connected(socket) || self.listens_on_host(to);
                if is_open { Loopback::Free } else { Loopback::Closed(rule) }
            }
            _ if self.listens_inside(to).unwrap_or(served) => Loopback::Free,
            refused if !self.listens_on_host(to) => refused.unwrap_or(Loopback::Nobody(rule)),
            _ if !self.captures => {
                let label = "no rule: without nf_tables, which this host refuses, a port of its loopback is reached \
                             only where a rule names it";
                Loopback::Inside(label.to_owned())
            }
            _ => match sockopt::set_mark(socket, netlink::LOOPBACK_MARK) {
                Ok(()) => Loopback::Free,
                Err(error) => unmarked(&error),
            },
        }
    }

    fn listens_inside(&self, to: SocketAddr) -> Option<bool> {
        let diag = self.inside.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        listens(diag.as_fd(), to)
    }

    fn listens_on_host(&self, to: SocketAddr) -> bool {
        if let Some(recording) = (self.played)() {
            return recording.accepts_now(to.port(), ends(to));
        }
        let diag = self.host.get_or_init(|| netlink::diag_socket().ok());
        diag.as_ref().is_none_or(|diag| listens(diag.as_fd(), to) != Some(false))
    }
}

/// Whether somebody listens there, or at the machine's own address of the other family, which a client of
/// `localhost` tries next; `None` if the kernel does not say.
fn listens(diag: BorrowedFd<'_>, to: SocketAddr) -> Option<bool> {
    ends(to).try_fold(false, |found, end| Some(found || netlink::tcp_listens_at(diag, end).ok()?))
}

/// The address, and the machine's own of the other family.
fn ends(to: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let other = match to.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(IpAddr::from(Ipv6Addr::LOCALHOST)),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(Ipv4Addr::LOCALHOST.into()),
        _ => None,
    };
    std::iter::once(to.ip()).chain(other).map(move |ip| SocketAddr::new(ip, to.port()))
}

/// A second connect of such a socket fails by itself (connect(2), EISCONN).
fn is_connected(socket: BorrowedFd<'_>) -> bool {
    getpeername::<SockaddrStorage>(socket.as_raw_fd()).is_ok()
}

/// The unspecified address is the machine's own (ip(7)).
fn own(to: SocketAddr) -> SocketAddr {
    let ip = match to.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    SocketAddr::new(ip, to.port())
}

fn unmarked(error: &std::io::Error) -> Loopback {
    Loopback::Inside(format!(
        "no rule: the host's loopback is out of reach: setsockopt(SO_MARK): {}",
        Named(error)
    ))
}
