//! A trace that belongs where another agent looks waits until that has ended.

use std::path::Path;

use crate::support::{Ran, Running, Sandbox, everyone, until};

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
    let policy = sandbox.beside("agentbox.policy");
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
