//! SOCKS on the proxy's port, spoken by real clients inside.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::support::{everyone, has, skip};

/// Answers each request with its first line; ends with the tests.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let length = client.read(&mut request).unwrap_or(0);
                let line = request[..length].split(|byte| *byte == b'\r').next().unwrap_or_default();
                let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", line.len() + 1);
                // A client that goes away has what it wanted.
                let _ = client.write_all(&[head.as_bytes(), line, b"\n"].concat());
            });
        }
    });
    port
}

/// How each client fetches `/p` from the port `$1` of localhost through the SOCKS proxy `$2`.
const CLIENTS: [(&str, &str); 5] = [
    ("curl", "curl -sS -m 20 --noproxy '' --socks5-hostname $2 http://localhost:$1/p"),
    ("curl", "curl -sS -m 20 --noproxy '' --socks5 u:p@$2 http://localhost:$1/p"),
    ("curl", "curl -sS -m 20 --noproxy '' --socks4a $2 http://localhost:$1/p"),
    ("curl", "curl -sS -m 20 --noproxy '' -x socks5h://$2 http://[::1]:$1/p"),
    ("nc", "printf 'GET /p HTTP/1.0\\r\\n\\r\\n' | nc -w 20 -X 5 -x $2 localhost $1 | tail -n 1"),
];

const PROXY: &str = "${HTTP_PROXY#http://}";

#[test]
fn clients_of_socks_reach_what_is_granted() {
    let port = serve();
    everyone(|sandbox| {
        sandbox.policy(&format!("exec: /**\nnet: localhost:{port}\n"));
        for (client, fetch) in CLIENTS {
            if !has(client) {
                skip(client, "it is not installed");
                continue;
            }
            let script = fetch.replace("$1", &port.to_string()).replace("$2", PROXY);
            let ran = sandbox.run(&["sh", "-c", &script]);
            assert!(ran.stdout.starts_with("GET /p HTTP/1."), "{ran}");
            ran.exits(0).denied_nothing();
            let stream = ran.recorded("net.stream", "via", "socks");
            assert_eq!(stream["args"]["port"], port, "{ran}");
            assert!(stream["proc"].as_str().is_some_and(|proc| proc.starts_with('0')), "{ran}");
        }
    });
}

#[test]
fn what_nothing_grants_is_refused_with_its_reason() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let port = serve();
    everyone(|sandbox| {
        sandbox.policy("exec: /**\n");
        for (host, named) in [("127.0.0.1", "localhost"), ("example.org", "example.org")] {
            let fetch = format!("curl -sS --noproxy '' --socks5-hostname {PROXY} http://{host}:{port}/");
            let ran = sandbox.run(&["sh", "-c", &fetch]);
            // CURLE_PROXY, since 7.73; the second number is the reply's: not allowed by the ruleset.
            ran.exits(97).complains("(2)").denied("net", &format!("{named}:{port}"));
            assert!(ran.of("net.connect").is_empty(), "{ran}");
        }
    });
}
