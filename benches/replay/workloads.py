"""What the replay table runs: each workload's programs, what it is built with, its command."""
import dataclasses, os, sys

# The real interpreter: a version manager's shim is a shell script.
PYTHON = os.path.realpath(sys.executable)
# A Python with packages of clients, where there is one.
CLIENTS = os.environ.get("CLIENTS", "/opt/agentbox-test-clients") + "/bin/python"


@dataclasses.dataclass
class Workload:
    name: str
    # Run in the work's directory. `$PLAIN` and `$SECURE` stand for the origin's addresses.
    command: list
    # Files of `programs/` that it needs.
    files: tuple = ()
    # Commands of the shell that make the rest, outside of any run.
    build: str = ""
    # Programs that must be there, besides the command's; packages of that Python.
    needs: tuple = ()
    imports: tuple = ()
    net: bool = False
    rules: str = ""


def python(name, file, *words, **more):
    return Workload(name, [PYTHON, file, *words], (file,), **more)


def client(package, file):
    words = [CLIENTS, file, "$PLAIN", "$SECURE"]
    return Workload(f"Python: {package}", words, (file,), imports=(package,), net=True)


def node(name, file, *words, **more):
    return Workload(f"Node: {name}", ["node", file, *words], (file,), **more)


def built(name, build, file, *words, **more):
    compiler = build.split()[0]
    command = ["./program", *words]
    return Workload(name, command, (file,), build=build, needs=(compiler,), **more)


def go(name, file, *words, **more):
    build = f"go build -o program {file}"
    return built(f"Go: {name}", build, file, *words, **more)


def java(name, kind, *words, **more):
    return Workload(f"Java: {name}", ["java", kind, *words], (kind + ".java",), f"javac {kind}.java", ("javac",), **more)


def shell(name, script, **more):
    return Workload(name, ["bash", "-ec", script], **more)


PROJECT = r"""
for part in 1 2 3 4 5 6; do
    printf '#include <stdio.h>\nint part%s(void) { return printf("%%s %%s\\n", __DATE__, __TIME__); }\n' $part >part$part.c
done
printf 'int part1(void);\nint main(void) { return part1() < 0; }\n' >main.c
objects='out/main.o out/part1.o out/part2.o out/part3.o out/part4.o out/part5.o out/part6.o'
printf "out/program: $objects\n\tgcc -o \$@ \$^\nout/%%.o: %%.c\n\tgcc -c -g -o \$@ \$<\n" >Makefile
"""
COMMIT = """
git init -q out/r && cd out/r && git config user.name me && git config user.email me@example.org
for step in 1 2 3; do echo $step >file && git add file && git commit -q -m "step $step"; done
git log --format='%H %ct %s' && git gc -q && git status --short && git rev-parse HEAD
"""
DATABASE = """
sqlite3 out/db "create table t(a, b); insert into t values (random(), datetime('now')), (hex(randomblob(8)), julianday('now'));"
sqlite3 out/db "begin; insert into t select a, b from t; commit; select * from t; vacuum;"
"""
TARBALL = "printf '{\"name\": \"app\", \"version\": \"1.0.0\", \"dependencies\": {\"tiny\": \"1.0.0\"}}' >out/package.json"
LOCK = """
printf '{"name":"app","version":"1.0.0","lockfileVersion":3,"packages":{"":{"name":"app","version":"1.0.0","dependencies":{"tiny":"1.0.0"}},"node_modules/tiny":{"version":"1.0.0","resolved":"%s/npm/tiny/-/tiny-1.0.0.tgz"}}}' $SECURE >out/package-lock.json
"""
NPM = "--registry=$SECURE/npm/ --cache=/tmp/cache --no-update-notifier --no-audit --no-fund"
PIP = f"{CLIENTS} -m pip install -q --no-cache-dir --root-user-action ignore --disable-pip-version-check"
CURL = "for n in 1 2 3; do curl -sS $SECURE/page?$n; done; curl -sS -F file=@page.c $PLAIN/echo; curl -sS -i $SECURE/nothing"

WORKLOADS = [
    python("Python: time, uuid, random, sets", "values.py"),
    python("Python: threads", "threads.py"),
    python("Python: asyncio", "asyncio_tasks.py"),
    python("Python: multiprocessing", "processes.py"),
    client("requests", "requests_client.py"),
    client("httpx", "httpx_client.py"),
    client("aiohttp", "aiohttp_client.py"),
    client("boto3", "s3.py"),
    node("timers, crypto", "values.js"),
    node("fetch", "fetch.js", "$PLAIN", "$SECURE", net=True),
    node("worker_threads", "workers.js"),
    node("cluster", "cluster.js"),
    go("goroutines, crypto/rand", "values.go"),
    go("time, seed of it", "values.go", "time"),
    go("order of a map", "values.go", "map"),
    go("net/http", "fetch.go", "$PLAIN", "$SECURE", net=True),
    java("threads, UUID", "Values"),
    java("Random, hashCode, Set.of", "Values", "random"),
    java("time", "Values", "time"),
    java("HttpClient", "Fetch", "$PLAIN", "$SECURE", net=True),
    built("Rust: SystemTime, HashMap, threads", "rustc -o program values.rs", "values.rs"),
    built("C", "gcc -o program values.c", "values.c"),
    built("C, static", "gcc -static -o program values.c", "values.c"),
    built("C, musl", "musl-gcc -static -o program values.c", "values.c"),
    Workload("bash: pipelines, jobs", ["bash", "pipeline.sh"], ("pipeline.sh",)),
    Workload("dash: pipelines, jobs", ["dash", "pipeline.sh"], ("pipeline.sh",)),
    Workload("make -j2, gcc", ["make", "-j2"], build=PROJECT, needs=("gcc",)),
    shell("git: commits, gc", COMMIT, needs=("git",)),
    shell("git clone over https", "git clone -q $SECURE/git/repo.git out/c; cat out/c/page; git -C out/c log", needs=("git",), net=True),
    shell("pip install", f"{PIP} -t out/p -i $SECURE/simple/ tiny; ls -R out/p", imports=("pip",), net=True),
    shell("npm install", f"{TARBALL}; cd out; npm install {NPM}; cat package-lock.json", needs=("npm",), net=True),
    shell("npm ci", f"{TARBALL}; {LOCK}; cd out; npm ci {NPM}; ls node_modules", needs=("npm",), net=True),
    shell("curl", CURL, build="echo >page.c", needs=("curl",), net=True),
    shell("sqlite3", DATABASE, needs=("sqlite3",)),
    shell("ssh-keygen", "ssh-keygen -q -t ed25519 -N '' -f out/key; cat out/key.pub; ssh-keygen -q -t rsa -N '' -f out/rsa; cat out/rsa.pub", needs=("ssh-keygen",)),
    python("two models' streams (SSE)", "model.py", "stream", "$PLAIN", "$SECURE", net=True),
    python("agent of 30 model calls with tools", "model.py", "agent", "$PLAIN", "$SECURE", net=True),
]
