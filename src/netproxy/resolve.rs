//! The outside world: name servers and origins, behind one trait.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::ResolveHosts;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::OnceCell;

use super::listen::send_unpaced;
use super::origin::OriginStream;
use super::recorded::PlayedDatagrams;
use crate::policy::{is_loopback, is_special};

/// How long a name server may take, all tries together.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

/// How long an origin may take to accept.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Seconds of silence after which a stream's other end is asked whether it is there.
const KEEP_ALIVE_AFTER: u32 = 60;

/// Seconds between two such questions.
const KEEP_ALIVE_EVERY: u32 = 20;

/// So many without an answer mean that it is gone.
const KEEP_ALIVE_TRIES: u32 = 6;

/// Entries that the resolver keeps.
const CACHE_ENTRIES: u64 = 512;

/// A future that the runtime's one thread drives.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which addresses a lookup asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A records.
    V4,
    /// AAAA records.
    V6,
}

impl Family {
    /// The name of the record type.
    #[must_use]
    pub fn record_type(self) -> &'static str {
        match self {
            Self::V4 => "A",
            Self::V6 => "AAAA",
        }
    }
}

/// What a lookup brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Addresses, and for how many seconds they hold.
    Addresses {
        /// At least one.
        addresses: Vec<IpAddr>,
        /// Seconds.
        ttl: u32,
    },
    /// Other records, and for how many seconds they hold.
    Records {
        /// At least one, all of the type that was asked for.
        records: Vec<RData>,
        /// Seconds.
        ttl: u32,
    },
    /// The name exists and has none.
    NoData,
    /// The name does not exist.
    NoName,
    /// In a replay: nobody asked for it when the run was recorded.
    NotRecorded,
}

/// A name that is asked for, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Lower case and without a trailing dot.
    pub name: &'a str,
    /// The process.
    pub proc: Option<&'a str>,
}

/// Where a stream is to lead, and who wants it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Where to.
    pub destination: SocketAddr,
    /// The process.
    pub proc: Option<&'a str>,
}

/// What datagrams are exchanged with.
pub enum Datagrams {
    /// The one peer of a socket.
    Socket(UdpSocket),
    /// What was recorded of one.
    Recorded(Box<PlayedDatagrams>),
}

/// What the proxy needs of the outside. Every destination was judged before it is asked for.
pub trait Outside: Send + Sync {
    /// Looks up one name. The error is one line.
    fn lookup<'a>(&'a self, asked: Question<'a>, family: Family) -> Pending<'a, Result<Found, String>>;

    /// The same for records of another type than an address.
    fn records<'a>(&'a self, asked: Question<'a>, kind: RecordType) -> Pending<'a, Result<Found, String>>;

    /// Connects to an address.
    fn connect<'a>(&'a self, wanted: Wanted<'a>) -> Pending<'a, io::Result<OriginStream>>;

    /// A socket that exchanges datagrams with `destination` alone.
    ///
    /// # Errors
    /// The kernel's; nothing has been sent then.
    fn datagrams(&self, wanted: Wanted<'_>) -> io::Result<Datagrams> {
        let destination = wanted.destination;
        let any: IpAddr = match destination {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = std::net::UdpSocket::bind((any, 0))?;
        // Only the peer's datagrams are received, and its refusals (man 7 udp).
        socket.connect(destination)?;
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket).map(Datagrams::Socket)
    }

    /// Where the client of a stream that was accepted at `own` wanted to go. Behind TPROXY and AnyIP routes that is
    /// the same.
    fn destination(&self, own: SocketAddr) -> SocketAddr {
        own
    }
}

/// The host's own network: its name servers, its `/etc/hosts`, its routes.
#[derive(Default)]
pub struct HostNetwork {
    /// Made at the first lookup: most short runs need none.
    resolver: OnceCell<TokioResolver>,
}

impl HostNetwork {
    async fn addresses(&self, name: &str, family: Family) -> Result<Found, String> {
        let record_type = match family {
            Family::V4 => RecordType::A,
            Family::V6 => RecordType::AAAA,
        };
        let lookup = match self.ask(name, record_type).await? {
            Ok(lookup) => lookup,
            Err(error) => return absent(&error),
        };
        let addresses: Vec<IpAddr> =
            lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
        if addresses.is_empty() {
            return Ok(Found::NoData);
        }
        let ttl = seconds_left(&lookup);
        let addresses = addresses.into_iter().filter(|address| has_route(*address)).collect();
        Ok(reachable(addresses, ttl))
    }

    async fn others(&self, name: &str, kind: RecordType) -> Result<Found, String> {
        let lookup = match self.ask(name, kind).await? {
            Ok(lookup) => lookup,
            Err(error) => return absent(&error),
        };
        let of_kind = lookup.answers().iter().filter(|record| record.record_type() == kind);
        let records: Vec<RData> = of_kind.map(|record| record.data.clone()).collect();
        let ttl = seconds_left(&lookup);
        Ok(if records.is_empty() { Found::NoData } else { Found::Records { records, ttl } })
    }

