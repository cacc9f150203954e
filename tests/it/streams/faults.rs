//! Clients that do not play by the rules, and a trace of everything that can go wrong on a stream.

use std::process::Command;
use std::time::Instant;

use super::*;

/// As long as a head may take, and some more.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_head_that_comes_byte_by_byte_is_ended() {
    let port = http(|client| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    // One user is enough for half a minute.
    let sandbox = &Sandbox::new(crate::support::User::Caller);
    let program = r#"
import socket, time, urllib.request
slow = [socket.create_connection(("127.0.0.1", {port})) for _ in range(50)]
for s in slow:
    s.sendall(b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n")
began = time.monotonic()
open_still = list(slow)
while open_still and time.monotonic() - began < 60:
    time.sleep(1)
    for s in list(open_still):
        try:
            s.sendall(b"A")
        except OSError:
            open_still.remove(s)
    assert urllib.request.urlopen("http://127.0.0.1:{port}/").read() == b"ok"
assert not open_still, len(open_still)
print(time.monotonic() - began)
"#;
    let began = Instant::now();
    let ran = python(sandbox, port, program);
    let seconds: f64 = ran.exits(0).stdout.trim().parse().expect("seconds");
    assert!(seconds >= HEAD_TIMEOUT.as_secs_f64() - 1.0 && began.elapsed() >= HEAD_TIMEOUT);
    assert!(ran.denials("net").iter().any(|entry| entry.to_string().contains("cannot be read")), "{ran}");
    assert!(ran.of("http.exchange").iter().all(|entry| entry["result"]["status"] == 200), "{ran}");
}

/// A server that says this to whatever is asked, and resets the connection.
fn broken_off(answer: &'static str) -> u16 {
    serve(move |mut client| {
        let _ = client.read(&mut [0; 4096]);
        let _ = client.write_all(answer.as_bytes());
        std::thread::sleep(Duration::from_millis(200));
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&client, nix::sys::socket::sockopt::Linger, &linger)
            .expect("it is open");
    })
}

#[test]
fn an_answer_that_is_reset_does_not_look_whole_to_an_old_client() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    for head in ["HTTP/1.0 200 OK\r\n\r\nhalf", chunked] {
        let port = broken_off(head);
        everyone(|sandbox| {
            let program = r#"
import socket
s = socket.create_connection(("127.0.0.1", {port}))
s.sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n")
all = b""
try:
    while part := s.recv(100):
        all += part
    print("whole")
except ConnectionResetError:
    print("reset", all[-4:].decode())
"#;
            let ran = python(sandbox, port, program);
            let result = only(ran.exits(0).prints("reset half\n"), "http.exchange");
            assert_eq!(result["failure"], json!({"kind": "reset", "side": "origin", "received": 4}));
        });
    }
}

#[test]
fn the_python_tool_takes_a_trace_of_all_this() {
    let upgrading = http(|client| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        let _ = client.write_all(head.as_bytes());
        let _ = client.write_all(b"\x81\x02ok");
    });
    let streaming = http(|client| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(5));
            let _ = client.write_all(b"a\r\ndata: tok\n\r\n");
        }
        let _ = client.write_all(b"0\r\n\r\n");
    });
    let broken = broken_off("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    let echo = serve(|mut client| {
        let mut all = Vec::new();
        let _ = client.read_to_end(&mut all);
        let _ = client.write_all(&all);
    });
    let sandbox = &Sandbox::new(crate::support::User::Caller);
    let python = match crate::trace::python_tool(&sandbox.beside("")) {
        Ok(python) => python,
        Err(reason) => return skip("the Python tool", &reason),
    };
    let ports = [upgrading, streaming, broken, echo];
    let rules = ports.map(|port| format!("net: 127.0.0.1:{port}\n")).concat();
    sandbox.policy(&format!("{LITERAL}{rules}"));
    let program = format!(
        r#"
import socket
def say(port, first):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(first)
    s.shutdown(socket.SHUT_WR)
    try:
        while s.recv(1000): pass
    except OSError: pass
def head(port, more=""):
    return f"POST /a HTTP/1.1\r\nHost: 127.0.0.1:{{port}}\r\nContent-Length: 0\r\n{{more}}\r\n".encode()
say({upgrading}, head({upgrading}, "Connection: Upgrade\r\nUpgrade: websocket\r\n"))
say({streaming}, head({streaming}))
say({broken}, head({broken}))
say({echo}, b"\x01\xff\x00")
"#
    );
    let ran = sandbox.python(&program);
    ran.exits(0);
    let text = std::fs::read_to_string(sandbox.trace()).expect("a trace");
    for word in ["transcript", "segments", "upgraded", "failure", "private"] {
        assert!(text.contains(&format!("\"{word}\":")), "{word}\n{ran}");
    }
    let verified =
        Command::new(python).args(["-m", "agentbox", "verify", "-t"]).arg(sandbox.trace()).output();
    let verified = verified.expect("python runs");
    assert!(verified.status.success(), "{verified:?}");
    sandbox.agentbox(&["verify".as_ref(), "-t".as_ref(), sandbox.trace().as_os_str()]).exits(0);
}
