"""What the replay table runs: each workload's programs, what it is built with, its command."""
import dataclasses, os, sys

# The real interpreter: a version manager's shim is a shell script.
PYTHON = os.path.realpath(sys.executable)
# A Python with packages of clients, where there is one.
CLIENTS = os.environ.get("CLIENTS", "/opt/agentbox-test-clients") + "/bin/python"
# A Go that is newer than the one on the PATH, where there is one.
NEWER_GO = os.environ.get("NEWER_GO", "newer-go")


@dataclasses.dataclass
class Workload:
    name: str
    # Run in the work's directory. `$PLAIN` and `$SECURE` stand for the origin's addresses.
    command: list
    # Files of `programs/` that it needs.
    files: tuple = ()
    # Commands of the shell that make the rest, outside of any run.
    build: str = ""
    # The exit status that it must have.
    status: int = 0
    # Programs that must be there, besides the command's; packages of that Python.
    needs: tuple = ()
    imports: tuple = ()
    net: bool = False
    rules: str = ""


def python(name, file, *words, **more):
    return Workload(name, [PYTHON, os.path.basename(file), *words], (file,), **more)


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


def newer_go(name, file, *words, **more):
    build = f"{NEWER_GO} build -o program {file}"
    return built(f"Go, newer: {name}", build, file, *words, **more)


def java(name, kind, *words, **more):
    return Workload(f"Java: {name}", ["java", kind, *words], (kind + ".java",), f"javac {kind}.java", needs=("javac",), **more)


def compiled(name, build):
    return built(name, build, "values.c", status=7)


def shell(name, script, files=(), **more):
    return Workload(name, ["bash", "-ec", script], files, **more)


NODE_OPENAI = "npm install --silent --no-audit --no-fund openai@7.59.0"
PROJECT = r"""
for part in 1 2 3 4 5 6; do
    printf '#include <stdio.h>\nint part%s(void) { return printf("%%s %%s\\n", __DATE__, __TIME__); }\n' $part >part$part.c
done
printf 'int part1(void);\nint main(void) { return part1() < 0; }\n' >main.c
objects='out/main.o out/part1.o out/part2.o out/part3.o out/part4.o out/part5.o out/part6.o'
printf "out/program: $objects\n\tgcc -o \$@ \$^\nout/%%.o: %%.c\n\tgcc -c -g -o \$@ \$<\n" >Makefile
"""
JOBS = (
    "exec 2>&1; for i in 1 2 3 4; do (echo a $i; ls /none$i || :; echo b $i) & done; wait; "
    "for i in 1 2 3; do ls /none$i | cat /none-b$i | sort /none-c$i || :; done"
)
COMMIT = """
git init -q out/r && cd out/r && git config user.name me && git config user.email me@example.org
for step in 1 2 3; do echo $step >file && git add file && git commit -q -m "step $step"; done
git log --format='%H %ct %s' && git gc -q && git status --short && git rev-parse HEAD
"""
DATABASE = """
sqlite3 out/db "create table t(a, b); insert into t values (random(), datetime('now')), (hex(randomblob(8)), julianday('now'));"
sqlite3 out/db "begin; insert into t select a, b from t; commit; select * from t; vacuum;"
"""
MANIFEST = "printf '{\"name\": \"app\", \"version\": \"1.0.0\", \"dependencies\": {\"tiny\": \"1.0.0\"}}' >out/package.json"
LOCK = """
printf '{"name":"app","version":"1.0.0","lockfileVersion":3,"packages":{"":{"name":"app","version":"1.0.0","dependencies":{"tiny":"1.0.0"}},"node_modules/tiny":{"version":"1.0.0","resolved":"%s/npm/tiny/-/tiny-1.0.0.tgz"}}}' $SECURE >out/package-lock.json
"""
NPM = "--registry=$SECURE/npm/ --cache=/tmp/cache --no-update-notifier --no-audit --no-fund"
PIP = f"-m pip install --no-cache-dir --root-user-action ignore --disable-pip-version-check -t out/p -i $SECURE/simple/ tiny"
UV = f"uv pip install --python /usr/bin/python3 --no-cache --target out/u -i $SECURE/simple/ tiny"
CURL = "for n in 1 2 3; do curl -sS $SECURE/page?$n; done; curl -sS -F file=@page.c $PLAIN/echo; curl -sS -i $SECURE/nothing"

