//! Runs that are to be replayed: the same seed gives the same bytes to the same processes, and programs go
//! on as without.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Ran, Running, Sandbox, User, everyone, has, skip, until};

/// A seed; the other differs in one digit.
const SEED: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OTHER: &str = "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn seeded(sandbox: &Sandbox, seed: &str, words: &[&str]) -> Ran {
    sandbox.run_with(&["--seed", seed], words)
}

/// What the command prints, the same in three runs of one seed.
fn printed(sandbox: &Sandbox, words: &[&str]) -> String {
    let once = || {
        let ran = seeded(sandbox, SEED, words);
        ran.exits(0);
        ran.stdout
    };
    let first = once();
    assert_eq!(once(), first, "{words:?}");
    assert_eq!(once(), first, "{words:?}");
    first
}

/// Which programs each process has become.
fn processes(ran: &Ran) -> BTreeMap<String, Vec<Value>> {
    let mut processes = BTreeMap::<_, Vec<_>>::new();
    for entry in ran.of("proc.spawn") {
        let process = entry["proc"].as_str().expect("a lineage").to_owned();
        processes.entry(process).or_default().push(entry["args"]["argv"].clone());
    }
    processes
}

const RANDOM: &str = r#"
import os, random, secrets, tempfile, threading, uuid
print(uuid.uuid4(), secrets.token_hex(8), random.random(), hash("text"), os.urandom(8).hex(), set("abcdef"))
print(os.path.basename(tempfile.mkdtemp(dir=".")), hex(id(object())))
print(open("/dev/urandom", "rb").read(8).hex(), open("/dev/random", "rb").read(8).hex())
print(open("/proc/sys/kernel/random/uuid").read(), open("/proc/sys/kernel/random/uuid").read())
print(open("/proc/sys/kernel/random/boot_id").read(), open("/etc/machine-id").read())
drawn = {}
threads = [threading.Thread(target=lambda i: drawn.update({i: os.urandom(8).hex()}), args=(i,)) for i in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(drawn.items()))
print(end="", flush=True)
child = os.fork()
if child: os.waitpid(child, 0)
print(os.urandom(8).hex(), flush=True)
"#;

#[test]
fn a_seed_gives_a_program_the_same_bytes_in_every_run_and_another_seed_others() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out");
        sandbox.directory("out");
        let words = ["python3", "-c", &RANDOM.replace("dir=\".\"", "dir=\"/tmp\"")];
        let first = printed(sandbox, &words);
        let other = seeded(sandbox, OTHER, &words);
        other.exits(0);
        let other = other.stdout;
        let machine = "6167656e74626f786167656e74626f78";
        let mut words: Vec<&str> = first.split_whitespace().filter(|word| word.len() > 8).collect();
        assert!(words.contains(&machine) && words.len() > 15, "{first}");
        for word in other.split_whitespace().filter(|word| word.len() > 8 && *word != machine) {
            assert!(!words.contains(&word) || word.starts_with("0x"), "{word}: {first}{other}");
        }
        // Nor are any two of them the same.
        words.sort_unstable();
        assert!(words.windows(2).all(|two| two[0] != two[1]), "{first}");
    });
}

#[test]
fn programs_of_all_kinds_get_the_same_bytes_in_every_run() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("exec: /usr/**\nwrite: ./keys\nread: .");
    sandbox.directory("keys");
    let kinds: [(&str, &str); 6] = [
        ("od", "od -An -N16 -tx1 /dev/urandom; od -An -N16 -tx1 /dev/random"),
        ("openssl", "openssl rand -hex 16"),
        ("mktemp", "mktemp -u"),
        ("perl", "perl -e 'print rand()'"),
        ("node", "node -e 'console.log(require(\"crypto\").randomUUID(), Math.random())'"),
        ("ssh-keygen", "ssh-keygen -q -t ed25519 -N '' -C '' -f keys/k && cat keys/k keys/k.pub; rm keys/k*"),
    ];
    for (program, line) in kinds {
        if !has(program) {
            skip(program, "it is not there");
            continue;
        }
        let text = printed(&sandbox, &["sh", "-c", line]);
        assert!(!text.trim().is_empty(), "{program}");
        let other = seeded(&sandbox, OTHER, &["sh", "-c", line]);
        assert_ne!(other.stdout, text, "{program}");
    }
}

