//! The same requests through all four ways out: a plain connection, the proxy in its absolute form, CONNECT, and
//! SOCKS5 by name. One function decides: each case has the same verdict by the same rule, whichever way it came.

use serde_json::Value;

use crate::support::{Ran, Sandbox, everyone, skip};

/// A name server and a web server outside, on ports 8000 and 8001, which answers each request with `page`.
const SERVER: &str = r#"
import http.server, socket, struct, sys, threading
ZONE = {'open.test': '93.184.216.34', 'ruled.test': '93.184.216.35', 'a.wild.test': '93.184.216.36',
        'wild.test': '93.184.216.37', 'port.test': '93.184.216.38', 'inner.test': '10.9.0.1', 'meta.test': '169.254.169.254',
        'named.test': '10.9.0.2', 'shut.wild.test': '93.184.216.39', 'never.test': '93.184.216.40'}
def answer(query):
    end, labels = 12, []
    while query[end]: labels.append(query[end + 1:end + 1 + query[end]].decode()); end += 1 + query[end]
    address = ZONE.get('.'.join(labels).lower()) if query[end + 1:end + 3] == b'\0\1' else None
    body = b'\xc0\x0c\0\1\0\1\0\0\1\x2c\0\4' + socket.inet_aton(address) if address else b''
    return query[:2] + struct.pack('!HHHHH', 0x8180, 1, 1 if body else 0, 0, 0) + query[12:end + 5] + body
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('0.0.0.0', 53))
def names():
    while True:
        query, client = udp.recvfrom(4096); udp.sendto(answer(query), client)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header('Content-Length', '4'); self.end_headers()
        if self.command != 'HEAD': self.wfile.write(b'page')
    do_HEAD = do_POST = do_DELETE = do_GET
    def log_message(self, *words): pass
for port in (8000, 8001):
    threading.Thread(target=http.server.ThreadingHTTPServer(('0.0.0.0', port), Page).serve_forever).start()
threading.Thread(target=names).start()
open(sys.argv[1], 'w')
"#;

/// Sends each case of `cases` by the way `sys.argv[1]`, and prints whether the page came.
const CLIENT: &str = r#"
import os, socket, sys
way = sys.argv[1]
host, port = os.environ['http_proxy'].split('//')[1].rstrip('/').split(':')
proxy = (host, int(port))
def head(stream):
    got = b''
    while b'\r\n\r\n' not in got and (more := stream.recv(1)): got += more
    return got
def socks(stream, host, port):
    stream.sendall(b'\5\1\0'); stream.recv(2)
    name = host.strip('[]').encode()
    stream.sendall(b'\5\1\0\3' + bytes([len(name)]) + name + port.to_bytes(2, 'big'))
    answer = stream.recv(10)
    return len(answer) > 1 and answer[1] == 0
def ask(host, port, method, path):
    target = f'http://{host}:{port}{path}' if way == 'absolute' else path
    request = f'{method} {target} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'.encode()
    with socket.create_connection((host, port) if way == 'plain' else proxy, 20) as stream:
        if way == 'connect':
            stream.sendall(f'CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n'.encode())
            if b' 200 ' not in head(stream).split(b'\r\n')[0]: return 'refused'
        if way == 'socks' and not socks(stream, host, port): return 'refused'
        stream.sendall(request)
        return 'allowed' if b' 200 ' in head(stream).split(b'\r\n')[0] else 'refused'
for line in open('cases'):
    host, port, method, path = line.split()
    try:
        print(ask(host, int(port), method, path))
    except OSError:
        print('refused')
"#;

