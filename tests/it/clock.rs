//! The clock of a run that can be replayed: it is the machine's while recording, and the recorded one in the
//! replay, whatever way a program reads it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::escape::compiled;
use crate::support::{Ran, Running, Sandbox, copy_program, everyone, has, skip, until};

/// A place with the guest in it.
fn prepare(sandbox: &Sandbox) {
    sandbox.policy("read: .\nexec: ./guest\nexec: sh\nexec: date\nexec: sleep\n");
    copy_program(compiled("clock"), sandbox.path("guest"));
}

fn record(sandbox: &Sandbox, words: &[&str]) -> Ran {
    sandbox.run_with(&[], words)
}

fn replay(sandbox: &Sandbox) -> Ran {
    sandbox.agentbox(&["replay", "-t", sandbox.trace().to_str().expect("text")])
}

/// Records, replays, and demands that both print the same.
fn both(sandbox: &Sandbox, words: &[&str]) -> Ran {
    let ran = record(sandbox, words);
    ran.exits(0);
    let replayed = replay(sandbox);
    assert_eq!(replayed.stdout, ran.stdout, "{replayed}");
    replayed.exits(0).complains("replay ok");
    ran
}

/// Reads on the tape of one thread.
fn reads(ran: &Ran, proc: &str) -> u64 {
    let tapes = ran.of("clock.tape");
    let own = tapes.iter().filter(|entry| entry["proc"] == proc);
    own.map(|entry| entry["args"]["reads"].as_u64().expect("a number")).sum()
}

