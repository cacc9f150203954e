//! The sandbox's network: every address is local, and what is sent to any of them ends at our sockets.
//!
//! Nothing has a way out of the namespace, whatever rules there are: the supervisor alone dials out.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sched::CloneFlags;
use thiserror::Error;

use super::handoff::{self, Role};
use super::role_socket::{answers, bound_port, open};
use crate::sys::netlink::{self, Ipv6};
use crate::sys::refused::{Named, Refused, remedy};

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
    #[error("cannot pass the sandbox's sockets to the supervisor: {}: {fix}", Named(.0),
        fix = remedy(.0).unwrap_or("allow sendmsg and recvmsg"))]
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

/// Adds what the plan names. Where the plan needs the port that was taken, everything is made again in another
/// network namespace, which is returned: processes that were made before have to [`follow`].
pub fn setup(prepared: Prepared, spec: &NetSpec) -> Result<(NetSockets, Option<OwnedFd>), NetError> {
    let wanted = spec.tproxy.then(|| transparent_port(spec)).transpose()?;
    let refused = |call| move |error: io::Error| NetError::Namespace(Refused::by(call)(error));
    let (prepared, other) = if prepared.asked == wanted {
        (prepared, None)
    } else {
        let unshared = nix::sched::unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        unshared.map_err(refused("unshare(CLONE_NEWNET)"))?;
        let other = File::open("/proc/self/ns/net").map_err(refused("open(/proc/self/ns/net)"))?;
        (prepare_with(wanted)?, Some(other.into()))
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
    let made = NetSockets { mechanism, transparent_port, proxy_port, ipv6, low_ports, diag, fds };
    Ok((made, other))
}

/// Moves the caller into the network namespace that [`setup`] made instead of its own.
///
/// # Errors
/// The errno of setns(2).
pub fn follow(other: BorrowedFd<'_>) -> nix::Result<()> {
    nix::sched::setns(other, CloneFlags::CLONE_NEWNET)
}

/// The first that the plan does not need itself.
fn transparent_port(spec: &NetSpec) -> Result<u16, NetError> {
    let free = |port: &u16| *port != spec.proxy_port && !spec.loopback.contains(port);
    TRANSPARENT_PORTS.clone().find(free).ok_or(NetError::NoPort)
}

impl NetSockets {
    /// Sends all of it to the supervisor, which calls [`NetSockets::receive`]. The sockets stay open here.
    pub fn send(&self, channel: impl AsFd) -> Result<(), NetError> {
        handoff::send_exact(channel.as_fd(), &self.report(), &[])?;
        handoff::send_fds(channel, &self.fds)?;
        Ok(())
    }

    /// Receives what [`NetSockets::send`] sent.
    pub fn receive(channel: impl AsFd) -> Result<Self, NetError> {
        let mut report = [0; REPORT];
        handoff::receive_exact(channel.as_fd(), &mut report)?;
        let fds = handoff::recv_fds(channel)?;
        let number = |index: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|byte| report[4 * index + byte]);
            i32::from_ne_bytes([a, b, c, d])
        };
        let port = |index| u16::try_from(number(index)).map_err(|_| Errno::EBADMSG);
        let some = |errno: i32| (errno != 0).then_some(errno);
        Ok(Self {
            mechanism: match number(0) {
                -1 => Mechanism::Tproxy,
                errno => Mechanism::Ports { errno },
            },
            transparent_port: port(1).map_err(io::Error::from)?,
            proxy_port: port(2).map_err(io::Error::from)?,
            ipv6: some(number(3)).map_or(Ipv6::Present, |errno| Ipv6::Absent { errno }),
            low_ports: some(number(4)),
            diag: some(number(5)),
            fds,
        })
    }

    fn report(&self) -> [u8; REPORT] {
        let numbers = [
            match self.mechanism {
                Mechanism::Tproxy => -1,
                Mechanism::Ports { errno } => errno,
            },
            i32::from(self.transparent_port),
            i32::from(self.proxy_port),
            match self.ipv6 {
                Ipv6::Present => 0,
                Ipv6::Absent { errno } => errno,
            },
            self.low_ports.unwrap_or_default(),
            self.diag.unwrap_or_default(),
        ];
        let mut bytes = [0; REPORT];
        for (slot, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            slot.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }
}

/// Six numbers.
const REPORT: usize = 24;

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
