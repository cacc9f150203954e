"""An origin with a certificate of a test authority. It speaks what each client asks for: pages, an
index of Python packages, a registry of npm's and one of cargo's, a Git repository, a bucket.

Usage: origin.py DIRECTORY ADDRESS; the directory holds chain.pem, key.pem and repo.git. Everything
is below /ok and below /no alike.
"""

import hashlib, http.server, io, json, os, socket, ssl, subprocess, sys, tarfile, threading, urllib.parse, zipfile

DIRECTORY, ADDRESS = sys.argv[1:]
HOST = "origin.test"


def wheel():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("tiny.py", "page\n")
        archive.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        archive.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.dist-info/RECORD", "")
    return data.getvalue()


def tarball(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


WHEEL = wheel()
MANIFEST = '[package]\nname = "tiny"\nversion = "1.0.0"\n'
CRATE = tarball({"tiny-1.0.0/Cargo.toml": MANIFEST, "tiny-1.0.0/src/lib.rs": "", "tiny-1.0.0/page": "page\n"})
NPM = tarball({"package/package.json": '{"name": "tiny", "version": "1.0.0"}', "package/page": "page\n"})
TEXT, HTML, JSON, BYTES = "text/plain", "text/html", "application/json", "application/octet-stream"


def documents(base):
    """What is below `base`, the URL of /ok or of /no."""
    npm = {
        "name": "tiny",
        "dist-tags": {"latest": "1.0.0"},
        "versions": {
            "1.0.0": {
                "name": "tiny",
                "version": "1.0.0",
                "dist": {"tarball": base + "/npm/tiny/-/tiny-1.0.0.tgz", "shasum": hashlib.sha1(NPM).hexdigest()},
            }
        },
    }
    crate = {"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(CRATE).hexdigest(), "features": {}, "yanked": False}
    return {
        "/page": (TEXT, b"page\n"),
        "/bucket/key": (TEXT, b"page\n"),
        "/pip/simple/tiny/": (HTML, b'<a href="../../tiny-1-py3-none-any.whl">tiny-1-py3-none-any.whl</a>'),
        "/pip/tiny-1-py3-none-any.whl": (BYTES, WHEEL),
        "/npm/tiny": (JSON, json.dumps(npm).encode()),
        "/npm/tiny/-/tiny-1.0.0.tgz": (BYTES, NPM),
        "/cargo/config.json": (JSON, json.dumps({"dl": base + "/cargo/dl"}).encode()),
        "/cargo/ti/ny/tiny": (JSON, json.dumps(crate).encode() + b"\n"),
        "/cargo/dl/tiny/1.0.0/download": (BYTES, CRATE),
    }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        top = path[:3]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path[3:].startswith("/git/"):
            return self.git(path[7:], query, body)
        found = documents(f"https://{HOST}{top}").get(path[3:]) if top in ("/ok", "/no") else None
        if found:
            self.answer(200, *found)
        else:
            self.answer(404, TEXT, b"nothing here\n")

    do_HEAD = do_POST = do_GET

    def git(self, path, query, body):
        environment = dict(
            os.environ, GIT_PROJECT_ROOT=DIRECTORY, GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path, QUERY_STRING=query,
            REQUEST_METHOD=self.command, CONTENT_TYPE=self.headers.get("Content-Type", ""), CONTENT_LENGTH=str(len(body)),
            HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""), GIT_CONFIG_COUNT="1",
            GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*", REMOTE_ADDR="",
        )
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.answer(int(fields.get("Status", "200")[:3]), fields.get("Content-Type", TEXT), content)


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET

    def get_request(self):
        client, address = super().get_request()
        client.settimeout(30)
        return context.wrap_socket(client, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request, address):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(DIRECTORY, "chain.pem"), os.path.join(DIRECTORY, "key.pem"))
server = Server((ADDRESS, 443), Handler)
# Its end is that of whoever started it.
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print("listening", flush=True)
server.serve_forever()
