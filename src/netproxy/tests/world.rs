//! The fake outside: names, addresses that lead to loopback servers, and a running proxy.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use hickory_proto::rr::{RData, RecordType};
use rustls::pki_types::CertificateDer;
use serde_json::Value;

use super::super::ca::{AuthorityName, RunAuthority, StoredAuthority};
use super::super::origin::OriginStream;
use super::super::recorded::Recording;
use super::super::resolve::{Question, Wanted};
use super::super::secret::Secrets;
use super::super::tls::Interception;
use super::super::{
    Family, Found, Listeners, NetproxyError, Outside, Pending, Proxy, ProxySpec, Upstream, start_with,
};
use crate::policy::{LaunchHost, Policy, parse};
use crate::trace::redact::Redactor;
use crate::trace::{Event, Recorder};

pub(super) use super::queries::{names_query, query_bytes, reply_of};

/// A public address, so that the policy's rules for special ranges do not apply.
pub(super) const PUBLIC: &str = "93.184.216.34";

/// How long a test waits for what must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What lies outside, in a test.
#[derive(Default)]
pub(super) struct World {
    pub(super) names: Mutex<HashMap<String, Vec<IpAddr>>>,
    pub(super) records: Mutex<HashMap<(String, RecordType), RData>>,
    /// Where a destination really leads.
    pub(super) routes: Mutex<HashMap<SocketAddr, SocketAddr>>,
    /// The original destination of what is accepted at a local port.
    pub(super) destinations: Mutex<HashMap<u16, SocketAddr>>,
    /// Destinations that never answer.
    pub(super) silent: Mutex<Vec<SocketAddr>>,
    /// Names for which no answer comes, of one family.
    pub(super) mute: Mutex<Vec<(String, Family)>>,
    /// Every name that was asked outside.
    pub(super) asked: Mutex<Vec<String>>,
    /// What is played instead, in a replay: then all of the above are not asked.
    pub(super) recording: Option<Arc<Recording>>,
}

impl Outside for World {
    fn lookup<'a>(&'a self, asked: Question<'a>, family: Family) -> Pending<'a, Result<Found, String>> {
        if let Some(recording) = &self.recording {
            return recording.lookup(asked, family);
        }
        let name = asked.name;
        self.asked.lock().unwrap().push(name.to_owned());
        let found = self.names.lock().unwrap().get(name).cloned();
        let mute = self.mute.lock().unwrap().contains(&(name.to_owned(), family));
        Box::pin(async move {
            if mute {
                std::future::pending::<()>().await;
            }
            let Some(all) = found else { return Ok(Found::NoName) };
            let wanted = |address: &IpAddr| address.is_ipv4() == (family == Family::V4);
            let addresses: Vec<IpAddr> = all.into_iter().filter(wanted).collect();
            if addresses.is_empty() {
                return Ok(Found::NoData);
            }
            Ok(Found::Addresses { addresses, ttl: 3600 })
        })
    }

    fn records<'a>(&'a self, asked: Question<'a>, kind: RecordType) -> Pending<'a, Result<Found, String>> {
        if let Some(recording) = &self.recording {
            return recording.records(asked, kind);
        }
        let name = asked.name;
        self.asked.lock().unwrap().push(format!("{name} {kind}"));
        let found = self.records.lock().unwrap().get(&(name.to_owned(), kind)).cloned();
        Box::pin(async move {
            Ok(found.map_or(Found::NoData, |record| Found::Records { records: vec![record], ttl: 3600 }))
        })
    }

