//! Signals from outside come again in a replay, where they came.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Ran, Sandbox, everyone, has, skip, until};

const POLICY: &str = "write: .\nexec: /**\nread: /usr\nread: /etc\n";

/// Records a command that gets a signal so long after it has said this line; its standard output and status.
fn record(sandbox: &Sandbox, words: &[&str], line: &str, after: Duration, signal: Signal) -> (String, i32) {
    let mut command = sandbox.run_command(&[], words);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = String::new();
    while !said.ends_with(line) {
        assert!(lines.read_line(&mut said).expect("a line") > 0, "{said}");
    }
    std::thread::sleep(after);
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    kill(pid, signal).expect("kill");
    lines.read_to_string(&mut said).expect("the rest");
    let status = child.wait().expect("an end");
    (said, status.code().or_else(|| status.signal()).expect("a status"))
}

fn replay(sandbox: &Sandbox, options: &[&str]) -> Ran {
    let trace = sandbox.trace();
    let mut words = vec!["replay", "-t", trace.to_str().expect("text")];
    words.extend(options);
    sandbox.agentbox(&words)
}

#[track_caller]
fn again(sandbox: &Sandbox, said: &str) -> Duration {
    let begun = Instant::now();
    let ran = replay(sandbox, &[]);
    let took = begun.elapsed();
    assert_eq!(ran.stdout, said, "{ran}");
    ran.exits(0).complains("replay ok");
    took
}

const TICKS: &str =
    "trap 'echo caught; exit 7' TERM; for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.4; done";

#[test]
fn who_handles_a_signal_does_so_at_the_same_place() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        let after = Duration::from_millis(150);
        let (said, status) = record(sandbox, &["sh", "-c", TICKS], "4\n", after, Signal::SIGTERM);
        assert_eq!((said.as_str(), status), ("1\n2\n3\n4\ncaught\n", 7));
        again(sandbox, &said);
        let paced = replay(sandbox, &["--paced"]);
        assert_eq!(paced.stdout, said, "{paced}");
        paced.exits(0);
    });
}

#[test]
fn who_dies_of_a_signal_dies_again_and_waits_for_nothing() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        for (signal, words) in [
            (Signal::SIGTERM, ["sh", "-c", "echo ready; exec sleep 600"]),
            (Signal::SIGINT, ["perl", "-e", "$| = 1; print \"ready\\n\"; sleep 600; print \"late\""]),
            (Signal::SIGHUP, ["sh", "-c", "sleep 600 & echo ready; wait"]),
        ] {
            let (said, status) = record(sandbox, &words, "ready\n", Duration::from_secs(1), signal);
            assert_eq!((said.as_str(), status), ("ready\n", 128 + signal as i32), "{signal}");
            let took = again(sandbox, &said);
            assert!(took < Duration::from_secs(60), "{took:?}");
        }
    });
}

#[test]
fn who_never_rests_gets_it_in_time() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        let words = ["sh", "-c", "echo ready; while :; do :; done"];
        let (said, status) = record(sandbox, &words, "ready\n", Duration::from_millis(300), Signal::SIGTERM);
        assert_eq!((said.as_str(), status), ("ready\n", 143));
        again(sandbox, &said);
    });
}

/// Prints each signal that it handles, and makes a file then.
const HANDLER: &str = "import signal, sys, time
files = iter(sys.argv[1:])
def said(*words):
    print(*words, flush=True)
    open(next(files), 'w').close()
def handler(number, _):
    said('caught', number)
    if number == signal.SIGTERM: sys.exit(5)
for number in signal.SIGINT, signal.SIGTERM: signal.signal(number, handler)
said('ready')
while True: time.sleep(60)";

