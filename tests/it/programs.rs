//! Real programs inside: shells, languages, build tools, terminals, each as a user would start it.
//!
//! What is not installed is skipped, and said so.

mod caches;
mod network;
mod starts;
mod worktree;

use crate::support::{Ran, Sandbox, everyone, has, skip};

/// Rules as in a first policy: everything may be read and started, one directory written.
const LITERAL: &str = "read: .\nwrite: ./out\nexec: /**\n";
/// The same with a pattern, which puts every open under the supervisor.
const PATTERNS: &str = "read: .\nwrite: ./out\nexec: /**\ndeny: read **/.env\n";

/// Runs a test under both kinds of rules, as everyone, if these programs are there.
fn with(programs: &[&str], test: impl Fn(&Sandbox)) {
    if let Some(missing) = programs.iter().find(|program| !has(program)) {
        return skip(missing, "it is not installed");
    }
    for policy in [LITERAL, PATTERNS] {
        everyone(|sandbox| {
            sandbox.policy(policy).directory("out");
            test(sandbox);
        });
    }
}

/// Runs a test under literal rules alone: for what takes long.
fn with_literal(programs: &[&str], test: impl Fn(&Sandbox)) {
    if let Some(missing) = programs.iter().find(|program| !has(program)) {
        return skip(missing, "it is not installed");
    }
    everyone(|sandbox| {
        sandbox.policy(LITERAL).directory("out");
        test(sandbox);
    });
}

fn shell(sandbox: &Sandbox, script: &str) -> Ran {
    sandbox.run(&["sh", "-ec", script])
}

fn bash(sandbox: &Sandbox, script: &str) -> Ran {
    sandbox.run(&["bash", "-c", script])
}

