//! Connects the sockets of the run's network with the proxy, and the proxy with the supervisor.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::RunError;
use super::loopback::{Diag, HostLoopback};
use crate::netproxy::tls::Interception;
use crate::netproxy::{self, HasLeft, Listeners, Proxy, ProxySpec, StreamOptions, Unread, WhoAsked};
use crate::ns::handoff::Role;
use crate::ns::net::{Mechanism, NetSockets};
use crate::policy::{Policy, Transport};
use crate::supervisor::connections::Connections;
use crate::supervisor::{JudgeConnection, LeadLoopback, RefusedConnection, UnderWay};
use crate::sys::netlink;
use crate::trace::Recorder;
use crate::trace::redact::Redactor;

/// What the proxy has under way in a replay.
pub(super) fn under_way() -> UnderWay {
    use netproxy::{delays, moments, standstill};
    let (next, leave_out, want) = (delays::next, delays::leave_out, delays::want);
    UnderWay { is_any: moments::any, next, leave_out, want, stands_still: standstill::tell }
}

/// The ways out of a run.
pub(super) struct Network {
    pub(super) proxy: Proxy,
    /// Leads connections to loopback.
    pub(super) loopback: LeadLoopback,
}

/// Starts the proxy on the run's sockets, `listeners` among them.
pub(super) fn start(
    policy: &Arc<Policy>,
    sockets: NetSockets,
    mut listeners: Listeners,
    (recorder, redactor): (&Recorder, Redactor),
    connections: &Arc<Connections>,
    enforce: bool,
    (tls, streams): (Option<Interception>, StreamOptions),
) -> Result<Network, RunError> {
    let (mut diag, mut held) = (None, Vec::new());
    let captures = sockets.mechanism == Mechanism::Tproxy;
    for (role, socket) in sockets.fds {
        match role {
            Role::Transparent => listeners.transparent.push(socket),
            Role::Port(_) => listeners.ports.push(socket),
            Role::Proxy => listeners.proxy.push(socket),
            Role::DnsUdp => listeners.dns_udp.push(socket),
            Role::DnsTcp => listeners.dns_tcp.push(socket),
            Role::UdpTrap => listeners.udp_trap.push(socket),
            Role::UdpLoopback(at) => listeners.udp_loopback.push((at, socket)),
            Role::AnswersV4 => listeners.answers.v4 = Some(socket),
            Role::AnswersV6 => listeners.answers.v6 = Some(socket),
            Role::Loopback(at) => {
                held.push(at);
                listeners.loopback.push((at, socket));
            }
            Role::Diag => diag = Some(socket),
            // They come by themselves.
            Role::Unix(_) | Role::UnixFile(_) | Role::Upper(_) | Role::Holder(_) => {}
        }
    }
    let diag = diag.map(|socket| Arc::new(Mutex::new(socket)));
    let spec = ProxySpec {
        listeners,
        policy: Arc::clone(policy),
        recorder: recorder.clone(),
        redactor,
        who: who(diag.clone(), Arc::clone(connections)),
        unread: unread(diag.clone()),
        has_left: has_left(diag.clone()),
        enforce,
        host_name: Some(crate::plan::HOSTNAME.to_owned()),
        tls,
        secrets: streams.secrets,
        idle_timeout: streams.idle_timeout,
        upstream: streams.upstream,
        replayable: streams.replayable,
    };
    let proxy = netproxy::start(spec).map_err(RunError::Proxy)?;
    let loopback = HostLoopback::new(&proxy, (diag, held), captures, enforce);
    Ok(Network { loopback: Box::new(move |socket, to, served| loopback.lead(socket, to, served)), proxy })
}

/// Finds the process behind a connection or a datagram: its socket's cookie was noted at connect(2) or,
/// for datagram sockets, at bind(2). One that does neither before it sends has no process.
fn who(diag: Option<Diag>, connections: Arc<Connections>) -> WhoAsked {
    Arc::new(move |transport, client, destination| {
        // Without the socket the entry has no process.
        let socket = diag.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let find = match transport {
            Transport::Tcp => netlink::tcp_cookie_of,
            Transport::Udp => netlink::udp_cookie_of,
        };
        let identity = find(socket.as_fd(), client, destination).ok()??;
        connections.lineage(identity.cookie)
    })
}

/// Looks at what a client's socket holds.
fn unread(diag: Option<Diag>) -> Unread {
    Arc::new(move |client, server| {
        let socket = diag.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        netlink::tcp_unread_of(socket.as_fd(), client, server).ok()?
    })
}

/// Looks at who holds a client's socket.
fn has_left(diag: Option<Diag>) -> HasLeft {
    Arc::new(move |client, server| {
        let socket = diag.as_ref().map(|diag| diag.lock().unwrap_or_else(PoisonError::into_inner));
        socket.is_some_and(|socket| netlink::tcp_has_left(socket.as_fd(), client, server).unwrap_or(false))
    })
}

/// The proxy's decision, for the supervisor: asked before the connection is made.
pub(super) fn judge(proxy: &Proxy) -> JudgeConnection {
    let decide = proxy.judge();
    let pins = proxy.pins();
    Box::new(move |to| {
        let refusal = decide(to).err()?;
        let label = match refusal.rule {
            Some(rule) => rule,
            None if refusal.reason.starts_with("no rule") => refusal.reason,
            None => format!("no rule: {}", refusal.reason),
        };
        Some(RefusedConnection { target: refusal.target, names: pins.names_for(to.ip()), label })
    })
}
