//! TLS to the host's own servers, read by a run: what the client gets, and what the trace says.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use tempfile::TempDir;
use time::OffsetDateTime;

use crate::support::{Ran, Sandbox, everyone, has, skip};

/// Says `page` to whatever is asked, over TLS with the files of its directory; tells its port first.
const ORIGIN: &str = "\
import http.server, ssl, sys
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', '5')
        self.end_headers()
        self.wfile.write(b'page\\n')
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Page)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + '/chain.pem', sys.argv[1] + '/key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";

/// Offers TLS without a name, the first byte long before the others, and tells whether the origin answers.
const LATE: &str = "\
import socket, ssl, sys, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
answers, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
try:
    context.wrap_bio(answers, hello, server_hostname='other.test').do_handshake()
except ssl.SSLWantReadError:
    pass
hello = hello.read()
stream = socket.create_connection(('localhost', int(sys.argv[1])))
stream.sendall(hello[:1])
time.sleep(2.5)
try:
    stream.sendall(hello[1:])
    print('answered' if stream.recv(1) else 'closed')
except ConnectionError:
    print('reset')
";

/// What an origin shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Good,
    Expired,
    OtherName,
    SelfSigned,
}

/// A server on the host's loopback.
pub(crate) struct Origin {
    directory: TempDir,
    process: Child,
    port: u16,
}

impl Origin {
    pub(crate) fn start(shown: Shown) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        certify(&directory, shown);
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", ORIGIN]).arg(directory.path()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        Self { directory, process, port: line.trim().parse().expect("a port") }
    }

    fn authority(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// Runs curl for a page of it; `{}` in the policy is its address.
    pub(crate) fn curl(&self, sandbox: &Sandbox, policy: &str, options: &[&str], curl: &[&str]) -> Ran {
        let at = format!("localhost:{}", self.port);
        sandbox.policy(&format!("exec: curl\n{}\n", policy.replace("{}", &at)));
        let authority = self.authority();
        let mut all = vec!["--upstream-ca", authority.to_str().expect("text")];
        all.extend(options);
        let url = format!("https://{at}/page");
        let mut words = vec!["curl", "-sS", "--max-time", "20"];
        words.extend(curl);
        words.push(&url);
        sandbox.run_with(&all, &words)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An authority, and a certificate for `localhost` that it signed, or did not.
pub(crate) fn certify(directory: &TempDir, shown: Shown) {
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
    };
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Authority of a test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed");
    let key = KeyPair::generate().expect("a key");
    let name = if shown == Shown::OtherName { "other.test" } else { "localhost" };
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    if shown != Shown::OtherName {
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::from([127, 0, 0, 1])));
    }
    if shown == Shown::Expired {
        params.not_before = OffsetDateTime::now_utc() - Duration::from_secs(20 * 86_400);
        params.not_after = OffsetDateTime::now_utc() - Duration::from_secs(10 * 86_400);
    }
    let leaf = match shown {
        Shown::SelfSigned => params.self_signed(&key),
        _ => params.signed_by(&key, &authority),
    };
    write("authority.pem", authority.pem());
    write("chain.pem", leaf.expect("signed").pem());
    write("key.pem", key.serialize_pem());
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// Runs `test` with an origin, where there is a curl.
fn with_origin(shown: Shown, test: impl Fn(&Sandbox, &Origin)) {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let origin = Origin::start(shown);
    everyone(|sandbox| test(sandbox, &origin));
}

#[test]
fn https_is_read_and_recorded() {
    with_origin(Shown::Good, |sandbox, origin| {
        for version in ["--http1.1", "--http2"] {
            let ran = origin.curl(sandbox, "net: {}", &[], &[version]);
            ran.exits(0).prints("page\n").denied_nothing();
            let exchange = ran.recorded("http.exchange", "url", "/page");
            assert_eq!(exchange["args"]["url"], format!("https://localhost:{}/page", origin.port), "{ran}");
            let result = &exchange["result"];
            assert_eq!(
                (&result["status"], &result["tls"]["sni"]),
                (&200.into(), &"localhost".into()),
                "{ran}"
            );
            assert_eq!(result["tls"]["verified"], true, "{ran}");
            assert_eq!(exchange["proc"], "0", "{ran}");
            assert!(
                exchange["rule"].as_str().is_some_and(|rule| rule.ends_with("agentbox.policy:2")),
                "{ran}"
            );
        }
    });
}

