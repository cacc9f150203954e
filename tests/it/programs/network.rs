//! Clients of a server on the host's loopback, servers inside, and names that nothing allows.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::{LITERAL, shell};
use crate::support::{everyone, has, skip};

/// Gives `page` to whoever asks on 127.0.0.1 alone, as many development servers do; ends with the tests.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // A client that goes away has what it wanted.
                let _ = client.read(&mut [0; 4096]);
                let _ = client
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\npage\n");
            });
        }
    });
    port
}

const JAVA: &str = "import java.net.*; import java.net.http.*;
public class C { public static void main(String[] a) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(a[0])).build();
    System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body()); } }";

/// How each client fetches the address in `$1`.
const CLIENTS: &[(&str, &str)] = &[
    ("curl", "curl -sS -m 20 $1"),
    ("wget", "wget -qO- -T 20 -t 1 $1"),
    (
        "python3",
        "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end=\"\")' $1",
    ),
    ("node", "node -e 'fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))' $1"),
    ("java", "java C.java $1"),
];

#[test]
fn clients_reach_a_loopback_server_of_the_host_by_address_and_by_name() {
    let port = serve();
    everyone(|sandbox| {
        sandbox.file("C.java", JAVA);
        for host in ["localhost", "127.0.0.1"] {
            sandbox.policy(&format!("{LITERAL}net: {host}:{port}\n"));
            for (client, fetch) in CLIENTS {
                if !has(client) {
                    skip(client, "it is not installed");
                    continue;
                }
                let url = format!("http://{host}:{port}/");
                sandbox.run(&["sh", "-c", fetch, "sh", &url]).exits(0).prints("page\n");
            }
        }
    });
}

#[test]
fn git_clones_over_http_from_the_host() {
    if !has("git") || !has("python3") {
        return skip("git", "git or python3 is not installed");
    }
    everyone(|sandbox| {
        let prepare =
            "git init -q g && cd g && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first
            cd .. && git clone -q --bare g served/g.git && git -C served/g.git update-server-info";
        sandbox.directory("served");
        let mut git = std::process::Command::new("sh");
        git.args(["-ec", prepare]).current_dir(sandbox.path("")).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(git.status().expect("git").success());
        let mut server = std::process::Command::new("python3")
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", "served", "0"])
            .current_dir(sandbox.path(""))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a server");
        let mut line = [0; 64];
        let length = server.stdout.as_mut().expect("its words").read(&mut line).expect("its port");
        let line = String::from_utf8_lossy(&line[..length]).into_owned();
        let port = line.split_whitespace().skip_while(|word| *word != "port").nth(1).expect("a port");
        sandbox.policy(&format!("{LITERAL}net: 127.0.0.1:{port}\n")).directory("out");
        let ran = shell(
            sandbox,
            &format!("git clone -q http://127.0.0.1:{port}/g.git out/c; git -C out/c log --format=%s"),
        );
        let _ = server.kill();
        let _ = server.wait();
        ran.exits(0).prints("first\n");
    });
}

#[test]
fn servers_inside_are_reached_inside_by_every_name_of_theirs() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy(LITERAL).file("f", "x");
        let ran = sandbox.python(
            "import http.server, socket, threading, urllib.request
for host in ('127.0.0.1', '0.0.0.0', '::'):
    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ':' in host else socket.AF_INET
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words): pass
    server = Server((host, 0), Quiet); threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ('127.0.0.1', 'localhost', '0.0.0.0', socket.gethostname()):
        print(urllib.request.urlopen(f'http://{name}:{server.server_address[1]}/f').status, end=' ')
for family, host in ((socket.AF_INET, '127.0.0.7'), (socket.AF_INET6, '::1')):
    one = socket.socket(family, socket.SOCK_DGRAM); one.bind((host, 0))
    socket.socket(family, socket.SOCK_DGRAM).sendto(b'datagram', one.getsockname()); print(one.recv(9))",
        );
        ran.exits(0).prints(&format!("{}b'datagram'\nb'datagram'\n", "200 ".repeat(12)));
        assert!(ran.denials("net").is_empty(), "{ran}");
    });
}

/// How each client asks for a name.
const LOOKUPS: &[(&str, &str)] = &[
    ("getent", "getent hosts nosuch.example.org"),
    ("curl", "curl -sS --noproxy '*' http://nosuch.example.org"),
    ("python3", "python3 -c 'import socket; socket.getaddrinfo(\"nosuch.example.org\", 80)'"),
    ("node", "node -e 'require(\"dns\").lookup(\"nosuch.example.org\", e => process.exit(e ? 1 : 0))'"),
    ("busybox", "busybox nslookup nosuch.example.org"),
    ("ssh", "ssh -o BatchMode=yes nosuch.example.org"),
];

#[test]
fn a_name_that_nothing_allows_fails_at_once_and_is_named_at_the_end() {
    everyone(|sandbox| {
        sandbox.policy(LITERAL);
        for (client, lookup) in LOOKUPS {
            if !has(client) {
                skip(client, "it is not installed");
                continue;
            }
            let start = Instant::now();
            let ran = sandbox.run(&["sh", "-c", lookup]);
            assert_ne!(ran.code, 0, "{ran}");
            assert!(start.elapsed() < Duration::from_secs(10), "{ran}");
            ran.complains("net nosuch.example.org (to allow it: net: nosuch.example.org)");
        }
    });
}