#[test]
fn what_the_whole_group_gets_is_not_passed_on_again() {
    if !has("python3") {
        return skip("a handler", "there is no python3");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        for options in [&[][..], &["--no-replay"]] {
            let files = ["ready", "alone", "group", "end", "more", "yet more"];
            let words = [&["python3", "-c", HANDLER], &files[..]].concat();
            let mut command = sandbox.run_command(options, &words);
            command.process_group(0).stdout(Stdio::piped());
            let mut child = command.spawn().expect("starts");
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
            let group = Pid::from_raw(-pid.as_raw());
            // The launcher alone, then its whole group.
            let signals = [(pid, Signal::SIGINT), (group, Signal::SIGINT), (group, Signal::SIGTERM)];
            for (file, (to, signal)) in files.into_iter().zip(signals) {
                until("it waits", || sandbox.path(file).exists());
                kill(to, signal).expect("kill");
            }
            let mut said = String::new();
            child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("reads");
            assert_eq!(child.wait().expect("an end").code(), Some(5));
            assert_eq!(said, "ready\ncaught 2\ncaught 2\ncaught 15\n", "{options:?}");
            let trace = std::fs::read_to_string(sandbox.trace()).expect("a trace");
            let signals = trace.lines().filter(|line| line.contains("\"run.signal\""));
            let whom = |line: &str| if line.contains("\"to\":\"group\"") { "group" } else { "command" };
            let whom: Vec<_> = signals.map(whom).collect();
            assert_eq!(whom, ["command", "group", "group"], "{trace}");
            let _ = std::fs::remove_file(sandbox.trace());
            for file in files {
                let _ = std::fs::remove_file(sandbox.path(file));
            }
        }
    });
}

#[test]
fn a_group_that_dies_of_a_signal_dies_again() {
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        let mut command = sandbox.run_command(&[], &["sh", "-c", "echo ready; sleep 600"]);
        command.process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = String::new();
        lines.read_line(&mut said).expect("a line");
        // Its child waits as well by then.
        std::thread::sleep(Duration::from_secs(1));
        kill(Pid::from_raw(-i32::try_from(child.id()).expect("a pid")), Signal::SIGINT).expect("kill");
        assert_eq!(child.wait().expect("an end").code(), Some(130));
        again(sandbox, "ready\n");
    });
}

#[test]
fn what_a_terminal_sends_comes_to_its_whole_group() {
    if !has("python3") {
        return skip("a terminal", "there is no python3");
    }
    everyone(|sandbox| {
        sandbox.policy(POLICY);
        // Its child is in the same group, and is not passed anything.
        sandbox.file(
            "group.py",
            "import os, signal, time\n\
             def handler(*_):\n    os.write(file, (name + '\\n').encode()); os._exit(3)\n\
             signal.signal(signal.SIGINT, handler)\n\
             file = os.open('said', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n\
             name = 'parent'\n\
             child = os.fork()\n\
             if child == 0:\n    name = 'child'\n    time.sleep(60)\n\
             signal.signal(signal.SIGINT, signal.SIG_IGN)\n\
             os.write(1, b'ready\\n')\n\
             os.waitpid(child, 0)\n\
             os.write(file, b'over\\n')\n",
        );
        let pty = openpty(None, None).expect("a terminal");
        let command = sandbox.run_command(&[], &["python3", "group.py"]);
        let end = || Stdio::from(pty.slave.try_clone().expect("dup"));
        // A session of its own, whose terminal that becomes with the first open.
        let name = nix::unistd::ttyname(&pty.slave).expect("a name");
        let words: Vec<_> = std::iter::once(command.get_program().to_owned())
            .chain(command.get_args().map(ToOwned::to_owned))
            .collect();
        let mut leader = std::process::Command::new("python3");
        leader.arg("-c").arg(
            "import fcntl, os, sys, termios\n\
             os.setsid()\nterminal = os.open(sys.argv[1], os.O_RDWR)\n\
             fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)\nos.execvp(sys.argv[2], sys.argv[2:])",
        );
        leader.arg(name).args(words).stdin(end()).stdout(end()).stderr(end());
        leader.current_dir(command.get_current_dir().expect("a directory"));
        leader.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = leader.spawn().expect("starts");
        drop(leader);
        let mut seen = Vec::new();
        while !seen.ends_with(b"ready\r\n") {
            let mut byte = [0];
            assert_eq!(nix::unistd::read(&pty.master, &mut byte).expect("reads"), 1);
            seen.extend(byte);
        }
        std::thread::sleep(Duration::from_millis(200));
        nix::unistd::write(&pty.master, b"\x03").expect("writes");
        child.wait().expect("an end");
        let said = std::fs::read_to_string(sandbox.path("said")).expect("written");
        assert_eq!(said, "child\nover\n", "{}", String::from_utf8_lossy(&seen));
        let kept = sandbox.beside("kept");
        let ran = replay(sandbox, &["--keep", kept.to_str().expect("text")]);
        ran.exits(0).complains("replay ok");
        let place = sandbox.path("said");
        let again = kept.join(place.strip_prefix("/").expect("absolute"));
        assert_eq!(std::fs::read_to_string(again).expect("kept"), said, "{ran}");
    });
}
