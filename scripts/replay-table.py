#!/usr/bin/env python3
"""Which programs a replay repeats exactly: each is recorded, its server stopped, and replayed.

  scripts/replay-table.py [-n REPLAYS] [-r RECORDINGS] [-k KEEP_DIR] [-l] [WORD...]

Runs the workloads whose name holds one of the WORDs (all of them by default) and prints a table in
Markdown. Exact means: stdout, stderr and exit status were the same bytes, so was every file that was
written, the verdict was that it did the same, and no file of the host was touched. AGENTBOX names the
binary, CLIENTS a virtual environment with requests, httpx, aiohttp and boto3.
"""
import argparse, hashlib, os, pathlib, shutil, subprocess, sys, tempfile, time

HOME = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "benches/replay"))
from workloads import CLIENTS, WORKLOADS  # noqa: E402

AGENTBOX = os.path.abspath(os.environ.get("AGENTBOX", HOME / "target/debug/agentbox"))
SECONDS = 300
CERTIFICATES = """
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj '/CN=Authority of the table' -keyout ca.key -out ca.pem
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out leaf.csr
echo 'subjectAltName=DNS:localhost' >leaf.ext
openssl x509 -req -days 30 -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile leaf.ext -out leaf.pem
cat leaf.pem ca.pem >chain.pem
git init -q work && cd work && echo page >page && git add page
git -c user.name=me -c user.email=me@example.org commit -q -m page
git clone -q --bare . ../repo.git
"""


class Origin:
    """The servers, as long as the `with` lasts."""

    def __init__(self, directory):
        self.directory = directory

    def __enter__(self):
        program = HOME / "benches/replay/origin.py"
        words = [sys.executable, program, self.directory]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.plain, self.secure = self.process.stdout.readline().split()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def contents(directory):
    """Each file and directory below, with its mode, time and content."""
    found = {}
    for path in sorted(directory.rglob("*")):
        state = path.lstat()
        kept = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(directory))] = state.st_mode, state.st_mtime_ns, kept
    return found


def written(directory, first):
    """Each file and link below that is not what it was at `first`; `--keep` keeps no directory that is empty."""
    found = contents(directory) if directory.exists() else {}
    changed = {name: state for name, state in found.items() if state != first.get(name)}
    return {name: (mode, kept) for name, (mode, _, kept) in changed.items() if kept is not None}


def missing(workload):
    for program in (workload.command[0], *workload.needs):
        if not program.startswith("./") and not shutil.which(program):
            return program
    for package in workload.imports:
        if subprocess.run([CLIENTS, "-c", f"import {package}"], capture_output=True).returncode:
            return package
    return None


def timed(words, directory):
    start = time.monotonic()
    words = ["timeout", "-k", "5", str(SECONDS), AGENTBOX, *map(str, words)]
    done = subprocess.run(words, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True)
    lines = done.stderr.splitlines(keepends=True)
    verdict = b"".join(lines[first:]) if (first := said(lines)) is not None else b""
    errors = b"".join(lines[:first])
    return done, errors, verdict.decode(errors="replace"), time.monotonic() - start


def said(lines):
    """Where the lines of agentbox begin, which come last."""
    return next((n for n, line in enumerate(lines) if line.startswith(b"agentbox: ") or b"@" in line[:12]), None)