#[test]
fn two_hundred_pipelines() {
    with(&["bash"], |sandbox| {
        let script = "i=0; while [ $i -lt 200 ]; do x=$(echo a b c | tr a-c x-z | sed s/x/q/ | cat)
            [ \"$x\" = 'q y z' ] || exit 9; i=$((i+1)); done; echo $i";
        for shell in ["dash", "bash"] {
            sandbox.run(&[shell, "-c", script]).exits(0).prints("200\n");
        }
    });
}

#[test]
fn jobs_traps_substitutions_and_documents() {
    with(&["bash"], |sandbox| {
        let script = "trap 'echo trapped' TERM; kill -TERM $$
            set -m; sleep 60 & kill -STOP %1; sleep 0.2; jobs %1 | cut -c1-13; kill %1; kill -CONT %1; wait %1; echo $?
            paste -d- <(echo a) <(echo b); echo xx > >(cat); sleep 0.1; coproc cat; echo hey >&${COPROC[1]}
            read x <&${COPROC[0]}; echo $x; y=1; cat <<E
here $y
E
            cat <<< str; echo hi | cat /dev/stdin; exec 7<real; cat /dev/fd/7 /proc/self/fd/7";
        sandbox.file("real", "r\n");
        let ran = bash(sandbox, script);
        ran.exits(0).prints("trapped\n[1]+  Stopped\n143\na-b\nxx\nhey\nhere 1\nstr\nhi\nr\nr\n");
    });
}

#[test]
fn fifos_wait_for_the_other_side_in_both_orders() {
    with(&["mkfifo"], |sandbox| {
        let script = "mkfifo out/f; for i in 1 2 3; do (sleep 0.05; echo a$i > out/f) & cat out/f; wait
            cat out/f & sleep 0.05; echo b$i > out/f; wait; done; exec 3<>out/f; echo z >&3; read x <&3; echo $x";
        shell(sandbox, script).exits(0).prints("a1\nb1\na2\nb2\na3\nb3\nz\n");
    });
}

#[test]
fn python_processes_of_every_start_method() {
    let program = "import multiprocessing as mp
def square(x): return x * x
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        context = mp.get_context(method)
        with context.Pool(2) as pool: print(method, pool.map(square, range(4)))
    with mp.Manager() as manager:
        shared = manager.list([1]); shared.append(2); print(list(shared))
";
    with(&["python3"], |sandbox| {
        sandbox.file("m.py", program);
        let squares = "[0, 1, 4, 9]";
        let ran = sandbox.run(&["python3", "m.py"]);
        ran.exits(0).prints(&format!("fork {squares}\nspawn {squares}\nforkserver {squares}\n[1, 2]\n"));
    });
}

#[test]
fn python_libraries_that_lean_on_the_system() {
    with(&["python3"], |sandbox| {
        let ran = sandbox.python(
            "import asyncio, ctypes, mmap, os, pathlib, sqlite3, subprocess, tempfile, threading, zoneinfo
ctypes.CDLL(None).getpid(); print(zoneinfo.ZoneInfo('Europe/Berlin'))
with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / 'x'; path.write_bytes(b'a' * 8192)
    with open(path, 'r+b') as file: memory = mmap.mmap(file.fileno(), 0); memory[:2] = b'zz'; memory.flush()
    base = sqlite3.connect(directory + '/db'); base.execute('pragma journal_mode=wal')
    base.execute('create table t(a)'); base.executemany('insert into t values(?)', [(i,) for i in range(9)])
    base.commit(); print(base.execute('select count(*) from t').fetchone())
threads = [threading.Thread(target=lambda: os.listdir('.')) for _ in range(50)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(subprocess.run('echo $((1+1))', shell=True, capture_output=True, text=True).stdout, end='')
async def main():
    server = await asyncio.start_unix_server(lambda r, w: (w.write(b'u'), w.close()), 'out/socket')
    reader, _ = await asyncio.open_unix_connection('out/socket'); print(await reader.read())
    child = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1); print(await child.communicate())
asyncio.run(main())",
        );
        ran.exits(0).prints("Europe/Berlin\n(9,)\n2\nb'u'\n(b'hi\\n', None)\n");
    });
}

#[test]
fn unix_sockets_keep_the_name_that_they_were_given() {
    with(&["python3"], |sandbox| {
        let ran = sandbox.python(
            "import os, socket, threading
os.umask(0o077); server = socket.socket(socket.AF_UNIX); server.bind('out/a'); server.listen()
print(server.getsockname(), oct(os.stat('out/a').st_mode))
client = socket.socket(socket.AF_UNIX); client.connect('out/a'); print(client.getpeername())
other = socket.socket(socket.AF_UNIX); other.bind('/tmp/' + 'y' * 100); print(len(other.getsockname()))
full = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); full.bind('out/q'); full.listen(0)
def connect(): socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('out/q')
waiting = [threading.Thread(target=connect) for _ in range(3)]; [thread.start() for thread in waiting]
print(open('out/alive', 'w').write('x')); [full.accept() for _ in waiting]",
        );
        ran.exits(0).prints("out/a 0o140700\nout/a\n105\n1\n");
    });
}

