//! What processes beside each other write comes in the recorded order in a replay.

use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Sandbox, User, everyone, has, skip};

/// Jobs that say something in pieces and by programs, to both outputs.
const JOBS: &str = "exec 2>&1\n\
    for i in 1 2 3 4; do (echo a $i; ls /none$i; echo b $i >&2) & done; wait\n\
    for i in 1 2 3; do ls /none$i | cat /none-b$i | sort /none-c$i; done\n\
    (sed x /b1; sed x /b2) & (sed x /b3; sed x /b4) & wait\n";
const POLICY: &str = "read: .\nexec: ls, cat, sort, sed, sleep\n";

fn order(sandbox: &Sandbox) -> Option<String> {
    let trace = std::fs::read_to_string(sandbox.trace()).expect("a trace");
    let entry = trace.lines().find(|line| line.contains(r#""op":"stdio.order""#))?;
    let entry: serde_json::Value = serde_json::from_str(entry).expect("an entry");
    Some(entry["args"]["order"]["text"].as_str().unwrap_or("in a blob").to_owned())
}

#[test]
fn jobs_print_in_the_recorded_order() {
    everyone(|sandbox| {
        sandbox.policy(POLICY).file("jobs.sh", JOBS);
        for round in 0..4 {
            let run = sandbox.run(&["sh", "jobs.sh"]);
            assert!(order(sandbox).is_some(), "{round}: {run:?}");
            let mut words: Vec<OsString> =
                vec!["replay".into(), "-t".into(), sandbox.trace().into_os_string()];
            words.extend((round == 3).then(|| "--paced".into()));
            let replay = sandbox.agentbox(&words);
            assert_eq!((replay.code, &replay.stdout), (0, &run.stdout), "{round}: {replay:?}");
        }
    });
}

/// Jobs that wait for the same time: a replay leaves that out.
const WAITING: &str = "for i in a b c d e f; do (sleep 0.1; echo $i) & done; wait\n";

#[test]
fn jobs_that_wait_print_in_the_recorded_order() {
    everyone(|sandbox| {
        sandbox.policy(POLICY).file("jobs.sh", WAITING);
        for round in 0..4 {
            let run = sandbox.run(&["sh", "jobs.sh"]);
            let trace = sandbox.trace();
            let replay = sandbox.agentbox(&["replay".as_ref(), "-t".as_ref(), trace.as_os_str()]);
            assert_eq!((replay.code, &replay.stdout), (0, &run.stdout), "{round}: {replay:?}");
        }
    });
}

/// Children that take as long as each other, and say which of them ended as it does.
const CHILDREN: &str = "work() { i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; }\n\
    for k in 1 2 3; do\n\
    for i in 1 2 3 4; do (work; exit $i) & done\n\
    for i in 1 2 3 4; do wait -n; echo ended $?; done\n\
    done\n";

#[test]
fn children_end_in_the_recorded_order() {
    if !has("bash") {
        return skip("children that end beside each other", "there is no bash");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: bash\n").file("children.sh", CHILDREN);
        for round in 0..4 {
            let run = sandbox.run(&["bash", "children.sh"]);
            let order = order(sandbox);
            assert!(order.is_some_and(|order| order.matches("end\n").count() == 12), "{round}: {run:?}");
            let trace = sandbox.trace();
            let replay = sandbox.agentbox(&["replay".as_ref(), "-t".as_ref(), trace.as_os_str()]);
            assert_eq!((replay.code, &replay.stdout), (0, &run.stdout), "{round}: {replay:?}");
        }
    });
}

/// Children that take a while to end once their pipes are closed, in whichever order the kernel closes what they have open;
/// whoever reads these pipes says so before it waits for them.
const CLOSING: &str = "import os, subprocess, sys\n\
    def last():\n\
    \x20   sys.stdin.read()\n\
    \x20   memories = [os.memfd_create('memory') for _ in range(2)]\n\
    \x20   for memory in memories:\n\
    \x20       for _ in range(50): os.write(memory, bytes(1 << 20))\n\
    \x20   os.dup2(1, 100); os.dup2(memories[0], 1); os.dup2(memories[1], 101); os._exit(0)\n\
    if len(sys.argv) > 1: last()\n\
    pipe, words = subprocess.PIPE, [sys.executable, 'closing.py', 'last']\n\
    children = [subprocess.Popen(words, stdin=pipe, stdout=pipe) for _ in range(3)]\n\
    for child in children:\n\
    \x20   child.stdin.close(); child.stdout.read(); os.write(1, b'closed\\n'); child.wait()\n";

#[test]
fn a_child_ends_before_its_parent_says_that_its_pipes_are_closed() {
    if !has("python3") {
        return skip("children that take a while to end", "there is no python3");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3\n").file("closing.py", CLOSING);
        let run = sandbox.run(&["python3", "closing.py"]);
        let order = order(sandbox).unwrap_or_default();
        let mut ended = 0;
        for line in order.lines() {
            match line.strip_prefix("0 ") {
                Some(prints) => ended -= prints.parse::<i32>().expect("a number"),
                None => ended += i32::from(line.ends_with(" end")),
            }
            assert!(ended >= 0, "{order} {run:?}");
        }
        assert_eq!((run.code, order.matches("end\n").count(), ended), (0, 3, 0), "{order} {run:?}");
        let replay = sandbox.agentbox(&["replay".as_ref(), "-t".as_ref(), sandbox.trace().as_os_str()]);
        assert_eq!((replay.code, &replay.stdout), (0, &run.stdout), "{order} {replay:?}");
    });
}

