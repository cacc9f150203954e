//! The life of a run: signals to the launcher, its death, daemons, zombies, descriptors.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agentbox::trace::{Expectation, Outcome, verify};
use nix::sys::signal::Signal;

use crate::support::{Running, Sandbox, everyone, until};

/// A command that never ends by itself and is found by this word in its arguments.
fn marked(sandbox: &Sandbox) -> String {
    let name = sandbox.beside("").file_name().map(|name| name.to_string_lossy().into_owned());
    format!("marked-{}", name.unwrap_or_default())
}

/// How many processes of this host have the word in their arguments.
fn processes(word: &str) -> usize {
    let listed = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let has_word = |path: &Path| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        // The launcher has the word too, below its own name.
        !line.windows(4).any(|part| part == b"run\0")
            && line.windows(word.len()).any(|part| part == word.as_bytes())
    };
    listed.filter(|entry| has_word(&entry.path())).count()
}

#[test]
fn a_signal_to_the_launcher_reaches_the_command_and_the_trace_is_closed() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out");
        sandbox.directory("out");
        for (signal, code) in [(Signal::SIGINT, 11), (Signal::SIGTERM, 12), (Signal::SIGHUP, 13)] {
            let _ = fs::remove_file(sandbox.path("out/ready"));
            let name = signal.as_str().trim_start_matches("SIG");
            let program = format!(
                "trap 'exit {code}' {name}; echo >out/ready; i=0; while [ $i -lt 600 ]; do read -t 0.1 x <>/tmp/none; i=$((i+1)); done"
            );
            let program = program.replace("read -t 0.1 x <>/tmp/none", "sleep 0.1");
            sandbox.policy("write: ./out\nexec: sleep");
            let _ = fs::remove_file(sandbox.trace());
            let running = Running::start(sandbox.run_command(&[], &["sh", "-c", &program]));
            until("the command is ready", || sandbox.path("out/ready").exists());
            running.signal(signal);
            running.finish().exits(code);
            let found = verify(&sandbox.trace(), &Expectation::default()).expect("a trace");
            assert_eq!(found.outcome, Outcome::Sealed, "{signal}");
        }
    });
}

#[test]
fn a_command_without_a_handler_dies_of_the_signal() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out\nexec: sleep");
        sandbox.directory("out");
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let _ = fs::remove_file(sandbox.path("out/ready"));
            let _ = fs::remove_file(sandbox.trace());
            let program = "import time; open('out/ready', 'w'); time.sleep(60)";
            let program = if signal == Signal::SIGINT {
                format!("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); {program}")
            } else {
                program.to_owned()
            };
            let running = Running::start(sandbox.run_command(&[], &["python3", "-c", &program]));
            until("the command is ready", || sandbox.path("out/ready").exists());
            running.signal(signal);
            running.finish().exits(128 + signal as i32);
            let found = verify(&sandbox.trace(), &Expectation::default()).expect("a trace");
            assert_eq!(found.outcome, Outcome::Sealed, "{signal}");
        }
    });
}

/// Whole lines of `trace` that are written by now.
fn lines(trace: &Path) -> u64 {
    let text = fs::read(trace).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[test]
fn a_killed_launcher_leaves_no_process_and_a_trace_up_to_its_last_line() {
    everyone(|sandbox| {
        let word = marked(sandbox);
        sandbox.policy("write: ./out\nexec: sh");
        sandbox.directory("out");
        let program = format!(
            "import os, subprocess, time
subprocess.Popen(['sh', '-c', 'while :; do : {word}; done'], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    while True: time.sleep(1)
for round in range(10000):
    open('out/%d' % (round % 7), 'w').write('x')
    if round == 20: open('out/ready', 'w')
time.sleep(60)"
        );
        for delay in [0, 7, 40] {
            let _ = fs::remove_file(sandbox.path("out/ready"));
            let _ = fs::remove_file(sandbox.trace());
            let running = Running::start(sandbox.run_command(&[], &["python3", "-c", &program]));
            until("the command is ready", || sandbox.path("out/ready").exists());
            // What was done is written a moment later.
            until("some of it is written", || lines(&sandbox.trace()) > 20);
            std::thread::sleep(Duration::from_millis(delay));
            assert!(processes(&word) > 0, "the command is not to be seen");
            let written = lines(&sandbox.trace());
            running.signal(Signal::SIGKILL);
            running.finish().exits(128 + 9);
            until("everything is gone", || processes(&word) == 0);
            let found = verify(&sandbox.trace(), &Expectation::default()).expect("a trace");
            assert!(matches!(found.outcome, Outcome::Unsealed | Outcome::Torn { .. }), "{found:?}");
            assert!(found.entries >= written, "{found:?}, where {written} were seen before");
            let name = sandbox.trace();
            sandbox.agentbox(&[Path::new("verify"), &name]).exits(3);
            sandbox.agentbox(&[Path::new("show"), &name]).exits(0);
        }
    });
}

#[test]
fn daemons_end_with_the_command() {
    everyone(|sandbox| {
        let word = marked(sandbox);
        sandbox.policy("write: ./out\nexec: sh\nexec: sleep");
        sandbox.directory("out");
        let late = format!("sleep 2; echo late >out/late; : {word}");
        let ran = sandbox.python(&format!(
            "import subprocess
subprocess.Popen(['sh', '-c', {late:?}], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
print('done')"
        ));
        ran.exits(0).prints("done\n");
        assert_eq!(processes(&word), 0, "a daemon survived");
        std::thread::sleep(Duration::from_millis(2500));
        assert!(!sandbox.path("out/late").exists(), "written after the end of the run");
    });
}

#[test]
fn orphans_are_reaped() {
    everyone(|sandbox| {
        let ran = sandbox.python(
            "import os, time
for signal in (0, 9, 15, 31, 32, 33, 34, 50, 63, 64) * 2:
    child = os.fork()
    if child == 0:
        if os.fork() == 0: os._exit(os.kill(os.getpid(), signal) or 0)
        os._exit(0)
    os.waitpid(child, 0)
def states():
    for name in os.listdir('/proc'):
        if name.isdigit():
            try: yield open('/proc/%s/stat' % name).read().rpartition(')')[2].split()[0]
            except OSError: pass
for _ in range(200):
    zombies = list(states()).count('Z')
    if not zombies: break
    time.sleep(0.02)
print(zombies)",
        );
        ran.exits(0).prints("0\n");
    });
}

#[test]
fn descriptors_of_the_launcher_do_not_pass() {
    everyone(|sandbox| {
        sandbox.file("secret.txt", "hidden");
        let program = "import os; print(sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1])";
        let inner = sandbox.run_command(&[], &["python3", "-c", program]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec 7<secret.txt 9>>../leak; exec \"$0\" \"$@\""]);
        shell.arg(inner.get_program()).args(inner.get_args()).current_dir(sandbox.path("")).env_clear();
        shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.stdin(std::process::Stdio::null());
        shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        Running::start(shell).finish().exits(0).prints("[0, 1, 2]\n");
    });
}
