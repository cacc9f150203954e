//! A recording in place of the outside: every answer of a replay comes from here, and nothing else is asked.
//!
//! Who asks is judged and recorded as in any run. Only what would go out does not: names, dials, datagrams and
//! Unix sockets end at [`Outside`](super::Outside), which a recording is as well, and requests at `forward`.

mod answer;
mod arrivals;
mod asked;
mod carries;
mod closest;
mod datagrams;
mod diverged;
mod durations;
mod entry;
mod exchanges;
mod forward;
mod framing;
mod gate;
mod lookups;
mod normal;
mod outside;
mod pieces;
mod playback;
mod records;
mod script;
mod shelf;
mod streams;

use std::collections::HashSet;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

pub use self::arrivals::arrivals;
pub use self::datagrams::PlayedDatagrams;
pub use self::durations::without as without_durations;
pub use self::playback::Playback;

pub(crate) use self::answer::RecordedBody;
pub(crate) use self::asked::Asked;
pub(crate) use self::carries::Carries;
pub(crate) use self::diverged::Diverged;
pub(crate) use self::exchanges::Matched;
pub(crate) use self::streams::Played;

use super::tls::StoredLeaf;

use self::datagrams::{Opened, Sessions};
use self::entry::Entry;
use self::exchanges::{Exchanges, RecordedExchange};
use self::lookups::{Lookup, Lookups};
use self::streams::{Dialled, RecordedStream, Streams};

/// Reads a blob of the recorded trace by its name.
pub type Blobs = Arc<dyn Fn(&str) -> io::Result<Box<dyn Read + Send>> + Send + Sync>;

/// The largest certificate with its key.
const LARGEST_LEAF: u64 = 1 << 20;

/// What was recorded of the network of one run.
pub struct Recording {
    blobs: Blobs,
    is_paced: bool,
    lookups: Lookups,
    streams: Arc<Streams>,
    exchanges: Exchanges,
    sessions: Sessions,
    /// Addresses at which somebody accepted.
    accepted: HashSet<SocketAddr>,
    /// When connections to ports of the host's loopback were asked for, and whether somebody listened.
    asked: Mutex<Vec<(f64, u16, bool)>>,
    /// The blobs of what clients were shown.
    leaves: Vec<String>,
    refusal: Option<String>,
}

impl Recording {
    /// Reads the entries of a trace that was verified; those that are not about the network are passed over.
    /// Answers come as soon as they can, or at the recorded pace.
    #[must_use]
    pub fn of(entries: impl IntoIterator<Item = Value>, blobs: Blobs, is_paced: bool) -> Self {
        let mut recording = Self {
            exchanges: Exchanges::new(&blobs),
            blobs,
            is_paced,
            lookups: Lookups::default(),
            streams: Arc::default(),
            sessions: Sessions::default(),
            accepted: HashSet::new(),
            asked: Mutex::default(),
            leaves: Vec::new(),
            refusal: None,
        };
        let (mut streams, mut exchanges, mut sessions) = (Vec::new(), Vec::new(), Opened::default());
        for line in entries {
            let Some(entry) = Entry::of(&line) else { continue };
            recording.asked.get_mut().unwrap_or_else(PoisonError::into_inner).extend(asked_of(&entry));
            let is_read = match entry.op {
                "net.accept" => {
                    recording.refuse(&entry, "a connection from the host to a port that `listen:` offers")
                }
                "dns.withheld" => {
                    recording.lookups.put_withheld(&entry);
                    true
                }
                "tls.leaf" => {
                    recording.leaves.extend(entry.blob(entry.args.get("leaf")));
                    true
                }
                "dns.lookup" => {
                    Lookup::of(&entry).map(|lookup| recording.lookups.put(&entry, lookup)).is_some()
                }
                "net.stream" => recording.note(&entry).map(|stream| streams.push(stream)).is_some(),
                "net.datagram" => {
                    address_of(&entry).and_then(|to| sessions.put(&entry, to.to_string())).is_some()
                }
                "http.exchange" => {
                    let (begun, proc) = (RecordedExchange::begun(&entry), entry.proc.map(str::to_owned));
                    let exchange = RecordedExchange::of(&entry);
                    exchange.map(|exchange| exchanges.push((begun, proc, exchange))).is_some()
                }
                _ => true,
            };
            if !is_read {
                recording.refuse(&entry, "an entry that cannot be read");
            }
        }
        // Entries come when something has ended; what is played is asked for when it begins.
        streams.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        exchanges.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        for (_, key, proc, stream) in streams {
            recording.streams.put(key, proc, stream);
        }
        recording.sessions = sessions.close();
        for (_, proc, exchange) in exchanges {
            recording.exchanges.put(proc, exchange);
        }
        recording
    }

