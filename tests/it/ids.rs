//! Processes and threads have the ids in a replay that they had when they were recorded, whichever was made first.

use std::process::Command;

use crate::support::{Ran, Sandbox, copy_program, everyone, has, skip};

const POLICY: &str = "write: .\nexec: /**\nread: /usr\nread: /etc\n";

fn replay(sandbox: &Sandbox) -> Ran {
    sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")])
}

#[track_caller]
fn replays(sandbox: &Sandbox, words: &[&str]) -> Ran {
    let ran = sandbox.run_with(&[], words);
    ran.exits(0);
    for _ in 0..3 {
        let again = replay(sandbox);
        assert_eq!(again.stdout, ran.stdout, "{again}");
        again.exits(0).complains("replay ok");
    }
    ran
}

/// Threads that run as it happens use up ids while others make processes.
const PYTHON: &str = "\
import os, subprocess, sys, threading, time
def spin(number):
    until = time.process_time() + 0.002 * number
    while time.process_time() < until: pass
    made = [threading.Thread(target=lambda: ids.append(threading.get_native_id())) for _ in range(5)]
    for thread in made: thread.start(); thread.join()
ids = []
threads = [threading.Thread(target=spin, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for _ in range(6):
    word = 'import os; print(os.getpid())'
    print(subprocess.run([sys.executable, '-S', '-c', word], capture_output=True, text=True).stdout, end='')
    print(subprocess.run(['sh', '-c', 'echo $$'], capture_output=True, text=True).stdout, end='')
for thread in threads: thread.join()
print(sorted(ids), [thread.native_id for thread in threads])
";

#[test]
fn threads_that_are_made_meanwhile_take_no_id_of_another() {
    if !has("python3") {
        return skip("python", "there is none");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        sandbox.file("threads.py", PYTHON);
        replays(sandbox, &["python3", "threads.py"]);
    });
}

/// Threads that start a program each at the same time: others, and then all the same one, which hears which it is.
const TOOLS: &str = "\
import subprocess, threading
def start(number, words, told):
    barrier.wait()
    results[number] = subprocess.run(['sh', '-c', *words], input=told, capture_output=True, text=True).stdout
barrier = threading.Barrier(5)
word = 'read told; echo $0 $told $$ $(date +%s.%N); od -An -tx1 -N8 /dev/urandom'
for name in 'tool %d', 'sh':
    results = [''] * 5
    jobs = [(number, [word, *(name % number if '%' in name else name).split()], f'{number}\\n') for number in range(5)]
    threads = [threading.Thread(target=start, args=job) for job in jobs]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(*results)
";

#[test]
fn programs_that_threads_start_at_once_are_themselves() {
    if !has("python3") {
        return skip("python", "there is none");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        sandbox.file("tools.py", TOOLS);
        replays(sandbox, &["python3", "tools.py"]);
    });
}

/// Workers that become no program, and programs after them, beside a thread that waits.
const WORKERS: &str = "\
import multiprocessing, os, subprocess, threading
done = threading.Event()
threading.Thread(target=done.wait).start()
say = lambda name: print(name, os.getpid(), os.urandom(4).hex(), flush=True)
for number in range(3):
    child = os.fork()
    if child == 0: say(number); os._exit(0)
    os.waitpid(child, 0)
for number in range(2):
    worker = multiprocessing.get_context('fork').Process(target=say, args=('worker',))
    worker.start(); worker.join()
    word = 'echo $$; od -An -tx1 -N8 /dev/urandom'
    print(subprocess.run(['sh', '-c', word, str(number)], capture_output=True, text=True).stdout, flush=True)
done.set()
";

#[test]
fn workers_that_become_no_program_are_themselves() {
    if !has("python3") {
        return skip("python", "there is none");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        sandbox.file("workers.py", WORKERS);
        replays(sandbox, &["python3", "workers.py"]);
    });
}