const POLICY: &str = "read: .
exec: /**
net: open.test
net: port.test:8001
net: GET|HEAD ruled.test:8000/repos/**, POST ruled.test:8000/messages
net: *.wild.test
net: inner.test, meta.test
net: named.test private
net: 93.184.216.50:8000
net: cidr/93.184.216.64/28
deny: net shut.wild.test
";

/// Host, port, method and path; whether the page comes, and the line of [`POLICY`] that says so. 0: none.
const CASES: [(&str, u16, &str, &str, bool, u8); 27] = [
    ("open.test", 8000, "GET", "/", true, 3),
    ("open.test", 8001, "DELETE", "/any/thing", true, 3),
    ("OPEN.test", 8000, "GET", "/", true, 3),
    ("open.test.", 8000, "GET", "/", true, 3),
    ("never.test", 8000, "GET", "/", false, 0),
    ("open.test.never.test", 8000, "GET", "/", false, 0),
    ("port.test", 8001, "GET", "/", true, 4),
    ("port.test", 8000, "GET", "/", false, 0),
    ("ruled.test", 8000, "GET", "/repos/a/b", true, 5),
    ("ruled.test", 8000, "HEAD", "/repos/a", true, 5),
    ("ruled.test", 8000, "POST", "/messages", true, 5),
    ("ruled.test", 8000, "POST", "/repos/a", false, 0),
    ("ruled.test", 8000, "GET", "/other", false, 0),
    ("ruled.test", 8000, "DELETE", "/messages", false, 0),
    ("ruled.test", 8001, "GET", "/repos/a", false, 0),
    ("a.wild.test", 8000, "GET", "/", true, 6),
    ("wild.test", 8000, "GET", "/", false, 0),
    ("shut.wild.test", 8000, "GET", "/", false, 11),
    ("inner.test", 8000, "GET", "/", false, 0),
    ("meta.test", 8000, "GET", "/", false, 0),
    ("named.test", 8000, "GET", "/", true, 8),
    ("93.184.216.50", 8000, "GET", "/", true, 9),
    ("93.184.216.50", 8001, "GET", "/", false, 0),
    ("93.184.216.70", 8001, "GET", "/", true, 10),
    ("93.184.216.34", 8000, "GET", "/", false, 0),
    ("10.9.0.1", 8000, "GET", "/", false, 0),
    ("169.254.169.254", 8000, "GET", "/", false, 0),
];

/// The line of the policy that an entry names, 0 where it says that none does.
fn line_of(entry: &Value) -> u8 {
    let rule = entry["rule"].as_str().unwrap_or_default();
    rule.rsplit_once("/agentbox.policy:").and_then(|(_, line)| line.parse().ok()).unwrap_or(0)
}

/// Of each host that was asked for: verdicts and the lines that gave them, folded alike whichever way.
fn told(ran: &Ran) -> Vec<(String, bool, u8)> {
    let host = |entry: &Value| {
        let args = &entry["args"];
        let url = args["url"].as_str().and_then(|url| url.strip_prefix("http://"));
        let target = url.or_else(|| args["target"].as_str()).unwrap_or_default();
        let host = target.split(['/', ':']).next().unwrap_or_default();
        host.trim_end_matches('.').to_lowercase()
    };
    let allowed = ran.of("http.exchange").into_iter().filter(|entry| entry["result"]["status"] == 200);
    let allowed = allowed.map(|entry| (host(entry), true, line_of(entry)));
    let denied = ran.denials("net").into_iter().map(|entry| (host(entry), false, line_of(entry)));
    let mut told: Vec<_> = allowed.chain(denied).collect();
    told.sort();
    told.dedup();
    told
}

#[test]
fn a_request_has_one_verdict_by_one_rule_whichever_way_it_goes() {
    if let Some(missing) = Sandbox::outside_lacks() {
        return skip(missing, "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        let lines = CASES.map(|(host, port, method, path, ..)| format!("{host} {port} {method} {path}\n"));
        sandbox.file("cases", lines.concat());
        sandbox.file("client.py", CLIENT);
        let expected: Vec<_> = CASES.iter().map(|case| if case.4 { "allowed" } else { "refused" }).collect();
        let mut rules: Vec<_> = CASES
            .iter()
            .map(|&(host, .., is_allowed, line)| {
                (host.trim_end_matches('.').to_lowercase(), is_allowed, line)
            })
            .collect();
        rules.sort();
        rules.dedup();
        for way in ["plain", "absolute", "connect", "socks"] {
            let ran = sandbox.run_outside(SERVER, &[], &["python3", "client.py", way]);
            let printed: Vec<_> = ran.exits(0).stdout.lines().collect();
            for ((case, expected), printed) in CASES.iter().zip(&expected).zip(&printed) {
                assert_eq!(expected, printed, "{way}: {case:?}\n{ran}");
            }
            assert_eq!(printed.len(), CASES.len(), "{ran}");
            assert_eq!(told(&ran), rules, "{way}\n{ran}");
        }
    });
}
