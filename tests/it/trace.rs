//! Traces on real file systems, under kill -9, and against the Python tool that shares the format.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Ran, everyone, skip};
use agentbox::trace::{Event, Expectation, Kind, Outcome, Placement, Reach, TraceError, verify};
use serde_json::Value;

use crate::sample::{agentbox, event, start, text, write_sample};

/// Tells a test that it runs as the child of itself, and where to work.
const INSIDE: &str = "AGENTBOX_TEST_INSIDE";

#[test]
fn the_python_tool_takes_our_traces() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write_sample(&path);
    let python = match python_tool(directory.path()) {
        Ok(python) => python,
        Err(reason) => return skip("the Python tool", &reason),
    };
    let run = |command: &str| {
        Command::new(&python)
            .args(["-m", "agentbox", command, "-t"])
            .arg(&path)
            .output()
            .expect("python runs")
    };
    let verified = run("verify");
    assert!(verified.status.success(), "{verified:?}");
    assert_eq!(text(&verified.stdout), "agentbox: trace ok — 10 entries, hash chain verified\n");

    let theirs = text(&run("show").stdout);
    let ours = text(&agentbox(&["show", "-t"], &path).stdout);
    // The same columns; ours adds who and why, quotes words, escapes what would forge a row, and has words for what
    // they show as JSON.
    let is_of_run = |line: &str| ["run.end", "run.seal"].iter().any(|name| line.contains(name));
    let is_plain = |line: &&str| {
        !line.starts_with('#') && !line.contains(['{', '\\', '\'', '\u{2028}']) && !is_of_run(line)
    };
    let plain: Vec<&str> = ours.lines().filter(is_plain).collect();
    assert_eq!(plain.len(), 4, "{ours}");
    for line in plain {
        assert!(
            theirs.lines().any(|theirs| line.starts_with(theirs) && theirs.len() > 31),
            "{line}\n{theirs}"
        );
    }
    let mut altered = fs::read_to_string(&path).expect("it reads");
    altered = altered.replace("in.txt", "on.txt");
    fs::write(&path, altered).expect("written");
    assert_eq!(run("verify").status.code(), Some(1));
    assert_eq!(agentbox(&["verify"], &path).status.code(), Some(1));
}

#[test]
fn we_take_traces_that_python_writes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    // The format, written down once more: every entry is hashed as Python prints it.
    let program = r#"
import hashlib, json, random, sys
random.seed(7)
prev = "0" * 64
floats = [0.1 + 0.2, 1e-7, 1e22, 1e16, -0.0, 5e-324, 1.7976931348623157e308, 123456789.0, 1e-4]
floats += [random.uniform(-1, 1) * 10 ** random.randint(-300, 300) for _ in range(500)]
with open(sys.argv[1], "w", encoding="utf-8", newline="") as out:
    for i, value in enumerate(floats):
        entry = {"i": i, "ts": round(1795960678 + i / 7, 6), "kind": "effect", "op": "rand.random", "prev": prev,
                 "args": {"é\u2028\x7f": "\x00\x1f\n\"\\/", "\U0001f600": 1, "\ufffd": [1, None, True]}, "result": value}
        canonical = lambda: json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        entry["sha"] = prev = hashlib.sha256((prev + canonical()).encode()).hexdigest()
        out.write(canonical() + "\n")
"#;
    let Ok(status) = Command::new("python3").arg("-c").arg(program).arg(&path).status() else {
        return skip("a trace that Python writes", "there is no python3");
    };
    assert!(status.success());
    let found = verify(&path, &Expectation::default()).expect("a trace");
    assert_eq!((found.entries, found.outcome), (509, Outcome::Unsealed));
}

