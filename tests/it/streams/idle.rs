//! `--idle-timeout`: what is silent for too long is ended, whatever carries it, and says so.

use super::*;

/// The same as [`python`], with a limit of a second.
fn python_limited(sandbox: &Sandbox, port: u16, program: &str) -> Ran {
    sandbox.policy(&format!("{LITERAL}net: 127.0.0.1:{port}\n"));
    let program = program.replace("{port}", &port.to_string());
    sandbox.run_with(&["--idle-timeout", "1s"], &["python3", "-c", &program])
}

/// Says nothing more, and waits for the end.
fn hold(client: &mut TcpStream) {
    let _ = client.set_read_timeout(Some(Duration::from_secs(60)));
    let _ = client.read_to_end(&mut Vec::new());
}

fn is_idle(failure: &Value, received: u64) {
    assert_eq!(*failure, json!({"kind": "idle", "side": "proxy", "received": received}));
}

#[test]
fn a_silent_stream_is_reset_and_one_that_moves_goes_on() {
    let port = serve(|mut client| {
        let _ = client.write_all(b"\x01");
        let mut byte = [0];
        while let Ok(1) = client.read(&mut byte) {
            let _ = client.write_all(&byte);
        }
    });
    everyone(|sandbox| {
        let program = r#"
import socket, time
s = socket.create_connection(("127.0.0.1", {port}))
assert s.recv(1) == b"\x01"
began = time.monotonic()
for _ in range(6):
    time.sleep(0.4)
    s.sendall(b"x")
    assert s.recv(1) == b"x"
silent = time.monotonic()
try:
    assert False, s.recv(1)
except ConnectionResetError:
    pass
assert 0.9 < time.monotonic() - silent < 20
"#;
        let ran = python_limited(sandbox, port, program);
        let result = only(ran.exits(0), "net.stream");
        is_idle(&result["failure"], 7);
        assert_eq!(result["end"], "no byte moved for 1s (--idle-timeout)");
        assert_eq!(ran.of("run.start")[0]["args"]["idle_timeout"], 1.0);
        assert_eq!(said(sandbox, &result["transcript"]).last().map(String::as_str), Some("down x"));
    });
}

#[test]
fn a_peer_that_takes_nothing_is_silent_as_well() {
    // What it does not take fills the buffers, and then no byte moves.
    let port = serve(|client| {
        std::thread::sleep(Duration::from_secs(30));
        drop(client);
    });
    everyone(|sandbox| {
        let program = r#"
import socket
s = socket.create_connection(("127.0.0.1", {port}))
try:
    while True:
        s.sendall(b"\x01" * 65536)
except (ConnectionResetError, BrokenPipeError):
    pass
"#;
        let ran = python_limited(sandbox, port, program);
        let result = only(ran.exits(0), "net.stream");
        is_idle(&result["failure"], 0);
    });
}

#[test]
fn an_exchange_whose_answer_does_not_come_is_ended() {
    for (answer, whole) in [("", 0), ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", 4)] {
        let port = http(move |client| {
            let _ = client.write_all(answer.as_bytes());
            hold(client);
        });
        everyone(|sandbox| {
            let program = r#"
import socket
s = socket.create_connection(("127.0.0.1", {port}))
s.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")
try:
    while s.recv(100):
        pass
    assert False, "it was closed in order"
except ConnectionResetError:
    pass
"#;
            let ran = python_limited(sandbox, port, program);
            is_idle(&only(ran.exits(0), "http.exchange")["failure"], whole);
            assert_eq!(only(&ran, "net.stream")["failure"]["kind"], "idle");
        });
    }
}

#[test]
fn what_an_upgrade_made_and_unix_sockets_are_limited_too() {
    let port = http(|client| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        let _ = client.write_all(head.as_bytes());
        let _ = client.write_all(b"\x81\x02ok");
        hold(client);
    });
    everyone(|sandbox| {
        let program = r#"
import socket
s = socket.create_connection(("127.0.0.1", {port}))
s.sendall(b"GET /chat HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
try:
    while s.recv(100):
        pass
    assert False, "it was closed in order"
except ConnectionResetError:
    pass
"#;
        let ran = python_limited(sandbox, port, program);
        is_idle(&only(ran.exits(0), "http.exchange")["upgraded"]["failure"], 4);

        let path = sandbox.beside("service");
        let listener = UnixListener::bind(&path).expect("a socket");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&path, mode).expect("chmod");
        let service = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let _ = client.read_to_end(&mut Vec::new());
        });
        sandbox.policy(&format!("{LITERAL}net: unix:{}\n", path.display()));
        let program = format!(
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect({path:?}); s.sendall(b'x'); s.recv(1)"
        );
        let ran = sandbox.run_with(&["--idle-timeout", "1s"], &["python3", "-c", &program]);
        is_idle(&only(&ran, "net.stream")["failure"], 0);
        service.join().expect("the service");
    });
}

#[test]
fn a_span_that_is_none_is_refused() {
    everyone(|sandbox| {
        for wrong in ["", "30", "0s", "soon"] {
            let ran = sandbox.run_with(&["--idle-timeout", wrong], &["true"]);
            ran.exits(2).prints("").complains("--idle-timeout").complains("500ms, 30s, 10m, 2h");
        }
    });
}
