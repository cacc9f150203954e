"""The server of the network loads: nginx with a certificate of an authority of its own."""
import os
import shutil
import socket
import subprocess
import time

CONFIGURATION = """
daemon off;
worker_processes 1;
error_log {dir}/nginx.log;
pid {dir}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    client_body_temp_path {dir}/nginx-body;
    proxy_temp_path {dir}/nginx-proxy;
    fastcgi_temp_path {dir}/nginx-fastcgi;
    uwsgi_temp_path {dir}/nginx-uwsgi;
    scgi_temp_path {dir}/nginx-scgi;
    ssl_certificate {dir}/chain.pem;
    ssl_certificate_key {dir}/key.pem;
    ssl_protocols TLSv1.2 TLSv1.3;
    server {{
        listen 127.0.0.1:{http};
        listen [::1]:{http};
        listen 127.0.0.1:{https} ssl;
        listen [::1]:{https} ssl;
        root {dir}/www;
    }}
}}
"""


class Server:
    """Two ports of the loopback, and what is served there: `small`, `large` and `pages/N`."""

    def __init__(self, directory, pages):
        self.directory = os.path.join(directory, "server")
        self.www = os.path.join(self.directory, "www")
        os.makedirs(os.path.join(self.www, "pages"), exist_ok=True)
        # The workers of nginx are another user's.
        for part in (directory, self.directory, self.www):
            os.chmod(part, 0o755)
        for page in range(pages):
            self.write("pages/%d" % page, (b"%7d\n" % page) * 128)
        self.write("small", b"page\n" * 204 + b"end\n")
        # Bytes that no compression makes shorter, as most that is downloaded.
        part = os.urandom(4 << 20)
        self.write("large", part, times=128)
        self.http, self.https = free_port(), free_port()
        self.authority = os.path.join(self.directory, "authority.pem")
        certify(self.directory)

    def write(self, name, content, times=1):
        with open(os.path.join(self.www, name), "wb") as file:
            for _ in range(times):
                file.write(content)

    def url(self, scheme):
        return "%s://localhost:%d" % (scheme, self.http if scheme == "http" else self.https)

    def __enter__(self):
        ports = {"http": self.http, "https": self.https, "dir": self.directory}
        path = os.path.join(self.directory, "nginx.conf")
        with open(path, "w") as file:
            file.write(CONFIGURATION.format(**ports))
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        self.process = subprocess.Popen([nginx, "-c", path], stdin=subprocess.DEVNULL)
        wait_for(self.http)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def certify(directory):
    """An authority, and a certificate of it for this machine."""

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    authority = ["-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=Authority of a benchmark"]
    openssl("req", "-x509", *curve, *authority, "-days", "30")
    openssl("req", *curve, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=localhost")
    with open(os.path.join(directory, "extensions"), "w") as file:
        file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signer = ["-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial"]
    openssl("x509", "-req", "-in", "request.pem", *signer, "-extfile", "extensions", "-days", "20", "-out", "chain.pem")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, seconds=20):
    """Waits until something listens there."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