#[test]
fn a_killed_run_leaves_whole_lines() {
    if let Some(place) = std::env::var_os(INSIDE) {
        return record_without_end(Path::new(&place));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    for round in 0..8 {
        let mut child = itself("trace::a_killed_run_leaves_whole_lines", &path).spawn().expect("it starts");
        wait_for(&path);
        std::thread::sleep(Duration::from_millis(7 * round));
        child.kill().expect("killed");
        child.wait().expect("it ended");
        let found = verify(&path, &Expectation::default()).expect("a trace");
        assert!(matches!(found.outcome, Outcome::Unsealed | Outcome::Torn { .. }), "{found:?}");
        assert!(found.entries > 0);
        // What it had reserved does not keep the next run from starting, nor is its trace lost.
        let next = Placement::plan(&path, &Reach::default(), false).expect("a placement");
        let former = directory.path().join(format!("trace.jsonl.{}", round + 1));
        assert_eq!(verify(&former, &Expectation::default()).expect("a trace"), found);
        drop(next);
    }
}

#[test]
fn a_full_disk_stops_the_run_with_a_sealed_trace() {
    let Some(place) = inside_mount("trace::a_full_disk_stops_the_run_with_a_sealed_trace", "tmpfs") else {
        return;
    };
    let path = place.join("trace.jsonl");
    let (recorder, writer) = start(&path);
    let mut accepted = 0;
    let error = loop {
        match recorder.record(event(accepted)) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TraceError::Failed { .. }), "{error}");
    assert!(recorder.failed() && recorder.record(event(0)).is_err() && recorder.blob().is_err());
    // What was accepted is there, and the end has its own room.
    let placed =
        writer.seal(Event::new(Kind::Meta, "run.end").arg("reason", "no disk space")).expect("sealed");
    let found = verify(&placed.path, &Expectation::default()).expect("a trace");
    assert_eq!(found.outcome, Outcome::Sealed);
    let stored = fs::read_to_string(&path).expect("it reads").matches("\"op\":\"fs.open_read\"").count();
    assert_eq!(u64::try_from(stored).expect("fits"), accepted);
    assert!(accepted > 1000, "{accepted}");
}

#[test]
fn what_passed_before_the_disk_was_full_is_stored() {
    let Some(place) = inside_mount("trace::what_passed_before_the_disk_was_full_is_stored", "tmpfs") else {
        return;
    };
    let path = place.join("trace.jsonl");
    let (recorder, writer) = start(&path);
    let promise = recorder.promise(4096).expect("room");
    let (mut blob, mut small) = (recorder.held_blob(), recorder.held_blob());
    let held = recorder.hold(11, true).expect("room");
    small.write_held(b"a few bytes", held).expect("kept");
    // Somebody else fills the disk.
    fs::write(place.join("filler"), vec![0; 64 << 20]).expect_err("the disk is full");
    let stopper = recorder.clone();
    let end = std::thread::spawn(move || {
        while !stopper.failed() {
            std::thread::sleep(Duration::from_millis(1));
        }
        stopper.give_up_ballast();
    });
    let (mut passed, mut noise) = (0, 1_u64);
    while let Ok(held) = recorder.hold(1024, passed == 0) {
        let piece: Vec<u8> = (0..1024)
            .map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                noise.to_be_bytes()[0]
            })
            .collect();
        blob.write_held(&piece, held).expect("kept");
        passed += 1024;
    }
    end.join().expect("it ended");
    assert!(recorder.failed() && recorder.record(event(0)).is_err());
    let (blob, small) = (blob.finish().expect("stored"), small.finish().expect("stored"));
    assert_eq!(blob.size, passed);
    let entry = Event::new(Kind::Effect, "http.exchange").arg("body", blob).result(small);
    recorder.record_promised(entry, promise).expect("recorded");
    writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    let found = verify(&path, &Expectation::default()).expect("a trace");
    assert_eq!(found.outcome, Outcome::Sealed);
}

#[test]
fn without_reservations_each_line_is_written_before_going_on() {
    let Some(place) =
        inside_mount("trace::without_reservations_each_line_is_written_before_going_on", "ramfs")
    else {
        return;
    };
    let path = place.join("trace.jsonl");
    let (recorder, writer) = start(&path);
    for number in 0..50 {
        recorder.record(event(number)).expect("recorded");
        let found = verify(&path, &Expectation::default()).expect("a trace");
        assert_eq!(found.entries, number + 1);
    }
    let placed = writer.seal(Event::new(Kind::Meta, "run.end")).expect("sealed");
    assert_eq!(verify(&placed.path, &Expectation::default()).expect("a trace").outcome, Outcome::Sealed);
}

