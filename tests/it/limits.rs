//! Limits of the way out: memory with slow readers, a thousand connections, heads without end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::support::{Ran, Running, Sandbox, everyone, has, skip, until};

/// A server on the host's loopback; it ends with the tests.
fn serve(answer: impl Fn(TcpStream) + Send + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || answer(client));
        }
    });
    port
}

fn policy(sandbox: &Sandbox, port: u16) {
    sandbox.policy(&format!("read: .\nnet: 127.0.0.1:{port}\n"));
}

/// The most memory that a process has held so far, in KiB (proc(5), VmHWM).
fn peak(pid: nix::unistd::Pid) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

const MANY: usize = 64 << 20;

#[test]
fn bytes_up_and_down_take_constant_memory() {
    let port = serve(|mut client| {
        let mut reader = client.try_clone().expect("a clone");
        let down = std::thread::spawn(move || {
            let _ = client.write_all(&vec![7; MANY]);
        });
        // A slow reader: what is not taken must wait at its source.
        std::thread::sleep(Duration::from_millis(500));
        let _ = reader.read_to_end(&mut Vec::new());
        let _ = down.join();
    });
    everyone(|sandbox| {
        policy(sandbox, port);
        let program = format!(
            "
import socket, threading, time
s = socket.create_connection(('127.0.0.1', {port}))
def up():
    s.sendall(b'\\x01' * {MANY})
    s.shutdown(socket.SHUT_WR)
sending = threading.Thread(target=up)
sending.start()
time.sleep(0.5)
got = 0
while True:
    part = s.recv(1 << 16)
    if not part:
        break
    got += len(part)
assert got == {MANY}, got
sending.join()
print('done', flush=True)
time.sleep(1)
"
        );
        let (ran, most) = watched(sandbox, &program);
        let result = &ran.of("net.stream")[0]["result"];
        assert_eq!((&result["up"], &result["down"]), (&MANY.into(), &MANY.into()), "{result}");
        assert!(most < 48 << 10, "the launcher held {most} KiB");
    });
}

#[test]
fn bodies_up_and_down_take_constant_memory() {
    let port = serve(|mut client| {
        let mut reader = BufReader::new(client.try_clone().expect("a clone"));
        while reader.read_line(&mut String::new()).is_ok_and(|length| length > 2) {}
        let down = std::thread::spawn(move || {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {MANY}\r\n\r\n");
            let _ = client.write_all(&[head.into_bytes(), vec![7; MANY]].concat());
        });
        // What is not taken must wait at its source.
        std::thread::sleep(Duration::from_millis(500));
        let _ = reader.take(MANY as u64).read_to_end(&mut Vec::new());
        let _ = down.join();
    });
    everyone(|sandbox| {
        policy(sandbox, port);
        let program = format!(
            "
import socket, threading, time
s = socket.create_connection(('127.0.0.1', {port}))
def up():
    s.sendall(b'POST / HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nContent-Length: {MANY}\\r\\n\\r\\n')
    s.sendall(b'\\x01' * {MANY})
sending = threading.Thread(target=up)
sending.start()
time.sleep(0.5)
answer = s.makefile('rb')
while len(answer.readline()) > 2:
    pass
assert len(answer.read({MANY})) == {MANY}
sending.join()
print('done', flush=True)
time.sleep(1)
"
        );
        let (ran, most) = watched(sandbox, &program);
        let exchange = ran.of("http.exchange")[0];
        let sizes = (&exchange["args"]["body"]["size"], &exchange["result"]["body"]["size"]);
        assert_eq!(sizes, (&MANY.into(), &MANY.into()), "{exchange}");
        assert!(most < 48 << 10, "the launcher held {most} KiB");
    });
}

/// Runs a program of Python's that prints `done`; with it the most that the launcher has held, in KiB.
fn watched(sandbox: &Sandbox, program: &str) -> (Ran, u64) {
    let _ = std::fs::remove_file(sandbox.trace());
    let running = Running::start(sandbox.run_command(&[], &["python3", "-c", program]));
    let pid = running.pid();
    let mut most = 0;
    until("the launcher ends", || match peak(pid) {
        Some(now) => {
            most = most.max(now);
            false
        }
        None => true,
    });
    let mut ran = running.finish();
    ran.read_trace(&sandbox.trace());
    ran.exits(0).prints("done\n");
    (ran, most)
}

const CONNECTIONS: usize = 1000;