#[test]
fn a_virtual_environment_and_an_offline_install() {
    let wheel = "import zipfile
with zipfile.ZipFile('tiny-1-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'WORD = \"installed\"')
    wheel.writestr('tiny-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n')
    wheel.writestr('tiny-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('tiny-1.dist-info/RECORD', '')
";
    with_literal(&["python3"], |sandbox| {
        let script = "python3 -c 'import ensurepip' || exit 77
            cd out; python3 \"$0\"; python3 -m venv v; v/bin/pip install -q --no-index ./tiny-1-py3-none-any.whl
            v/bin/python -c 'import tiny; print(tiny.WORD)'";
        sandbox.file("wheel.py", wheel);
        let ran = sandbox.run(&["sh", "-ec", script, "../wheel.py"]);
        if ran.code == 77 {
            return skip("venv", "python3 has no ensurepip");
        }
        ran.exits(0).prints("installed\n");
    });
}

#[test]
fn node_with_threads_children_and_files() {
    with(&["node"], |sandbox| {
        let program = "const fs = require('fs'), { Worker } = require('worker_threads')
            const { execSync, fork } = require('child_process')
            fs.mkdirSync('out/d/e', { recursive: true }); fs.writeFileSync('out/d/e/f', 'x')
            fs.rmSync('out/d', { recursive: true }); console.log(execSync('echo child').toString().trim())
            const source = 'require(\"worker_threads\").parentPort.postMessage(1)'
            new Worker(source, { eval: true }).on('message', word => { console.log('worker', word)
                fork('child.js').on('message', word => console.log('fork', word)) })";
        sandbox.file("child.js", "process.send('hello'); process.disconnect()");
        sandbox.run(&["node", "-e", program]).exits(0).prints("child\nworker 1\nfork hello\n");
        // None of its own ways to a file is a way around.
        sandbox.file("../secret.json", "{\"hidden\": 1}");
        let program = "const fs = require('fs'), path = process.cwd() + '/../secret.json'
            const ways = [() => fs.readFileSync(new URL('file://' + path)), () => require(path), () => fs.linkSync(path, 'out/l'),
                () => process.binding('fs').open(path, 0, 0), () => fs.cpSync(path, 'out/c'), () => fs.openAsBlob(path)]
            for (const way of ways) try { console.log(way()) } catch (error) { console.log('refused') }";
        let ran = sandbox.run(&["node", "-e", program]);
        assert!(!ran.stdout.contains("hidden") && ran.stdout.matches("refused").count() >= 5, "{ran}");
    });
}

#[test]
fn npm_installs_a_local_package() {
    with_literal(&["npm", "tar"], |sandbox| {
        sandbox.file("package/package.json", r#"{"name":"tiny","version":"1.0.0","main":"i.js"}"#);
        sandbox.file("package/i.js", "module.exports = 'installed'");
        let script = "tar czf out/tiny.tgz package; cd out; echo '{\"name\":\"a\",\"version\":\"1.0.0\"}' > package.json
            npm install --silent --offline --no-audit --no-fund ./tiny.tgz
            npm ci --silent --offline --no-audit --no-fund; node -e 'console.log(require(\"tiny\"))'";
        let ran = shell(sandbox, script);
        ran.exits(0);
        assert!(ran.stdout.ends_with("installed\n"), "{ran}");
    });
}

#[test]
fn java_compiles_and_runs() {
    with_literal(&["javac", "java"], |sandbox| {
        sandbox.file(
            "A.java",
            "class A { public static void main(String[] a) { System.out.println(40 + 2); } }",
        );
        shell(sandbox, "javac -d out A.java; java -cp out A").exits(0).prints("42\n");
    });
}

#[test]
fn go_builds_and_runs_a_static_program() {
    with_literal(&["go"], |sandbox| {
        sandbox.file("go.mod", "module m\ngo 1.19\n");
        sandbox.file("m.go", "package main\nfunc main() { println(42) }\n");
        let ran = shell(sandbox, "CGO_ENABLED=0 go build -o out/m . && out/m; go run .");
        ran.exits(0).complains("42\n42\n");
    });
}

#[test]
fn make_compiles_in_parallel() {
    with(&["make", "gcc"], |sandbox| {
        sandbox.file("a.c", "#include <stdio.h>\nint main(void) { puts(NAME); }\n");
        let rule = "\tgcc -DNAME='\"$@\"' -o out/$@ a.c\n";
        sandbox.file("Makefile", format!("all: a b c\na b c:\n{rule}"));
        shell(sandbox, "make -s -j2; out/a; out/b; out/c").exits(0).prints("a\nb\nc\n");
    });
}

#[test]
fn git_from_init_to_worktree() {
    with(&["git"], |sandbox| {
        let script = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
            cd out; git init -q g; cd g; for i in 1 2 3; do echo $i > f$i; git add .; git commit -qm $i; done
            git status --short; git diff --stat HEAD~1 | tail -1; git clone -q . ../c; git worktree add -q ../w
            git gc -q; git checkout -qb x; git rebase -q HEAD~1; git -C ../c log --oneline | wc -l; git archive HEAD | tar t";
        let ran = shell(sandbox, script);
        ran.exits(0).prints(" 1 file changed, 1 insertion(+)\n3\nf1\nf2\nf3\n");
    });
}

#[test]
fn files_are_packed_copied_and_moved_across_roots() {
    with(&["tar", "gzip"], |sandbox| {
        sandbox.policy(&format!("{PATTERNS}write: ./w\n")).directory("w");
        let script = "mkdir -p out/a/d; echo 1 > out/a/f; ln -s f out/a/l; ln out/a/f out/a/hard; chmod 640 out/a/f
            cp -a out/a w/b; mv out/a out/c; tar czf out/x.tgz -C out c; mkdir w/t; tar xzf out/x.tgz -C w/t
            mv out/c w/moved; diff -r w/moved w/b; diff -r w/t/c w/b; stat -c '%h %a' w/b/f; touch -d 2020-01-01 w/b/f
            stat -c %Y w/b/f | cut -c1-5; rm -r w/b w/t w/moved; truncate -s 5 out/z; sed -i s/x/y/ out/z; sync out/z
            install -m 755 /bin/true out/t; out/t; flock out/lock true; ls out w";
        shell(sandbox, script)
            .exits(0)
            .prints("2 640\n15778\nlock\nt\nx.tgz\nz\n\nw:\n".replacen("lock", "out:\nlock", 1).as_str());
    });
}

#[test]
fn sqlite_locks_between_processes() {
    with(&["sqlite3"], |sandbox| {
        let script = "sqlite3 out/s.db 'pragma journal_mode=wal; create table t(a)'
            for i in 1 2 3 4; do (for j in 1 2 3 4 5; do sqlite3 -cmd '.timeout 20000' out/s.db \"insert into t values($i)\"
            done) & done; wait; sqlite3 out/s.db 'select count(*) from t; pragma integrity_check'";
        shell(sandbox, script).exits(0).prints("wal\n20\nok\n");
    });
}

#[test]
fn terminals_inside() {
    with(&["script", "tmux", "vim", "less"], |sandbox| {
        sandbox.file("text", "line\n");
        let script = "export TERM=xterm; script -qec 'tty; echo pty' /dev/null | tr -d '\\r'; less text
            vim -u NONE -n -es -c 'normal ihello' -c 'w! out/v' -c 'qa!' < /dev/null; cat out/v
            tmux -L x -f /dev/null new-session -d -s a 'echo pane; sleep 5'; sleep 1; tmux -L x capture-pane -p -t a | head -1
            tmux -L x kill-server";
        shell(sandbox, script).exits(0).prints("/dev/pts/0\npty\nline\nhello\npane\n");
    });
}

#[test]
fn perl_busybox_and_inotify() {
    with(&["perl", "busybox", "python3"], |sandbox| {
        let script = "perl -e 'print `echo 7`; if (!fork) { exit 3 } wait; print $? >> 8, \"\\n\"'
            busybox sh -c 'busybox echo b; busybox mktemp | busybox cut -c1-5'
            python3 -c 'import ctypes, os
c = ctypes.CDLL(None); watch = c.inotify_init1(0); c.inotify_add_watch(watch, b\"out\", 0x100)
open(\"out/new\", \"w\"); print(len(os.read(watch, 4096)))'";
        shell(sandbox, script).exits(0).prints("7\n3\nb\n/tmp/\n32\n");
    });
}

#[test]
fn tracers_are_refused_with_a_reason() {
    with_literal(&["strace"], |sandbox| {
        sandbox.run(&["strace", "true"]).exits(1).complains("Operation not permitted");
    });
}
