//! Streams that are not HTTP: opaque bytes, server-first protocols, TLS, Unix sockets, datagrams.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::client::Client;
use super::super::egress::Egress;
use super::super::flow::Door;
use super::super::secret::Secrets;
use super::super::{Listeners, ProxySpec, Upstream, start, stream};
use super::world::{Bench, PUBLIC, Plan, open, server};
use crate::trace::Recorder;
use crate::trace::redact::Redactor;

const TLS: &str = "93.184.216.34:443";
const ECHO: &str = "93.184.216.34:7";

fn echo() -> SocketAddr {
    server(|mut stream| {
        let mut bytes = Vec::new();
        if stream.read_to_end(&mut bytes).is_ok() {
            let _ = stream.write_all(&bytes);
        }
    })
}

#[test]
fn what_nothing_allows_is_reset_at_once() {
    let bench = Bench::start(&Plan { routes: &[(ECHO, Some(echo()))], ..Plan::default() });
    let mut stream = bench.connect(ECHO);
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(bench.denied(), [ECHO]);
    assert!(bench.events("net.connect").is_empty());
}

#[test]
fn a_name_opens_its_address_only_once_it_was_resolved() {
    let bench = Bench::start(&Plan {
        policy: "net: a.test:7",
        names: &[("a.test", PUBLIC)],
        routes: &[(ECHO, Some(echo())), ("93.184.216.34:8", Some(echo()))],
        ..Plan::default()
    });
    assert!(bench.connect(ECHO).read(&mut [0]).is_err());
    bench.resolve("a.test");
    let mut stream = bench.connect(ECHO);
    stream.write_all(b"\x00hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"\x00hello");
    let end = &bench.wait_for("net.stream", 1)[0];
    let result = end.result.as_ref().unwrap();
    assert_eq!((&result["up"], &result["down"], &result["end"]), (&6.into(), &6.into(), &"closed".into()));
    assert_eq!(end.args["names"], serde_json::json!(["a.test"]));
    assert!(bench.connect("93.184.216.34:8").read(&mut [0]).is_err());
    assert_eq!(bench.denied(), [ECHO, "a.test:8"]);
}

#[test]
fn a_server_may_speak_first() {
    let banner = server(|mut stream| {
        let _ = stream.write_all(b"SSH-2.0-test\r\n");
        let _ = stream.read(&mut [0; 16]);
    });
    let bench = Bench::start(&Plan {
        policy: "net: 93.184.216.34:7",
        routes: &[(ECHO, Some(banner))],
        ..Plan::default()
    });
    let mut stream = bench.connect(ECHO);
    let mut line = [0; 14];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"SSH-2.0-test\r\n");
}

#[test]
fn text_that_is_no_request_passes_after_a_while() {
    let greeter = server(|mut stream| {
        let mut word = [0; 5];
        if stream.read_exact(&mut word).is_ok() {
            let _ = stream.write_all(&word);
        }
    });
    let bench = Bench::start(&Plan {
        policy: "net: 93.184.216.34:7",
        routes: &[(ECHO, Some(greeter))],
        ..Plan::default()
    });
    let mut stream = bench.connect(ECHO);
    stream.write_all(b"hello").unwrap();
    let mut word = [0; 5];
    stream.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"hello");
}

#[test]
fn a_slow_reader_holds_back_the_server() {
    const SIZE: usize = 64 << 20;
    let source = server(|mut stream| {
        let _ = stream.write_all(&vec![7; SIZE]);
    });
    let bench = Bench::start(&Plan {
        policy: "net: 93.184.216.34:7",
        routes: &[(ECHO, Some(source))],
        ..Plan::default()
    });
    let mut stream = bench.connect(ECHO);
    std::thread::sleep(Duration::from_millis(200));
    let before = bench.proxy.as_ref().unwrap().egress.moved.load(std::sync::atomic::Ordering::Relaxed);
    assert!(before < 32 << 20, "{before} bytes went into a stream that nobody reads");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), SIZE);
}

