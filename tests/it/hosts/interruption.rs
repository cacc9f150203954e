//! Signals to the launcher at any moment: before the clone, before the word to start, during the
//! run, at its end. Nothing is left, and the trace is closed or was never made.

use std::fs;
use std::time::Duration;

use agentbox::trace::{Expectation, Outcome, verify};
use nix::libc;
use nix::sys::signal::Signal;

use super::{finish, nothing_left, prepare, wrapped};
use crate::support::{Running, Sandbox, everyone};

const SIGNALS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Sends `signal` after `delay`; a run that began must end by it, or have ended by itself.
fn interrupt(sandbox: &Sandbox, signal: Signal, delay: Duration) {
    prepare(sandbox);
    let running = Running::start(sandbox.run_command(&[], &["sleep", "60"]));
    std::thread::sleep(delay);
    running.signal(signal);
    let ran = running.finish();
    assert_eq!(ran.code, 128 + signal as i32, "{signal} after {delay:?}\n{ran}");
    assert!(!ran.stderr.contains("panicked"), "{ran}");
    nothing_left(sandbox);
}

#[test]
fn a_signal_at_any_moment_ends_everything_and_closes_the_trace() {
    everyone(|sandbox| {
        for round in 0..28u64 {
            // The launch takes some dozen milliseconds; most of the delays lie within it.
            let delay = Duration::from_micros(round * round * 200 + round * 331 % 700);
            interrupt(sandbox, SIGNALS[usize::try_from(round % 4).expect("a number")], delay);
        }
    });
}

#[test]
fn a_signal_that_waits_when_the_launcher_starts_ends_it_before_the_command() {
    everyone(|sandbox| {
        prepare(sandbox);
        // A child of the launcher's own process sends it as soon as the trace is there.
        let program = "import os, sys, time
launcher = os.getpid()
if os.fork() == 0:
    if os.fork(): os._exit(0)
    for _ in range(20000):
        if os.path.exists(sys.argv[1]): break
        time.sleep(0.0002)
    os.kill(launcher, 15)
    os._exit(0)
os.wait()
os.execv(sys.argv[2], sys.argv[2:])";
        let trace = sandbox.trace().into_os_string().into_string().expect("a path");
        let command = sandbox.run_command(&[], &["/bin/sh", "-c", "while :; do :; done"]);
        let ran = finish(sandbox, wrapped(sandbox, &["python3", "-c", program, &trace], &command));
        ran.exits(128 + 15);
        nothing_left(sandbox);
    });
}

#[test]
fn a_launcher_that_ignores_hangups_is_not_ended_by_one() {
    everyone(|sandbox| {
        prepare(sandbox);
        let ignoring = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])";
        let words = ["/bin/sh", "-c", "echo ready >out/ready; read line <out/wait; echo $line"];
        nix::unistd::mkfifo(&sandbox.path("out/wait"), nix::sys::stat::Mode::from_bits_truncate(0o666))
            .expect("a pipe");
        let command = sandbox.run_command(&[], &words);
        let running = Running::start(wrapped(sandbox, &["python3", "-c", ignoring], &command));
        crate::support::until("the command is ready", || sandbox.path("out/ready").exists());
        running.signal(Signal::SIGHUP);
        std::thread::sleep(Duration::from_millis(50));
        fs::write(sandbox.path("out/wait"), "survived\n").expect("a reader");
        running.finish().exits(0).prints("survived\n");
        nothing_left(sandbox);
    });
}

#[test]
fn a_call_that_waits_for_another_process_is_interrupted_as_without_us() {
    everyone(|sandbox| {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT] {
            prepare(sandbox);
            let waiting = sandbox.path("out/wait");
            nix::unistd::mkfifo(&waiting, nix::sys::stat::Mode::from_bits_truncate(0o666)).expect("a pipe");
            let words = ["/bin/sh", "-c", "echo ready >out/ready; read line <out/wait"];
            let running = Running::start(sandbox.run_command(&[], &words));
            crate::support::until("the command is ready", || sandbox.path("out/ready").exists());
            std::thread::sleep(Duration::from_millis(50));
            running.signal(signal);
            running.finish().exits(128 + signal as i32);
            nothing_left(sandbox);
        }
    });
}

#[test]
fn an_interrupted_wait_goes_on_where_the_handler_wants_it() {
    // With SA_RESTART and without; somebody comes in the end.
    let program = "import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
calls = []
signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
signal.siginterrupt(signal.SIGALRM, sys.argv[1] == 'interrupt')
os.mkfifo('out/pipe')
if os.fork() == 0:
    time.sleep(0.6)
    os.open('out/pipe', os.O_WRONLY)
    os._exit(0)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
file = libc.open(b'out/pipe', os.O_RDONLY)
errno = ctypes.get_errno()
signal.setitimer(signal.ITIMER_REAL, 0)
print('opened' if file >= 0 else errno)";
    everyone(|sandbox| {
        for (how, printed) in [("restart", "opened\n"), ("interrupt", "4\n")] {
            prepare(sandbox);
            let ran = sandbox.run(&["python3", "-c", program, how]);
            ran.exits(0).prints(printed);
        }
    });
}

#[test]
fn a_killed_launcher_leaves_no_process_at_any_moment_of_the_launch() {
    everyone(|sandbox| {
        for round in 0..16u64 {
            prepare(sandbox);
            let _ = fs::remove_dir_all(sandbox.beside("trace.jsonl.blobs"));
            let command = sandbox.run_command(&[], &["/bin/sh", "-c", "while :; do :; done"]);
            let running = Running::start(command);
            std::thread::sleep(Duration::from_micros(round * round * 400));
            running.signal(Signal::SIGKILL);
            assert_eq!(running.finish().code, 128 + libc::SIGKILL);
            let word = sandbox.beside("").into_os_string();
            crate::support::until("everything is gone", || super::processes(&word) == 0);
            if sandbox.trace().exists() && fs::metadata(sandbox.trace()).is_ok_and(|file| file.len() > 0) {
                let found = verify(&sandbox.trace(), &Expectation::default()).expect("a trace");
                assert!(matches!(found.outcome, Outcome::Unsealed | Outcome::Torn { .. }), "{found:?}");
            }
        }
    });
}