PERL = 'my %h = map { $_ => 1 } "a".."j"; print join(" ", keys %h), " ", rand, " ", time, " $$\\n"; print strftime("%c\\n", localtime)'
RUBY = 'p Time.now.to_f, rand, SecureRandom.uuid, "text".hash, Process.pid; Tempfile.create { |f| p f.path }; p Thread.new { Time.now.nsec }.value'
PHP = 'echo microtime(true), " ", uniqid(), " ", mt_rand(), " ", random_int(0, 1 << 60), " ", getmypid(), "\\n";'
OPENSSL = """
openssl genrsa -out out/key.pem 2048
openssl req -x509 -new -key out/key.pem -days 3 -subj /CN=me -out out/cert.pem
openssl x509 -in out/cert.pem -noout -serial -dates; openssl rand -hex 8
"""
ARCHIVES = """
mkdir out/d; for n in 1 2 3; do date +%N >out/d/$n; done
tar -czf out/a.tgz -C out d; zip -qr out/a.zip out/d; gzip -k out/d/1; tar -tzf out/a.tgz; unzip -p out/a.zip out/d/2
"""
CARGO = """
mkdir -p out/p/src; cd out/p
printf '[package]\\nname = "p"\\nversion = "0.1.0"\\nedition = "2021"\\n' >Cargo.toml
echo 'fn main() { println!("{:?}", std::time::SystemTime::now()); }' >src/main.rs
cargo build -q --offline; ./target/debug/p
"""
RUST = "include: profile/rust\nenv: PATH\nexec: ./out/**\n"
GO = "mkdir -p out/cache out/b; export GOCACHE=$PWD/out/cache; go build -o out/b/program values.go; out/b/program"

