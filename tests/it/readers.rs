//! `verify` and `show` as a user runs them.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use agentbox::trace::{Event, Expectation, Kind, Verification, verify};

use crate::sample::{agentbox, event, start, text, write_sample};
use crate::support::everyone;

#[test]
fn verify_answers_by_its_exit_code() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write_sample(&path);
    let sealed = agentbox(&["verify"], &path);
    assert_eq!(sealed.status.code(), Some(0));
    let out = text(&sealed.stdout);
    assert!(out.starts_with("agentbox: trace ok — 10 entries, hash chain verified\n"), "{out}");
    let head = found(&path).head;
    assert!(out.contains(&head) && out.contains("unsigned"), "{out}");
    assert_eq!(agentbox(&["verify", "--head", &head, "-t"], &path).status.code(), Some(0));
    assert_eq!(agentbox(&["verify", "--head", &"0".repeat(64), "-t"], &path).status.code(), Some(1));
    assert_eq!(agentbox(&["verify", "--head", "x", "-t"], &path).status.code(), Some(2));

    let whole = fs::read_to_string(&path).expect("it reads");
    fs::write(&path, &whole[..whole.len() - 5]).expect("written");
    let torn = agentbox(&["verify"], &path);
    assert_eq!(torn.status.code(), Some(3));
    assert!(text(&torn.stdout).contains("torn"), "{torn:?}");
    fs::write(&path, whole.replacen("in.txt", "on.txt", 1)).expect("written");
    let tampered = agentbox(&["verify"], &path);
    assert_eq!(tampered.status.code(), Some(1));
    assert!(text(&tampered.stdout).starts_with("agentbox: TAMPERED — hash chain breaks at entry 1: edited"));
    fs::write(&path, "no trace\n").expect("written");
    for path in [&path, &directory.path().join("missing"), directory.path()] {
        assert_eq!(agentbox(&["verify"], path).status.code(), Some(2));
        assert_eq!(agentbox(&["show"], path).status.code(), Some(2));
    }
}

#[test]
fn what_is_no_regular_file_is_no_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let fifo = directory.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    for path in [&*fifo, Path::new("/dev/null")] {
        for words in [&["verify"][..], &["show"], &["replay", "-t"], &["pack", "-o", "/nowhere/x"]] {
            let answered = agentbox(words, path);
            assert_eq!(answered.status.code(), Some(2), "{words:?} {answered:?}");
            assert!(text(&answered.stderr).contains("is no trace"), "{words:?} {answered:?}");
        }
    }
}

#[test]
fn the_name_of_a_trace_does_nothing_to_a_terminal() {
    everyone(|sandbox| {
        sandbox.policy("exec: true");
        sandbox.run(&["true"]).exits(0);
        let path = sandbox.beside("a\u{1b}]0;b\n.jsonl");
        fs::copy(sandbox.trace(), &path).expect("copies");
        let answered = agentbox(&["verify"], &path);
        assert_eq!(answered.status.code(), Some(1));
        let said = text(&answered.stdout);
        assert!(said.contains("a\\x1b]0;b\\n.jsonl.blobs") && !said.contains('\u{1b}'), "{said}");
    });
}

#[test]
fn show_prints_what_is_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write_sample(&path);
    let shown = text(&agentbox(&["show", "--denied", "-t"], &path).stdout);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains("   5  deny     read            secret.txt  [0.2, no rule]\n"), "{shown}");
    assert!(shown.contains("a\\nb\\x1b[2J"), "{shown}");
    let stored = fs::read_to_string(&path).expect("it reads");
    assert_eq!(text(&agentbox(&["show", "--json", "-t"], &path).stdout), stored);
    let whole = text(&agentbox(&["show"], &path).stdout);
    assert!(whole.starts_with("# command       python3 agent.py\n"), "{whole}");
}

#[test]
fn show_takes_a_closed_pipe_quietly() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    let (recorder, writer) = start(&path);
    (0..20_000).for_each(|number| recorder.record(event(number)).expect("recorded"));
    writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    let mut child = Command::new(env!("CARGO_BIN_EXE_agentbox"))
        .args(["show", "-t"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut some = [0; 100];
    child.stdout.take().expect("a pipe").read_exact(&mut some).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

fn found(path: &Path) -> Verification {
    verify(path, &Expectation::default()).expect("a trace")
}

#[test]
fn show_takes_paths_as_they_are_from_here() {
    everyone(|sandbox| {
        sandbox.policy("read: .\nexec: cat\n");
        let file = sandbox.file("d/f", "f\n");
        sandbox.run(&["cat".as_ref(), file.as_os_str()]).exits(0);
        let shown = |path: &str| {
            let ran = sandbox.agentbox(&["show", "../trace.jsonl", "--op", "fs.open_read", "--path", path]);
            ran.exits(0);
            ran.stdout.contains("d/f")
        };
        for path in ["d/f", "./d/f", "d", "."] {
            assert!(shown(path), "{path}");
        }
        assert!(!shown("f"));
    });
}
