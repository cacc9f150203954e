//! kill -9 at any moment of a run or of its replay, to the launcher or to the first process inside: nothing is
//! left of it, and the trace is good up to its last record.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentbox::trace::{Expectation, Outcome, verify};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Running, Sandbox, User, mounts, nothing_is_held, tree, until};

/// Each way is killed this often, at another moment each time.
const TIMES: u64 = 20;

/// Works for a while, in two processes.
const AGENT: &str = "
import os, subprocess, time
child = subprocess.Popen(['cat'], stdin=subprocess.PIPE)
for at in range(60):
    open('out/%d' % (at % 5), 'w').write(str(at))
    os.urandom(4); time.time(); time.sleep(0.005)
child.stdin.close()
child.wait()
print('done')
";

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    Launcher,
    /// Pid 1 of the run.
    First,
}

/// What of the host tells that something of a run is left.
#[derive(Debug)]
struct Traces {
    mounts: BTreeSet<(String, String)>,
    temporary: Vec<PathBuf>,
}

fn names(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
    let mut names: Vec<_> = listed.unwrap_or_default();
    names.sort();
    names
}

/// The places of other tests, and the state directories of those of them that give none, are no traces.
fn traces() -> Traces {
    let of_users = [0, 65534].map(|user| PathBuf::from(format!("/tmp/agentbox-{user}")));
    let ours = |path: &PathBuf| {
        path.to_string_lossy().contains("agentbox")
            && !path.to_string_lossy().contains("agentbox-test-")
            && !of_users.contains(path)
    };
    let temporary = ["/tmp", "/var/tmp", "/dev/shm", "/run"].into_iter().flat_map(names).filter(ours);
    Traces { mounts: mounts::seen(), temporary: temporary.collect() }
}

/// Processes of this host that name the sandbox, or stand in it.
fn processes(sandbox: &Sandbox) -> Vec<PathBuf> {
    let place = sandbox.beside("");
    let place = place.to_str().expect("text").trim_end_matches('/').as_bytes();
    let is_of_it = |path: &PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let stands = fs::read_link(path.join("cwd")).unwrap_or_default();
        line.windows(place.len()).any(|part| part == place) || stands.starts_with(sandbox.beside(""))
    };
    names("/proc").into_iter().filter(is_of_it).collect()
}

/// The children of a process.
fn children(pid: Pid) -> Vec<Pid> {
    let lists = names(format!("/proc/{pid}/task")).into_iter();
    let lists = lists.map(|task| fs::read_to_string(task.join("children")).unwrap_or_default());
    lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|word| word.parse().ok().map(Pid::from_raw))
        .collect()
}

/// Whether a process is the first one of another pid namespace than ours.
fn is_first(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| {
        let numbers: Vec<_> = numbers.split_whitespace().collect();
        numbers.len() > 1 && numbers.last() == Some(&"1")
    })
}

fn kill_first(launcher: Pid) {
    let mut waiting = vec![launcher];
    while let Some(pid) = waiting.pop() {
        if is_first(pid) {
            // It may have ended just now.
            let _ = kill(pid, Signal::SIGKILL);
            return;
        }
        waiting.extend(children(pid));
    }
}

fn kill_at(running: &Running, whom: Whom, moment: Duration) {
    std::thread::sleep(moment);
    match whom {
        Whom::Launcher => running.signal(Signal::SIGKILL),
        Whom::First => kill_first(running.pid()),
    }
}

/// A moment of a run that lasts about half a second, another one each time.
fn moment(at: u64) -> Duration {
    Duration::from_millis((at * 37 + u64::from(std::process::id())) % 700)
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: .\nwrite: ./out\nexec: python3\nexec: cat\n");
    sandbox.file("agent.py", AGENT);
    sandbox.file("out/0", "first");
    sandbox
}