class Work:
    """One workload in a directory of its own."""

    def __init__(self, workload, directory, tools):
        self.workload, self.directory, self.tools = workload, directory, tools
        self.trace = directory.parent / (directory.name + ".jsonl")
        (directory / "out").mkdir(parents=True)
        for file in workload.files:
            shutil.copy(HOME / "benches/replay/programs" / file, directory)

    def prepare(self, origin):
        rules = "read: .\nwrite: ./out\nexec: /**\n" + self.workload.rules
        options = ["-p", self.directory.parent / (self.directory.name + ".policy"), "-t", self.trace]
        command, named = self.workload.command, {}
        if origin:
            plain, secure = origin.plain.decode(), origin.secure.decode()
            rules += f"net: localhost:{plain}, localhost:{secure}\n"
            options += ["--upstream-ca", self.tools / "ca.pem"]
            named = {"$PLAIN": f"http://localhost:{plain}", "$SECURE": f"https://localhost:{secure}"}
            for name, value in named.items():
                command = [word.replace(name, value) for word in command]
        options[1].write_text(rules)
        if build := self.workload.build:
            for name, value in named.items():
                build = build.replace(name, value)
            subprocess.run(["sh", "-ec", build], cwd=self.directory, check=True, capture_output=True)
        self.first = contents(self.directory / "out")
        return ["run", *options, "--", *command]

    def record(self):
        if self.workload.net:
            with Origin(self.tools) as origin:
                self.recorded = timed(self.prepare(origin), self.directory)
        else:
            self.recorded = timed(self.prepare(None), self.directory)
        self.before = contents(self.directory)
        self.keep_output("recorded", self.recorded[0])

    def keep_output(self, name, done):
        (self.directory.parent / f"{self.directory.name}.{name}").write_bytes(done.stdout + done.stderr)

    def replay(self, number):
        """What differed, and how long it took."""
        keep = self.directory.parent / f"{self.directory.name}.kept{number}"
        done, errors, verdict, seconds = timed(["replay", "-t", self.trace, "--keep", keep], self.directory)
        recorded = self.recorded[0]
        kept = keep / str(self.directory / "out").lstrip("/")
        pairs = {
            "stdout": (recorded.stdout, done.stdout),
            "stderr": (self.recorded[1], errors),
            "files": (written(self.directory / "out", self.first), written(kept, {})),
            "host's files": (self.before, contents(self.directory)),
        }
        different = [name for name, (one, other) in pairs.items() if one != other]
        if done.returncode:
            different.append(f"exit code {done.returncode}")
        self.keep_output(f"replay{number}", done)
        return different, verdict.splitlines(), seconds

    def size(self):
        store = pathlib.Path(str(self.trace) + ".blobs")
        files = [self.trace, *(path for path in store.rglob("*") if path.is_file())]
        return sum(path.stat().st_size for path in files) // 1024


def row(workload, replays, recordings, directory, tools):
    if absent := missing(workload):
        return [workload.name, f"not here: {os.path.basename(absent)}", "", "", "", "", ""]
    exact, notes, causes, recorded, replayed, size = 0, [], [], [], [], 0
    for recording in range(recordings):
        work = Work(workload, directory / f"work{recording}", tools)
        work.record()
        if (status := work.recorded[0].returncode) != workload.status:
            said = work.recorded[1].decode(errors="replace").strip().splitlines()
            return [workload.name, "did not run", f"exit code {status}: " + " / ".join(said[-2:]), "", "", "", ""]
        recorded.append(work.recorded[3])
        size = work.size()
        for number in range(replays):
            different, verdict, seconds = work.replay(number)
            replayed.append(seconds)
            exact += not different
            notes += [line for line in verdict if "approximate" in line and line not in notes]
            if different:
                causes.append(", ".join(different) + ": " + " / ".join(line.strip() for line in verdict[:3]))
    verdict = causes[0] if causes else next((line for line in verdict if "replay ok" in line), "")
    median = [sorted(times)[len(times) // 2] for times in (recorded, replayed)]
    status = f"{exact} of {replays * recordings}"
    return [workload.name, status, verdict, *(f"{time:.1f}" for time in median), str(size), "; ".join(notes)]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("-n", type=int, default=3, help="replays of each recording")
    parser.add_argument("-r", type=int, default=1, help="recordings of each workload")
    parser.add_argument("-k", type=pathlib.Path, help="keep traces and files here")
    parser.add_argument("-l", action="store_true", help="list the workloads")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    chosen = [w for w in WORKLOADS if not asked.words or any(word in w.name for word in asked.words)]
    if asked.l:
        return print("\n".join(workload.name for workload in chosen))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as temporary:
        place = (asked.k or pathlib.Path(temporary)).absolute()
        tools = pathlib.Path(temporary) / "origin"
        tools.mkdir()
        subprocess.run(["sh", "-ec", CERTIFICATES], cwd=tools, check=True, capture_output=True)
        print("| workload | exact | verdict, or what differed first | recorded s | replayed s | trace KB | approximate |")
        print("|---|---|---|---|---|---|---|")
        for workload in chosen:
            directory = place / "".join(letter if letter.isalnum() else "-" for letter in workload.name)
            cells = row(workload, asked.n, asked.r, directory, tools)
            print("|", " | ".join(cell.replace("|", "\\|") for cell in cells), "|", flush=True)


main()
