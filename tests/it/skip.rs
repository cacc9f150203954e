//! Waits are left out of a replay, and the program tells the time that it told before.

mod clocks;

use std::time::{Duration, Instant};

use crate::support::{Ran, Sandbox, User, everyone, has, skip};

/// What programs of every kind need to run.
const POLICY: &str = "write: .\nexec: /**\nread: /usr\nread: /etc\n";

/// Records a command, which waits for so long at least.
fn recorded(sandbox: &Sandbox, waits: Duration, words: &[&str]) -> Ran {
    let begun = Instant::now();
    let ran = sandbox.run_with(&[], words);
    assert!(begun.elapsed() >= waits, "it did not wait\n{ran}");
    ran
}

/// Replays what was recorded: with the same output, and which time was left out. However long the machine takes
/// for what runs, and for what waits while it does, is no part of that.
#[track_caller]
fn replayed(sandbox: &Sandbox, recorded: &Ran, options: &[&str]) -> Duration {
    let ran = replay(sandbox, options);
    assert_eq!(ran.stdout, recorded.stdout, "stdout\n{recorded}\n{ran}");
    ran.complains("replay ok");
    left_out(&ran)
}

fn replay(sandbox: &Sandbox, options: &[&str]) -> Ran {
    let trace = sandbox.trace();
    let mut words = vec!["replay", "-t", trace.to_str().expect("text")];
    words.extend(options);
    sandbox.agentbox(&words)
}

/// The time that a replay says it has left out.
fn left_out(ran: &Ran) -> Duration {
    let said = ran.stderr.lines().find_map(|line| line.strip_prefix("agentbox: waits of "));
    let number = said.and_then(|said| said.split(' ').next()?.parse().ok());
    Duration::from_secs_f64(number.unwrap_or(0.0))
}

/// Of a command that waits for so long, half of it at least is left out of the replay.
#[track_caller]
fn is_skipped(sandbox: &Sandbox, waits: Duration, words: &[&str]) -> Ran {
    let ran = recorded(sandbox, waits, words);
    let left_out = replayed(sandbox, &ran, &[]);
    assert!(left_out > waits / 2, "{left_out:?} was left out\n{ran}");
    ran
}

fn seconds(seconds: f32) -> Duration {
    Duration::from_secs_f32(seconds)
}

#[test]
fn sleeping_is_left_out() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        let ran = recorded(sandbox, seconds(3.0), &["sh", "-c", "sleep 3; echo done"]);
        ran.prints("done\n");
        let left_out = replayed(sandbox, &ran, &[]);
        assert!(left_out > seconds(2.0), "{left_out:?} was left out\n{ran}");
        let begun = Instant::now();
        let left_out = replayed(sandbox, &ran, &["--paced"]);
        let took = begun.elapsed();
        assert!(left_out.is_zero() && took >= seconds(3.0), "the replay took {took:?}\n{ran}");
    });
}

#[test]
fn processes_go_on_in_the_order_of_their_times() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    let script = "(sleep 1; echo a) & (sleep 3; echo c) & (sleep 2; echo b) & wait; echo d";
    is_skipped(&sandbox, seconds(3.0), &["sh", "-c", script]).prints("a\nb\nc\nd\n");
    let script = "mkfifo f; (sleep 3; echo hi > f) & cat f; rm f";
    is_skipped(&sandbox, seconds(3.0), &["sh", "-c", script]).prints("hi\n");
}

#[test]
fn timers_end_what_waits_longer() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    is_skipped(&sandbox, seconds(3.0), &["sh", "-c", "timeout 3 sleep 100; echo $?"]).prints("124\n");
    let script = "sleep 100 & sleep 3; exec 2> /dev/null; kill $!; wait $!; echo $?";
    is_skipped(&sandbox, seconds(3.0), &["sh", "-c", script]).prints("143\n");
    if has("perl") {
        let script =
            "$SIG{ALRM} = sub { print \"alarm\\n\" }; alarm 2; sleep 10; select undef, undef, undef, 1";
        is_skipped(&sandbox, seconds(3.0), &["perl", "-e", script]).prints("alarm\n");
    }
}

#[test]
fn nothing_is_shortened_while_something_runs() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    sandbox.file(
        "busy.py",
        "import os, time\n\
         if not os.fork():\n    time.sleep(4)\n    os.write(1, b'slept\\n')\n    os._exit(0)\n\
         until = time.process_time() + 0.1\n\
         while time.process_time() < until:\n    pass\n\
         os.write(1, b'computed\\n')\nos.wait()\ntime.sleep(2)\nprint('end')\n",
    );
    let ran = recorded(&sandbox, seconds(6.0), &["python3", "busy.py"]);
    ran.prints("computed\nslept\nend\n");
    let left_out = replayed(&sandbox, &ran, &[]);
    // What was computed meanwhile is not.
    assert!(left_out > seconds(3.0) && left_out < seconds(5.95), "{left_out:?} was left out\n{ran}");
}

