#!/bin/bash
# What confinement and the record cost: each load bare and under `agentbox run`, in turns, medians.
#
#   scripts/bench.sh [-n RUNS] [-f FILES] [-k KEEP_DIR] [LOAD...]
#
# LOAD: true python read write exec git (all of them by default). `-n` is how many times each load
# runs (start-up loads five times as often), `-f` how many small files there are (5000). AGENTBOX
# names the binary, RUN_OPTIONS holds further options of `agentbox run`. The table goes to stdout.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=7 files=5000 keep=
while getopts 'n:f:k:h' option; do
    case "$option" in
        n) runs=$OPTARG ;;
        f) files=$OPTARG ;;
        k) keep=$OPTARG ;;
        *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- true python read write exec git

agentbox=$(realpath "${AGENTBOX:-target/release/agentbox}")
if [ ! -x "$agentbox" ]; then
    echo "bench: no $agentbox (cargo build --release, or set AGENTBOX)" >&2
    exit 2
fi

dir=${keep:-$(mktemp -d)}
mkdir -p "$dir"
dir=$(realpath "$dir")
[ -n "$keep" ] || trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/tree" "$dir/out" "$dir/repository"

cat > "$dir/bench.policy" <<POLICY
read: $dir/tree
write: $dir/out
write: $dir/repository
exec: true
net: example.org
POLICY

cat > "$dir/read.py" <<'PYTHON'
import os, sys
for entry in range(int(sys.argv[2])):
    descriptor = os.open("%s/%d" % (sys.argv[1], entry), os.O_RDONLY)
    os.read(descriptor, 65536)
    os.close(descriptor)
PYTHON
cat > "$dir/write.py" <<'PYTHON'
import os, sys
for entry in range(int(sys.argv[2])):
    descriptor = os.open("%s/%d" % (sys.argv[1], entry), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(descriptor, b"x" * 1024)
    os.close(descriptor)
PYTHON
cat > "$dir/exec.sh" <<'SHELL'
count=0
while [ "$count" -lt 1000 ]; do /usr/bin/true; count=$((count + 1)); done
SHELL

RUNS=$runs FILES=$files DIR=$dir AGENTBOX=$agentbox python3 - "$@" <<'PYTHON'
"""Prepares the trees, times each load in turns, prints medians and their ratio."""
import os
import shlex
import statistics
import subprocess
import sys
import time

RUNS, FILES = int(os.environ["RUNS"]), os.environ["FILES"]
DIR, AGENTBOX = os.environ["DIR"], os.environ["AGENTBOX"]
TREE, OUT, REPOSITORY = (os.path.join(DIR, name) for name in ("tree", "out", "repository"))
# The real interpreter: a version manager's shim would be timed on the bare side alone.
PYTHON = os.path.realpath(sys.executable)

# Name: what it is called in the table, how often it runs, the command.
LOADS = {
    "true": ("true", RUNS * 5, ["/usr/bin/true"]),
    "python": ("python3 -c pass", RUNS * 5, [PYTHON, "-c", "pass"]),
    "read": (FILES + " small files read", RUNS, [PYTHON, DIR + "/read.py", TREE, FILES]),
    "write": (FILES + " small files written", RUNS, [PYTHON, DIR + "/write.py", OUT, FILES]),
    "exec": ("1000 x fork+exec", RUNS, ["/bin/sh", DIR + "/exec.sh"]),
    "git": ("git status, %s files" % FILES, RUNS, ["git", "-C", REPOSITORY, "status", "--short"]),
}


def fill(directory):
    for entry in range(int(FILES)):
        with open(os.path.join(directory, str(entry)), "wb") as file:
            file.write(b"%d\n" % entry * 100)


def make_repository():
    git = ["git", "-C", REPOSITORY, "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    subprocess.run(git + ["init", "--quiet"], check=True)
    fill(REPOSITORY)
    subprocess.run(git + ["add", "--all"], check=True)
    subprocess.run(git + ["commit", "--quiet", "--message", "files"], check=True)


def timed(command):
    started = time.perf_counter()
    done = subprocess.run(command, cwd=DIR, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    took = time.perf_counter() - started
    if done.returncode:
        words = " ".join(map(shlex.quote, command))
        sys.exit("bench: %s\nended with %d: %s" % (words, done.returncode, done.stderr.decode(errors="replace")))
    return took * 1000


def confined(command, trace):
    options = shlex.split(os.environ.get("RUN_OPTIONS", ""))
    return [AGENTBOX, "run", "-p", DIR + "/bench.policy", "-t", trace, *options, "--", *command]


def measure(name):
    title, runs, command = LOADS[name]
    bare, ours = [], []
    for turn in range(runs + 1):
        times = timed(command), timed(confined(command, "%s/%s-%d.jsonl" % (DIR, name, turn)))
        if turn:  # the first turn warms the caches
            bare.append(times[0])
            ours.append(times[1])
    before, after = statistics.median(bare), statistics.median(ours)
    print("%-28s %5d %10.2f %10.2f %8.2f" % (title, runs, before, after, after / before), flush=True)


def main():
    names = sys.argv[1:]
    unknown = [name for name in names if name not in LOADS]
    if unknown:
        sys.exit("bench: no load %s; there are: %s" % (unknown[0], " ".join(LOADS)))
    if "read" in names:
        fill(TREE)
    if "git" in names:
        make_repository()
    print("%-28s %5s %10s %10s %8s" % ("load", "runs", "bare ms", "ours ms", "ratio"))
    for name in names:
        measure(name)


main()
PYTHON
