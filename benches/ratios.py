"""Prepares the trees, times each load in turns, prints medians and their ratio: of the whole, and inside the sandbox."""
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time

RUNS, FILES = int(os.environ["RUNS"]), os.environ["FILES"]
DIR, AGENTBOX = os.environ["DIR"], os.environ["AGENTBOX"]
TREE, OUT, REPOSITORY, NESTED, PROJECT = (
    os.path.join(DIR, name) for name in ("tree", "out", "repository", "nested", "project")
)
# The real interpreter: a version manager's shim would be timed on the bare side alone.
PYTHON = os.path.realpath(sys.executable)

# Ripgrep searches with several threads, grep with one. Both find what they look for.
SEARCH = ["rg", "--count"] if shutil.which("rg") else ["grep", "-rc"]

# Name: what it is called in the table, how often it runs, the command.
LOADS = {
    "true": ("true", RUNS * 5, ["/usr/bin/true"]),
    "python": ("python3 -c pass", RUNS * 5, [PYTHON, "-c", "pass"]),
    "read": (FILES + " small files read", RUNS, [PYTHON, DIR + "/read.py", TREE, FILES]),
    "write": (FILES + " small files written", RUNS, [PYTHON, DIR + "/write.py", OUT, FILES]),
    "find": ("find, %s files" % FILES, RUNS, ["find", NESTED, "-name", "*7", "-size", "+1"]),
    "search": ("%s in a tree of %s files" % (SEARCH[0], FILES), RUNS, [*SEARCH, "needle", NESTED]),
    "make": ("make -j2, 24 files of C", RUNS, ["make", "-j2", "--silent", "--always-make", "-C", PROJECT]),
    "exec": ("1000 x fork+exec", RUNS, ["/bin/sh", DIR + "/exec.sh"]),
    "git": ("git status, %s files" % FILES, RUNS, ["git", "-C", REPOSITORY, "status", "--short"]),
}


# These loads are the start itself; the others are also timed from inside, without it.
STARTS = ("true", "python")
TIMER = DIR + "/timed"


def fill(directory):
    for entry in range(int(FILES)):
        with open(os.path.join(directory, str(entry)), "wb") as file:
            file.write(b"%d\n" % entry * 100)


def make_nested():
    for entry in range(int(FILES)):
        directory = os.path.join(NESTED, str(entry % 20), str(entry % 100))
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, str(entry)), "wb") as file:
            file.write(b"%d\n" % entry * 100 + b"needle\n")


def make_project():
    parts = ["part%d" % part for part in range(24)]
    for part in parts:
        with open(os.path.join(PROJECT, part + ".c"), "w") as file:
            file.write("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
            for function in range(40):
                name = "%s_%d" % (part, function)
                file.write("int %s(int x) { printf(\"%%d\\n\", x); return x * %d; }\n" % (name, function))
    with open(os.path.join(PROJECT, "Makefile"), "w") as file:
        file.write("all: %s\n" % " ".join(part + ".o" for part in parts))
        file.write("%.o: %.c\n\tcc -O1 -c $< -o $@\n")


def make_repository():
    git = ["git", "-C", REPOSITORY, "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    subprocess.run(git + ["init", "--quiet"], check=True)
    fill(REPOSITORY)
    subprocess.run(git + ["add", "--all"], check=True)
    subprocess.run(git + ["commit", "--quiet", "--message", "files"], check=True)


def timed(command):
    """Milliseconds of the whole, and those that the command's own timer printed (None where it has none)."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=DIR, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    took = time.perf_counter() - started
    if done.returncode:
        words = " ".join(map(shlex.quote, command))
        sys.exit("bench: %s\nended with %d: %s" % (words, done.returncode, done.stderr.decode(errors="replace")))
    return took * 1000, float(done.stdout) if TIMER in command else None


def confined(command, trace):
    options = shlex.split(os.environ.get("RUN_OPTIONS", ""))
    return [AGENTBOX, "run", "-p", DIR + "/bench.policy", "-t", trace, *options, "--", *command]


def measure(name):
    title, runs, command = LOADS[name]
    if name not in STARTS:
        command = [TIMER, *command]
    bare, ours = [], []
    for turn in range(runs + 1):
        times = timed(command), timed(confined(command, "%s/%s-%d.jsonl" % (DIR, name, turn)))
        if turn:  # the first turn warms the caches
            bare.append(times[0])
            ours.append(times[1])
    whole = [statistics.median(whole for whole, _ in times) for times in (bare, ours)]
    row = "%-28s %5d %10.2f %10.2f %8.2f" % (title, runs, *whole, whole[1] / whole[0])
    if name not in STARTS:
        inside = [statistics.median(inside for _, inside in times) for times in (bare, ours)]
        row += " %10.2f %10.2f %8.2f" % (*inside, inside[1] / inside[0])
    print(row, flush=True)


def main():
    names = sys.argv[1:]
    unknown = [name for name in names if name not in LOADS]
    if unknown:
        sys.exit("bench: no load %s; there are: %s" % (unknown[0], " ".join(LOADS)))
    if "read" in names:
        fill(TREE)
    if "find" in names or "search" in names:
        make_nested()
    if "make" in names:
        make_project()
    if "git" in names:
        make_repository()
    columns = ("load", "runs", "bare ms", "ours ms", "ratio", "bare, in", "ours, in", "ratio")
    print("%-28s %5s %10s %10s %8s %10s %10s %8s" % columns)
    for name in names:
        measure(name)


main()