    async fn ask(&self, name: &str, kind: RecordType) -> Result<Result<Lookup, NetError>, String> {
        let resolver = self.resolver.get_or_try_init(|| async { system_resolver() }).await?;
        let mut query = Name::from_ascii(name).map_err(|error| error.to_string())?;
        // Absolute, for search domains would send names outside that no rule matches. A name without
        // a dot is completed as it is on the host: there the user means it so.
        query.set_fqdn(name.contains('.'));
        Ok(resolver.lookup(query, kind).await)
    }
}

impl Outside for HostNetwork {
    fn lookup<'a>(&'a self, asked: Question<'a>, family: Family) -> Pending<'a, Result<Found, String>> {
        Box::pin(async move {
            let found = tokio::time::timeout(LOOKUP_TIMEOUT, self.addresses(asked.name, family)).await;
            found.unwrap_or_else(|_| unanswered())
        })
    }

    fn records<'a>(&'a self, asked: Question<'a>, kind: RecordType) -> Pending<'a, Result<Found, String>> {
        Box::pin(async move {
            let found = tokio::time::timeout(LOOKUP_TIMEOUT, self.others(asked.name, kind)).await;
            found.unwrap_or_else(|_| unanswered())
        })
    }

    fn connect<'a>(&'a self, wanted: Wanted<'a>) -> Pending<'a, io::Result<OriginStream>> {
        Box::pin(async move {
            match tokio::time::timeout(DIAL_TIMEOUT, dial(wanted.destination)).await {
                Ok(connected) => {
                    connected.and_then(|stream| prepare(&stream, wanted.destination).map(|()| stream.into()))
                }
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }
}

fn prepare(stream: &TcpStream, destination: SocketAddr) -> io::Result<()> {
    if is_loopback(destination.ip()) {
        send_unpaced(stream);
    }
    watch(stream)
}

/// Has the kernel ask a silent origin whether it is still there (RFC 9293 section 3.8.4). A client's
/// own keep-alive ends at the inner leg, and would never learn that the outer one is dead.
fn watch(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEP_ALIVE_AFTER)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEP_ALIVE_EVERY)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEP_ALIVE_TRIES)?;
    Ok(())
}

/// The resolver of `/etc/resolv.conf`, with `/etc/hosts` before it.
fn system_resolver() -> Result<TokioResolver, String> {
    let failed = |error: NetError| format!("/etc/resolv.conf cannot be used: {error}");
    let mut builder = TokioResolver::builder_tokio().map_err(failed)?;
    let options = builder.options_mut();
    options.use_hosts_file = ResolveHosts::Always;
    options.cache_size = CACHE_ENTRIES;
    builder.build().map_err(failed)
}

/// Tells "there is none" from "could not be asked".
fn absent(error: &NetError) -> Result<Found, String> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NXDomain => {
            Ok(Found::NoName)
        }
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError => {
            Ok(Found::NoData)
        }
        error => Err(error.to_string()),
    }
}

fn unanswered() -> Result<Found, String> {
    Err(format!("no name server answered in {} s", LOOKUP_TIMEOUT.as_secs()))
}

fn seconds_left(lookup: &Lookup) -> u32 {
    let left = lookup.valid_until().saturating_duration_since(Instant::now());
    u32::try_from(left.as_secs()).unwrap_or(u32::MAX)
}

fn reachable(addresses: Vec<IpAddr>, ttl: u32) -> Found {
    if addresses.is_empty() { Found::NoData } else { Found::Addresses { addresses, ttl } }
}

/// Whether the host has a route there. A stream inside is accepted before the origin is dialled, so
/// an address of a family that the host lacks would fail too late for the client to try the other.
/// On a host without any network all are given, and the failure says what is missing.
fn has_route(address: IpAddr) -> bool {
    // Some address of the open internet, to which nothing is sent.
    let other_family = || match address {
        IpAddr::V4(_) => leads_to(Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888).into()),
        IpAddr::V6(_) => true,
    };
    leads_to(address) || !other_family()
}

/// Where the host has no IPv4 of its own, its network may translate.
async fn dial(destination: SocketAddr) -> io::Result<TcpStream> {
    match (TcpStream::connect(destination).await, translated(destination)) {
        (Err(error), Some(translated)) if error.kind() == io::ErrorKind::NetworkUnreachable => {
            TcpStream::connect(translated).await.map_err(|_| error)
        }
        (connected, _) => connected,
    }
}

/// The address behind which a network without IPv4 has the same one (RFC 6052 section 2.1): of global ones alone
/// (section 3.1).
fn translated(destination: SocketAddr) -> Option<SocketAddr> {
    let IpAddr::V4(v4) = destination.ip() else { return None };
    let [a, b, c, d] = v4.octets().map(u16::from);
    let translated = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a << 8 | b, c << 8 | d);
    (!is_special(destination.ip())).then(|| SocketAddr::new(translated.into(), destination.port()))
}

/// Connecting a datagram socket asks the routing table and sends nothing (man 7 udp).
fn leads_to(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    std::net::UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((address, 443))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_addresses_alone_are_translated() {
        let of = |address: &str| translated(address.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(of("93.184.216.34:443").as_deref(), Some("[64:ff9b::5db8:d822]:443"));
        assert_eq!((of("10.0.0.1:443"), of("[2606:4700::1111]:443")), (None, None));
    }
}