WORKLOADS = [
    python("Python: time, uuid, random, sets", "values.py"),
    python("Python: threads", "threads.py"),
    python("Python: threads that contend", "contend.py"),
    python("Python: asyncio", "asyncio_tasks.py"),
    python("Python: multiprocessing", "processes.py"),
    client("requests", "requests_client.py"),
    client("httpx", "httpx_client.py"),
    client("aiohttp", "aiohttp_client.py"),
    client("boto3", "s3.py"),
    client("openai", "openai_stream.py"),
    client("anthropic", "anthropic_stream.py"),
    node("timers, crypto", "values.js"),
    node("fetch", "fetch.js", "$PLAIN", "$SECURE", net=True),
    node("openai", "openai_stream.mjs", "$PLAIN", "$SECURE", build=NODE_OPENAI, needs=("npm",), net=True),
    node("worker_threads", "workers.js"),
    node("random numbers of workers at the same time", "workers.js", "at-once"),
    node("cluster", "cluster.js"),
    go("goroutines, crypto/rand", "values.go"),
    go("time, seed of it", "values.go", "time"),
    go("order of a map", "values.go", "map"),
    go("net/http", "fetch.go", "$PLAIN", "$SECURE", net=True),
    newer_go("goroutines, crypto/rand", "values.go"),
    newer_go("time, seed of it", "values.go", "time"),
    newer_go("order of a map", "values.go", "map"),
    newer_go("net/http", "fetch.go", "$PLAIN", "$SECURE", net=True),
    java("threads, UUID", "Values"),
    java("Random, hashCode, Set.of", "Values", "random"),
    java("time", "Values", "time"),
    java("HttpClient", "Fetch", "$PLAIN", "$SECURE", net=True),
    built("Rust: SystemTime, HashMap, threads", "rustc -o program values.rs", "values.rs"),
    compiled("C", "gcc -o program values.c"),
    compiled("C, static", "gcc -static -o program values.c"),
    compiled("C, musl", "musl-gcc -static -o program values.c"),
    Workload("bash: pipelines, jobs", ["bash", "pipeline.sh"], ("pipeline.sh",), status=5),
    Workload("dash: pipelines, jobs", ["dash", "pipeline.sh"], ("pipeline.sh",), status=5),
    shell("jobs that print at once", JOBS),
    Workload("make -j2, gcc", ["make", "-j2"], build=PROJECT, needs=("gcc",)),
    shell("git: commits, gc", COMMIT, needs=("git",)),
    shell("git clone over https", "git clone -q $SECURE/git/repo.git out/c; cat out/c/page; git -C out/c log", needs=("git",), net=True),
    Workload("pip install", [CLIENTS, *PIP.split()], imports=("pip",), net=True),
    shell("uv pip install", UV, needs=("uv",), net=True),
    shell("npm install", f"cd out; npm install {NPM}; cat package-lock.json", build=MANIFEST, needs=("npm",), net=True),
    shell("npm ci", f"cd out; npm ci {NPM}; ls node_modules", build=MANIFEST + LOCK, needs=("npm",), net=True),
    shell("curl", CURL, build="echo >page.c", needs=("curl",), net=True),
    shell("wget", "for n in 1 2 3; do wget -qO- $SECURE/page?$n; done; wget -S -O out/page $PLAIN/page", needs=("wget",), net=True),
    shell("perl", "perl -MPOSIX -e '$ARGS'".replace("$ARGS", PERL), needs=("perl",)),
    shell("ruby", f"ruby -rsecurerandom -rtempfile -e '{RUBY}'", needs=("ruby",)),
    shell("php", f"php -r '{PHP}'", needs=("php",)),
    shell("openssl: keys, certificate", OPENSSL, needs=("openssl",)),
    shell("tar, gzip, zip", ARCHIVES, needs=("zip",)),
    shell("find, xargs -P4", "mkdir out/t; seq 40 | xargs -P4 -I{} sh -c 'date +%N >out/t/{}'; find out/t -type f | sort | xargs cat | md5sum"),
    shell("cargo build", CARGO, needs=("cargo",), rules=RUST),
    shell("go build", GO, ("values.go",), needs=("go",), rules="exec: /tmp/**\n"),
    shell("sqlite3", DATABASE, needs=("sqlite3",)),
    shell("ssh-keygen", "ssh-keygen -q -t ed25519 -N '' -f out/key; cat out/key.pub; ssh-keygen -q -t rsa -N '' -f out/rsa; cat out/rsa.pub", needs=("ssh-keygen",)),
    python("two models' streams (SSE)", "model.py", "stream", "$PLAIN", "$SECURE", net=True),
    python("agent of 30 model calls with tools", "model.py", "agent", "$PLAIN", "$SECURE", net=True),
]

# Those whose cost `scripts/replay-cost.sh` measures: these, and some of the above.
COSTS = [
    Workload("true", ["/usr/bin/true"]),
    python("Python: imports, 500 files", "files.py"),
    node("500 files", "files.js"),
    *(workload for workload in WORKLOADS if workload.name == "go build"),
    shell("javac, java", "javac -d out Values.java; java -cp out Values", ("Values.java",), needs=("javac",)),
    *(workload for workload in WORKLOADS if workload.name in ("make -j2, gcc", "git: commits, gc", "pip install")),
    python("500 GETs over https", "../../loads/gets.py", "$SECURE/pages", "500", "kept", net=True),
    *(workload for workload in WORKLOADS if workload.name == "agent of 30 model calls with tools"),
    Workload("Python: 8 waits of 0.5 s", [PYTHON, "-c", "import time\nfor n in range(8): time.sleep(0.5); print(n, time.time_ns())"]),
]