/// Two children, of which the second may be at its end while the first one sends it signals, and waits.
const SIGNALLED: &str = "import os, signal, time\n\
    signal.signal(signal.SIGUSR1, lambda *_: None)\n\
    def child(work, code):\n\
    \x20   process = os.fork()\n\
    \x20   if process == 0: work(); os._exit(code)\n\
    \x20   return process\n\
    second = child(lambda: exec(open('what').read()), 2)\n\
    def signals():\n\
    \x20   for _ in range(10): os.kill(second, signal.SIGUSR1); time.sleep(0.2)\n\
    child(signals, 1)\n\
    for _ in range(2): os.write(1, b'%d\\n' % os.waitstatus_to_exitcode(os.wait()[1]))\n";

#[test]
fn a_wait_is_left_out_while_one_that_got_a_signal_waits_to_end() {
    if !has("python3") {
        return skip("children that get signals", "there is no python3");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3\n").file("signalled.py", SIGNALLED);
        sandbox.file("what", "time.sleep(3)");
        let run = sandbox.run(&["python3", "signalled.py"]);
        assert_eq!(run.stdout, "1\n2\n", "{run:?}");
        sandbox.file("what", "");
        let trace = sandbox.trace();
        let words = ["replay".as_ref(), "--force".as_ref(), "-t".as_ref(), trace.as_os_str()];
        let replay = sandbox.agentbox(&words);
        assert_eq!(replay.stdout, run.stdout, "{replay:?}");
    });
}

#[test]
fn a_child_that_does_not_end_is_not_waited_for_long() {
    if !has("bash") {
        return skip("a child that does not end", "there is no bash");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: bash, sleep\n").file(
            "children.sh",
            "(. ./what) & first=$!; (sleep 0.2; exit 3) &\n\
             wait -n; echo $?; kill -KILL $first; wait\n",
        );
        sandbox.file("what", "exit 4");
        let run = sandbox.run(&["bash", "children.sh"]);
        assert_eq!(run.stdout, "4\n", "{run:?}");
        // It computes, or waits for what does not come.
        for what in ["while :; do :; done", "kill -STOP $BASHPID"] {
            sandbox.file("what", what);
            let begun = Instant::now();
            let trace = sandbox.trace();
            let replay =
                sandbox.agentbox(&["replay".as_ref(), "--force".as_ref(), "-t".as_ref(), trace.as_os_str()]);
            assert_eq!((replay.code, replay.stdout.as_str()), (1, "3\n"), "{replay:?}");
            assert!(begun.elapsed() < Duration::from_secs(80), "{:?}", begun.elapsed());
        }
    });
}

