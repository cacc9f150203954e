//! A trace that belongs where another agent looks waits until that has ended.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::mount::{MsFlags, mount, umount};

use crate::support::mounts::apart;
use crate::support::{Ran, Running, Sandbox, everyone, skip, until};

/// Waits for `go`, and then does what it can to every trace that it finds.
const WATCHER: &str = "
import os, shutil, time
open('ready', 'w').close()
while not os.path.exists('go'): time.sleep(0.01)
print(sorted(os.listdir('.')))
for name in 'short.jsonl', 'short.jsonl.blobs':
    try: print(open(name).read() if os.path.isfile(name) else os.listdir(name))
    except OSError as error: print(error.strerror)
open('short.jsonl', 'w').write('forged'); os.mkdir('short.jsonl.blobs')
open('done', 'w').close()
while not os.path.exists('end'): time.sleep(0.01)
";

fn begin(sandbox: &Sandbox, trace: &str, words: &[&str]) -> Running {
    begin_with(sandbox, "agentbox.policy", trace, words)
}

fn begin_with(sandbox: &Sandbox, policy: &str, trace: &str, words: &[&str]) -> Running {
    let policy = sandbox.beside(policy);
    let mut all = vec!["run", "-p", policy.to_str().expect("text"), "-t", trace, "--"];
    all.extend(words);
    Running::start(sandbox.command(&all))
}

fn verified(sandbox: &Sandbox, trace: &str) -> Ran {
    let ran = sandbox.agentbox(&["verify", "-t", trace]);
    ran.exits(0);
    ran
}

fn waiting(sandbox: &Sandbox) -> usize {
    std::fs::read_dir(sandbox.beside("state/agentbox/pending")).map_or(0, Iterator::count)
}

#[test]
fn a_trace_is_not_put_under_the_eyes_of_another_run() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nwrite: .\n");
        let watcher = begin(sandbox, "long.jsonl", &["python3", "-c", WATCHER]);
        until("the other run is there", || sandbox.path("ready").exists());
        let short = begin(sandbox, "short.jsonl", &["sh", "-c", "echo a secret > made"]).finish();
        let place = sandbox.path("short.jsonl");
        short.exits(0).complains("another run sees").complains(place.to_str().expect("text"));
        assert!(!place.exists() && !sandbox.path("short.jsonl.blobs").exists());
        verified(sandbox, "short.jsonl");
        // Nor does the start of another one put it there.
        begin(sandbox, "../third.jsonl", &["true"]).finish().exits(0);
        assert!(!place.exists());
        sandbox.file("go", "");
        until("the other run has looked", || sandbox.path("done").exists());
        let shown = sandbox.agentbox(&["show", "-t", "short.jsonl"]);
        assert!(shown.stdout.contains("made"), "{shown}");
        sandbox.file("end", "");
        let watcher = watcher.finish();
        watcher.exits(0);
        let listed = "['go', 'made', 'ready']\nNo such file or directory\nNo such file or directory\n";
        assert_eq!(watcher.stdout, listed, "{watcher}");
        // The last to end puts both in place.
        for trace in ["long.jsonl", "short.jsonl"] {
            assert!(sandbox.path(trace).exists(), "{trace}");
            verified(sandbox, trace);
        }
        assert_eq!(std::fs::read_to_string(sandbox.path("short.jsonl.1")).expect("kept"), "forged");
        assert_eq!(waiting(sandbox), 0);
    });
}

#[test]
fn a_trace_that_no_other_run_sees_is_put_in_place_at_once() {
    everyone(|sandbox| {
        let policy = sandbox.policy("read: .\nwrite: .\n").beside("agentbox.policy");
        let watcher = begin(sandbox, "long.jsonl", &["python3", "-c", WATCHER]);
        until("the other run is there", || sandbox.path("ready").exists());
        sandbox.directory("../other");
        let words = ["run", "-p", policy.to_str().expect("text"), "-t", "own.jsonl", "--", "true"];
        let mut command = sandbox.command(&words);
        command.current_dir(sandbox.beside("other"));
        let ran = Running::start(command).finish();
        ran.exits(0);
        assert!(!ran.stderr.contains("another run"), "{ran}");
        assert!(sandbox.beside("other/own.jsonl").is_file());
        assert!(waiting(sandbox) == 1 && !Path::new(&sandbox.path("long.jsonl")).exists());
        for name in ["go", "end"] {
            sandbox.file(name, "");
        }
        watcher.finish().exits(0);
        assert!(sandbox.path("long.jsonl").is_file());
    });
}

