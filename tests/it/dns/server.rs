//! The name server outside, in Python: its zone, its log, a web server that tells the Host, and a greeting of SSH.

use std::collections::BTreeSet;
use std::path::Path;

/// `LOG` stands for the file that gets a line for each query.
pub(super) const SERVER: &str = r#"
import socket, struct, sys, threading, http.server
V4, V6 = '93.184.216.34', '2606:2800:220:1::34'
TYPES = {1: 'A', 28: 'AAAA', 5: 'CNAME', 33: 'SRV', 16: 'TXT', 15: 'MX', 65: 'HTTPS', 12: 'PTR', 6: 'SOA', 2: 'NS'}
turns = [0]
def rotating():
    turns[0] += 1
    return [[('A', '93.184.216.40')], [('A', '93.184.216.41')], [('A', '10.9.0.1')]][min(turns[0], 3) - 1]
ZONE = {
    'alias.test': [('CNAME', 'target.test'), ('A', V4)],
    'target.test': [('A', V4)],
    'big.test': [('A', f'93.184.216.{n}') for n in range(100, 160)],
    'v6.test': [('AAAA', V6)], 'v4.test': [('A', V4)], 'both.test': [('A', V4), ('AAAA', V6)],
    'mixed.test': [('A', '169.254.169.254'), ('A', V4)], 'meta.test': [('A', '169.254.169.254')],
    'rot.test': rotating, 'short.corp.test': [('A', V4)], 'fail.test': None,
    'db.test': [('TXT', 'v=1'), ('HTTPS', '')], '_pg._tcp.db.test': [('SRV', 'a.db.test')],
    'evil.test': [('A', V4)], 'printer.local': [('A', V4)],
}
def encode(name): return b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0'
def data(kind, value):
    if kind == 'A': return socket.inet_pton(socket.AF_INET, value)
    if kind == 'AAAA': return socket.inet_pton(socket.AF_INET6, value)
    if kind == 'CNAME': return encode(value)
    if kind == 'SRV': return struct.pack('!HHH', 0, 5, 5432) + encode(value)
    if kind == 'TXT': return bytes([len(value)]) + value.encode()
    return struct.pack('!H', 1) + b'\0'
def answer(query, carrier):
    end, labels = 12, []
    while query[end]: labels.append(query[end + 1:end + 1 + query[end]].decode('latin1')); end += 1 + query[end]
    name, kind = '.'.join(labels).lower(), struct.unpack('!H', query[end + 1:end + 3])[0]
    wanted = TYPES.get(kind, str(kind))
    with open(LOG, 'a') as log: log.write(f'{name} {wanted}{carrier}\n')
    question, records = query[12:end + 5], ZONE.get(name, [])
    known = name in ZONE
    if callable(records): records = rotating() if wanted == 'A' else []
    if records is None: return query[:2] + b'\x81\x82\0\1\0\0\0\0\0\0' + question
    chain = [r for r in records if r[0] == 'CNAME']
    found = [r for r in records if r[0] == wanted]
    body, count, owner = b'', 0, name
    for kind_name, value in chain + found:
        number = next(n for n, k in TYPES.items() if k == kind_name)
        rdata = data(kind_name, value)
        body += encode(owner) + struct.pack('!HHIH', number, 1, 1 if name == 'rot.test' else 300, len(rdata)) + rdata
        count += 1
        if kind_name == 'CNAME': owner = value
    if not carrier and len(body) > 480: return query[:2] + b'\x83\x80\0\1\0\0\0\0\0\0' + question
    code = 0x8180 if known else 0x8183
    # What there is not has its zone's SOA beside it (RFC 2308).
    soa = encode('ns.test') + encode('root.test') + struct.pack('!IIIII', 1, 3600, 600, 86400, 60)
    authority = b'' if found else encode('test') + struct.pack('!HHIH', 6, 1, 60, len(soa)) + soa
    return query[:2] + struct.pack('!HHHHH', code, 1, count, not found, 0) + question + body + authority
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('0.0.0.0', 53))
tcp = socket.create_server(('0.0.0.0', 53))
def over_udp():
    while True:
        query, client = udp.recvfrom(4096); udp.sendto(answer(query, ''), client)
def over_tcp():
    while True:
        stream, _ = tcp.accept()
        def serve(stream=stream):
            file = stream.makefile('rb')
            while length := file.read(2):
                reply = answer(file.read(int.from_bytes(length, 'big')), ' tcp')
                stream.sendall(len(reply).to_bytes(2, 'big') + reply)
        threading.Thread(target=serve, daemon=True).start()
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = f"page of {self.headers['Host']}\n".encode()
        self.send_response(200); self.send_header('Content-Length', str(len(page))); self.end_headers(); self.wfile.write(page)
    def log_message(self, *words): pass
class Web(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
def banner():
    listener = socket.create_server(('::', 22), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        stream, _ = listener.accept()
        stream.sendall(b'SSH-2.0-outside\r\n'); stream.recv(99); stream.close()
for run in (banner, over_udp, over_tcp, Web(('::', 8000), Page).serve_forever): threading.Thread(target=run).start()
open(sys.argv[1], 'w')
"#;

/// What it was asked for: `NAME TYPE`, with ` tcp` behind it where it came so.
pub(super) fn queries(log: &Path) -> BTreeSet<String> {
    std::fs::read_to_string(log).unwrap_or_default().lines().map(str::to_owned).collect()
}