#[test]
fn what_waits_for_room_comes_in_the_recorded_order() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: seq\n");
        for _ in 0..3 {
            // Each fills the pipe, in writes that are not divided (pipe(7), PIPE_BUF).
            let script = "for i in 1 2 3 4; do seq ${i}00000 ${i}09999 & done; wait";
            let run = sandbox.run(&["sh", "-c", script]);
            assert!(order(sandbox).is_some(), "{run:?}");
            let replay = sandbox.agentbox(&["replay".as_ref(), "-t".as_ref(), sandbox.trace().as_os_str()]);
            assert!(replay.code == 0 && replay.stdout == run.stdout, "{}", replay.stderr);
        }
    });
}

#[test]
fn one_that_prints_alone_needs_no_order() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        let run = sandbox.run(&["sh", "-c", "for i in 1 2 3; do echo $i; done; ls / > /dev/null"]);
        assert_eq!((run.code, order(sandbox)), (0, None), "{run:?}");
    });
}

#[test]
fn whoever_does_not_come_is_not_waited_for_long() {
    everyone(|sandbox| {
        sandbox.policy(POLICY).file(
            "jobs.sh",
            "for i in 1 2 3 4; do\n\
             (echo first; . ./what; sleep 0.3) & sleep 0.1; echo second $i; wait\n\
             done\n",
        );
        sandbox.file("what", "echo third\n");
        let run = sandbox.run(&["sh", "jobs.sh"]);
        assert_eq!(run.code, 0, "{run:?}");
        let begun = Instant::now();
        sandbox.file("what", "sleep 1\n");
        let trace = sandbox.trace();
        let replay =
            sandbox.agentbox(&["replay".as_ref(), "--force".as_ref(), "-t".as_ref(), trace.as_os_str()]);
        assert_eq!(replay.code, 1, "{replay:?}");
        assert!(begun.elapsed() < Duration::from_secs(80), "{:?}", begun.elapsed());
    });
}

#[test]
fn whoever_is_late_on_a_busy_machine_is_waited_for_longer() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY).file("jobs.sh", "(. ./what; echo first) & (. ./then; echo second) & wait\n");
    sandbox.file("what", ":\n");
    sandbox.file("then", "sleep 3\n");
    let run = sandbox.run(&["sh", "jobs.sh"]);
    assert_eq!(run.stdout, "first\nsecond\n", "{run:?}");
    sandbox.file("what", "until [ -e go ]; do :; done\n");
    sandbox.file("then", ":\n");
    let is_over = AtomicBool::new(false);
    let replay = std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) + 2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let go = sandbox.path("go");
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(3));
            std::fs::write(go, "").expect("a file");
        });
        let trace = sandbox.trace();
        let words = ["replay".as_ref(), "--force".as_ref(), "-t".as_ref(), trace.as_os_str()];
        let replay = sandbox.agentbox(&words);
        is_over.store(true, Ordering::Relaxed);
        replay
    });
    assert_eq!(replay.stdout, run.stdout, "{replay:?}");
}

#[test]
fn signals_do_not_interrupt_what_waits_for_us() {
    if !has("gcc") {
        return skip("writes and opens under signals", "there is no gcc");
    }
    everyone(|sandbox| {
        let program = sandbox.path("signals");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/turns/signals.c");
        let built = Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(source).status();
        assert!(built.is_ok_and(|status| status.success()));
        sandbox.give("signals");
        sandbox.file("data", "granted");
        sandbox.policy(&format!("{POLICY}exec: ./signals\n"));
        for words in [&["./signals"][..], &["sh", "-c", "ls / > /dev/null; ./signals; :"]] {
            let run = sandbox.run(words);
            assert_eq!(run.code, 0, "{run:?}");
        }
    });
}