fn record_without_end(path: &Path) {
    let (recorder, _writer) = start(path);
    for number in 0.. {
        recorder.record(event(number)).expect("recorded");
        recorder.deny(Event::new(Kind::Deny, "read").arg("target", "secret.txt")).expect("recorded");
    }
}

fn wait_for(path: &Path) {
    for _ in 0..2000 {
        if fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nothing was written to {}", path.display());
}

/// Runs one test of this binary as a process of its own.
fn itself(test: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, place)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    command
}

/// Inside a namespace of its own: a fresh file system of 8 MiB. Outside: runs the test there, and returns `None`.
fn inside_mount(test: &str, kind: &str) -> Option<PathBuf> {
    if let Some(place) = std::env::var_os(INSIDE) {
        let place = PathBuf::from(place);
        let options = ["-t", kind, "-o", "size=8m", "none"];
        let status = Command::new("mount").args(options).arg(&place).status().expect("mount runs");
        assert!(status.success());
        return Some(place);
    }
    let unshare = ["--user", "--map-root-user", "--mount"];
    let possible = Command::new("unshare").args(unshare).args(["mount", "-t", kind, "none", "/mnt"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        skip(kind, "it cannot be mounted in a user namespace here");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let inner = itself(test, directory.path());
    let mut command = Command::new("unshare");
    command.args(unshare).arg(inner.get_program()).args(inner.get_args()).env(INSIDE, directory.path());
    let output = command.output().expect("unshare runs");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    None
}

/// Installs the Python tool for this test alone.
pub(crate) fn python_tool(directory: &Path) -> Result<PathBuf, String> {
    let venv = directory.join("venv");
    let run = |command: &mut Command| {
        let output = command.output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let python = venv.join("bin/python");
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "agentbox-runtime==0.3.0"];
    run(Command::new(&python).args(install))?;
    Ok(python)
}

/// The stored lines are what they are hashed as: parsing them and printing them canonically changes nothing.
#[test]
fn stored_lines_are_canonical() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.jsonl");
    write_sample(&path);
    for line in fs::read_to_string(&path).expect("it reads").lines() {
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(agentbox::trace::canonical::to_string(&value), line);
    }
}

#[test]
fn each_process_says_how_it_ended() {
    everyone(|sandbox| {
        sandbox.policy("exec: sh, sleep, head, yes");
        let script =
            "sh -c 'exit 3'; (exit 4); sh -c 'kill $$'; yes | head -n 1 >/dev/null; sleep 60 & exit 5";
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(5);
        let ends = |ran: &Ran| -> Vec<String> {
            let ends = ran.entries.iter().filter(|entry| entry["op"] == "proc.exit");
            let mut ends: Vec<_> = ends
                .map(|end| format!("{} {}", end["proc"].as_str().expect("a process"), end["args"]["code"]))
                .collect();
            ends.sort();
            ends
        };
        assert_eq!(ends(&ran), ["0 5", "0.0 3", "0.1 4", "0.2 143", "0.3 141", "0.4 0"], "{ran}");
        let capture = |ran: &Ran| ran.entries[0]["args"]["capture"]["exits"].as_str().map(str::to_owned);
        assert_eq!(capture(&ran).as_deref(), Some("recorded, replayable"));
        let path = sandbox.trace().display().to_string();
        let shown = sandbox.agentbox(&["show", "-t", &path, "--op", "proc.exit"]);
        assert!(shown.stdout.contains("exit code 3  [0.0]"), "{shown}");
        assert!(shown.stdout.contains("killed by SIGTERM  [0.2]"), "{shown}");
        let policy = sandbox.beside("agentbox.policy").display().to_string();
        sandbox.agentbox(&["replay", "-p", &policy, "-t", &path]).exits(0);
        let ran = sandbox.run_with(&["--no-replay"], &["sh", "-c", script]);
        assert_eq!(ends(&ran), ["0 5"], "{ran}");
        assert_eq!(capture(&ran).as_deref(), Some("of the command alone"));
    });
}
