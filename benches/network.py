"""Times network loads bare, confined and through peers, in turns; prints medians and their ratio to bare.

The server (nginx) and the clients (wrk, hey, a program in Go, curl, python3) are on this machine. A ratio is the median
of the ratios within each turn. CPU is what every process but the client and the server used, for
each request; memory is the most that they held (PSS) at a time when they were looked at.
"""
import os
import shutil
import statistics
import subprocess
import sys

from peers import Agentbox, Bare, Failed, Mitmproxy, Sandbox
from server import Server

RUNS, SECONDS, DIR = int(os.environ["RUNS"]), os.environ["LASTING"], os.environ["DIR"]
PAGES = 500
PYTHON = os.path.realpath(sys.executable)
MIB = 1 << 20


class Row:
    """One load: what it asks for, who does (and what it prints means), and whether it takes no heed of proxies."""

    def __init__(self, title, scheme, client, transparent=True):
        self.title, self.scheme, self.client = title, scheme, client
        self.transparent = transparent


def kept():
    def command(url):
        return ["wrk", "-t1", "-c16", "-d%ss" % SECONDS, url + "/small"]

    return command, read_wrk


def kept_by_hey():
    """Hey speaks HTTP/1.1 unless it is told otherwise, and takes no heed of proxies."""

    def command(url):
        return ["hey", "-c", "16", "-z", "%ss" % SECONDS, url + "/small"]

    return command, read_hey


def read_hey(printed):
    lines = [line.split() for line in printed.splitlines()]
    if any(words[:1] == ["Error"] for words in lines):
        raise Failed("hey: " + printed[-300:])
    rate = next(float(words[1]) for words in lines if words[:1] == ["Requests/sec:"])
    answered = [(words[0], int(words[1])) for words in lines if words[2:] == ["responses"]]
    if not answered or any(status != "[200]" for status, _ in answered):
        raise Failed("hey: %s" % answered)
    return rate, sum(count for _, count in answered)


def read_wrk(printed):
    """The rate, and how many requests there were."""
    if "Non-2xx" in printed or "Socket errors" in printed:
        raise Failed(" ".join(line.strip() for line in printed.splitlines() if "Non-2xx" in line or "errors" in line))
    lines = [line.split() for line in printed.splitlines()]
    rate = next(float(words[1]) for words in lines if words[:1] == ["Requests/sec:"])
    count = next(int(words[0]) for words in lines if words[1:3] == ["requests", "in"])
    return rate, count


def new():
    def command(url):
        return [os.path.join(DIR, "connections"), SECONDS, url + "/small"]

    def read(printed):
        rate, count = printed.split()
        return float(rate), int(count)

    return command, read


def download():
    def command(url):
        return ["curl", "-sS", "--fail", "-o", "/dev/null", "-w", "%{time_total} %{size_download}", url + "/large"]

    def read(printed):
        seconds, size = map(float, printed.split())
        return size / MIB / seconds, 1

    return command, read


def gets(*options):
    def command(url):
        return [PYTHON, os.path.join(DIR, "gets.py"), url + "/pages", str(PAGES), *options]

    return command, lambda printed: (float(printed), PAGES)


def nothing():
    return lambda url: ["sleep", SECONDS], lambda printed: (float(SECONDS), 1)


ROWS = {
    "http": Row("http, kept, requests/s", "http", kept()),
    "http-hey": Row("http, kept, by hey", "http", kept_by_hey()),
    "http-new": Row("http, new, requests/s", "http", new()),
    "https": Row("https, kept, requests/s", "https", kept()),
    "https-new": Row("https, new, requests/s", "https", new()),
    "download": Row("https, 512 MiB, MiB/s", "https", download(), transparent=False),
    "gets": Row("http, %d GETs, ms" % PAGES, "http", gets(), transparent=False),
    "gets-kept": Row("the same on one connection, ms", "http", gets("kept")),
    "idle": Row("idle", "http", nothing(), transparent=False),
}


def run_once(peer, row):
    command, read = row.client
    try:
        ran = peer.run(command, row.scheme)
    except Failed:
        # On a busy machine one that begins may be missed; twice is no chance.
        ran = peer.run(command, row.scheme)
    return ran, read(ran.printed)


def measure(row, peers):
    found = {peer.name: [] for peer in peers}
    for turn in range(RUNS + 1):
        for peer in peers if turn % 2 else peers[::-1]:
            if (peer.needs_variables and row.transparent) or found[peer.name] is None:
                continue
            try:
                ran, (value, requests) = run_once(peer, row)
            except Failed as failed:
                found[peer.name] = None
                print("%-32s %-10s not measured: %s" % (row.title, peer.name, str(failed)[-300:]), flush=True)
                continue
            if turn:  # the first turn warms the caches
                found[peer.name].append((value, ran.cpu / requests * 1e6, ran.memory, ran.memory_at_end))
    bare = found["bare"]
    for peer in peers:
        runs = found[peer.name]
        if not runs or not bare:
            continue
        middle = [statistics.median(column) for column in zip(*runs)]
        ratio = statistics.median(run[0] / plain[0] for run, plain in zip(runs, bare))
        memory = middle[3] if row.client[0]("").count("sleep") else max(run[2] for run in runs)
        costs = ("-", "-") if peer.name == "bare" else ("%.0f" % middle[1], "%.1f" % (memory / MIB))
        print(
            "%-32s %-10s %5d %10.1f %7.2f %10s %8s %6.1f"
            % (row.title, peer.name, len(runs), middle[0], ratio, *costs, os.getloadavg()[0]),
            flush=True,
        )


def peers_here(server):
    """Those that can be started, and a line about each that cannot."""
    peers = [Bare(server), Agentbox(server)]
    for kind in (Mitmproxy, Sandbox):
        try:
            peers.append(kind(server))
        except Failed as missing:
            print("%s is not measured: %s" % (kind.name, missing), file=sys.stderr)
    return peers


def main():
    names = sys.argv[1:] or list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        sys.exit("bench: no network load %s; there are: %s" % (unknown[0], " ".join(ROWS)))
    needs = {"nginx": "nginx-light", "openssl": "openssl", "wrk": "wrk", "hey": "hey", "go": "golang-go", "curl": "curl"}
    missing = [package for tool, package in needs.items() if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin")]
    if missing:
        sys.exit("bench: this needs the packages %s" % " ".join(missing))
    build = ["go", "build", "-o", "connections", "connections.go"]
    subprocess.run(build, cwd=DIR, env=dict(os.environ, GO111MODULE="off", GOFLAGS=""), check=True)
    with Server(DIR, PAGES) as server:
        peers = peers_here(server)
        try:
            print(
                "%-32s %-10s %5s %10s %7s %10s %8s %6s"
                % ("load", "by", "runs", "median", "ratio", "CPU us/req", "MiB", "load")
            )
            for name in names:
                measure(ROWS[name], peers)
        finally:
            for peer in peers:
                peer.stop()


main()
