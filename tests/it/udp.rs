//! Datagrams: what a rule lets out and what comes back, and how everything else is refused.

use std::net::UdpSocket;

use serde_json::Value;

use crate::support::{OUTSIDE_V4, OUTSIDE_V6, Ran, Sandbox, everyone, skip};

/// Sends each datagram back in brackets, on 127.0.0.1 of the host; ends with the tests.
fn echo() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_535];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&[b"[", &buffer[..length], b"]"].concat(), client);
        }
    });
    port
}

/// The same outside, at every address, port 5000.
const ECHO: &str = "
import socket, sys, threading
def serve(family, host):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_IP, 8, 1) if family == socket.AF_INET else s.setsockopt(socket.IPPROTO_IPV6, 49, 1)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1); s.setsockopt(socket.IPPROTO_IPV6, 78, 1)
    s.bind((host, 5000))
    def run():
        while True:
            data, control, _, client = s.recvmsg(65535, 256)
            level, kind, info = control[0]
            s.sendmsg([b'[' + data + b']'], [(level, kind, info if kind == 50 else bytes(4) + info[8:12] + bytes(4))], 0, client)
    threading.Thread(target=run).start()
serve(socket.AF_INET, '0.0.0.0'); serve(socket.AF_INET6, '::')
open(sys.argv[1], 'w')
";

/// `ask(host, port, connected, bytes)` prints the answer and its sender, or the error.
const ASK: &str = "
import socket
def ask(host, port, connected, data=b'x', source=None, wait=5):
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(wait)
    if source: s.bind((source, 0))
    try:
        if connected: s.connect((host, port)); s.send(data)
        else: s.sendto(data, (host, port))
        data, sender = s.recvfrom(65535)
        print(len(data), data[:4].decode(), sender[0] == host and sender[1] == port)
    except OSError as error: print(type(error).__name__)
    return s
";

/// The datagrams of an entry: their way and what they hold.
fn datagrams(sandbox: &Sandbox, entry: &Value) -> Vec<(String, Vec<u8>)> {
    let name = entry["result"]["transcript"]["blob"].as_str().expect("a blob");
    let file = sandbox.beside(format!("trace.jsonl.blobs/{name}.zst"));
    let bytes = zstd::decode_all(std::fs::File::open(file).expect("the blob")).expect("whole");
    let (mut rest, mut found) = (&bytes[..], Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let head: Value = serde_json::from_slice(&rest[..end]).expect("a record");
        let length = usize::try_from(head[1].as_u64().expect("a length")).expect("a length");
        let (payload, after) = rest[end + 1..].split_at(length);
        found.push((head[0].as_str().expect("a way").to_owned(), payload.to_vec()));
        rest = &after[1..];
    }
    found
}

fn count(entry: &Value) -> u64 {
    let ways = ["up", "down"].into_iter();
    ways.map(|way| entry["result"]["datagrams"][way].as_u64().expect("a number")).sum()
}

#[test]
fn a_loopback_port_of_the_host() {
    let port = echo();
    everyone(|sandbox| {
        sandbox.policy(&format!("net: udp:localhost:{port}\n"));
        let ran = sandbox.python(&format!(
            "{ASK}\nfor connected in (False, True): ask('127.0.0.1', {port}, connected)\nask('127.0.0.1', 9, True)"
        ));
        ran.exits(0)
            .prints("3 [x] True\n3 [x] True\nConnectionRefusedError\n")
            .denied("net", "udp:localhost:9");
        assert_eq!(ran.denials("net").len(), 1, "{ran}");
        let entries = ran.of("net.datagram");
        assert_eq!(entries.len(), 2, "{ran}");
        for entry in entries {
            let expected = [("up".to_owned(), b"x".to_vec()), ("down".to_owned(), b"[x]".to_vec())];
            assert_eq!(datagrams(sandbox, entry), expected);
            assert_eq!((&entry["result"]["up"], &entry["result"]["down"]), (&1.into(), &3.into()));
            assert_eq!((&entry["kind"], &entry["args"]["port"]), (&"effect".into(), &port.into()));
        }
        // What neither binds nor connects first says nowhere whose it is.
        let named: Vec<bool> = ran.of("net.datagram").iter().map(|entry| entry["proc"].is_string()).collect();
        assert_eq!(named.iter().filter(|named| **named).count(), 1, "{ran}");
        assert_eq!(ran.of("net.connect").len(), 2, "{ran}");
    });
}

fn outside(policy: &str, test: impl Fn(&Sandbox, &dyn Fn(&str) -> Ran)) {
    if let Some(missing) = Sandbox::outside_lacks() {
        return skip(missing, "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy(policy);
        test(sandbox, &|program| {
            sandbox.run_outside(ECHO, &[], &["python3", "-c", &format!("{ASK}{program}")])
        });
    });
}