/// Waits for `go`, and then says what it can do with the trace of the other run.
const MEDDLER: &str = "
import os, time
open('ready', 'w').close(); open('forged', 'w').write('forged')
while not os.path.exists('../signs/go'): time.sleep(0.01)
print([name for name in os.listdir('.') if 'narrow' in name])
def act(name, function, *words):
    try: print(name, function(*words))
    except OSError: pass
act('reads', lambda: open('narrow.jsonl').read()); act('lists', os.listdir, 'narrow.jsonl.blobs')
act('changes', open, 'narrow.jsonl', 'r+'); act('moves', os.rename, 'narrow.jsonl', 'x')
act('moves blobs', os.rename, 'narrow.jsonl.blobs', 'y'); act('removes', os.unlink, 'narrow.jsonl')
if os.path.exists('closed'):
    act('makes blobs', os.mkdir, 'narrow.jsonl.blobs'); act('replaces', os.rename, 'forged', 'narrow.jsonl')
open('done', 'w').close()
while not os.path.exists('../signs/end'): time.sleep(0.01)
";

/// Its trace grows while the other one looks.
const NARROW: &str = "
import os, time
for name in 'go', 'end':
    while not os.path.exists('../signs/' + name): time.sleep(0.01)
    open('../signs/' + name).read()
";

/// Begins a run that sees what only the other sees of the two, and ends both.
fn meddle(sandbox: &Sandbox, narrow: impl Fn() -> Running, wide: impl Fn() -> Running, is_first: bool) {
    sandbox.directory("../signs");
    let trace = sandbox.path("narrow.jsonl");
    let (narrow, wide) = if is_first {
        let narrow = narrow();
        until("the trace is in place", || trace.metadata().is_ok_and(|found| found.len() > 0));
        (narrow, wide())
    } else {
        let wide = wide();
        until("the wide run is there", || sandbox.path("ready").exists());
        (narrow(), wide)
    };
    until("the wide run is there", || sandbox.path("ready").exists());
    sandbox.file("../signs/go", "");
    until("the wide run has looked", || sandbox.path("done").exists());
    sandbox.file("../signs/end", "");
    narrow.finish().exits(0);
    wide.finish().exits(0).prints("[]\n");
    verified(sandbox, "narrow.jsonl");
    assert!(trace.is_file());
}

#[test]
fn a_trace_in_place_is_closed_to_runs_that_see_it() {
    everyone(|sandbox| {
        sandbox.policy("write: .\nread: ../signs");
        sandbox.file("../narrow.policy", "read: ../signs");
        let narrow = || begin_with(sandbox, "narrow.policy", "narrow.jsonl", &["python3", "-c", NARROW]);
        let wide = || begin(sandbox, "../wide.jsonl", &["python3", "-c", MEDDLER]);
        // The one that begins later keeps its hands off all names, and the other one sees none.
        sandbox.file("closed", "");
        meddle(sandbox, narrow, wide, true);
        for name in ["../signs/go", "../signs/end", "ready", "done", "closed", "narrow.jsonl"] {
            std::fs::remove_file(sandbox.path(name)).expect("there");
        }
        std::fs::remove_dir_all(sandbox.path("narrow.jsonl.blobs")).expect("there");
        meddle(sandbox, narrow, wide, false);
        assert_eq!(waiting(sandbox), 0);
    });
}

/// Where the first place for that is on a read-only mount, they do it in the next one.
#[test]
fn a_state_directory_that_cannot_be_written_hides_no_run_from_another() {
    apart(|| {
        everyone(|sandbox| {
            let state = sandbox.directory("../state/agentbox");
            std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).expect("chmod");
            let remount = |flags| mount(Some(&state), &state, None::<&str>, flags, None::<&str>);
            if let Err(errno) = remount(MsFlags::MS_BIND) {
                return skip("a read-only state directory", errno.desc());
            }
            remount(MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY).expect("read-only");
            sandbox.policy("write: .\nread: ../signs");
            sandbox.file("../narrow.policy", "read: ../signs");
            let narrow = || begin_with(sandbox, "narrow.policy", "narrow.jsonl", &["python3", "-c", NARROW]);
            let wide = || begin(sandbox, "../wide.jsonl", &["python3", "-c", MEDDLER]);
            meddle(sandbox, narrow, wide, false);
            umount(&state).expect("unmounted");
        });
    });
}