#[test]
fn the_end_of_the_run_ends_streams_and_records_them() {
    let silent = server(|mut stream| {
        let _ = stream.read(&mut [0]);
    });
    let mut bench = Bench::start(&Plan {
        policy: "net: 93.184.216.34:7",
        routes: &[(ECHO, Some(silent))],
        ..Plan::default()
    });
    let stream = bench.connect(ECHO);
    bench.wait_for("net.connect", 1);
    // It fails where that takes long.
    bench.stop().unwrap();
    let end = &bench.events("net.stream")[0];
    assert_eq!(end.result.as_ref().unwrap()["end"], "the run ended");
    drop(stream);
}

#[test]
fn what_was_sent_before_the_end_is_delivered() {
    let (report, delivered) = std::sync::mpsc::channel();
    let sink = server(move |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = report.send(bytes.len());
    });
    let mut bench = Bench::start(&Plan {
        policy: "net: 93.184.216.34:7",
        routes: &[(ECHO, Some(sink))],
        ..Plan::default()
    });
    let mut stream = bench.connect(ECHO);
    stream.write_all(&[1; 100_000]).unwrap();
    drop(stream);
    bench.stop().unwrap();
    assert_eq!(delivered.recv_timeout(Duration::from_secs(5)).unwrap(), 100_000);
}

