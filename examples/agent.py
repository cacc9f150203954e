"""An agent that tries a little of everything: what its policy allows, and what it does not.

Run it from the root of the repository:

    agentbox run -p examples/agentbox.policy -- python3 examples/agent.py

It prints one line for each step and exits 0 if every step went as the policy says.
"""

import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time

INPUT = "examples/data/input.txt"
OUTPUT = "out/report.txt"
SECRET = "examples/secret.txt"
HOST = "blocked.example"


def read_input():
    with open(INPUT) as file:
        return "%d lines" % len(file.readlines())


def write_report():
    os.makedirs("out", exist_ok=True)
    with open(OUTPUT, "w") as file:
        return "%d bytes" % file.write("written by the example agent\n")


def start_child():
    with open(INPUT) as file:
        words = file.read()
    done = subprocess.run(
        ["sort"], input=words, stdout=subprocess.PIPE, universal_newlines=True, check=True
    )
    return "first of the sorted lines: " + done.stdout.split()[0]


class Greeting(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"hello from inside"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


def fetch_from_own_server():
    server = http.server.HTTPServer(("127.0.0.1", 0), Greeting)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        client.request("GET", "/")
        return client.getresponse().read().decode()
    finally:
        server.shutdown()
        server.server_close()


def read_secret():
    with open(SECRET) as file:
        return file.read().strip()


def start_program():
    return subprocess.run(["id"], stdout=subprocess.PIPE).stdout.decode().strip()


def reach_host():
    started = time.monotonic()
    try:
        socket.create_connection((HOST, 80), timeout=10).close()
    finally:
        waited = time.monotonic() - started
        if waited > 5:
            raise RuntimeError("the refusal took %.1f seconds" % waited)
    return "connected"


# What is tried, on what, by which function, and the error that a refusal must raise.
STEPS = [
    ("read", INPUT, read_input, None),
    ("write", OUTPUT, write_report, None),
    ("exec", "sort", start_child, None),
    ("net", "own server on 127.0.0.1", fetch_from_own_server, None),
    ("read", SECRET, read_secret, PermissionError),
    ("exec", "id", start_program, PermissionError),
    ("net", HOST, reach_host, OSError),
]


def attempt(function, refusal):
    """Returns whether the step was allowed, whether that is right, and what to say of it."""
    try:
        return True, refusal is None, function()
    except OSError as error:
        expected = refusal is not None and isinstance(error, refusal)
        return False, expected, error.strerror or str(error)
    except Exception as error:
        return False, False, "%s: %s" % (type(error).__name__, error)


def main():
    surprises = 0
    for kind, target, function, refusal in STEPS:
        allowed, right, detail = attempt(function, refusal)
        verdict = "allowed" if allowed else "refused"
        surprise = "" if right else "   <- not what the policy says"
        print("%s  %-5s  %-24s  %s%s" % (verdict, kind, target, detail, surprise), flush=True)
        surprises += not right
    if surprises:
        print("%d of %d steps did not behave as the policy says" % (surprises, len(STEPS)))
        return 1
    print("all %d steps behaved as the policy says" % len(STEPS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