#[test]
fn pauses_between_attempts_are_left_out() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = std::thread::spawn(move || {
        for attempt in 0..3 {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).expect("a request");
            let answer = if attempt < 2 {
                "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
            };
            stream.write_all(answer.as_bytes()).expect("an answer");
        }
    });
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(&format!("{POLICY}net: 127.0.0.1:{port}\n"));
    sandbox.file(
        "client.py",
        format!(
            "import time, urllib.request\nbegun = time.monotonic()\n\
             for attempt in range(3):\n    try:\n        \
             print(urllib.request.urlopen('http://127.0.0.1:{port}/', timeout=9).read())\n    \
             except Exception as error:\n        print(error)\n        time.sleep(1 + attempt)\n    \
             print(time.monotonic() - begun)\n"
        ),
    );
    let ran = recorded(&sandbox, seconds(3.0), &["python3", "client.py"]);
    server.join().expect("the server");
    let again = replay(&sandbox, &[]);
    assert_eq!(again.stdout, ran.stdout, "{ran}\n{again}");
    let left_out = left_out(&again);
    assert!(ran.stdout.contains("b'ok'") && left_out > seconds(1.5), "{left_out:?} was left out\n{ran}");
}

/// A program in C, which waits for so long.
fn in_c(source: &str, waits: Duration) -> Option<Ran> {
    if !has("gcc") {
        skip("C", "there is no gcc");
        return None;
    }
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    let source = sandbox.file("waits.c", source);
    let mut build = std::process::Command::new("gcc");
    build.arg("-o").arg(sandbox.path("waits")).arg(source).args(["-pthread", "-lrt"]);
    assert!(build.status().expect("gcc").success());
    Some(is_skipped(&sandbox, waits, &["./waits"]))
}

#[test]
fn timers_of_the_kernel() {
    if let Some(ran) = in_c(include_str!("skip/timers.c"), seconds(6.0)) {
        assert_eq!(ran.stdout.lines().count(), 7, "{ran}");
    }
}

#[test]
fn a_timer_that_a_child_holds_too() {
    if let Some(ran) = in_c(include_str!("skip/shared_timer.c"), seconds(2.0)) {
        assert_eq!(ran.stdout.lines().count(), 7, "{ran}");
    }
}

#[test]
fn waits_for_a_time_of_day() {
    if let Some(ran) = in_c(include_str!("skip/times_of_day.c"), seconds(8.0)) {
        let kinds: Vec<_> =
            ran.stdout.lines().map(|line| line.rsplit_once(' ').unwrap_or_default().0).collect();
        assert_eq!(kinds, ["woken 0", "sign", "interrupted -1", "over -1", "alone 110"], "{ran}");
    }
}

#[test]
fn timers_that_wait_for_a_time_of_day() {
    if let Some(ran) = in_c(include_str!("skip/times_of_timers.c"), seconds(4.5)) {
        assert_eq!(ran.stdout.lines().count(), 5, "{ran}");
    }
}

#[test]
fn nothing_is_left_out_long_after_the_recorded_end() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    let script = "test -e go || exit 0; sleep 50; echo soon; sleep 100; echo late";
    sandbox.run(&["sh", "-c", script]).exits(0);
    sandbox.file("go", "");
    let trace = sandbox.trace();
    let mut command = sandbox.command(&["replay", "--force", "-t", trace.to_str().expect("text")]);
    let mut child = command.spawn().expect("starts");
    let mut said = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    let mut lines = std::io::BufReader::new(stdout);
    std::io::BufRead::read_line(&mut lines, &mut said).expect("a line");
    assert_eq!(said, "soon\n");
    std::thread::sleep(seconds(1.0));
    assert!(child.try_wait().expect("a child").is_none());
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("kill");
    std::io::Read::read_to_string(&mut lines, &mut said).expect("the rest");
    assert_eq!(said, "soon\n");
    child.wait().expect("an end");
}

#[test]
fn a_thread_that_reads_its_clock_less_often_than_it_did_waits_no_longer() {
    if !has("python3") {
        return skip("fewer reads", "there is no python3");
    }
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    sandbox.file(
        "less.py",
        "import os, select, time\n\
         for _ in range(400 if os.path.exists('many') else 0):\n    time.monotonic()\n\
         until = time.monotonic() + 3\n\
         while time.monotonic() < until:\n    select.select([], [], [], 1)\n\
         os.write(1, b'end\\n')\n",
    );
    sandbox.file("many", "");
    let ran = recorded(&sandbox, seconds(3.0), &["python3", "less.py"]);
    ran.prints("end\n");
    std::fs::remove_file(sandbox.path("many")).expect("removed");
    for options in [&["--force"][..], &["--force", "--paced"]] {
        let begun = Instant::now();
        let again = replay(&sandbox, options);
        // Each read that is missing would be a wait of a second more.
        assert!(begun.elapsed() < seconds(60.0) && left_out(&again) < seconds(6.0), "{again}");
        assert_eq!(again.stdout, ran.stdout, "{again}");
    }
}

#[test]
fn what_ran_longer_is_not_told_as_a_wait() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(POLICY);
    sandbox.file(
        "busy.py",
        "import os, time\n\
         time.monotonic()\n\
         until = time.process_time() + (2 if os.path.exists('busy') else 0)\n\
         while time.process_time() < until:\n    pass\n\
         time.monotonic()\ntime.sleep(0.01)\nprint('end')\n",
    );
    sandbox.file("busy", "");
    let ran = recorded(&sandbox, seconds(2.0), &["python3", "busy.py"]);
    ran.prints("end\n");
    std::fs::remove_file(sandbox.path("busy")).expect("removed");
    let again = replay(&sandbox, &["--force"]);
    again.prints("end\n").complains("s less: ");
    assert!(left_out(&again).is_zero(), "{again}");
}