    /// Why the trace cannot be replayed, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Whether somebody accepted connections at `address` when the run was recorded.
    #[must_use]
    pub fn accepts(&self, address: SocketAddr) -> bool {
        self.accepted.contains(&address)
    }

    /// Whether somebody listened at this port of the host's loopback, which `addresses` spell, when as many
    /// connections to it were asked for as by now.
    #[must_use]
    pub fn accepts_now(&self, port: u16, mut addresses: impl Iterator<Item = SocketAddr>) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let of_port = asked.iter().enumerate().filter(|(_, (_, asked, _))| *asked == port);
        let next = of_port.min_by(|(_, one), (_, other)| one.0.total_cmp(&other.0)).map(|(at, _)| at);
        let next = next.map(|at| asked.remove(at).2);
        next.unwrap_or_else(|| addresses.any(|address| self.accepts(address)))
    }

    /// What clients were shown. One that cannot be read is made anew.
    pub(super) fn leaves(&self) -> Vec<StoredLeaf> {
        let read = |name: &String| {
            let content = (self.blobs)(name).ok()?.take(LARGEST_LEAF);
            serde_json::from_reader(content).ok()
        };
        self.leaves.iter().filter_map(read).collect()
    }

    pub(super) fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    pub(super) fn is_paced(&self) -> bool {
        self.is_paced
    }

    fn refuse(&mut self, entry: &Entry<'_>, what: &str) -> bool {
        let refusal = || format!("entry {} ({}) is {what}, which cannot be replayed", entry.number, entry.op);
        self.refusal.get_or_insert_with(refusal);
        true
    }

    /// A stream, when it was opened, where to and by whom.
    fn note(&mut self, entry: &Entry<'_>) -> Option<(f64, String, Option<String>, RecordedStream)> {
        let stream = RecordedStream::of(entry)?;
        let key = match (entry.text("path"), entry.text("address")) {
            (Some(path), _) => format!("unix:{path}"),
            (None, Some(_)) => {
                let address = address_of(entry)?;
                if matches!(stream.dialled(), Dialled::Accepted) {
                    self.accepted.insert(address);
                }
                address.to_string()
            }
            // Of a connection from the host: the entry before has told that.
            (None, None) => format!("listen:{}", entry.args.get("port")?),
        };
        Some((RecordedStream::opened(entry), key, entry.proc.map(str::to_owned), stream))
    }
}

/// Whether a connection to a port of the host's loopback was asked for, when, and whether somebody listened.
fn asked_of(entry: &Entry<'_>) -> Option<(f64, u16, bool)> {
    let is_own = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    let address = address_of(entry).filter(|address| is_own(address.ip()))?;
    match entry.op {
        // One attempt of several at once is no connection of its own.
        "net.stream" if entry.result.get("end") == Some(&streams::GIVEN_UP.into()) => None,
        "net.stream" => Some((RecordedStream::opened(entry), address.port(), true)),
        "net.connect" => {
            let kind = entry.result.get("failure").and_then(|failure| failure.get("kind"));
            let is_refused = entry.text("via") == Some("loopback") && kind == Some(&"refused".into());
            is_refused.then_some((entry.time, address.port(), false))
        }
        _ => None,
    }
}

fn address_of(entry: &Entry<'_>) -> Option<SocketAddr> {
    let port = u16::try_from(entry.args.get("port")?.as_u64()?).ok()?;
    Some(SocketAddr::new(entry.text("address")?.parse().ok()?, port))
}

impl std::fmt::Debug for Recording {
    /// Without what was said.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Recording").field("refusal", &self.refusal).finish_non_exhaustive()
    }
}
