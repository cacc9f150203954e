//! Hosts that refuse, run out, or start the launcher in odd surroundings. The machine that runs the
//! tests may allow everything, so what it would refuse is refused on purpose: by a filter around the
//! launcher, by namespaces of the test's own, by limits, by a full file system.

mod disk;
mod fallback;
mod interruption;
mod limits;
mod names;
mod refusal;
mod surroundings;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agentbox::trace::{Expectation, Outcome, verify};

use crate::escape::compiled;
use crate::support::{Ran, Running, Sandbox, User, until};

/// A command that leaves a mark wherever it gets to run.
const MARK: [&str; 3] = ["/bin/sh", "-c", "echo RAN; echo RAN >out/ran"];

/// A launcher that runs [`MARK`] behind the words of `prefix`.
fn behind<W: AsRef<OsStr>>(sandbox: &Sandbox, prefix: &[W]) -> Command {
    wrapped(sandbox, prefix, &sandbox.run_command(&[], &MARK))
}

/// `command` of the sandbox with `prefix` before the launcher, as the same user.
fn wrapped<W: AsRef<OsStr>>(sandbox: &Sandbox, prefix: &[W], command: &Command) -> Command {
    let launcher = match sandbox.user {
        User::Caller => PathBuf::from(env!("CARGO_BIN_EXE_agentbox")),
        User::Ordinary => sandbox.beside("agentbox"),
    };
    let mut words: Vec<OsString> = vec![command.get_program().to_owned()];
    words.extend(command.get_args().map(OsStr::to_owned));
    let at = words.iter().position(|word| word == launcher.as_os_str()).expect("the launcher");
    words.splice(at..at, prefix.iter().map(|word| word.as_ref().to_owned()));
    let mut wrapped = Command::new(&words[0]);
    wrapped.args(&words[1..]).current_dir(sandbox.path("")).env_clear();
    wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    wrapped.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    wrapped
}

/// The words that make a host refuse `rules` (see tests/guests/refuse.c).
fn refusing(sandbox: &Sandbox, rules: &[String]) -> Vec<OsString> {
    let program = sandbox.beside("refuse");
    if !program.exists() {
        // Not by ourselves: a process that another test starts meanwhile would hold the file open for
        // writing, and then it cannot be executed (execve(2), ETXTBSY).
        let copied = Command::new("cp").arg(compiled("refuse")).arg(&program).status().expect("cp");
        assert!(copied.success(), "no copy");
    }
    let mut words = vec![program.into_os_string()];
    words.extend(rules.iter().map(OsString::from));
    words.push("--".into());
    words
}

/// A place for [`MARK`]; a former trace is gone.
fn prepare(sandbox: &Sandbox) {
    sandbox.policy("write: ./out");
    let _ = fs::remove_dir_all(sandbox.path("out"));
    sandbox.directory("out");
    let _ = fs::remove_file(sandbox.trace());
    let _ = fs::remove_dir_all(sandbox.beside("trace.jsonl.blobs"));
}

/// Demands that nothing was run and nothing is left, that this was said in one line, and that the
/// exit code is 125.
#[track_caller]
fn ran_nothing(sandbox: &Sandbox, ran: &Ran, parts: &[&str]) {
    ran.exits(125).prints("");
    assert_eq!(ran.stderr.lines().count(), 1, "one line\n{ran}");
    assert!(ran.stderr.starts_with("agentbox: "), "{ran}");
    for part in parts {
        ran.complains(part);
    }
    // What is refused, why, and what would help: at least three parts.
    assert!(ran.stderr.matches(": ").count() >= 3, "no remedy\n{ran}");
    assert!(!sandbox.path("out/ran").exists(), "it ran\n{ran}");
    nothing_left(sandbox);
}

/// Demands that no process and no file of a run is left; a trace, if there is one, must be closed.
#[track_caller]
fn nothing_left(sandbox: &Sandbox) {
    if sandbox.trace().exists() {
        let found = verify(&sandbox.trace(), &Expectation::default()).expect("a trace");
        assert_eq!(found.outcome, Outcome::Sealed, "{found:?}");
    }
    no_rest(sandbox);
}

/// Demands that no process and no temporary file of a run is left.
#[track_caller]
fn no_rest(sandbox: &Sandbox) {
    let word = sandbox.beside("").into_os_string();
    until("no process is left", || processes(&word) == 0);
    let blobs = sandbox.beside("trace.jsonl.blobs");
    assert!(sandbox.trace().exists() || !blobs.exists(), "{} is left", blobs.display());
    let pending = sandbox.beside("state/agentbox/pending");
    let waiting = fs::read_dir(pending).map_or(0, Iterator::count);
    assert_eq!(waiting, 0, "a waiting trace is left");
}

/// How many processes of this host have the path in their arguments.
fn processes(path: &OsStr) -> usize {
    let path = path.as_encoded_bytes();
    let has_it = |process: &Path| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        line.windows(path.len()).any(|part| part == path)
    };
    let listed = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    listed.filter(|entry| has_it(&entry.path())).count()
}

/// Runs to the end; a trace must be closed.
fn finish(sandbox: &Sandbox, command: Command) -> Ran {
    let mut ran = Running::start(command).finish();
    ran.read_trace(&sandbox.trace());
    ran
}
