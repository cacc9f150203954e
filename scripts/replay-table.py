#!/usr/bin/env python3
"""Which programs a replay repeats exactly: each is recorded, its server stopped, and replayed.

  scripts/replay-table.py [-n REPLAYS] [-r RECORDINGS] [-k KEEP_DIR] [-l] [WORD...]

Runs the workloads whose name holds one of the WORDs (all of them by default) and prints a table in
Markdown. Exact means: stdout, stderr and exit status were the same bytes, so was every file that was
written, the verdict was that it did the same, and no file of the host was touched. AGENTBOX names the
binary, CLIENTS a virtual environment with requests, httpx, aiohttp, boto3, openai and anthropic, NEWER_GO
a second Go.
"""
import argparse, os, pathlib, subprocess, sys, tempfile, time

HOME = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "benches/replay"))
from work import Origin, Work, missing, prepare_origin  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

AGENTBOX = os.path.abspath(os.environ.get("AGENTBOX", HOME / "target/debug/agentbox"))
SECONDS = 300


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


class Row(Work):
    """A workload that is recorded, and replayed without its server."""

    def prepare(self, origin):
        words = super().prepare(origin)
        self.first = contents(self.directory / "out")
        return words

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

    def replay(self, number, *options):
        """What differed, what the verdict said, and how long it took."""
        keep = self.directory.parent / f"{self.directory.name}.kept{number}"
        words = ["replay", "-t", self.trace, "--keep", keep, *options]
        done, errors, verdict, seconds = timed(words, self.directory)
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


def brief(verdict):
    """Its first difference, else how many steps matched."""
    text = next(iter(verdict), "").removeprefix("agentbox: ")
    if not verdict or "replay ok" not in verdict[-1]:
        return " ".join(text.split())
    return verdict[-1].split("— ")[-1].replace("recorded steps matched", "steps")


def row(workload, replays, recordings, directory, tools):
    if absent := missing(workload):
        return [workload.name, f"not here: {os.path.basename(absent)}", "", "", "", "", ""]
    exact, timely, notes, causes, recorded, replayed, size = 0, 0, [], [], [], [], 0
    for recording in range(recordings):
        work = Row(workload, directory / f"work{recording}", tools)
        try:
            work.record()
        except subprocess.CalledProcessError as failed:
            said = failed.stderr.decode(errors="replace").strip().splitlines()
            return [workload.name, "not built", " / ".join(said[-2:]), "", "", "", ""]
        if (status := work.recorded[0].returncode) != workload.status:
            said = work.recorded[1].decode(errors="replace").strip().splitlines()
            return [workload.name, "did not run", f"exit code {status}: " + " / ".join(said[-2:]), "", "", "", ""]
        recorded.append(work.recorded[3])
        # Files hold times of even seconds.
        time.sleep(2.1)
        size = work.size()
        for number in range(replays):
            different, verdict, seconds = work.replay(number)
            replayed.append(seconds)
            exact += not different
            notes += [line for line in verdict if "times are approximate" in line]
            if any("time only" in line for line in verdict):
                again, _, _ = work.replay(f"{number}-lenient", "--lenient", "time-only")
                timely += again in ([], ["files"])
            if different:
                causes.append(brief(verdict) or ", ".join(different))
    verdict = causes[0] if causes else brief(verdict)
    median = [sorted(times)[len(times) // 2] for times in (recorded, replayed)]
    status = f"{exact} of {replays * recordings}" + (f", {timely} more but for times in files" if timely else "")
    return [workload.name, status, verdict, *(f"{seconds:.1f}" for seconds in median), str(size), "times" if notes else ""]


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
        tools = prepare_origin(pathlib.Path(temporary) / "origin")
        print("| workload | exact | steps, or what differs first | recorded s | replayed s | trace KB | approximate |")
        print("|---|---|---|---|---|---|---|")
        for workload in chosen:
            directory = place / "".join(letter if letter.isalnum() else "-" for letter in workload.name)
            cells = row(workload, asked.n, asked.r, directory, tools)
            print("|", " | ".join(cell.replace("|", "\\|") for cell in cells), "|", flush=True)


main()