/// The same command under limits.
fn limited(inner: &Command, limit: &str) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(limit).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(inner.get_current_dir().expect("a directory")).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_thousand_connections_are_open_at_once() {
    if !has("prlimit") {
        return skip("descriptors", "there is no prlimit");
    }
    let hard = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit").1;
    if hard < 4096 || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        return skip("descriptors", "the tests may not open enough files");
    }
    let port = serve(|mut client| {
        let mut bytes = [0; 2];
        while client.read_exact(&mut bytes).is_ok() {
            let _ = client.write_all(&bytes);
        }
    });
    everyone(|sandbox| {
        policy(sandbox, port);
        let program = format!(
            "
import resource, socket
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024, 4096), 'the limit is the caller\\'s'
all = [socket.create_connection(('127.0.0.1', {port})) for _ in range({CONNECTIONS})]
for round in b'ab':
    for s in all:
        s.sendall(b'\\x01' + bytes([round]))
    for s in all:
        assert s.recv(2, socket.MSG_WAITALL) == b'\\x01' + bytes([round])
print(len(all))
"
        );
        let _ = std::fs::remove_file(sandbox.trace());
        let inner = sandbox.run_command(&[], &["python3", "-c", &program]);
        let mut ran = Running::start(limited(&inner, "--nofile=1024:4096")).finish();
        ran.read_trace(&sandbox.trace());
        ran.exits(0).prints("1000\n");
        let streams = ran.of("net.stream");
        assert_eq!(streams.len(), CONNECTIONS);
        assert!(streams.iter().all(|entry| entry["result"]["down"] == 4), "{ran}");
    });
}

#[test]
fn a_head_without_end_is_refused() {
    let port = serve(|mut client| {
        let mut all = [0; 4096];
        while client.read(&mut all).is_ok_and(|length| length > 0) {
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    everyone(|sandbox| {
        policy(sandbox, port);
        let program = format!(
            "
import socket
def status(head):
    s = socket.create_connection(('127.0.0.1', {port}))
    try:
        s.sendall(b'GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n' + head)
    except OSError:
        pass
    try:
        return s.recv(12)[9:].decode() or 'cut'
    except OSError:
        return 'cut'
print(status(b'A: b\\r\\n\\r\\n'))
print(status(b'A: ' + b'b' * 200000 + b'\\r\\n\\r\\n'))
print(status(b''.join(b'A%d: b\\r\\n' % n for n in range(5000)) + b'\\r\\n'))
"
        );
        let ran = sandbox.python(&program);
        let answers: Vec<&str> = ran.exits(0).stdout.lines().collect();
        assert_eq!(answers[0], "200", "{ran}");
        // A client that still sends may see the reset before the answer.
        assert!(answers[1..].iter().all(|answer| ["431", "cut"].contains(answer)), "{ran}");
        assert_eq!(ran.denials("net").len(), 2, "{ran}");
        assert_eq!(ran.of("http.exchange").len(), 1, "{ran}");
    });
}

/// What nobody could look at is not told as absent, nor taken for no mount.
#[test]
fn without_descriptors_a_change_is_not_made_or_the_run_ends() {
    if !has("prlimit") {
        return skip("descriptors", "there is no prlimit");
    }
    everyone(|sandbox| {
        sandbox.file("out/old", "old");
        sandbox.policy("write: ./out");
        let program = "
import os
ready, told = os.pipe()
hold, held = os.pipe()
def fill(name):
    number = 0
    while True:
        try: os.open('out/' + name + str(number), os.O_CREAT | os.O_WRONLY); number += 1
        except OSError: return
for name in 'xyz':
    if os.fork() == 0:
        os.close(held); fill(name); os.write(told, b'1'); os.read(hold, 1); os._exit(0)
    os.read(ready, 1)
for change in (lambda: os.rename('out', 'other'), lambda: os.unlink('out/old')):
    try: change(); print('done')
    except OSError: print('failed')
";
        let inner = sandbox.run_command(&[], &["python3", "-c", program]);
        let mut ran = Running::start(limited(&inner, "--nofile=1200:1200")).finish();
        ran.read_trace(&sandbox.trace());
        assert!(ran.of("fs.open_write").len() > 500 && !ran.stdout.starts_with("done"), "{ran}");
        let mut deleted = ran.of("fs.delete").into_iter();
        assert!(deleted.all(|entry| entry["args"]["before"] != "absent"), "{ran}");
    });
}