/// Children that say something in pieces to whoever has started them, and to one that reads what they all write.
const TALKING: &str = "for piece in 1 2 3 4; do echo $1 $piece; sleep 0.01; done\n";
/// Takes them as they come, and says in which pieces.
const LISTENING: &str = "import os, selectors, subprocess\n\
    selector = selectors.DefaultSelector()\n\
    children = [subprocess.Popen(['sh', 'talk.sh', name], stdout=subprocess.PIPE) for name in 'abcd']\n\
    for child in children: selector.register(child.stdout, selectors.EVENT_READ)\n\
    while selector.get_map():\n\
    \x20   for key, _ in selector.select():\n\
    \x20       piece = os.read(key.fd, 4096)\n\
    \x20       print(key.fd, piece, flush=True)\n\
    \x20       if not piece: selector.unregister(key.fileobj)\n\
    for child in children: print(child.wait())\n";

/// Records a command and replays it, several times; it has said the same, which `order` says was in turns.
fn comes_as_it_came(sandbox: &Sandbox, command: &[&str]) {
    for round in 0..4 {
        let run = sandbox.run(command);
        let order = order(sandbox).unwrap_or_default();
        assert!(order.lines().any(|line| line.split(' ').count() == 4), "{round}: {order} {run:?}");
        let replay = sandbox.agentbox(&["replay".as_ref(), "-t".as_ref(), sandbox.trace().as_os_str()]);
        assert_eq!((replay.code, &replay.stdout), (0, &run.stdout), "{round}: {order} {replay:?}");
    }
}

#[test]
fn a_reader_of_several_pipes_hears_what_it_heard() {
    if !has("python3") {
        return skip("a reader of several pipes", "there is no python3");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: python3, sh, sleep\n");
        sandbox.file("talk.sh", TALKING);
        sandbox.file("listen.py", LISTENING);
        comes_as_it_came(sandbox, &["python3", "listen.py"]);
    });
}

#[test]
fn a_reader_of_sockets_hears_what_it_heard() {
    if !has("node") {
        return skip("a reader of sockets", "there is no node");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: node, sh, sleep\n").file("talk.sh", TALKING);
        sandbox.file(
            "listen.js",
            "for (const name of 'abcd') {\n\
             const child = require('child_process').spawn('sh', ['talk.sh', name]);\n\
             child.stdout.on('data', piece => console.log(name, JSON.stringify(String(piece))));\n\
             child.on('close', status => console.log(name, status));\n\
             }\n",
        );
        comes_as_it_came(sandbox, &["node", "listen.js"]);
    });
}

#[test]
fn a_reader_of_several_writers_hears_what_it_heard() {
    everyone(|sandbox| {
        sandbox.policy(POLICY).file("talk.sh", TALKING);
        let script =
            "(sh talk.sh a & sh talk.sh b & sh talk.sh c & wait) | while read l; do echo got $l; done";
        comes_as_it_came(sandbox, &["sh", "-c", script]);
    });
}

#[test]
fn one_that_writes_alone_to_one_that_does_nothing_but_read_is_not_noted() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: seq, cat, sleep\n");
        let run = sandbox.run(&["sh", "-c", "(sleep 0.3; seq 1 199999) | cat | cat; echo end"]);
        let order = order(sandbox).unwrap_or_default();
        assert!(run.code == 0 && order.lines().all(|line| line.split(' ').count() == 2), "{order}");
    });
}

#[test]
fn who_writes_to_a_reader_that_computes_is_not_held_up() {
    if !has("bash") {
        return skip("a reader that computes", "there is no bash");
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nwrite: .\nexec: bash, seq, sh\n").file(
            "compute.sh",
            "exec 3< <(for i in 1 2 3; do sh -c 'for i in $(seq 300); do echo $i; done'; done; echo > done)\n\
             until [ -e done ]; do :; done; while read -r line <&3; do echo $line; done\n",
        );
        let begun = Instant::now();
        let run = sandbox.run(&["bash", "compute.sh"]);
        assert_eq!((run.code, run.stdout.lines().count()), (0, 900), "{run:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        std::fs::remove_file(sandbox.path("done")).expect("made by the run");
    });
}