#[test]
fn an_address_needs_no_server_name() {
    with_origin(Shown::Good, |sandbox, origin| {
        let url = format!("https://127.0.0.1:{}/address", origin.port);
        let ran = origin.curl(sandbox, "net: {}", &[], &[&url]);
        ran.exits(0).prints("page\npage\n");
        ran.recorded("http.exchange", "url", &url);
    });
}

#[test]
fn what_an_origin_cannot_prove_is_answered_with_502() {
    let cases = [
        (Shown::Expired, "expired"),
        (Shown::OtherName, "not valid for"),
        (Shown::SelfSigned, "signed by no authority"),
    ];
    for (shown, reason) in cases {
        with_origin(shown, |sandbox, origin| {
            let ran = origin.curl(sandbox, "net: {}", &[], &["-w", "%{http_code}"]);
            ran.exits(0);
            assert!(ran.stdout.ends_with("502") && ran.stdout.contains(reason), "{ran}");
            let told = ran.stderr.lines().filter(|line| line.starts_with("agentbox: TLS with localhost at "));
            let told: Vec<_> = told.filter(|line| line.contains(reason)).collect();
            assert_eq!(told.len(), 1, "{ran}");
            assert_eq!(
                told[0].contains("`--upstream-ca FILE` adds one"),
                shown == Shown::SelfSigned,
                "{ran}"
            );
            let result = &ran.recorded("http.exchange", "url", "/page")["result"];
            assert!(result["error"].as_str().is_some_and(|error| error.contains(reason)), "{ran}");
            assert!(result.get("status").is_none(), "{ran}");
        });
    }
}

#[test]
fn a_tunnel_is_relayed_unread() {
    with_origin(Shown::Good, |sandbox, origin| {
        for (policy, options) in [("net: {} tunnel", &[][..]), ("net: {}", &["--no-intercept"][..])] {
            let ran = origin.curl(sandbox, policy, options, &["-k"]);
            ran.exits(0).prints("page\n").denied_nothing();
            assert!(ran.of("http.exchange").is_empty(), "{ran}");
            let stream = &ran.of("net.stream")[0]["result"];
            assert_eq!((&stream["protocol"], &stream["sni"]), (&"tls".into(), &"localhost".into()), "{ran}");
            assert!(stream["transcript"]["size"].as_u64().is_some_and(|size| size > 500), "{ran}");
            // The client sees the origin's own certificate.
            let ran = origin.curl(sandbox, policy, options, &[]);
            ran.exits(60);
            let connect_to = format!("other.test:443:localhost:{}", origin.port);
            let ran = origin.curl(
                sandbox,
                policy,
                options,
                &["-k", "--connect-to", &connect_to, "https://other.test"],
            );
            ran.denied("net", &format!("other.test:{}", origin.port));
        }
    });
}

#[test]
fn another_server_name_gets_no_handshake() {
    with_origin(Shown::Good, |sandbox, origin| {
        let connect_to = format!("other.test:443:localhost:{}", origin.port);
        let other = ["-k", "--connect-to", &connect_to, "https://other.test"];
        let ran = origin.curl(sandbox, "net: {}", &[], &other);
        ran.denied("net", &format!("other.test:{}", origin.port));
        assert_eq!(ran.of("http.exchange").len(), 1, "only the page of localhost\n{ran}");
    });
}