#[test]
fn a_random_device_is_read_and_written_as_the_kernels() {
    everyone(|sandbox| {
        sandbox.policy("exec: /usr/**");
        let text = printed(
            sandbox,
            &[
                "sh",
                "-c",
                "dd if=/dev/urandom bs=1M count=3 2>/dev/null | wc -c
                 head -c 700000 /dev/random | cksum
                 exec 3</dev/urandom; head -c 4 <&3 | wc -c; head -c 4 /dev/fd/3 | wc -c
                 echo seed >/dev/urandom && echo written",
            ],
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], &lines[2..]), ("3145728", &["4", "4", "written"][..]), "{text}");
        let text = printed(
            sandbox,
            &[
                "python3",
                "-c",
                "import os
device = os.open('/dev/urandom', os.O_RDWR)
try: os.write(device, b'x')
except OSError as error: print(error.errno, len(os.read(device, 4096)))
device = os.open('/dev/random', os.O_RDONLY | os.O_NONBLOCK)
print(len(os.read(device, 32)), os.get_blocking(device), os.get_inheritable(device))",
            ],
        );
        assert_eq!(text, "9 4096\n32 False False\n");
    });
}

#[test]
fn a_call_for_random_bytes_fails_as_the_kernels() {
    everyone(|sandbox| {
        let program = "import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
def call(buffer, length, flags):
    result = libc.syscall(ctypes.c_long(318), ctypes.c_void_p(buffer), ctypes.c_size_t(length), ctypes.c_uint(flags))
    return ctypes.get_errno() if result < 0 else result
libc.mmap.restype = ctypes.c_void_p
two = libc.mmap(None, 2 * 4096, 3, 0x22, -1, 0)
libc.munmap(ctypes.c_void_p(two + 4096), 4096)
print(call(two, 16, 0), call(two, 16, 1), call(two, 16, 2), call(two, 16, 4), call(two, 0, 0))
print(call(two, 16, 6), call(two, 16, 8), call(8, 16, 0), call((1 << 64) - 8, 16, 0))
print(call(two + 4000, 500, 0), call(two + 4096, 16, 0))
large = libc.mmap(None, 8 << 20, 3, 0x22, -1, 0)
print(call(large, 8 << 20, 0), any(ctypes.string_at(large + (8 << 20) - 64, 64)))";
        let text = printed(sandbox, &["python3", "-c", program]);
        assert_eq!(text, "16 16 16 16 0\n22 22 14 14\n96 14\n8388608 True\n");
    });
}

#[test]
fn a_process_that_hides_its_memory_has_its_bytes_as_well() {
    everyone(|sandbox| {
        let program = "import ctypes, os, ssl
ctypes.CDLL(None).prctl(4, 0)
print(os.urandom(8).hex(), ssl.RAND_bytes(8).hex(), os.getrandom(8).hex())
import threading
thread = threading.Thread(target=lambda: print(os.getrandom(8).hex()))
thread.start(); thread.join()
held = threading.Event()
threading.Thread(target=held.wait).start()
print(os.getrandom(8).hex()); held.set()";
        printed(sandbox, &["python3", "-c", program]);
    });
}

#[test]
fn every_process_and_thread_has_the_same_name_in_every_run() {
    everyone(|sandbox| {
        sandbox.policy("exec: /usr/**\nwrite: ./out");
        sandbox.directory("out");
        let program = r#"
import os, subprocess, threading
def tree(depth):
    made = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            if depth: tree(depth - 1)
            os.execv("/usr/bin/echo", ["echo", str(depth), str(number)])
        made.append(child)
    for child in made: os.waitpid(child, 0)
tree(2)
if os.fork() == 0:
    if os.fork() == 0: os.execv("/usr/bin/echo", ["echo", "orphan"])
    os._exit(0)
os.wait()
subprocess.run("for i in 1 2 3; do (sleep 0.0$i; echo $i | cat) & done; seq 6 | xargs -P3 -n1 echo; wait", shell=True)
go = [threading.Event() for _ in range(3)]
def work(number):
    go[number].wait()
    open(f"out/{number}", "w").write("text")
    subprocess.run(["/usr/bin/echo", f"thread {number}"])
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
for event in go: event.set()
for thread in threads: thread.join()
def become(): os.execv("/usr/bin/sh", ["sh", "-c", "echo become; /usr/bin/true"])
threading.Thread(target=become).start()
threading.Event().wait()
"#;
        let run = || {
            let ran = seeded(sandbox, SEED, &["python3", "-c", program]);
            ran.exits(0);
            ran
        };
        let (first, second) = (run(), run());
        // Threads start children in any order.
        let names = |ran: &Ran| {
            let mut names: Vec<_> = processes(ran).into_iter().collect();
            names.iter_mut().for_each(|(_, programs)| {
                programs.retain(|argv| !argv[1].as_str().is_some_and(|word| word.starts_with("thread ")));
            });
            names
        };
        assert_eq!(names(&first), names(&second));
        assert_eq!(names(&first), names(&run()));
        for number in 0..3 {
            let written = first.recorded("fs.open_write", "path", &format!("out/{number}"));
            assert_eq!(written["proc"], format!("0#{}", number + 1));
        }
        let processes = processes(&first);
        assert_eq!(processes["0"].len(), 2, "{processes:?}");
        assert!(!processes.keys().any(|name| name.contains('~')), "{processes:?}");
        assert_eq!(processes["0.3.0"][0][1], "orphan");
    });
}

