"""The servers that the workloads of the replay table talk to, on this machine's loopback.

Usage: origin.py DIRECTORY; the directory holds chain.pem, key.pem and repo.git. It prints its two
ports, of http and of https, and ends with its standard input. It is a page, an index of Python
packages, a registry of npm's, a Git server, a bucket, and two models that answer in streams.
"""
import hashlib, http.server, io, json, os, ssl, subprocess, sys, tarfile, threading, time, uuid, zipfile

DIRECTORY = sys.argv[1]
TEXT, HTML, JSON, BYTES = "text/plain", "text/html", "application/json", "application/octet-stream"


def wheel():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("tiny.py", "PAGE = 'page'\n")
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
NPM = tarball({"package/package.json": '{"name": "tiny", "version": "1.0.0"}', "package/index.js": "module.exports = 7\n"})


def packument(base):
    archive = {"tarball": base + "/npm/tiny/-/tiny-1.0.0.tgz", "shasum": hashlib.sha1(NPM).hexdigest()}
    version = {"name": "tiny", "version": "1.0.0", "dist": archive}
    return {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes: the second would wait for a delayed acknowledgement of the first.
    disable_nagle_algorithm = True
    bucket = {}

    def log_message(self, *words):
        pass

    def answer(self, status, kind, body, fields=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        body = self.body()
        if path.startswith("/git/"):
            return self.git(path[4:], query, body)
        if path.startswith("/bucket/"):
            return self.store(path, body)
        if path in ("/v1/messages", "/v1/chat/completions"):
            return self.model(path, json.loads(body))
        if path.startswith("/pages/"):
            return self.answer(200, BYTES, path.encode().ljust(1024))
        base = f"https://localhost:{self.server.server_port}"
        found = {
            # What differs in each answer: a replay must serve the recorded one.
            "/page": (TEXT, f"page {query} {uuid.uuid4()} {time.time_ns()}\n".encode()),
            "/echo": (JSON, json.dumps({"got": len(body), "id": str(uuid.uuid4())}).encode()),
            "/simple/tiny/": (HTML, b'<a href="../../tiny-1-py3-none-any.whl">tiny-1-py3-none-any.whl</a>'),
            "/tiny-1-py3-none-any.whl": (BYTES, WHEEL),
            "/npm/tiny": (JSON, json.dumps(packument(base)).encode()),
            "/npm/tiny/-/tiny-1.0.0.tgz": (BYTES, NPM),
        }.get(path)
        self.answer(200, *found) if found else self.answer(404, TEXT, b"nothing here\n")

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def git(self, path, query, body):
        environment = dict(
            os.environ, GIT_PROJECT_ROOT=DIRECTORY, GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path, QUERY_STRING=query,
            REQUEST_METHOD=self.command, CONTENT_TYPE=self.headers.get("Content-Type", ""),
            CONTENT_LENGTH=str(len(body)), HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
            GIT_PROTOCOL=self.headers.get("Git-Protocol", ""), REMOTE_ADDR="",
        )
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.answer(int(fields.get("Status", "200")[:3]), fields.get("Content-Type", TEXT), content)

    def store(self, path, body):
        tag = [("ETag", '"%s"' % hashlib.md5(body).hexdigest()), ("x-amz-request-id", uuid.uuid4().hex)]
        if self.command == "PUT":
            self.bucket[path] = body
            return self.answer(200, TEXT, b"", tag)
        if self.command == "DELETE":
            self.bucket.pop(path, None)
            return self.answer(204, TEXT, b"", tag)
        if path not in self.bucket:
            return self.answer(404, "application/xml", b"<Error><Code>NoSuchKey</Code></Error>", tag)
        self.answer(200, BYTES, self.bucket[path], tag)

    def model(self, path, asked):
        """Streams an answer; asked with tools, the model wants one of them until it has had 30 turns."""
        turn = len(asked["messages"]) // 2
        words = ["turn", str(turn), uuid.uuid4().hex[:8]]
        wants = bool(asked.get("tools")) and turn < 29
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in (anthropic if path == "/v1/messages" else openai)(words, wants):
            kind = f"event: {event['type']}\n" if "type" in event else ""
            self.chunk(f"{kind}data: {json.dumps(event)}\n\n".encode())
            time.sleep(0.01)
        if path != "/v1/messages":
            self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()


def anthropic(words, wants):
    usage = {"input_tokens": 9, "output_tokens": 0}
    message = {"id": "msg_" + uuid.uuid4().hex, "type": "message", "role": "assistant", "model": "m", "content": []}
    yield {"type": "message_start", "message": dict(message, stop_reason=None, stop_sequence=None, usage=usage)}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in words:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word + " "}}
    yield {"type": "content_block_stop", "index": 0}
    delta = {"stop_reason": "tool_use" if wants else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": len(words)}}
    yield {"type": "message_stop"}


def openai(words, wants):
    named = {"id": "chatcmpl-" + uuid.uuid4().hex, "object": "chat.completion.chunk", "created": int(time.time())}
    for word in words:
        yield dict(named, choices=[{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}])
    yield dict(named, choices=[{"index": 0, "delta": {}, "finish_reason": "tool_calls" if wants else "stop"}])


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    context = None

    def get_request(self):
        client, address = super().get_request()
        client.settimeout(60)
        if self.context:
            client = self.context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        return client, address

    def handle_error(self, request, address):
        pass


plain, secure = (Server(("127.0.0.1", 0), Handler) for _ in range(2))
secure.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
secure.context.load_cert_chain(DIRECTORY + "/chain.pem", DIRECTORY + "/key.pem")
for server in (plain, secure):
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(plain.server_port, secure.server_port, flush=True)
sys.stdin.read()