/// An `openssl s_server` that answers HTTP, ended when dropped.
struct TlsServer {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl TlsServer {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (key, certificate) = (path("key"), path("certificate"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args(["-subj", "/CN=a.test", "-days", "2", "-keyout", &key, "-out", &certificate])
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("openssl")
            .args(["s_server", "-quiet", "-www", "-accept", &format!("127.0.0.1:{port}")])
            .args(["-key", &key, "-cert", &certificate])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, address, _directory: directory }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether curl got an answer over TLS from `host`, connecting to `local`.
fn tls_get(local: SocketAddr, host: &str) -> bool {
    let output = Command::new("curl")
        .args(["-sk", "--noproxy", "*", "--max-time", "10", "-o", "/dev/null"])
        .args(["--connect-to", &format!("{host}:443:127.0.0.1:{}", local.port())])
        .arg(format!("https://{host}/"))
        .status();
    output.unwrap().success()
}

#[test]
fn the_tls_server_name_must_be_one_that_was_granted() {
    let origin = TlsServer::start();
    let bench = Bench::start(&Plan {
        policy: "net: a.test\nnet: b.test:443",
        names: &[("a.test", PUBLIC), ("b.test", "93.184.216.99")],
        routes: &[(TLS, Some(origin.address))],
        ..Plan::default()
    });
    bench.resolve("a.test");
    bench.resolve("b.test");
    let local = bench.transparent[&TLS.parse().unwrap()];
    assert!(tls_get(local, "a.test"));
    assert!(!tls_get(local, "evil.test"), "a name that no rule allows");
    assert!(!tls_get(local, "b.test"), "a name that leads elsewhere");
    assert!(!tls_get(local, "93.184.216.34"), "no name at all");
    assert_eq!(bench.denied(), ["evil.test:443", "b.test:443", TLS]);
    let streams = bench.wait_for("net.stream", 4);
    let first = streams[0].result.as_ref().unwrap();
    assert_eq!((&first["sni"], &first["protocol"]), (&"a.test".into(), &"tls".into()));
}

#[test]
fn a_rule_for_the_address_needs_no_server_name() {
    let origin = TlsServer::start();
    let bench = Bench::start(&Plan {
        policy: "net: 93.184.216.34:443",
        routes: &[(TLS, Some(origin.address))],
        ..Plan::default()
    });
    let local = bench.transparent[&TLS.parse().unwrap()];
    assert!(tls_get(local, "93.184.216.34"));
    assert!(!tls_get(local, "a.test"), "a name that no rule allows");
}

#[test]
fn a_broken_hello_is_refused() {
    let bench = Bench::start(&Plan {
        policy: "net: a.test",
        names: &[("a.test", PUBLIC)],
        routes: &[(TLS, Some(echo()))],
        ..Plan::default()
    });
    bench.resolve("a.test");
    let mut stream = bench.connect(TLS);
    stream.write_all(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00").unwrap();
    assert!(stream.read(&mut [0]).is_err());
    assert_eq!(bench.denied(), ["a.test:443"]);
}

#[test]
fn a_host_unix_socket_is_relayed() {
    let directory = tempfile::tempdir().unwrap();
    let (host, inside) = (directory.path().join("host"), directory.path().join("inside"));
    let service = UnixListener::bind(&host).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = service.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let listener = UnixListener::bind(&inside).unwrap();
    let recorder = Recorder::null();
    let listeners = Listeners { unix: vec![(host.clone(), listener.into())], ..Listeners::default() };
    let policy = format!("net: unix:{}", host.display());
    let proxy = start(bare_spec(listeners, &policy, &recorder)).unwrap();
    let mut stream = UnixStream::connect(&inside).unwrap();
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
    proxy.stop().unwrap();
    let events = recorder.events();
    assert!(events.iter().any(|event| event.op == "net.stream" && event.args["via"] == "unix"));
}

#[test]
fn a_datagram_goes_nowhere_and_is_recorded() {
    let trap = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = trap.local_addr().unwrap();
    let recorder = Recorder::null();
    let listeners = Listeners { udp_trap: vec![trap.into()], ..Listeners::default() };
    let proxy = start(bare_spec(listeners, "", &recorder)).unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", address).unwrap();
    let start = Instant::now();
    while recorder.events().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(recorder.events()[0].args["target"], format!("udp:localhost:{}", address.port()));
    proxy.stop().unwrap();
}

fn bare_spec(listeners: Listeners, policy: &str, recorder: &Recorder) -> ProxySpec {
    ProxySpec {
        listeners,
        policy: Arc::new(super::world::policy(policy)),
        recorder: recorder.clone(),
        redactor: Redactor::new().unwrap(),
        who: Arc::new(|_, _, _| None),
        unread: Arc::new(|_, _| None),
        has_left: Arc::new(|_, _| false),
        enforce: true,
        host_name: None,
        tls: None,
        secrets: Secrets::default(),
        idle_timeout: None,
        upstream: Upstream::Live,
        replayable: false,
    }
}

#[test]
fn loopback_ports_of_the_host_are_reached_by_rule() {
    let service = echo();
    let other = echo();
    let bench = Bench::start(&Plan {
        policy: &format!("net: localhost:{}", service.port()),
        loopback: &[service, other],
        ..Plan::default()
    });
    let mut stream = open(bench.loopback[&service]);
    stream.write_all(b"\x01").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"\x01");
    assert!(open(bench.loopback[&other]).read(&mut [0]).is_err());
    assert_eq!(bench.denied(), [format!("localhost:{}", other.port())]);
}

#[test]
fn a_loopback_port_leads_to_the_family_that_listens() {
    let service = echo();
    let inside = SocketAddr::new("::1".parse().unwrap(), service.port());
    let send = |policy: &str| {
        let bench = Bench::start(&Plan { policy, loopback: &[inside], ..Plan::default() });
        let mut stream = open(bench.loopback[&inside]);
        let mut answer = Vec::new();
        // Refused: a reset, at any of these.
        let _ = stream.write_all(b"\x00here");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    assert_eq!(send(&format!("net: localhost:{}", service.port())), b"\x00here");
    let refused = format!("net: localhost:{0}\ndeny: net 127.0.0.1:{0}", service.port());
    assert_eq!(send(&refused), b"");
}

#[test]
fn a_stream_that_waits_takes_little_room() {
    fn size<F>(_: impl FnOnce(Arc<Egress>, Client, SocketAddr, Door) -> F) -> usize {
        size_of::<F>()
    }
    assert!(size(stream::accept) < 2048, "{} bytes", size(stream::accept));
}