#[test]
fn programs_stop_go_on_and_end_as_without() {
    let program = r#"
sleep 0.3 & p=$!
kill -STOP $p; kill -CONT $p; wait $p; echo $?
python3 - <<'X'
import os, signal, time
child = os.fork()
while child == 0: time.sleep(0.05)
os.kill(child, signal.SIGSTOP); print(os.waitpid(child, os.WUNTRACED)[1] == 0x137f)
os.kill(child, signal.SIGCONT); print(os.WIFCONTINUED(os.waitpid(child, os.WCONTINUED)[1]))
os.kill(child, signal.SIGTERM); print(os.waitpid(child, 0)[1])
came = 0
def count(*_):
    global came; came += 1
signal.signal(signal.SIGUSR1, count)
for _ in range(500): os.kill(os.getpid(), signal.SIGUSR1)
print(came)
X
(exit 7); echo $?; sh -c 'kill -SEGV $$' 2>/dev/null; echo $?; timeout 0.2 sleep 5; echo $?
trap 'echo term' TERM; kill -TERM $$; exit 9
"#;
    everyone(|sandbox| {
        sandbox.policy("exec: /usr/**");
        let words = ["sh", "-c", program];
        let without = sandbox.run_with(&["--no-replay"], &words);
        let with = sandbox.run_with(&[], &words);
        with.exits(9);
        without.exits(9);
        assert_eq!(with.stdout, without.stdout);
        let killed = sandbox.run_with(&[], &["sh", "-c", "kill -KILL $$"]);
        killed.exits(137);
    });
}

#[test]
fn a_process_whose_maker_is_killed_goes_on() {
    everyone(|sandbox| {
        sandbox.policy("exec: /usr/**");
        let program = "
import os, random, signal, time
for _ in range(60):
    maker = os.fork()
    if maker == 0:
        while True:
            if os.fork() == 0: os._exit(0)
            while os.waitpid(-1, os.WNOHANG)[0]: pass
    time.sleep(random.random() / 300)
    os.kill(maker, signal.SIGKILL)
    os.waitpid(maker, 0)
print('done')";
        let begun = Instant::now();
        let ran = sandbox.run_with(&[], &["python3", "-c", program]);
        ran.exits(0).prints("done\n");
        assert!(begun.elapsed() < Duration::from_secs(30));
    });
}

#[test]
fn the_launcher_hears_a_signal_while_the_command_makes_many() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out");
        sandbox.directory("out");
        let program = "import os, signal
signal.signal(signal.SIGUSR1, lambda *_: None)
open('out/ready', 'w').close()
while True: os.kill(os.getpid(), signal.SIGUSR1)";
        let words = ["python3", "-c", program];
        let running = Running::start(sandbox.run_command(&[], &words));
        until("the command is ready", || sandbox.path("out/ready").exists());
        running.signal(Signal::SIGTERM);
        running.finish().exits(143);
    });
}

#[test]
fn a_seed_is_for_tests_without_a_network() {
    let sandbox = Sandbox::new(User::Caller);
    let refuse = |options: &[&str], part: &str| {
        let ran = Running::start(sandbox.run_command(options, &["true"])).finish();
        ran.exits(2).complains(part);
    };
    refuse(&["--seed", "00"], "64 hexadecimal digits");
    refuse(&["--seed", SEED, "--no-replay"], "cannot be used with");
    sandbox.policy("net: example.org:443");
    refuse(&["--seed", SEED], "not with `net:` rules");
}

#[test]
fn the_trace_says_whether_randomness_can_be_replayed() {
    let sandbox = Sandbox::new(User::Caller);
    for (options, said) in [(&[][..], "replayable, RDRAND excepted"), (&["--no-replay"], "not covered")] {
        let ran = sandbox.run_with(options, &["true"]);
        ran.exits(0);
        assert_eq!(ran.of("run.start")[0]["args"]["capture"]["randomness"], said);
    }
}
