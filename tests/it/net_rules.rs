//! Rules about requests, held against real clients: curl, Python's sockets, git, pip.

mod git;
mod origin;
mod vocabulary;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpListener};
use std::sync::{Arc, Mutex};

use crate::support::{Sandbox, User, everyone, has, skip};

use origin::Origin;

#[test]
fn methods_and_paths_are_held_and_the_rule_is_told() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let origin = Origin::start();
    let port = origin.port;
    everyone(|sandbox| {
        let fetch = "for at in open/a open/%61 secret open/../secret jump open/jump; do
            curl -sSL --path-as-is -o body -w \"$at %{http_code}\\n\" http://127.0.0.1:$PORT/$at; done
            curl -sS -X DELETE http://127.0.0.1:$PORT/open/x?token=hidden
            curl -sSI http://127.0.0.1:$PORT/open/x | head -n 1";
        sandbox.policy(&format!(
            "exec: /**\nwrite: .\nnet: GET|HEAD 127.0.0.1:{port}/open/**\nenv: PORT={port}\n"
        ));
        let ran = sandbox.run(&["sh", "-c", fetch]);
        let codes = "open/a 200\nopen/%61 200\nsecret 403\nopen/../secret 400\njump 403\nopen/jump 403\n";
        assert!(ran.stdout.starts_with(codes), "{ran}");
        assert!(ran.stdout.ends_with("HTTP/1.1 200 OK\r\n"), "{ran}");
        let rule = format!("net: DELETE 127.0.0.1:{port}/open/x");
        assert!(ran.stdout.contains(&format!("the rule `{rule}` would allow it")), "{ran}");
        ran.complains("net: GET 127.0.0.1");
        let is_it = |entry: &&&serde_json::Value| {
            entry["args"]["url"].as_str().is_some_and(|url| url.contains("/open/x?token=redacted:"))
        };
        assert!(ran.denials("net").iter().any(|entry| is_it(&entry)), "{ran}");
    });
    assert!(origin.saw("GET /open/a "), "{:?}", origin.lines());
    assert!(!origin.saw("secret") && !origin.saw("DELETE"), "{:?}", origin.lines());
}

