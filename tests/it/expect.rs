//! Clients over HTTP/2 that wait until they are told to go on, and that hear what precedes an answer.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, Response, StatusCode};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use crate::support::{Sandbox, Server, copy_program, everyone, has, skip};
use crate::tls::{Shown, certify};

/// What each client sends; each would wait for five minutes.
const SENT: usize = 3 << 20;

const GO: &str = "package main
import (\"bytes\"; \"fmt\"; \"io\"; \"net/http\"; \"os\"; \"time\")
func main() {
    transport := &http.Transport{ForceAttemptHTTP2: true, ExpectContinueTimeout: 300 * time.Second, Proxy: nil}
    for _, url := range os.Args[1:] {
        request, _ := http.NewRequest(\"POST\", url, bytes.NewReader(make([]byte, 3 << 20)))
        request.Header.Set(\"Expect\", \"100-continue\")
        answer, err := transport.RoundTrip(request)
        if err != nil { panic(err) }
        body, _ := io.ReadAll(answer.Body)
        if answer.StatusCode == 200 { fmt.Println(answer.StatusCode, string(body))
        } else { fmt.Println(answer.StatusCode) }
    }
}";

const JAVA: &str = "import java.net.*; import java.net.http.*; import java.time.*;
public class C { public static void main(String[] a) throws Exception {
    var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).build();
    for (var url : a) {
        var body = HttpRequest.BodyPublishers.ofByteArray(new byte[3 << 20]);
        var request = HttpRequest.newBuilder(URI.create(url)).expectContinue(true).timeout(Duration.ofSeconds(300))
            .POST(body).build();
        var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.statusCode() + \" \" + answer.body());
    } } }";

/// An origin on the host's loopback that speaks HTTP/2 alone.
struct Origin {
    directory: TempDir,
    server: Server,
}

impl Origin {
    fn start() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        certify(&directory, Shown::Good);
        let at = |name: &str| directory.path().join(name);
        let chain = CertificateDer::pem_file_iter(at("chain.pem")).expect("a file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(at("key.pem")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key).expect("a configuration");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let server = Server::start(0, move |stream, _| serve(stream, &acceptor));
        Self { directory, server }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.server.port)
    }
}

fn serve(stream: TcpStream, acceptor: &TlsAcceptor) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        stream.set_nonblocking(true).expect("a socket");
        let stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, respond))) = connection.accept().await {
            tokio::spawn(answer(request, respond));
        }
    });
}

/// Says how much has come, after a hint where the path asks for one.
async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Option<()> {
    if request.uri().path().ends_with("/hint") {
        let hint =
            Response::builder().status(StatusCode::EARLY_HINTS).header("link", "</a.css>; rel=preload");
        respond.send_informational(hint.body(()).ok()?).ok()?;
    }
    let mut body = request.into_body();
    let mut length = 0;
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        length += data.len();
        body.flow_control().release_capacity(data.len()).ok()?;
    }
    let mut stream = respond.send_response(Response::new(()), false).ok()?;
    stream.send_data(length.to_string().into(), true).ok()
}

/// Records `words`, which post to these paths, of which those below /no are refused; and replays it.
fn waits(sandbox: &Sandbox, origin: &Origin, words: &[&str], paths: &[&str]) {
    let urls: Vec<String> = paths.iter().map(|path| origin.url(path)).collect();
    let at = format!("localhost:{}", origin.server.port);
    sandbox.policy(&format!("read: .\nwrite: ./out\nexec: /**\nnet: POST {at}/ok/**\n")).directory("out");
    let authority = origin.directory.path().join("authority.pem");
    let options = ["--upstream-ca", authority.to_str().expect("text")];
    let begun = Instant::now();
    let all: Vec<&str> = words.iter().copied().chain(urls.iter().map(String::as_str)).collect();
    let ran = sandbox.run_with(&options, &all);
    let took = begun.elapsed();
    let said =
        |path: &&str| if path.starts_with("/ok") { format!("200 {SENT}\n") } else { "403\n".to_owned() };
    let expected: String = paths.iter().map(said).collect();
    ran.exits(0).prints(&expected);
    assert!(took < Duration::from_secs(80), "it took {took:?}\n{ran}");
    let exchange = ran.recorded("http.exchange", "url", paths[0]);
    assert_eq!(exchange["args"]["version"], "HTTP/2.0", "{ran}");
    if paths[0].ends_with("/hint") {
        assert_eq!(exchange["result"]["informational"][0]["status"], 103, "{ran}");
    }
    origin.server.forget();
    let trace = sandbox.trace();
    let again = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
    again.exits(0).prints(&expected).complains("replay ok");
    assert_eq!(origin.server.accepted(), 0, "a replay went out");
}

#[test]
fn curl() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let origin = Origin::start();
    everyone(|sandbox| {
        sandbox.file("sent", vec![0; SENT]);
        let script = "for url; do code=$(curl -sS --http2 -H 'Expect: 100-continue' --expect100-timeout 300 \
             --data-binary @sent -o out/said -w '%{http_code}' $url)
             if [ $code = 200 ]; then echo $code $(cat out/said); else echo $code; fi; done";
        waits(sandbox, &origin, &["sh", "-ec", script, "sh"], &["/ok/hint", "/no"]);
    });
}

#[test]
fn go() {
    if !has("go") {
        return skip("go", "it is not installed");
    }
    let (origin, directory) = (Origin::start(), tempfile::tempdir_in("/var/tmp").expect("a directory"));
    let program = built(directory.path());
    everyone(|sandbox| {
        copy_program(&program, sandbox.path("client"));
        waits(sandbox, &origin, &["./client"], &["/ok/hint", "/no"]);
    });
}

fn built(directory: &Path) -> std::path::PathBuf {
    let (source, program) = (directory.join("client.go"), directory.join("client"));
    fs::write(&source, GO).expect("a file");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(&source).env("CGO_ENABLED", "0");
    assert!(go.status().expect("go starts").success());
    program
}

#[test]
fn java() {
    if !has("javac") {
        return skip("javac", "it is not installed");
    }
    let origin = Origin::start();
    everyone(|sandbox| {
        let source = sandbox.file("C.java", JAVA);
        assert!(Command::new("javac").arg(source).status().expect("javac").success());
        // The client of Java 17 waits for ever for a 100 that it is not told, and takes a 103 for the answer.
        waits(sandbox, &origin, &["java", "-cp", ".", "C"], &["/ok/page"]);
    });
}
