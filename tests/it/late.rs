//! Replays of programs whose answers come late: some wait for them, some give up before.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Ran, Sandbox, Server, everyone, has, skip};

/// Waits for so long as the first word of a request says, before the head or before the rest of the body.
fn serve(mut stream: TcpStream, _: usize) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let said = String::from_utf8_lossy(&buffer[..count]).into_owned();
        let target = said.split(' ').nth(1).unwrap_or_default();
        let late = || std::thread::sleep(Duration::from_millis(if target == "/later" { 2000 } else { 1000 }));
        let (first, rest) = match target {
            "/late" | "/later" => ("", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"),
            "/stalls" => ("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf", "half"),
            "bytes" => ("", "late"),
            _ => ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere", ""),
        };
        let _ = stream.write_all(first.as_bytes());
        if !rest.is_empty() {
            late();
            let _ = stream.write_all(rest.as_bytes());
        }
    }
}

/// Answers each datagram so late.
fn datagrams() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let port = socket.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let mut buffer = [0; 100];
        while let Ok((_, client)) = socket.recv_from(&mut buffer) {
            std::thread::sleep(Duration::from_millis(1000));
            let _ = socket.send_to(b"late", client);
        }
    });
    port
}

/// Asks as each word says, and how long it waits; for the first half as long as it takes.
const CLIENT: &str = "import socket, sys, threading, time\n\
    port, *words = sys.argv[1:]\n\
    def ask(said, most):\n\
    \x20   s = socket.create_connection(('127.0.0.1', int(port))); got = b''\n\
    \x20   s.sendall(said)\n\
    \x20   while b'/stalls' in said and not got.endswith(b'half'): got += s.recv(100)\n\
    \x20   s.settimeout(most)\n\
    \x20   try:\n\
    \x20       while not got.endswith((b'late', b'halfhalf', b'here')): got += s.recv(100)\n\
    \x20   except TimeoutError: got += b' and no more'\n\
    \x20   return got.split(b'\\r\\n')[-1].decode()\n\
    for word in words:\n\
    \x20   what, most = word.split(',')\n\
    \x20   said = f'\\x01 {what} x'.encode() if what[0] != '/' else f'GET {what} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'.encode()\n\
    \x20   print(word, ask(said, float(most)), flush=True)\n\
    time.sleep(2.5)\n\
    print('end', time.time_ns())\n";

/// Replays in both ways.
fn is_again(sandbox: &Sandbox, ran: &Ran) {
    let trace = sandbox.trace();
    for options in [&[][..], &["--paced"]] {
        let words = [&["replay", "-t", trace.to_str().expect("text")], options].concat();
        let again = sandbox.agentbox(&words);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    }
}

/// Records the program, and replays it in both ways without the server.
fn is_the_same(sandbox: &Sandbox, client: &str, words: &[&str], expected: &str) -> Vec<Value> {
    sandbox.file("client.py", client);
    is_the_same_of(sandbox, &["python3", "client.py"], words, expected)
}

fn is_the_same_of(sandbox: &Sandbox, program: &[&str], words: &[&str], expected: &str) -> Vec<Value> {
    let server = Server::start(0, serve);
    let port = server.port.to_string();
    sandbox.policy(&format!("net: localhost:{port}\nexec: python3\nread: .\n"));
    let ran = sandbox.run_with(&[], &[program, &[&port], words].concat());
    ran.exits(0);
    assert!(ran.stdout.starts_with(expected), "{ran}");
    let server = server.canary();
    is_again(sandbox, &ran);
    assert_eq!(server.accepted(), 0, "a replay went out");
    ran.of("http.exchange").into_iter().cloned().collect()
}

#[test]
fn who_gave_up_gives_up_again() {
    if !has("python3") {
        return skip("replays of clients that give up", "python3 is not installed");
    }
    everyone(|sandbox| {
        let words = ["/late,0.3", "/stalls,0.3", "bytes,0.3", "/now,60"];
        let expected =
            "/late,0.3  and no more\n/stalls,0.3 half and no more\nbytes,0.3  and no more\n/now,60 here\n";
        let exchanges = is_the_same(sandbox, CLIENT, &words, expected);
        let failure = |target: &str| {
            let of = |one: &&Value| one["args"]["url"].as_str().is_some_and(|url| url.ends_with(target));
            exchanges.iter().find(of).expect("recorded")["result"]["failure"].clone()
        };
        for (target, received) in [("/late", 0), ("/stalls", 4)] {
            let abandoned = serde_json::json!({"kind": "abandoned", "side": "agent", "received": received});
            assert_eq!(failure(target), abandoned, "{target}");
        }
        assert_eq!(failure("/now"), Value::Null);
    });
}

#[test]
fn who_waited_waits_again() {
    if !has("python3") {
        return skip("replays of clients that wait", "python3 is not installed");
    }
    everyone(|sandbox| {
        let words = ["/late,60", "/stalls,60", "bytes,60"];
        let expected = "/late,60 late\n/stalls,60 halfhalf\nbytes,60 late\n";
        let exchanges = is_the_same(sandbox, CLIENT, &words, expected);
        assert!(exchanges.iter().all(|one| one["result"].get("failure").is_none()), "{exchanges:?}");
    });
}