/// What a client could try so that the origin sees a request that no rule allows. `H` is the host.
const ATTEMPTS: &str = r#"
GET_SECRET = b"GET /secret HTTP/1.1\r\nHost: H\r\n\r\n"
POST = b"POST /open/x HTTP/1.1\r\nHost: H\r\n"
GET = b"GET /open/x HTTP/1.1\r\nHost: H\r\n"
attempts = [
    POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX" + GET_SECRET,
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nxx\r\n0\r\n\r\n" + GET_SECRET,
    *[POST + field + b"\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + GET_SECRET for field in [
        b"Transfer-Encoding: xchunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding:\tchunked",
        b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        b"Transfer_Encoding: chunked", b"X: a\r\n Transfer-Encoding: chunked",
        b"Transfer-Encoding:\r\n chunked", b"X: a\rTransfer-Encoding: chunked", b"X: a\nTransfer-Encoding: chunked",
        b"X: a\x00\r\nTransfer-Encoding: chunked", b"transfer-encoding\x00: chunked", b"Connection: Content-Length",
        b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked"]],
    *[POST + b"Content-Length: " + length + b"\r\n\r\nabcde" + GET_SECRET for length in [
        b"+5", b"5, 5", b"5, 6", b"0x5", b"5\r\nContent-Length: 0", b"-1", b"5 5", b"\x0b5", b"5;", b"99999999999999999999"]],
    *[POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + GET_SECRET for chunk in [
        b"5;a=\"\n\r\nabcde\r\n0\r\n\r\n", b"FFFFFFFFFFFFFFFF1\r\nx", b"0x5\r\nabcde\r\n0\r\n\r\n",
        b"5 \r\nabcde\r\n0\r\n\r\n", b"5\nabcde\n0\n\n", b"-1\r\n\r\n", b"5\r\nabcdeX\r\n0\r\n\r\n",
        b"0\r\nX-HTTP-Method-Override: DELETE\r\nContent-Length: 9\r\n\r\n", b"0\r\n", b"5\r\nabcde\r\n0\r\nHost: x\r\n\r\n"]],
    GET + b"\r\n" + GET_SECRET,
    GET + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n" + GET_SECRET,
    GET + b"Content-Length: 0\r\n\r\n" + GET_SECRET,
    *[b"GET " + target + b" HTTP/1.1\r\nHost: H\r\n\r\n" for target in [
        b"http://H/secret", b"http://H@H/secret", b"http://x:y@H/secret", b"HTTP://H/secret", b"http:///secret", b"//secret",
        b"//H/secret", b"/open/#/../secret", b"/open/../secret", b"/open/%2e%2e/secret", b"/open/%2E./secret",
        b"/open/..%2fsecret", b"/open/..%5csecret", b"/open/..\\secret", b"/open//../secret", b"/open/..;/secret",
        b"/open/%252e%252e/secret", b"/open/%c0%ae%c0%ae/secret", b"/open\t/secret", b"/open/x /secret", b"open/../secret",
        b"?/secret", b"*", b"/%73ecret", b"/secret?/open/", b"/open/..%00/secret", b"/open\x00/../secret", b"/open/\xc3\xa9/secret",
        b"/open/%0d%0aX:%20/secret", b"/openx/secret", b"/Open/secret", b"https://H/secret", b"file:///secret"]],
    *[b"GET /open/x HTTP/1.1\r\n" + host + b"\r\n\r\n" for host in [
        b"Host: H\r\nHost: evil", b"Host: H, evil", b"Host: H/secret", b"Host : H", b"Host: evil", b"X: y", b"Host: x@H", b"Host:",
        b"Host: H\r\n Host: evil", b"Host: H#evil"]],
    *[method + b" /open/secret HTTP/1.1\r\nHost: H\r\n\r\n" for method in [
        b"DELETE", b"get", b"Get", b"GETX", b"GET\x00", b"TRACE", b"PUT", b" GET", b"PATCH", b"UPGRADE", b"CONNECT", b"PRI"]],
    *[POST + field + b"\r\nContent-Length: 0\r\n\r\n" for field in [
        b"X-HTTP-Method-Override: DELETE", b"X-HTTP-Method: DELETE", b"X_METHOD_OVERRIDE: delete", b"X-Original-URL: /secret",
        b"X-Rewrite-URL: /secret", b"Destination: /secret"]],
    b"POST /open/x?_method=DELETE HTTP/1.1\r\nHost: H\r\nContent-Length: 0\r\n\r\n",
    b"GET /secret\r\n", b"GET /secret HTTP/0.9\r\n\r\n", b"GET /secret HTTP/1.0\r\n\r\n", b"GET /secret HTTP/2.0\r\nHost: H\r\n\r\n",
    b"GET /secret HTTP/1.2\r\nHost: H\r\n\r\n", b"GET /secret http/1.1\r\nHost: H\r\n\r\n", b"\r\n\r\n\n" + GET_SECRET, b" " + GET_SECRET,
    b"\x00" + GET_SECRET, b"X" * 70000 + GET_SECRET, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + GET_SECRET, b"hello\r\n" + GET_SECRET,
    b"\x16\x03\x01\x00\x05hello" + GET_SECRET, b"SSH-2.0-x\r\n" + GET_SECRET,
    GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + GET_SECRET,
    GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n" + GET_SECRET,
    b"CONNECT H HTTP/1.1\r\nHost: H\r\n\r\n" + GET_SECRET,
    b"OPTIONS * HTTP/1.1\r\nHost: H\r\n\r\n", b"OPTIONS http://H HTTP/1.1\r\nHost: H\r\n\r\n",
]
"#;

/// Sends each attempt on its own connection, whole and in two pieces, and through the proxy's port as well.
const SENDER: &str = r#"
import os, socket, time
host = b"127.0.0.1:%d" % PORT
proxy = os.environ["http_proxy"].split("//")[1].rstrip("/").split(":")
def send(to, parts):
    stream = socket.create_connection(to, 5)
    stream.settimeout(0.5)
    got = b""
    try:
        for part in parts:
            stream.sendall(part)
            if len(parts) > 1: time.sleep(0.02)
        stream.shutdown(socket.SHUT_WR)
        while more := stream.recv(65536): got += more
    except OSError: pass
    stream.close()
    return got
for attempt in attempts:
    attempt = attempt.replace(b"H/", host + b"/").replace(b"Host: H", b"Host: " + host).replace(b" H ", b" " + host + b" ")
    attempt = attempt.replace(b"@H", b"@" + host).replace(b": H", b": " + host).replace(b"//H", b"//" + host)
    send(("127.0.0.1", PORT), [attempt])
    send(("127.0.0.1", PORT), [attempt[:9], attempt[9:]])
    send((proxy[0], int(proxy[1])), [attempt])
    tunnel = b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host)
    send((proxy[0], int(proxy[1])), [tunnel, attempt])
control = send(("127.0.0.1", PORT), [b"GET /open/control HTTP/1.1\r\nHost: %s\r\n\r\n" % host])
print(control.split(b"\r\n")[0].decode())
"#;

#[test]
fn no_request_is_smuggled_past_the_rules() {
    if !has("python3") {
        return skip("python3", "it is not installed");
    }
    let origin = Origin::start();
    let port = origin.port;
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(&format!("exec: /**\nread: .\nnet: GET|POST 127.0.0.1:{port}/open/**\n"));
    sandbox.file("attempts.py", format!("PORT = {port}\n{ATTEMPTS}\n{SENDER}"));
    let ran = sandbox.run(&["python3", "attempts.py"]);
    ran.exits(0).prints("HTTP/1.1 200 OK\n");
    for line in origin.lines() {
        let (method, target) = line.split_once(' ').expect("a request line");
        assert!(["GET", "POST"].contains(&method), "{line}");
        assert!(target.starts_with("/open/") && !target.contains("secret"), "{line}");
    }
    assert!(origin.saw("GET /open/control "));
    for url in ran.of("http.exchange").iter().filter_map(|entry| entry["args"]["url"].as_str()) {
        assert!(!url.contains("secret"), "{url}");
    }
}