#[test]
fn tls_that_begins_late_is_not_passed_on() {
    let origin = Origin::start(Shown::Good);
    everyone(|sandbox| {
        let port = origin.port.to_string();
        sandbox.policy(&format!("exec: python3\nnet: localhost:{port}\n"));
        let ran = sandbox.run(&["python3", "-c", LATE, &port]);
        ran.exits(0).prints("reset\n").denied("net", &format!("localhost:{port}"));
    });
}

#[test]
fn a_client_that_pins_is_told_of_tunnels() {
    with_origin(Shown::Good, |sandbox, origin| {
        let authority = sandbox.file("pinned.pem", fs::read(origin.authority()).expect("a file"));
        let pinned = ["--cacert", authority.to_str().expect("text")];
        let ran = origin.curl(sandbox, "net: {}\nread: .", &[], &pinned);
        ran.exits(60).denied("net", &format!("localhost:{}", origin.port));
        ran.complains(&format!("net: localhost:{} tunnel", origin.port));
        let ran = origin.curl(sandbox, "net: {} tunnel\nread: .", &[], &pinned);
        ran.exits(0).prints("page\n").denied_nothing();
    });
}

#[test]
fn what_cannot_be_done_is_said_before_the_start() {
    everyone(|sandbox| {
        let empty = sandbox.file("empty.pem", "");
        let empty = empty.to_str().expect("text");
        for (file, reason) in [("absent.pem", "No such file"), (empty, "holds no certificate")] {
            let ran = sandbox.run_with(&["--upstream-ca", file], &["true"]);
            ran.exits(2).complains(&format!("agentbox: --upstream-ca: {file}: ")).complains(reason);
            assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
        }
        sandbox.policy("net: api.test");
        let directory = sandbox.path("");
        for (file, reason) in
            [("absent.pem", "No such file"), (directory.to_str().expect("text"), "directory")]
        {
            sandbox.environment("SSL_CERT_FILE", file);
            let ran = sandbox.run(&["true"]);
            ran.exits(2).complains(&format!("agentbox: SSL_CERT_FILE: {file}: ")).complains(reason);
            assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
            // Nothing is verified there.
            sandbox.run_with(&["--no-intercept"], &["true"]).exits(0);
        }
        sandbox.policy("net: GET api.test/v1/**");
        sandbox.run_with(&["--no-intercept"], &["true"]).exits(2).complains("cannot be held");
    });
}

#[test]
fn the_head_of_the_trace_says_whether_tls_is_read() {
    everyone(|sandbox| {
        let head = |ran: &Ran| ran.of("run.start")[0]["args"]["capture"]["tls"].clone();
        sandbox.policy("net: a.test");
        assert_eq!(head(&sandbox.run(&["true"])), "enforced, recorded, replayable");
        let unread = "server names judged, bytes recorded unread, replayable";
        assert_eq!(head(&sandbox.run_with(&["--no-intercept"], &["true"])), unread);
        sandbox.policy("net: a.test tunnel");
        assert_eq!(head(&sandbox.run(&["true"])), unread);
    });
}

#[test]
fn silence_within_tls_has_its_limit_too() {
    with_origin(Shown::Good, |sandbox, origin| {
        let program = format!(
            "\
import socket, ssl
plain = socket.create_connection(('localhost', {port}))
s = ssl.create_default_context().wrap_socket(plain, server_hostname='localhost', suppress_ragged_eofs=False)
s.sendall(b'GET / HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n')
try:
    while s.recv(100):
        pass
    assert False, 'it was closed in order'
except OSError:
    pass",
            port = origin.port
        );
        sandbox.policy(&format!("net: localhost:{}\n", origin.port));
        let authority = origin.authority();
        let options = ["--upstream-ca", authority.to_str().expect("text"), "--idle-timeout", "1s"];
        let ran = sandbox.run_with(&options, &["python3", "-c", &program]);
        ran.exits(0);
        assert_eq!(ran.of("http.exchange")[0]["result"]["status"], 200, "{ran}");
        assert_eq!(
            ran.of("net.stream").last().map(|stream| &stream["result"]["failure"]["kind"]),
            Some(&"idle".into()),
            "{ran}"
        );
    });
}