#[test]
fn who_has_said_all_has_not_left() {
    if !has("python3") {
        return skip("replays of clients that end their half", "python3 is not installed");
    }
    const HALF: &str = "import socket, sys\n\
        s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
        s.sendall(b'GET /late HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); s.shutdown(socket.SHUT_WR)\n\
        got = b''\n\
        while not got.endswith(b'late'): got += s.recv(100)\n\
        print(got.split()[-1])\n";
    everyone(|sandbox| {
        let exchanges = is_the_same(sandbox, HALF, &[], "b'late'\n");
        assert_eq!(exchanges[0]["result"]["status"], 200, "{exchanges:?}");
    });
}

/// Clients keep connections open for what may come.
#[test]
fn who_speaks_late_is_waited_for() {
    if !has("python3") {
        return skip("replays of connections that are kept open", "python3 is not installed");
    }
    const KEEPS: &str = "import socket, sys, time\n\
        first, second, third = (socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(3))\n\
        for s in first, second:\n\
        \x20   s.sendall(b'GET /now HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); print(s.recv(1000)[-4:])\n\
        \x20   time.sleep(0.5)\n";
    everyone(|sandbox| {
        is_the_same(sandbox, KEEPS, &[], "b'here'\nb'here'\n");
    });
}

/// One that is open and not used is no difference, be there one more or fewer.
#[test]
fn connections_that_carry_nothing_are_not_compared() {
    if !has("python3") {
        return skip("replays of connections that carry nothing", "python3 is not installed");
    }
    const MORE: &str = "import socket, sys, time\n\
        s = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in open('count').read()][0]\n\
        time.sleep(0.5); s.sendall(b'GET /now HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); print(s.recv(1000)[-4:])\n";
    everyone(|sandbox| {
        for (recorded, live) in [("x", "xxx"), ("xxx", "x")] {
            let server = Server::start(0, serve);
            let port = server.port.to_string();
            sandbox.policy(&format!("net: localhost:{port}\nexec: python3\nread: .\n"));
            sandbox.file("client.py", MORE);
            sandbox.file("count", recorded);
            let ran = sandbox.run_with(&[], &["python3", "client.py", &port]);
            ran.exits(0);
            let _server = server.canary();
            sandbox.file("count", live);
            let trace = sandbox.trace();
            let again = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text"), "--force"]);
            assert!(again.stdout == ran.stdout && !again.stderr.contains("net.stream"), "{again}");
        }
    });
}

#[test]
fn datagrams_come_late_again() {
    if !has("python3") {
        return skip("replays of late datagrams", "python3 is not installed");
    }
    const SENDS: &str = "import socket, sys\n\
        for most in 0.3, 9:\n\
        \x20   s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(most)\n\
        \x20   s.sendto(b'x', ('127.0.0.1', int(sys.argv[1])))\n\
        \x20   try: print(s.recv(100))\n\
        \x20   except TimeoutError: print('nothing')\n";
    everyone(|sandbox| {
        let port = datagrams().to_string();
        sandbox.policy(&format!("net: udp:localhost:{port}\nexec: python3\nread: .\n"));
        sandbox.file("client.py", SENDS);
        let ran = sandbox.run_with(&[], &["python3", "client.py", &port]);
        ran.exits(0).prints("nothing\nb'late'\n");
        is_again(sandbox, &ran);
    });
}

/// Not in Python, whose threads read the clock once more where they wait for each other.
#[test]
fn a_late_head_comes_between_the_same_waits() {
    if !has("gcc") {
        return skip("replays of threads that wait", "gcc is not installed");
    }
    everyone(|sandbox| {
        let source = sandbox.file("waits.c", include_str!("late/waits.c"));
        let mut build = Command::new("gcc");
        build.args(["-O1", "-pthread", "-o"]).arg(sandbox.path("waits")).arg(source);
        assert!(build.status().expect("gcc").success());
        is_the_same_of(sandbox, &["./waits"], &[], "1 late\ntimer 0 1\n");
        // It does not matter where all is seconds behind.
        sandbox.file("slow", "");
        let trace = sandbox.trace();
        let words = ["replay", "-t", trace.to_str().expect("text"), "--paced", "--force"];
        sandbox.agentbox(&words).prints("1 late\ntimer 0 1\n");
    });
}

#[test]
fn connections_that_were_refused_at_once_are_again() {
    if !has("python3") {
        return skip("replays of refused connections", "python3 is not installed");
    }
    const REFUSED: &str = "import socket, threading\n\
        both, lines = threading.Barrier(2), [None] * 2\n\
        def connect(number):\n\
        \x20   both.wait()\n\
        \x20   try: lines[number] = socket.create_connection(('127.0.0.1', 9), 5)\n\
        \x20   except OSError as error: lines[number] = error.errno == 111\n\
        threads = [threading.Thread(target=connect, args=[number]) for number in range(2)]\n\
        for thread in threads: thread.start()\n\
        for thread in threads: thread.join()\n\
        print(lines)\n";
    everyone(|sandbox| {
        sandbox.policy("net: localhost:9\nexec: python3\nread: .\n");
        sandbox.file("client.py", REFUSED);
        let ran = sandbox.run_with(&[], &["python3", "client.py"]);
        ran.exits(0).prints("[True, True]\n");
        let trace = sandbox.trace();
        let again = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    });
}