#[test]
fn addresses_outside_answer_from_where_they_were_asked() {
    let policy = format!("net: udp:{OUTSIDE_V4}:5000, udp:[{OUTSIDE_V6}]:5000, udp:{OUTSIDE_V4}:5001\n");
    outside(&policy, |_, run| {
        let ran = run(&format!(
            "
for host in ('{OUTSIDE_V4}', '{OUTSIDE_V6}'):
    for connected in (False, True):
        ask(host, 5000, connected); ask(host, 5000, connected, b'y' * 60000)
ask('{OUTSIDE_V4}', 5000, True, source='93.184.216.99')
ask('{OUTSIDE_V4}', 5000, False, source='93.184.216.99')
ask('{OUTSIDE_V4}', 5001, True)
s = ask('{OUTSIDE_V4}', 5000, False)
for n in range(300): s.sendto(b'%d' % n, ('{OUTSIDE_V4}', 5000)); assert s.recv(9) == b'[%d]' % n"
        ));
        let both = "3 [x] True\n60002 [yyy True\n".repeat(2);
        let last = "3 [x] True\n3 [x] True\nConnectionRefusedError\n3 [x] True\n";
        ran.exits(0).prints(&format!("{both}{both}{last}")).denied_nothing();
        let sizes: Vec<u64> = ran.of("net.datagram").into_iter().map(count).collect();
        // 602 in one session, by entries of at most 256.
        assert_eq!(sizes.iter().sum::<u64>(), 11 * 2 + 1 + 600, "{sizes:?} {ran}");
        assert!(sizes.iter().all(|size| *size <= 256), "{sizes:?}");
        let refused = ran.of("net.datagram").into_iter().find(|entry| entry["args"]["port"] == 5001);
        assert_eq!(refused.expect("an entry")["result"]["failure"]["kind"], "refused", "{ran}");
    });
}

#[test]
fn what_no_rule_lets_out_is_refused_at_once() {
    let policy = format!(
        "net: {OUTSIDE_V4}:5000, {OUTSIDE_V4}:443, udp:{OUTSIDE_V4}:5001\ndeny: net udp:{OUTSIDE_V4}:5001\n"
    );
    outside(&policy, |_, run| {
        let ran = run(&format!(
            "
ask('{OUTSIDE_V4}', 5000, True); ask('{OUTSIDE_V4}', 5001, True); ask('{OUTSIDE_V6}', 443, True)
ask('{OUTSIDE_V4}', 443, True, wait=60); ask('{OUTSIDE_V4}', 5000, False, wait=0.2)"
        ));
        let refused = "ConnectionRefusedError\n".repeat(4);
        ran.exits(0).prints(&format!("{refused}TimeoutError\n"));
        ran.denied("net", &format!("udp:{OUTSIDE_V4}:5000"))
            .denied("net", &format!("udp:[{OUTSIDE_V6}]:443"));
        ran.complains(&format!("net: udp:{OUTSIDE_V4}:443"));
        let count = ran.denials("net").iter().map(|entry| entry["count"].as_u64().unwrap_or(1)).sum::<u64>();
        assert_eq!(count, 5, "{ran}");
        assert!(ran.of("net.datagram").is_empty() && ran.of("net.connect").is_empty(), "{ran}");
    });
}

#[test]
fn many_sessions_are_bounded() {
    outside("net: udp:cidr/93.184.216.0/24:5000\n", |_, run| {
        let ran = run("
import socket
out = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(600)]
for n, s in enumerate(out):
    s.settimeout(5); s.sendto(b'x', (f'93.184.216.{n % 200 + 1}', 5000)); s.recv(9)
# The first one is long over: it begins again.
out[0].sendto(b'y', ('93.184.216.1', 5000)); print(out[0].recv(9))");
        ran.exits(0).prints("b'[y]'\n");
        assert_eq!(ran.of("net.connect").len(), 601, "{ran}");
    });
}

#[test]
fn a_rule_for_streams_lets_no_datagram_through() {
    let port = echo();
    everyone(|sandbox| {
        sandbox.policy(&format!("net: localhost:{port}\n"));
        let ran = sandbox.python(&format!("{ASK}ask('127.0.0.1', {port}, True)"));
        ran.exits(0).prints("ConnectionRefusedError\n");
        ran.denied("net", &format!("udp:localhost:{port}"));
    });
}

#[test]
fn datagrams_to_loopback_reach_what_is_inside_and_are_recorded_when_nobody_takes_them() {
    let port = echo();
    everyone(|sandbox| {
        sandbox.policy("");
        let ran = sandbox.python(&format!(
            "{ASK}
ask('127.0.0.1', {port}, True); ask('::1', {port}, True); ask('127.0.0.1', {port}, False, wait=0.2)
for host in ('127.0.0.1', '::1'):
    for connected in (False, True):
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        server = socket.socket(family, socket.SOCK_DGRAM); server.bind((host, 0))
        anywhere = socket.socket(family, socket.SOCK_DGRAM); anywhere.bind(('::' if ':' in host else '', 0))
        for at in (server, anywhere):
            client = socket.socket(family, socket.SOCK_DGRAM); client.settimeout(5)
            to = (host, at.getsockname()[1])
            if connected: client.connect(to); client.send(b'x')
            else: client.sendto(b'x', to)
            data, who = at.recvfrom(9); at.sendto(data + b'y', who); print(client.recv(9).decode())
"
        ));
        let told = "ConnectionRefusedError\nConnectionRefusedError\nTimeoutError\n";
        ran.exits(0).prints(&format!("{told}{}", "xy\n".repeat(8)));
        let denied = ran.denials("net");
        let count = denied.iter().map(|entry| entry["count"].as_u64().unwrap_or(1)).sum::<u64>();
        assert_eq!(count, 3, "{ran}");
        ran.denied("net", &format!("udp:localhost:{port}"));
        let mut addresses: Vec<&str> =
            denied.iter().filter_map(|entry| entry["args"]["address"].as_str()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses, ["127.0.0.1", "::1"], "{ran}");
    });
}