fn nothing_is_left(sandbox: &Sandbox, before: &Traces) {
    until("all processes are gone", || processes(sandbox).is_empty());
    nothing_is_held(sandbox);
    assert!(traces().mounts.is_subset(&before.mounts), "{:?}, before {before:?}", traces().mounts);
    // What others have there meanwhile they take away themselves; nobody does so for a killed one.
    let is_old = |path: &PathBuf| before.temporary.contains(path);
    until("nothing temporary is left", || traces().temporary.iter().all(is_old));
    // What a killed one leaves in the state directory, the next one takes away.
    let (policy, next) = (sandbox.beside("agentbox.policy"), sandbox.beside("next.jsonl"));
    let words = ["run".as_ref(), "-p".as_ref(), policy.as_os_str(), "-t".as_ref(), next.as_os_str()];
    sandbox.agentbox(&[&words[..], &["--".as_ref(), "true".as_ref()]].concat()).exits(0);
    for left in ["pending", "replays"] {
        assert_eq!(names(sandbox.beside("state/agentbox").join(left)), Vec::<PathBuf>::new());
    }
}

fn runs_are_killed(whom: Whom) {
    let sandbox = sandbox();
    let before = traces();
    for at in 0..TIMES {
        for former in names(sandbox.beside("")) {
            if former.to_string_lossy().contains("trace.jsonl") {
                let _ = fs::remove_file(&former).or_else(|_| fs::remove_dir_all(&former));
            }
        }
        let running = Running::start(sandbox.run_command(&[], &["python3", "agent.py"]));
        kill_at(&running, whom, moment(at));
        let ran = running.finish();
        assert!(!ran.stderr.contains("panicked"), "{ran}");
        nothing_is_left(&sandbox, &before);
        let trace = sandbox.trace();
        if fs::metadata(&trace).map_or(0, |trace| trace.len()) == 0 {
            continue;
        }
        let found = verify(&trace, &Expectation::default()).expect("a trace");
        let code = if found.outcome == Outcome::Sealed { 0 } else { 3 };
        assert!(!matches!(found.outcome, Outcome::Tampered { .. }), "{found:?}\n{ran}");
        sandbox.agentbox(&[Path::new("verify"), &trace]).exits(code);
        // Replaying it says how far it goes; whatever happens, the host's files stay.
        let files = tree(&sandbox);
        let policy = sandbox.beside("agentbox.policy");
        let words = ["replay".as_ref(), "-t".as_ref(), trace.as_os_str(), "-p".as_ref(), policy.as_os_str()];
        let replayed = sandbox.agentbox(&words);
        assert!([0, 1, 2].contains(&replayed.code), "{replayed}");
        assert!(!replayed.stderr.contains("panicked"), "{replayed}");
        if code == 3 && replayed.code != 2 {
            replayed.complains("the recording ends early");
        }
        assert_eq!(tree(&sandbox), files, "{replayed}");
    }
}

fn replays_are_killed(whom: Whom) {
    let sandbox = sandbox();
    sandbox.run(&["python3", "agent.py"]).exits(0);
    let (before, files) = (traces(), tree(&sandbox));
    let trace = sandbox.trace();
    let words = ["replay", "-t", trace.to_str().expect("text"), "--paced"];
    for at in 0..TIMES {
        let running = Running::start(sandbox.command(&words));
        kill_at(&running, whom, moment(at));
        let ran = running.finish();
        assert!(!ran.stderr.contains("panicked"), "{ran}");
        nothing_is_left(&sandbox, &before);
        assert_eq!(tree(&sandbox), files, "{ran}");
    }
    sandbox.agentbox(&words).exits(0).prints("done\n").complains("replay ok");
}

#[test]
fn a_killed_run_leaves_its_trace_alone() {
    mounts::apart(|| runs_are_killed(Whom::Launcher));
}

#[test]
fn a_run_whose_first_process_is_killed_leaves_its_trace_alone() {
    mounts::apart(|| runs_are_killed(Whom::First));
}

#[test]
fn a_killed_replay_leaves_nothing() {
    mounts::apart(|| replays_are_killed(Whom::Launcher));
}

#[test]
fn a_replay_whose_first_process_is_killed_leaves_nothing() {
    mounts::apart(|| replays_are_killed(Whom::First));
}