fn number(text: &str, name: &str) -> f64 {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

/// Demands that a time, which may be one in whole seconds, lies between that of then and that of now.
#[track_caller]
fn is_since(then: f64, seconds: f64) {
    let times = then - 1.0..=now();
    assert!(times.contains(&seconds), "{seconds} is not within {times:?}");
}

#[test]
fn every_way_to_read_a_clock_gives_the_recorded_time() {
    everyone(|sandbox| {
        prepare(sandbox);
        // Beyond a lane as well, which holds 2023 reads.
        for count in [100, 7000] {
            let begun = now();
            let ran = both(sandbox, &["./guest", "read", &count.to_string()]);
            is_since(begun, number(&ran.stdout, "real") / 1e9);
            is_since(begun, number(&ran.stdout, "coarse") / 1e9);
            is_since(begun, number(&ran.stdout, "raw_seconds"));
            let found = reads(&ran, "0");
            // The guest's own, and a few of its C library's.
            assert!((count + 107..count + 120).contains(&found), "{found} reads\n{ran}");
            assert!(ran.of("clock.uncontrolled").is_empty(), "{ran}");
        }
    });
}

#[test]
fn each_thread_and_each_process_has_a_tape_of_its_own() {
    everyone(|sandbox| {
        prepare(sandbox);
        let ran = both(sandbox, &["./guest", "threads"]);
        for thread in 1..=40 {
            assert_eq!(reads(&ran, &format!("0#{thread}")), 101, "thread {thread}\n{ran}");
        }
        let ran = both(sandbox, &["./guest", "forks"]);
        for child in 0..5 {
            let name = format!("0.{}", 2 * child);
            assert!((10 + child..20 + child).contains(&reads(&ran, &name)), "{name}\n{ran}");
        }
        assert_eq!(reads(&ran, "0.2#40"), 101, "{ran}");
    });
}

#[test]
fn programs_print_the_time_that_they_printed() {
    everyone(|sandbox| {
        prepare(sandbox);
        let begun = now();
        let ran = both(sandbox, &["sh", "-c", "date +%s; sleep 0.1 & wait; date +%s.%N"]);
        ran.stdout.lines().for_each(|line| is_since(begun, line.parse().expect("a number")));
        let python = "import time, datetime\nprint(time.time(), time.monotonic(), time.perf_counter_ns())\n\
                      time.sleep(0.05)\nprint(datetime.datetime.now(), time.clock_gettime(time.CLOCK_BOOTTIME))";
        if has("python3") {
            both(sandbox, &["python3", "-c", python]);
        } else {
            skip("python", "there is none");
        }
        let node = "setTimeout(() => console.log(Date.now(), process.hrtime(), performance.now()), 50)";
        if has("node") { drop(both(sandbox, &["node", "-e", node])) } else { skip("node", "there is none") }
    });
}

#[test]
fn a_wait_until_a_recorded_time_takes_as_long_as_it_did() {
    everyone(|sandbox| {
        prepare(sandbox);
        let ran = record(sandbox, &["./guest", "waits"]);
        ran.exits(0).prints(&"slept 0 1 waited -1 came 0\n".repeat(2));
        // By then each of the times is long over.
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        replay(sandbox).exits(0).prints(&ran.stdout);
        let took = start.elapsed();
        // Nothing waits for 20 seconds.
        assert!(took < Duration::from_secs(20), "{took:?}");
    });
}

/// A program in Go, whose threads read 3000 times of day in turn; and how long all took. The collector of garbage
/// reads them as well.
const GO: &str = "package main
import (\"fmt\"; \"runtime\"; \"runtime/debug\"; \"time\")
func main() {
	debug.SetGCPercent(-1)
	begun := time.Now()
	time.Sleep(50 * time.Millisecond)
	fmt.Println(time.Now().UnixNano())
	turn := make(chan int64)
	var sum int64
	for i := 0; i < 3000; i++ {
		go func() { runtime.LockOSThread(); turn <- time.Now().UnixNano() }()
		sum += <-turn % 1000003
	}
	fmt.Println(sum, time.Now().Format(time.RFC3339Nano))
	println(time.Since(begun).Nanoseconds())
}
";

#[test]
fn programs_whose_clock_goes_at_real_rate_tell_the_same_times_of_day() {
    let sandbox = Sandbox::new(crate::support::User::Caller);
    if !has("go") {
        return skip("go", "there is none");
    }
    sandbox.policy("read: .\nexec: ./time\n");
    sandbox.file("time.go", GO);
    let mut build = std::process::Command::new("go");
    build.args(["build", "-o", "time", "time.go"]).current_dir(sandbox.path("")).env("GO111MODULE", "off");
    build.env("GOCACHE", sandbox.beside("cache")).env("PATH", "/usr/local/go/bin:/usr/bin:/bin");
    assert!(build.status().expect("go").success());
    let begun = now();
    let ran = record(&sandbox, &["./time"]);
    let told = ran.exits(0).stdout.lines().next().expect("a line").parse::<f64>().expect("a number");
    is_since(begun, told / 1e9);
    assert_eq!(ran.of("clock.tape").first().expect("an entry")["args"]["clock"], "shift", "{ran}");
    // Its own, and a few of its runtime.
    assert!((3003..3010).contains(&reads(&ran, "0")), "{ran}");
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let replayed = replay(&sandbox);
    let took = begun.elapsed();
    assert_eq!(replayed.stdout, ran.stdout, "{replayed}");
    // How long something took is what it took now, and the waits that were left out.
    let lasted = |ran: &Ran| {
        let line = ran.stderr.lines().find_map(|line| line.trim().parse().ok());
        Duration::from_nanos(line.expect("a number"))
    };
    let waited = Duration::from_millis(50);
    // Its times of day have moved the clock on, to where it was.
    let bounds = waited..lasted(&ran) + took;
    assert!(lasted(&ran) >= waited && bounds.contains(&lasted(&replayed)), "{bounds:?}\n{replayed}");
}

#[test]
fn what_a_runtime_reads_for_itself_leaves_the_times_of_day_of_its_program_alone() {
    if !has("gcc") {
        return skip("C", "there is no gcc");
    }
    let sandbox = Sandbox::new(crate::support::User::Caller);
    sandbox.policy("read: .\nexec: ./loop\n");
    sandbox.file("file", "file");
    let source = sandbox.file("loop.c", include_str!("clock/callers.c"));
    let mut build = std::process::Command::new("gcc");
    build.arg("-O1").arg("-o").arg(sandbox.path("loop")).arg(source);
    assert!(build.status().expect("gcc").success());
    for _ in 0..3 {
        let begun = now();
        let ran = both(&sandbox, &["./loop"]);
        is_since(begun, ran.stdout.lines().next().expect("a line").parse().expect("a number"));
    }
}

#[test]
fn what_an_interpreter_reads_for_itself_leaves_what_its_program_reads_alone() {
    if !has("python3") {
        return skip("python", "there is none");
    }
    let sandbox = Sandbox::new(crate::support::User::Caller);
    sandbox.policy("read: .\nexec: python3, sh, sleep\n");
    for (script, text) in [
        ("loop.py", include_str!("clock/loop.py")),
        ("threads.py", include_str!("clock/threads.py")),
        ("traced.py", include_str!("clock/traced.py")),
    ] {
        sandbox.file(script, text);
        both(&sandbox, &["python3", script]);
        for _ in 0..2 {
            replay(&sandbox).exits(0).complains("replay ok");
        }
    }
}

#[test]
fn how_often_an_event_loop_turns_leaves_what_its_program_reads_alone() {
    if !has("node") {
        return skip("node", "there is none");
    }
    let sandbox = Sandbox::new(crate::support::User::Caller);
    sandbox.policy("read: .\nexec: node\n");
    sandbox.file("node.test.js", include_str!("clock/node.test.js"));
    let ran = both(&sandbox, &["node", "--test", "node.test.js"]);
    assert!(ran.stdout.contains("duration_ms"), "{ran}");
    for _ in 0..2 {
        replay(&sandbox).exits(0).complains("replay ok");
    }
}

#[test]
fn who_writes_over_its_tape_deceives_itself_alone() {
    everyone(|sandbox| {
        prepare(sandbox);
        // The trace is intact and sealed: `record` looks.
        let ran = record(sandbox, &["./guest", "hostile"]);
        ran.exits(0);
        assert!(ran.stdout.contains("done"), "{ran}");
        let bytes: u64 = ran
            .of("clock.tape")
            .iter()
            .map(|entry| match &entry["args"]["tape"] {
                Value::String(text) => text.len() as u64,
                blob => blob["size"].as_u64().unwrap_or(0),
            })
            .sum();
        assert!(bytes < 32 << 20, "{bytes} bytes of tape");
        // It ends, in whatever way.
        replay(sandbox);
    });
}

#[test]
fn a_program_begins_as_the_kernel_made_it() {
    everyone(|sandbox| {
        prepare(sandbox);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/first.c");
        let guest = sandbox.path("guest");
        std::fs::remove_file(&guest).expect("can be replaced");
        let built = Command::new("gcc")
            .args(["-O1", "-nostdlib", "-static", "-no-pie", "-fno-stack-protector", "-o"])
            .args([&guest, &source])
            .status()
            .expect("gcc");
        assert!(built.success());
        let bare = Command::new(&guest).stdin(std::process::Stdio::null()).output().expect("runs").stdout;
        let bare = String::from_utf8(bare).expect("digits");
        let mut lines: Vec<&str> = bare.lines().collect();
        assert_eq!(lines.len(), 18, "{bare}");
        assert!(lines[..15].iter().all(|register| *register == "0000000000000000"), "{bare}");
        // This test may have inherited others.
        lines[16] = "0000000000000007";
        for words in [&["./guest"][..], &["sh", "-c", "./guest"]] {
            both(sandbox, words).prints(&format!("{}\n", lines.join("\n")));
        }
    });
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_that_runs() {
    let sandbox = Sandbox::new(crate::support::User::Caller);
    prepare(&sandbox);
    // Its name tells it from the guests of other tests.
    copy_program(compiled("clock"), sandbox.path("clock-spins"));
    let running = Running::start(sandbox.run_command(&[], &["./clock-spins", "spin"]));
    let runs = || {
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        all.into_iter().any(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.starts_with(b"./clock-spins\0spin")
        })
    };
    until("it runs", runs);
    running.signal(nix::sys::signal::Signal::SIGKILL);
    running.finish();
    until("it is gone", || !runs());
}
