//! The sandbox's network: every address is local, and what is sent to any of them ends at our sockets.
//!
//! Nothing has a way out of the namespace, whatever rules there are: the supervisor alone dials out.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sched::CloneFlags;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, bind,
    getsockname, listen, setsockopt, socket, sockopt,
};
use thiserror::Error;

use super::handoff::Role;
use crate::sys::netlink::{self, Ipv6};
use crate::sys::refused::Refused;
use crate::sys::sockopt::enable_ipv6_transparent;

/// Connections that wait to be accepted, for each listener.
const BACKLOG: i32 = 512;
const DNS: u16 = 53;
/// Above the ports that the kernel gives out by itself (32768-60999), so that no client gets one by chance.
const TRANSPARENT_PORTS: std::ops::RangeInclusive<u16> = 64_000..=u16::MAX;
/// Per network namespace of the reader, whichever /proc is mounted.
const LOW_PORTS: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// What to set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NetSpec {
    /// Try nf_tables first; without it only the named ports are captured.
    pub tproxy: bool,
    /// TCP ports that the policy names, for the case that nf_tables is refused.
    pub ports: Vec<u16>,
    /// Loopback TCP ports of the host that the policy names.
    pub loopback: Vec<u16>,
    /// UDP ports that the policy names, for the case that nf_tables is refused.
    pub udp_ports: Vec<u16>,
    /// Loopback UDP ports of the host that the policy names.
    pub udp_loopback: Vec<u16>,
    /// TCP ports that servers inside may offer on the host's loopback.
    pub published: Vec<u16>,
    /// Wanted port of the HTTP proxy on loopback; 0 is any. Another is taken when it is one of the others.
    pub proxy_port: u16,
}

/// How connections are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// nf_tables hands over every TCP connection and UDP datagram.
    Tproxy,
    /// Only the named TCP ports and DNS are captured; everything else is refused by the kernel.
    Ports {
        /// What nf_tables said; 0 when it was not asked.
        errno: i32,
    },
}

/// The sockets of a sandbox, and what is in force.
#[derive(Debug)]
pub struct NetSockets {
    /// How connections are captured.
    pub mechanism: Mechanism,
    /// Port of the transparent sockets, which no program inside can use; 0 without them.
    pub transparent_port: u16,
    /// Port of the HTTP proxy on 127.0.0.1 and ::1.
    pub proxy_port: u16,
    /// Without IPv6 there are no IPv6 sockets.
    pub ipv6: Ipv6,
    /// Why programs inside cannot listen on ports below 1024, if they cannot: errno.
    pub low_ports: Option<i32>,
    /// Why there is no [`Role::Diag`] socket, if there is none: errno.
    pub diag: Option<i32>,
    /// Close-on-exec; all but the diag socket are non-blocking.
    pub fds: Vec<(Role, OwnedFd)>,
}