    fn connect<'a>(&'a self, wanted: Wanted<'a>) -> Pending<'a, io::Result<OriginStream>> {
        if let Some(recording) = &self.recording {
            return recording.connect(wanted);
        }
        let destination = wanted.destination;
        let silent = self.silent.lock().unwrap().contains(&destination);
        let route = self.routes.lock().unwrap().get(&destination).copied();
        let route = route.or_else(|| destination.ip().is_loopback().then_some(destination));
        Box::pin(async move {
            if silent {
                std::future::pending::<()>().await;
            }
            match route {
                Some(route) => tokio::net::TcpStream::connect(route).await.map(OriginStream::from),
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }

    fn destination(&self, own: SocketAddr) -> SocketAddr {
        let destinations = self.destinations.lock().unwrap();
        destinations.get(&own.port()).copied().unwrap_or(own)
    }
}

/// A proxy that runs, and the ways in.
pub(super) struct Bench {
    pub(super) world: Arc<World>,
    pub(super) recorder: Recorder,
    pub(super) proxy: Option<Proxy>,
    /// The HTTP proxy's port.
    pub(super) http: SocketAddr,
    /// The name server, both carriers.
    pub(super) dns: SocketAddr,
    /// A listener for each transparent destination.
    pub(super) transparent: HashMap<SocketAddr, SocketAddr>,
    /// A listener for each loopback port.
    pub(super) loopback: HashMap<SocketAddr, SocketAddr>,
    /// What clients must trust, in PEM, where TLS is read.
    pub(super) authority: Option<String>,
    /// What the program has in place of secrets.
    pub(super) placeholders: Vec<(String, String)>,
}

/// What a bench is made of.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub(super) policy: &'a str,
    pub(super) names: &'a [(&'a str, &'a str)],
    /// Destination, and the server it leads to.
    pub(super) routes: &'a [(&'a str, Option<SocketAddr>)],
    pub(super) loopback: &'a [SocketAddr],
    pub(super) observe: bool,
    /// Variables of the launcher that hold secrets.
    pub(super) secrets: &'a [(&'a str, &'a str)],
    /// Reads TLS, and trusts these roots besides the host's.
    pub(super) tls: Option<&'a [CertificateDer<'static>]>,
    /// What signs for both a run and its replay.
    pub(super) authority: Option<&'a StoredAuthority>,
    /// Plays this.
    pub(super) replays: Option<&'a Arc<Recording>>,
}

/// The key of all redactors here, so that a replay hides what its recording hid in the same way.
const KEY: &[u8] = b"the same in each";

impl Bench {
    pub(super) fn start(plan: &Plan<'_>) -> Self {
        let recording = plan.replays.map(Arc::clone);
        let world = Arc::new(World { recording, ..World::default() });
        for (name, address) in plan.names {
            world.give(name, address);
        }
        let mut listeners = Listeners::default();
        let mut transparent = HashMap::new();
        for (destination, server) in plan.routes {
            let destination: SocketAddr = destination.parse().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let local = listener.local_addr().unwrap();
            transparent.insert(destination, local);
            world.destinations.lock().unwrap().insert(local.port(), destination);
            if let Some(server) = server {
                world.routes.lock().unwrap().insert(destination, *server);
            }
            listeners.transparent.push(listener.into());
        }
        let mut loopback = HashMap::new();
        for inside in plan.loopback {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            loopback.insert(*inside, listener.local_addr().unwrap());
            listeners.loopback.push((*inside, listener.into()));
        }
        let http = TcpListener::bind("127.0.0.1:0").unwrap();
        let http_address = http.local_addr().unwrap();
        listeners.proxy.push(http.into());
        let dns = add_name_server(&mut listeners);
        let recorder = Recorder::null();
        let spec = spec(listeners, plan, &recorder);
        let placeholders = spec.secrets.placeholders();
        let authority = spec.tls.as_ref().map(|tls| tls.authority.certificate_pem().to_owned());
        let proxy = start_with(spec, Arc::clone(&world) as Arc<dyn Outside>).unwrap();
        let proxy = Some(proxy);
        Self {
            world,
            recorder,
            proxy,
            http: http_address,
            dns,
            transparent,
            loopback,
            authority,
            placeholders,
        }
    }

    /// Connects as the program would connect to `destination`.
    pub(super) fn connect(&self, destination: &str) -> TcpStream {
        let local = self.transparent[&destination.parse().unwrap()];
        open(local)
    }

    pub(super) fn events(&self, op: &str) -> Vec<Event> {
        self.recorder.events().into_iter().filter(|event| event.op == op).collect()
    }