/// The same program again and again, started by whichever thread comes to it.
const GO_AGAIN: &str = "\
package main
import (\"fmt\"; \"os/exec\"; \"time\")
func main() {
\tgo func() { for { time.Sleep(time.Millisecond) } }()
\tfor range make([]bool, 10) {
\t\tsaid := make(chan string)
\t\tgo func() {
\t\t\tword := \"echo $$; od -An -tx1 -N8 /dev/urandom; sleep 0.01\"
\t\t\toutput, err := exec.Command(\"sh\", \"-c\", word).CombinedOutput()
\t\t\ttime.Sleep(2 * time.Millisecond)
\t\t\tsaid <- fmt.Sprint(string(output), err)
\t\t}()
\t\tfmt.Println(<-said)
\t}
}
";

#[test]
fn a_program_that_goroutines_start_again_is_the_next() {
    in_go(GO_AGAIN);
}

/// The same with goroutines, which any thread takes up.
const GO_TOOLS: &str = "\
package main
import (\"fmt\"; \"os/exec\"; \"strconv\"; \"sync\")
func main() {
\tvar group sync.WaitGroup
\tresults := make([]string, 6)
\tfor each := range results {
\t\tgroup.Add(1)
\t\tgo func(number int) {
\t\t\tdefer group.Done()
\t\t\tword := \"echo $0 $$ $(date +%s.%N); od -An -tx1 -N8 /dev/urandom\"
\t\t\toutput, err := exec.Command(\"sh\", \"-c\", word, strconv.Itoa(number)).CombinedOutput()
\t\t\tresults[number] = fmt.Sprint(string(output), err)
\t\t}(each)
\t}
\tgroup.Wait()
\tfmt.Println(results)
}
";

#[test]
fn programs_that_goroutines_start_at_once_are_themselves() {
    in_go(GO_TOOLS);
}

#[track_caller]
fn in_go(text: &str) {
    if !has("go") {
        return skip("go", "it is not installed");
    }
    let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (source, program) = (directory.path().join("tools.go"), directory.path().join("tools"));
    std::fs::write(&source, text).expect("a file");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(&source).env("CGO_ENABLED", "0");
    assert!(go.status().expect("go starts").success());
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        copy_program(&program, sandbox.path("tools"));
        replays(sandbox, &["./tools"]);
    });
}

#[test]
fn jobs_of_shells_have_their_ids() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        let job = |name: &str| {
            format!(
                "(for i in 1 2 3 4 5; do sh -c 'echo {name} $$'; echo {name} | cat | sh -c 'cat; echo $$'; done > {name}) &"
            )
        };
        let script = format!("{} {} {} wait; cat a b c; echo $$ $!", job("a"), job("b"), job("c"));
        let shell = if has("bash") { "bash" } else { "sh" };
        replays(sandbox, &[shell, "-c", &script]);
    });
}

#[test]
fn a_call_that_makes_nothing_holds_nobody_up() {
    if !has("python3") {
        return skip("python", "there is none");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        sandbox.file(
            "fails.py",
            "import os, resource, subprocess\n\
             read, write = os.pipe()\n\
             for number in range(3):\n\
             \u{20}   if os.fork() == 0:\n\
             \u{20}       import ctypes\n\
             \u{20}       libc = ctypes.CDLL(None, use_errno=True)\n\
             \u{20}       # CLONE_SIGHAND without CLONE_VM: EINVAL.\n\
             \u{20}       for _ in range(50): assert libc.syscall(56, 0x800, 0, 0, 0, 0) == -1\n\
             \u{20}       os.write(write, b'x')\n\
             \u{20}       os._exit(0)\n\
             \u{20}   print(subprocess.run(['sh', '-c', 'echo $$'], capture_output=True, text=True).stdout)\n\
             print(os.read(read, 1) + os.read(read, 1) + os.read(read, 1))\n",
        );
        replays(sandbox, &["python3", "fails.py"]);
    });
}

/// A server that leaves its port to be picked, and tells it on a command line, in a file and in what it prints.
const PORTS: &str = "\
import socket, subprocess
sockets = []
for family, kind, host in [(2, 1, '127.0.0.1'), (2, 1, ''), (10, 1, '::1'), (10, 1, '::'), (2, 2, '127.0.0.1')] * 3:
    sockets.append(socket.socket(family, kind))
    sockets[-1].bind((host, 0))
ports = [each.getsockname()[1] for each in sockets]
assert len(set(ports)) == len(ports), ports
open('ports', 'w').write(repr(ports))
sockets[0].listen()
subprocess.run(['echo', str(ports[0])])
socket.create_connection(('127.0.0.1', ports[0]))
print(ports, sockets[0].accept()[0].getsockname())
try: sockets[0].bind(('127.0.0.1', 0))
except OSError as error: print(error)
";

#[test]
fn servers_have_the_ports_that_they_had() {
    if !has("python3") {
        return skip("python", "there is none");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        sandbox.file("ports.py", PORTS);
        let ran = replays(sandbox, &["python3", "ports.py"]);
        assert!(ran.stdout.contains("[Errno 22]"), "{ran}");
    });
}
