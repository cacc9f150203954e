# Writes down what it gets, and tells it back over TLS in many forms; tells its port first.
import base64, gzip, http.server, json, ssl, sys, threading, time, zlib

GO = threading.Event()
LAST = []


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        key = self.headers.get('Authorization', '') or self.headers.get('X-Own', '')
        with open(sys.argv[1] + '/got', 'a') as got:
            got.write(json.dumps([self.path, key, body.decode()]) + '\n')
        LAST[:] = [key]
        if self.path == '/stream':
            return self.stream(key)
        if self.path == '/go':
            GO.set()
        if self.path == '/live':
            return self.live(key)
        told = {'key': key, 'quoted': base64.b64encode(key.encode()).decode(), 'body': body.decode()}
        told = json.dumps(told).encode()
        self.send_response(200)
        self.send_header('X-Echo', key)
        if self.path == '/forms':
            escaped = ['&#%d;', '&#x%02X;', '%%%02x', '\\u%04x', '%c']
            told = ''.join(escaped[at % 5] % ord(letter) for at, letter in enumerate(key))
            self.send_header('Location', '/?' + told)
            self.send_header('X-' + base64.urlsafe_b64encode(key.encode()).decode().rstrip('='), '1')
            told = told.encode() + b'\n' + base64.encodebytes(b'-' * 50 + key.encode())
        if self.path == '/gzip':
            told = gzip.compress(told)
            self.send_header('Content-Encoding', 'gzip')
        elif self.path == '/deflate':
            told = zlib.compress(told)
            self.send_header('Content-Encoding', 'deflate')
        elif self.path == '/compress':
            self.send_header('Content-Encoding', 'compress')
        elif self.path == '/coded':
            self.send_header('Content-Encoding', key[::-1])
        self.send_header('Content-Length', str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_POST = do_GET

    def stream(self, key):
        GO.clear()
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        for piece in 'data: one\n\n', 'data: ' + key[:12], key[12:], '\n\n', '':
            self.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece.encode()))
            self.wfile.flush()
            # The first has arrived when the client asks for more.
            GO.wait(30)
            time.sleep(0.1)

    def live(self, key):
        self.send_response(101)
        self.send_header('Connection', 'Upgrade')
        self.send_header('Upgrade', 'lines')
        self.end_headers()
        self.wfile.write(key[:12].encode())
        self.wfile.flush()
        time.sleep(0.2)
        self.wfile.write(key[12:].encode() + b'\n')
        self.wfile.flush()
        said = self.rfile.readline()
        self.wfile.write(b'heard ' + said)
        self.close_connection = True

    def send_error(self, *_):
        # What is no HTTP is answered in a protocol of its own.
        self.wfile.write(b'+%s\r\n' % ''.join(LAST).encode())
        self.close_connection = True

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Origin)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + '/chain.pem', sys.argv[1] + '/key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