/// Why the network could not be set up.
#[derive(Debug, Error)]
pub enum NetError {
    /// Loopback stays down.
    #[error("cannot set loopback up in the sandbox: {0}")]
    Loopback(#[source] Refused),
    /// No local routes.
    #[error("cannot route all addresses to loopback in the sandbox: {0}")]
    Routes(#[source] Refused),
    /// A socket could not be made.
    #[error("cannot make the {role:?} socket at {address} in the sandbox: {source}")]
    Socket {
        /// What it is for.
        role: Role,
        /// Where it should be.
        address: SocketAddr,
        /// What the kernel said.
        source: Refused,
    },
    /// No second network namespace.
    #[error("cannot make another network namespace: {0}")]
    Namespace(#[source] Refused),
    /// Datagrams are allowed and could not be answered.
    #[error("cannot make the socket that answers datagrams in the sandbox: {0}")]
    Answers(#[source] Refused),
    /// No port is left for the transparent sockets.
    #[error("no port from 64000 up is left for capturing connections; name fewer loopback ports")]
    NoPort,
    /// The sockets could not be passed between the sandbox and the supervisor.
    #[error("cannot pass the sandbox's sockets to the supervisor: {0}")]
    Handoff(#[from] io::Error),
}

/// What every network has, whatever the plan says: ready before the plan is.
#[derive(Debug)]
pub struct Prepared {
    /// The transparent port that was tried.
    asked: Option<u16>,
    mechanism: Mechanism,
    transparent_port: u16,
    low_ports: Option<i32>,
    diag: Option<i32>,
    sockets: Sockets,
}

/// Sets up the network namespace that the caller is in, as far as that goes without a plan. It must
/// be fresh, and the caller must have CAP_NET_ADMIN and CAP_NET_BIND_SERVICE there.
pub fn prepare() -> Result<Prepared, NetError> {
    prepare_with(Some(*TRANSPARENT_PORTS.start()))
}

fn prepare_with(asked: Option<u16>) -> Result<Prepared, NetError> {
    netlink::link_up_loopback().map_err(NetError::Loopback)?;
    let ipv6 = netlink::add_anyip_routes().map_err(NetError::Routes)?;
    let low_ports = allow_low_ports();
    let mut sockets = Sockets { ipv6, fds: Vec::new() };
    let (mechanism, transparent_port) = match asked {
        Some(port) => sockets.capture(port)?,
        None => (Mechanism::Ports { errno: 0 }, 0),
    };
    sockets.everywhere(Role::DnsUdp, DNS)?;
    sockets.everywhere(Role::DnsTcp, DNS)?;
    let diag = sockets.diag();
    Ok(Prepared { asked, mechanism, transparent_port, low_ports, diag, sockets })
}

/// Adds what the plan names. Where the plan needs the port that was taken, everything is made again in a
/// network namespace of its own.
pub fn setup(prepared: Prepared, spec: &NetSpec) -> Result<NetSockets, NetError> {
    let wanted = spec.tproxy.then(|| transparent_port(spec)).transpose()?;
    let prepared = if prepared.asked == wanted {
        prepared
    } else {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|errno| NetError::Namespace(Refused::by("unshare(CLONE_NEWNET)")(errno)))?;
        prepare_with(wanted)?
    };
    let Prepared { mechanism, transparent_port, low_ports, diag, mut sockets, .. } = prepared;
    let mut taken = vec![DNS];
    if mechanism != Mechanism::Tproxy {
        for &port in &spec.ports {
            if claim(&mut taken, port) {
                sockets.everywhere(Role::Port(port), port)?;
            }
        }
    }
    for &port in &spec.loopback {
        // A listener for every address has this one too: what it accepts tells which was meant.
        if claim(&mut taken, port) {
            sockets.on_loopback(port, Role::Loopback)?;
        }
    }
    sockets.datagrams(spec, &mechanism)?;
    let wanted = if taken.contains(&spec.proxy_port) { 0 } else { spec.proxy_port };
    let proxy_port = sockets.on_loopback(wanted, |_| Role::Proxy)?;
    let Sockets { ipv6, fds } = sockets;
    Ok(NetSockets { mechanism, transparent_port, proxy_port, ipv6, low_ports, diag, fds })
}

/// The first that the plan does not need itself.
fn transparent_port(spec: &NetSpec) -> Result<u16, NetError> {
    let free = |port: &u16| *port != spec.proxy_port && !spec.loopback.contains(port);
    TRANSPARENT_PORTS.clone().find(free).ok_or(NetError::NoPort)
}

/// Lets programs without capabilities listen on ports below 1024, as servers in a container expect.
fn allow_low_ports() -> Option<i32> {
    let error = std::fs::write(LOW_PORTS, "0").err()?;
    Some(error.raw_os_error().unwrap_or(Errno::EIO as i32))
}

/// Whether `port` was free until now.
fn claim(taken: &mut Vec<u16>, port: u16) -> bool {
    let free = port != 0 && !taken.contains(&port);
    if free {
        taken.push(port);
    }
    free
}

/// The sockets made so far.
#[derive(Debug)]
struct Sockets {
    ipv6: Ipv6,
    fds: Vec<(Role, OwnedFd)>,
}

impl Sockets {
    /// Makes the transparent sockets and loads the rules that lead to them, or tells why not.
    fn capture(&mut self, port: u16) -> Result<(Mechanism, u16), NetError> {
        self.everywhere(Role::Transparent, port)?;
        self.everywhere(Role::UdpTrap, port)?;
        match netlink::install_tproxy(port) {
            Ok(()) => Ok((Mechanism::Tproxy, port)),
            Err(error) => {
                self.fds.clear();
                let errno = error.raw_os_error().unwrap_or(Errno::EIO as i32);
                Ok((Mechanism::Ports { errno }, 0))
            }
        }
    }

    /// UDP sockets at single ports, and what answers in the name of any address.
    fn datagrams(&mut self, spec: &NetSpec, mechanism: &Mechanism) -> Result<(), NetError> {
        let mut taken = vec![DNS];
        if *mechanism != Mechanism::Tproxy {
            for &port in &spec.udp_ports {
                if claim(&mut taken, port) {
                    self.everywhere(Role::UdpTrap, port)?;
                }
            }
        }
        for &port in &spec.udp_loopback {
            if claim(&mut taken, port) {
                self.on_loopback(port, Role::UdpLoopback)?;
            }
        }
        for role in [Role::AnswersV4, Role::AnswersV6] {
            if role == Role::AnswersV6 && self.ipv6 != Ipv6::Present {
                continue;
            }
            match answers(role) {
                Ok(socket) => self.fds.push((role, socket)),
                // Without it a refused datagram is only silent; but answers must find their way.
                Err(_) if spec.udp_ports.is_empty() && spec.udp_loopback.is_empty() => {}
                Err(source) => return Err(NetError::Answers(source)),
            }
        }
        Ok(())
    }

    /// A socket at `port` of every address, for each protocol version.
    fn everywhere(&mut self, role: Role, port: u16) -> Result<(), NetError> {
        self.add(role, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))?;
        if self.ipv6 == Ipv6::Present {
            self.add(role, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))?;
        }
        Ok(())
    }

    /// A socket at `port` of 127.0.0.1 and ::1; 0 is any, the same for both. Returns the port.
    fn on_loopback(&mut self, port: u16, role: impl Fn(SocketAddr) -> Role) -> Result<u16, NetError> {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let port = self.add(role(address), address)?;
        if self.ipv6 == Ipv6::Present {
            let address = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port);
            self.add(role(address), address)?;
        }
        Ok(port)
    }

    fn add(&mut self, role: Role, address: SocketAddr) -> Result<u16, NetError> {
        let failed = |source: Refused| NetError::Socket { role, address, source };
        let made = open(role, address).map_err(failed)?;
        let port = match address.port() {
            0 => bound_port(&made).map_err(Refused::by("getsockname")).map_err(failed)?,
            port => port,
        };
        self.fds.push((role, made));
        Ok(port)
    }

    /// Adds the diag socket, or returns why it cannot.
    fn diag(&mut self) -> Option<i32> {
        match netlink::diag_socket() {
            Ok(socket) => {
                self.fds.push((Role::Diag, socket));
                None
            }
            Err(error) => Some(error.raw_os_error().unwrap_or(Errno::EIO as i32)),
        }
    }
}

fn open(role: Role, address: SocketAddr) -> Result<OwnedFd, Refused> {
    let family = match address.ip() {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let datagrams = matches!(role, Role::DnsUdp | Role::UdpTrap | Role::UdpLoopback(_));
    let kind = if datagrams { SockType::Datagram } else { SockType::Stream };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(family, kind, flags, None).map_err(Refused::by("socket"))?;
    // No SO_REUSEADDR or SO_REUSEPORT before it listens: a program inside must not be able to bind beside us.
    match address {
        SocketAddr::V4(address) => {
            prepare_v4(role, &made).map_err(Refused::by("setsockopt"))?;
            bind(made.as_raw_fd(), &SockaddrIn::from(address)).map_err(Refused::by("bind"))?;
        }
        SocketAddr::V6(address) => {
            prepare_v6(role, &made).map_err(Refused::by("setsockopt"))?;
            bind(made.as_raw_fd(), &SockaddrIn6::from(address)).map_err(Refused::by("bind"))?;
        }
    }
    if !datagrams {
        Backlog::new(BACKLOG).and_then(|backlog| listen(&made, backlog)).map_err(Refused::by("listen"))?;
    }
    if role == Role::Transparent {
        // An accepted socket has the port that was dialled: a server inside that starts later must get that
        // port all the same. Beside what listens nobody can bind (`inet_csk_bind_conflict`).
        setsockopt(&made, sockopt::ReuseAddr, &true).map_err(Refused::by("setsockopt"))?;
    }
    Ok(made)
}

/// A socket that sends whole packets, which no rule hands back to us.
fn answers(role: Role) -> Result<OwnedFd, Refused> {
    let family = if role == Role::AnswersV4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // IPPROTO_RAW implies IP_HDRINCL and receives nothing (raw(7)).
    let made =
        socket(family, SockType::Raw, flags, SockProtocol::Raw).map_err(Refused::by("socket(SOCK_RAW)"))?;
    setsockopt(&made, sockopt::Mark, &netlink::ANSWER_MARK).map_err(Refused::by("setsockopt(SO_MARK)"))?;
    Ok(made)
}

fn prepare_v4(role: Role, made: &OwnedFd) -> io::Result<()> {
    if matches!(role, Role::Transparent | Role::UdpTrap) {
        setsockopt(made, sockopt::IpTransparent, &true)?;
    }
    match role {
        Role::UdpTrap => setsockopt(made, sockopt::Ipv4OrigDstAddr, &true)?,
        Role::DnsUdp => setsockopt(made, sockopt::Ipv4PacketInfo, &true)?,
        _ => {}
    }
    Ok(())
}

fn prepare_v6(role: Role, made: &OwnedFd) -> io::Result<()> {
    // Connections to mapped addresses belong to the IPv4 socket.
    setsockopt(made, sockopt::Ipv6V6Only, &true)?;
    // The DNS socket answers from the address that was asked: IPv4 takes a local route as leave for
    // that, IPv6 wants an address of the interface or this option.
    if matches!(role, Role::Transparent | Role::UdpTrap | Role::DnsUdp) {
        enable_ipv6_transparent(made)?;
    }
    match role {
        Role::UdpTrap => setsockopt(made, sockopt::Ipv6OrigDstAddr, &true)?,
        Role::DnsUdp => setsockopt(made, sockopt::Ipv6RecvPacketInfo, &true)?,
        _ => {}
    }
    Ok(())
}

fn bound_port(made: &OwnedFd) -> io::Result<u16> {
    let address: SockaddrStorage = getsockname(made.as_raw_fd())?;
    let v4 = address.as_sockaddr_in().map(SockaddrIn::port);
    v4.or_else(|| address.as_sockaddr_in6().map(SockaddrIn6::port)).ok_or_else(|| Errno::EAFNOSUPPORT.into())
}
