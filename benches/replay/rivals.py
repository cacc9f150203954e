"""What else records and replays programs, as far as it starts here."""
import os, shutil, socket, subprocess, time

from work import at
from workloads import CLIENTS, PYTHON


class Absent(Exception):
    """It is not here or does not start, and what it said."""


def said(words):
    """The first line that it says when it fails to run."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise Absent(f"it does not start here: `{next(iter((done.stderr + done.stdout).strip().splitlines()), '')}`")


def named(variable, program):
    """The program that a variable names, or that is on the PATH."""
    if not (found := shutil.which(os.environ.get(variable, program))):
        raise Absent("not installed")
    return found


class Rr:
    """https://rr-project.org: one thread at a time, with the counters of the processor."""

    name = "rr"

    def __init__(self, place):
        self.program, self.place = named("RR", "rr"), place / "rr"
        said([self.program, "record", "-o", self.place / "first", "true"])

    def can(self, workload):
        return True

    def record(self, work):
        shutil.rmtree(self.place, ignore_errors=True)
        return work.timed([self.program, "record", "-o", self.place, *work.command], work.trusting)[0]

    def replay(self, work):
        return work.timed([self.program, "replay", "-a", self.place], inside=False)[0]

    def stop(self):
        """Nothing runs on."""


class Hermit:
    """https://github.com/facebookexperimental/hermit: a run in which nothing is left to chance."""

    name = "Hermit"

    def __init__(self, place):
        self.program, self.place = named("HERMIT", "hermit"), place / "hermit"
        said([self.program, "run", "true"])

    def can(self, workload):
        return not workload.net

    def record(self, work):
        words = [self.program, f"--data-dir={self.place}", "record", "start", "--", *work.command]
        return work.timed(words, work.trusting)[0]

    def replay(self, work):
        return work.timed([self.program, f"--data-dir={self.place}", "replay"], inside=False)[0]

    def stop(self):
        """Nothing runs on."""


class Faketime:
    """faketime for the time of day and mitmproxy for what is requested; both have started before."""

    name = "faketime + mitmdump"

    def __init__(self, place):
        self.faketime, self.mitmdump = named("FAKETIME", "faketime"), named("MITMDUMP", "mitmdump")
        said([self.faketime, "@1700000000", "true"])
        said([self.mitmdump, "--version"])
        self.home, self.flows, self.process = place / "mitmproxy", place / "flows", None

    def can(self, workload):
        return workload.command[0] in (PYTHON, CLIENTS)

    def record(self, work):
        self.now, self.ports = time.strftime("%Y-%m-%d %H:%M:%S"), (free_port(), free_port())
        self.flows.unlink(missing_ok=True)
        return self.through(work, ["-w", self.flows])

    def replay(self, work):
        return self.through(work, ["--server-replay", self.flows, "--set", "server_replay_extra=kill"])

    def through(self, work, options):
        command, environment = list(work.command), os.environ
        if work.origin:
            ways = [("http", self.ports[0], work.origin.plain), ("https", self.ports[1], work.origin.secure)]
            modes = [f"--mode=reverse:{kind}://localhost:{there}@127.0.0.1:{here}" for kind, here, there in ways]
            words = [self.mitmdump, "-q", "--ssl-insecure", "--set", f"confdir={self.home}", *modes, *options]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for port in self.ports:
                wait_for(port, self.process)
            command = at(work.workload.command, *self.ports)
            authority = str(self.home / "mitmproxy-ca-cert.pem")
            environment = dict(work.trusting, SSL_CERT_FILE=authority, PIP_CERT=authority, REQUESTS_CA_BUNDLE=authority)
        try:
            return work.timed([self.faketime, self.now, *command], environment)[0]
        finally:
            self.stop()

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port, process):
    for _ in range(300):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if process.poll() is not None:
                raise Absent("mitmdump ended at once") from None
            time.sleep(0.1)
    raise Absent("mitmdump does not listen")


RIVALS = [Rr, Hermit, Faketime]
