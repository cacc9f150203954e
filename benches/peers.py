"""The ways from a client to the server: none in between, agentbox, and what others would take instead."""
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import threading

from server import free_port, wait_for

AGENTBOX, DIR = os.environ["AGENTBOX"], os.environ["DIR"]
TICK = os.sysconf("SC_CLK_TCK")
LIMIT = 300
# Records go there: ext4 searches long for inodes where many were freed a moment ago, as between two turns.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else DIR


class Failed(Exception):
    """It cannot be measured, and why."""


class Ran:
    """What a client printed, and what everything in between used meanwhile (CPU seconds, bytes)."""

    def __init__(self, printed, cpu=0.0, memory=0, memory_at_end=0):
        self.printed, self.cpu, self.memory, self.memory_at_end = printed, cpu, memory, memory_at_end


class Watch:
    """Looks at a process and all below it, but for those that run `client`, until told to stop."""

    def __init__(self, root, client=None):
        self.root, self.client = root, client and os.path.realpath(shutil.which(client))
        self.cpu, self.memory, self.memory_at_end = {}, 0, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        while True:
            try:
                self.look_once()
            except (OSError, ValueError):
                pass  # a process ended meanwhile
            if self.ended.wait(0.05):
                return

    def look_once(self):
        memory = 0
        for process in self.tree(self.root):
            if os.readlink("/proc/%d/exe" % process) == self.client:
                continue
            with open("/proc/%d/stat" % process) as file:
                fields = file.read().rsplit(")", 1)[1].split()
            self.cpu[process] = (int(fields[11]) + int(fields[12])) / TICK
            with open("/proc/%d/smaps_rollup" % process) as file:
                memory += sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
        if memory:
            self.memory, self.memory_at_end = max(self.memory, memory), memory

    def tree(self, process):
        found = [process]
        for task in os.listdir("/proc/%d/task" % process):
            with open("/proc/%d/task/%s/children" % (process, task)) as file:
                for child in file.read().split():
                    found += self.tree(int(child))
        return found

    def stop(self):
        self.ended.set()
        self.thread.join()
        return sum(self.cpu.values())


class Bare:
    """Nothing in between."""

    name = "bare"
    needs_variables = False

    def __init__(self, server):
        self.server = server

    def run(self, command, scheme):
        return Ran(client(command(self.server.url(scheme)), trusting(self.server.authority)))

    def stop(self):
        """Nothing runs on."""


class Agentbox(Bare):
    """The client confined, and all that it says recorded."""

    name = "agentbox"

    def __init__(self, server):
        super().__init__(server)
        self.policy = os.path.join(DIR, "network.policy")
        with open(self.policy, "w") as file:
            file.write("net: localhost:%d\nnet: localhost:%d\n" % (server.http, server.https))

    def run(self, command, scheme):
        command = command(self.server.url(scheme))
        options = ["--upstream-ca", self.server.authority, *shlex.split(os.environ.get("RUN_OPTIONS", ""))]
        with tempfile.TemporaryDirectory(dir=MEMORY) as trace:
            words = [AGENTBOX, "run", "-p", self.policy, "-t", trace + "/trace.jsonl", *options, "--", *command]
            return watched(words, dict(os.environ), command[0])


class Mitmproxy(Bare):
    """mitmproxy in front of the server, recording to a file; the client is not confined."""

    name = "mitmproxy"

    def __init__(self, server):
        super().__init__(server)
        program = os.environ.get("MITMDUMP") or shutil.which("mitmdump")
        if not program:
            raise Failed("there is no mitmdump (pip install mitmproxy; MITMDUMP names it)")
        self.ports = {"http": free_port(), "https": free_port()}
        self.home = os.path.join(DIR, "mitmproxy")
        modes = [
            "--mode=reverse:%s@127.0.0.1:%d" % (server.url(scheme), port) for scheme, port in self.ports.items()
        ]
        # Bodies above 1 MiB pass unrecorded: it would hold all of them in memory.
        options = ["-q", "--ssl-insecure", "--set", "confdir=" + self.home, "--set", "stream_large_bodies=1m"]
        self.flows = tempfile.NamedTemporaryFile(dir=MEMORY)
        words = [program, *options, *modes, "-w", self.flows.name]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        for port in self.ports.values():
            wait_for(port)

    def run(self, command, scheme):
        watch = Watch(self.process.pid)
        watch.look_once()
        before = sum(watch.cpu.values())
        try:
            environment = trusting(os.path.join(self.home, "mitmproxy-ca-cert.pem"))
            printed = client(command("%s://localhost:%d" % (scheme, self.ports[scheme])), environment)
        finally:
            cpu = watch.stop()
        return Ran(printed, cpu - before, watch.memory, watch.memory_at_end)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Sandbox(Bare):
    """@anthropic-ai/sandbox-runtime: confined, reachable through its proxy alone, not recorded."""

    name = "srt"
    needs_variables = True

    def __init__(self, server):
        super().__init__(server)
        self.program = os.environ.get("SRT") or shutil.which("srt")
        if not self.program:
            raise Failed("there is no srt (npm install @anthropic-ai/sandbox-runtime; SRT names it)")
        self.settings = os.path.join(DIR, "srt.json")
        with open(self.settings, "w") as file:
            network = {"allowedDomains": ["localhost"], "deniedDomains": []}
            files = {"denyRead": [], "allowWrite": [DIR], "denyWrite": []}
            json.dump({"network": network, "filesystem": files}, file)
        try:
            done = client([self.program, "--settings", self.settings, "echo", "started"], dict(os.environ))
        except Failed as failed:
            raise Failed("it does not start here: %s" % failed) from None
        if "started" not in done:
            raise Failed("it does not start here: %s" % done)

    def run(self, command, scheme):
        command = command(self.server.url(scheme))
        if command[0] == "curl":
            command[1:1] = ["--noproxy", ""]
        words = [self.program, "--settings", self.settings, "-c", shlex.join(command)]
        return watched(words, trusting(self.server.authority), command[0])


def trusting(authority):
    return dict(os.environ, SSL_CERT_FILE=authority, CURL_CA_BUNDLE=authority)


def watched(words, environment, program):
    process = start(words, environment)
    watch = Watch(process.pid, program)
    try:
        printed = finish(process, words)
    finally:
        cpu = watch.stop()
    return Ran(printed, cpu, watch.memory, watch.memory_at_end)


def client(words, environment):
    return finish(start(words, environment), words)


def start(words, environment):
    return subprocess.Popen(
        words, cwd=DIR, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process, words):
    try:
        printed, said = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed("%s did not end within %d s" % (words[0], LIMIT)) from None
    if process.returncode:
        raise Failed("%s ended with %d: %s" % (shlex.join(words), process.returncode, said.strip()[-300:]))
    return printed