    /// Waits for `count` entries of one operation.
    pub(super) fn wait_for(&self, op: &str, count: usize) -> Vec<Event> {
        let start = Instant::now();
        loop {
            let events = self.events(op);
            if events.len() >= count {
                return events;
            }
            let all = self.recorder.events();
            assert!(start.elapsed() < PATIENCE, "{count} x {op} did not come: {all:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The targets that were denied, in order.
    pub(super) fn denied(&self) -> Vec<String> {
        let denials = self.recorder.events().into_iter();
        let denials = denials.filter(|event| event.kind == crate::trace::Kind::Deny);
        denials.map(|event| text(&event.args["target"])).collect()
    }

    pub(super) fn resolve(&self, name: &str) -> Vec<IpAddr> {
        names_query(self.dns, name, "A").1
    }

    pub(super) fn stop(&mut self) -> Result<(), NetproxyError> {
        self.proxy.take().unwrap().stop()
    }
}

/// Waits until something is so.
pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not so after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl World {
    pub(super) fn give(&self, name: &str, address: &str) {
        let mut names = self.names.lock().unwrap();
        names.entry(name.to_owned()).or_default().push(address.parse().unwrap());
    }
}

fn spec(listeners: Listeners, plan: &Plan<'_>, recorder: &Recorder) -> ProxySpec {
    let policy = policy(plan.policy);
    ProxySpec {
        listeners,
        recorder: recorder.clone(),
        redactor: Redactor::with_key(KEY),
        who: Arc::new(|_, _, _| Some("0.1".to_owned())),
        unread: Arc::new(|_, _| None),
        has_left: Arc::new(|_, _| false),
        enforce: !plan.observe,
        host_name: Some("sandbox".to_owned()),
        secrets: Secrets::gather(&policy, |name| {
            let value = plan.secrets.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| OsStr::new(*value))
        })
        .unwrap(),
        policy: Arc::new(policy),
        tls: plan.tls.map(|roots| Interception {
            authority: match plan.authority {
                Some(stored) => RunAuthority::restore(stored).unwrap(),
                None => new_authority(),
            },
            upstream_roots: roots.to_vec(),
        }),
        idle_timeout: None,
        upstream: plan.replays.map_or(Upstream::Live, |recording| Upstream::Recorded(Arc::clone(recording))),
        replayable: true,
    }
}

pub(super) fn new_authority() -> RunAuthority {
    RunAuthority::generate(AuthorityName::make().unwrap(), SystemTime::now()).unwrap()
}

pub(super) fn policy(text: &str) -> Policy {
    let host = LaunchHost::with("/".into(), Vec::new());
    parse(text, "t.policy", &host).unwrap_or_else(|report| panic!("{}", report.render(false)))
}

/// A name server on one port for both carriers. The socket is a wildcard, as it is inside.
fn add_name_server(listeners: &mut Listeners) -> SocketAddr {
    loop {
        let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = udp.local_addr().unwrap().port();
        if let Ok(tcp) = TcpListener::bind(("127.0.0.1", port)) {
            listeners.dns_udp.push(udp.into());
            listeners.dns_tcp.push(tcp.into());
            return SocketAddr::from(([127, 0, 0, 1], port));
        }
    }
}

pub(super) fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// A server that answers each connection with `serve`, on a thread of its own.
pub(super) fn server(serve: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                serve(stream);
            });
        }
    });
    address
}

/// An HTTP server that keeps connections open and tells back the head and body of each request.
pub(super) fn mirror() -> SocketAddr {
    server(|mut stream| {
        while let Some((head, body)) = read_request(&mut stream) {
            let answer = format!("{head}{}", String::from_utf8_lossy(&body));
            let length = answer.len();
            let bare = head.starts_with("HEAD");
            let answer = if bare { String::new() } else { answer };
            let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{answer}");
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// Reads one request with a plain or chunked body (kept as it is on the wire).
pub(super) fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let head = read_head(stream)?;
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if lower.contains("transfer-encoding: chunked") {
        while !body.ends_with(b"0\r\n\r\n") {
            body.push(read_byte(stream)?);
        }
    } else if let Some((_, rest)) = lower.split_once("content-length: ") {
        let length = rest.split("\r\n").next()?.parse().ok()?;
        body.resize(length, 0);
        stream.read_exact(&mut body).ok()?;
    }
    Some((head, body))
}

/// Reads up to the empty line.
pub(super) fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(read_byte(stream)?);
    }
    String::from_utf8(head).ok()
}

/// Reads a response with a Content-Length.
pub(super) fn read_response(stream: &mut TcpStream) -> (String, String) {
    let head = read_head(stream).expect("a response");
    let lower = head.to_ascii_lowercase();
    let mut body = Vec::new();
    if let Some((_, rest)) = lower.split_once("content-length: ") {
        let length = rest.split("\r\n").next().unwrap().parse().unwrap();
        body.resize(length, 0);
        stream.read_exact(&mut body).unwrap();
    }
    (head, String::from_utf8(body).unwrap())
}

fn read_byte(stream: &mut TcpStream) -> Option<u8> {
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    Some(byte[0])
}