/// Reads no bodies, and takes what stands in one for the next request, until it was told that none comes.
fn careless(seen: Arc<Mutex<Vec<String>>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut out = stream.try_clone().expect("a stream");
            let mut lines = BufReader::new(stream).lines();
            loop {
                let head: Vec<String> =
                    lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let Some(first) = head.first() else { break };
                seen.lock().expect("the lines").push(first.clone());
                let _ = out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                if head.iter().any(|field| field.eq_ignore_ascii_case("connection: close")) {
                    let _ = out.shutdown(Shutdown::Write);
                    lines.by_ref().for_each(drop);
                }
            }
        }
    });
    port
}

#[test]
fn no_body_becomes_a_request_where_paths_are_judged() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let port = careless(Arc::clone(&seen));
    everyone(|sandbox| {
        sandbox.policy(&format!("net: POST|PUT|PATCH 127.0.0.1:{port}/open/**\n"));
        let ran = sandbox.python(&format!(
            "import http.client
for method in 'POST', 'PUT', 'PATCH':
    for body in b'GET /secret HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n', b'':
        client = http.client.HTTPConnection('127.0.0.1', {port})
        for _ in 'twice':
            client.request(method, '/open/x', body)
            print(client.getresponse().read().decode(), end=' ')"
        ));
        ran.exits(0).prints(&"ok ".repeat(30));
    });
    let seen = seen.lock().expect("the lines");
    assert!(seen.len() == 60 && !seen.iter().any(|line| line.contains("secret")), "{seen:?}");
}

#[test]
fn what_no_rule_could_allow_is_told_with_its_reason_at_the_end() {
    let origin = Origin::start();
    let port = origin.port;
    everyone(|sandbox| {
        sandbox.policy(&format!("net: 127.0.0.1:{port}\n"));
        let ran = sandbox.python(&format!(
            "import socket
client = socket.create_connection(('127.0.0.1', {port}))
client.sendall(b'GET /open/x HTTP/1.1\\r\\nHost: a\\r\\nHost: b\\r\\n\\r\\n')
print(client.recv(100).split()[1].decode())"
        ));
        ran.exits(0).prints("400\n");
        let reason = ran.denials("net")[0]["args"]["reason"].as_str().expect("a reason");
        let last = ran.stderr.lines().last().expect("last words");
        assert!(
            last.starts_with("agentbox: denied 1x: net ") && last.ends_with(&format!("({reason})")),
            "{ran}"
        );
    });
}

#[test]
fn rules_that_contradict_are_refused_before_anything_starts() {
    let sandbox = Sandbox::new(User::Caller);
    let started = ["sh", "-c", "echo started"];
    sandbox.policy("net: GET api.example.org/x\nnet: *.example.org tunnel\n");
    let ran = sandbox.run(&started);
    ran.exits(2).prints("").complains("agentbox.policy:2:").complains("agentbox.policy:1)");
    sandbox.policy("net: other.example.org\nnet: GET api.example.org/x\n");
    let ran = sandbox.run_with(&["--no-intercept"], &started);
    ran.exits(2).prints("").complains("agentbox.policy:2:6").complains("^^^").complains("--no-intercept");
    sandbox.policy("net: other.example.org @10/min\n");
    sandbox.run_with(&["--no-intercept"], &started).exits(0);
}

#[test]
fn a_rate_is_told_to_the_client_and_recorded() {
    if !has("curl") {
        return skip("curl", "it is not installed");
    }
    let origin = Origin::start();
    let port = origin.port;
    everyone(|sandbox| {
        sandbox.policy(&format!("exec: /**\nnet: 127.0.0.1:{port} @2/h\n"));
        let url = format!("http://127.0.0.1:{port}/open/x");
        let fetch =
            "for n in 1 2 3; do curl -sS -o /dev/null -w '%{http_code} %header{retry-after}\n' $0; done";
        let ran = sandbox.run(&["sh", "-c", fetch, &url]);
        ran.exits(0);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(lines[..2], ["200 ", "200 "], "{ran}");
        let seconds = lines[2].strip_prefix("429 ").and_then(|seconds| seconds.parse::<u32>().ok());
        assert!(seconds.is_some_and(|seconds| (3000..=3600).contains(&seconds)), "{ran}");
        ran.denied("net", &format!("127.0.0.1:{port}"));
        assert_eq!(ran.of("limit.hit").len(), 1, "{ran}");
    });
}
