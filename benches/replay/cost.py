"""Times whole programs natively, recorded and replayed, in turns; prints medians as a table in Markdown."""
import argparse, json, os, pathlib, shutil, statistics, subprocess, sys, tempfile, time

from rivals import RIVALS, Absent
from work import Origin, Work, missing, prepare_origin
from workloads import COSTS

AGENTBOX = os.environ["AGENTBOX"]
SECONDS = 300


class Failed(Exception):
    """A program did not do what it should."""


class Cost(Work):
    """A workload, each time from an empty directory `out` on."""

    def prepare(self, origin):
        self.words = super().prepare(origin)
        # An authority that the tools of every language are told of; agentbox does that by itself.
        names = "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS"
        self.trusting = dict(os.environ, **dict.fromkeys(names, str(self.tools / "ca.pem")))
        self.command = self.words[self.words.index("--") + 1 :]

    def timed(self, words, environment=None, statuses=(0,), inside=True):
        """How many milliseconds it took, and what it printed on its way to another exit status than 0."""
        if inside:
            shutil.rmtree(self.directory / "out")
            (self.directory / "out").mkdir()
        streams = {"stdin": subprocess.DEVNULL, "capture_output": True}
        start = time.perf_counter()
        try:
            done = subprocess.run([*map(str, words)], cwd=self.directory, env=environment, timeout=SECONDS, **streams)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {SECONDS} s") from None
        took = (time.perf_counter() - start) * 1000
        said = done.stderr.decode(errors="replace")
        if done.returncode not in statuses:
            raise Failed(f"exit code {done.returncode}: " + " / ".join(said.strip().splitlines()[-2:]))
        return took, said if done.returncode else ""

    def native(self):
        return self.timed(self.command, self.trusting)[0]

    def record(self):
        self.trace.unlink(missing_ok=True)
        shutil.rmtree(str(self.trace) + ".blobs", ignore_errors=True)
        return self.timed([AGENTBOX, *self.words])[0]

    def replay(self, *options):
        """With exit code 1 it did something else; how long that took counts as well."""
        return self.timed([AGENTBOX, "replay", "-t", self.trace, *options], statuses=(0, 1), inside=False)

    def tape(self):
        """The bytes of its clocks' tapes."""
        tapes = (json.loads(line)["args"].get("tape", "") for line in self.trace.open() if '"op":"clock.tape"' in line)
        return sum(tape["size"] if isinstance(tape, dict) else len(tape) * 3 // 4 for tape in tapes)


def turns(work, rivals, runs):
    """The times by column, the first line of each replay that did something else, and what failed of the rivals."""
    times, other, failed = {}, [], {}
    for turn in range(runs + 1):
        native, recorded = work.native(), work.record()
        (replayed, one), (paced, two) = work.replay(), work.replay("--paced")
        found = {"native": native, "record": recorded, "replay": replayed, "paced": paced}
        for rival in rivals:
            try:
                if rival.name not in failed:
                    found[rival.name + " record"] = rival.record(work)
                    found[rival.name + " replay"] = rival.replay(work)
            except (Failed, Absent) as reason:
                failed[rival.name] = str(reason)
        if turn:  # the first turn warms the caches
            other += [" ".join(said[said.find("agentbox: ") :].splitlines()[0].split()) for said in (one, two) if said]
            for column, took in found.items():
                times.setdefault(column, []).append(took)
    return {column: statistics.median(taken) for column, taken in times.items()}, other, failed


def row(workload, rivals, runs, directory, tools):
    """Its cells, and notes for below the table."""
    empty = [""] * (5 + 2 * len(rivals))
    if absent := missing(workload):
        return [workload.name, f"not here: {os.path.basename(absent)}", *empty], []
    work = Cost(workload, directory, tools)
    with Origin(tools) as origin:
        work.prepare(origin if workload.net else None)
        work.origin = origin if workload.net else None
        able = [rival for rival in rivals if rival.can(workload)]
        try:
            medians, other, failed = turns(work, able, runs)
        except Failed as reason:
            return [workload.name, "did not run", *empty], [f"{workload.name}: {reason}"]
        finally:
            for rival in rivals:
                rival.stop()
    notes = [f"{rival}, {workload.name}: `{reason}`" for rival, reason in failed.items()]
    if other:
        notes.append(f"{workload.name}: {len(other)} of {2 * runs} replays did something else: `{other[0]}`")
    columns = ["record", "replay", "paced"] + [f"{rival.name} {way}" for rival in rivals for way in ("record", "replay")]
    ratios = [f"{medians[column] / medians['native']:.2f}" if column in medians else "" for column in columns]
    sizes = [str((work.tape() + 1023) // 1024), str(work.size())]
    return [workload.name, f"{medians['native']:.{int(medians['native'] < 10)}f}", *ratios[:3], *sizes, *ratios[3:]], notes


def line(cells):
    print("|", " | ".join(cells), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="replay-cost.sh")
    parser.add_argument("-n", type=int, default=5, help="turns of each program")
    parser.add_argument("words", nargs="*", help="programs whose names hold one of these")
    asked = parser.parse_args()
    chosen = [w for w in COSTS if not asked.words or any(word in w.name for word in asked.words)]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as temporary:
        place, rivals, notes = pathlib.Path(temporary), [], []
        for kind in RIVALS:
            try:
                rivals.append(kind(place))
            except Absent as reason:
                notes.append(f"{kind.name}: {reason}")
        tools = prepare_origin(place / "origin")
        heads = ["program", "native ms", "record", "replay", "replay `--paced`", "tape KB", "trace KB"]
        heads += [f"{rival.name}: {way}" for rival in rivals for way in ("record", "replay")]
        line(heads)
        line(["---"] * len(heads))
        for number, workload in enumerate(chosen):
            cells, said = row(workload, rivals, asked.n, place / f"work{number}", tools)
            line(cells)
            notes += said
    print("\n" + "\n".join(f"- {note}" for note in notes) if notes else "")


if __name__ == "__main__":
    sys.exit(main())
