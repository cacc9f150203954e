//! Life: nothing of a run outlives it or its launcher, and the trace holds up to the last line.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cell::{Cell, users};
use crate::support::{mounts, until};

const POLICY: &str = "read: .\nwrite: ./out\n";

/// Processes that have something below `directory` in their command line or as their program.
fn processes_of(directory: &Path) -> Vec<String> {
    let marker = directory.to_str().expect("text");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let program = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        if String::from_utf8_lossy(&words).contains(marker) || program.starts_with(directory) {
            found.push(format!("{} {}", entry.path().display(), String::from_utf8_lossy(&words)));
        }
    }
    found
}

fn soon_empty(directory: &Path) {
    until("nothing is left behind", || processes_of(directory).is_empty());
}

#[test]
fn daemons_end_with_the_run() {
    for user in users() {
        let cell = Cell::new("linger", user);
        cell.file("out/.keep", "");
        cell.attack(POLICY, &["leave"]).is_lost();
        soon_empty(cell.root());
        let size = fs::metadata(cell.work().join("out/alive")).expect("it lived").len();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(fs::metadata(cell.work().join("out/alive")).expect("a file").len(), size);
    }
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    mounts::apart(launchers_are_killed);
}

fn launchers_are_killed() {
    let before = mounts::seen();
    for user in users() {
        for round in 0..25u64 {
            let cell = Cell::new("linger", user);
            cell.file("out/.keep", "");
            let mut launcher = cell.launcher(POLICY, &["stay"]);
            let mut child =
                launcher.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the launcher");
            // From before the clone to long after the command has started.
            std::thread::sleep(Duration::from_micros(round * round * 400));
            child.kill().expect("a signal");
            child.wait().expect("its end");
            soon_empty(cell.root());
            verifies(&cell);
        }
    }
    assert!(mounts::seen().is_subset(&before), "{:?}, before {before:?}", mounts::seen());
}

/// The trace, where it was begun, is whole up to its last line.
fn verifies(cell: &Cell) {
    if !cell.trace().exists() || fs::metadata(cell.trace()).expect("a file").len() == 0 {
        return;
    }
    let verified = std::process::Command::new(env!("CARGO_BIN_EXE_agentbox"))
        .args(["verify", "-t"])
        .arg(cell.trace())
        .output()
        .expect("it runs");
    assert_eq!(verified.status.code(), Some(3), "{verified:?}");
}

#[test]
fn a_stopped_launcher_opens_no_window() {
    for user in users() {
        let cell = Cell::new("race", user);
        cell.file("open/file.txt", "OPENED");
        cell.file("shut/file.txt", "DENIED");
        cell.file("out/.keep", "");
        let mut launcher = cell.launcher("read: .\nwrite: ./out\ndeny: read ./shut/*\n", &["path", "2000"]);
        let child = launcher.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the launcher");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        for _ in 0..20 {
            kill(pid, Signal::SIGSTOP).expect("it lives");
            std::thread::sleep(Duration::from_millis(10));
            kill(pid, Signal::SIGCONT).expect("it lives");
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().expect("its end");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("done") && !text.contains("ESCAPED"), "{text}");
    }
}

#[test]
fn a_handle_of_a_denied_file_stays_shut_when_the_file_is_gone() {
    for user in users() {
        let cell = Cell::new("handle", user);
        cell.file("out/.keep", "");
        cell.file("denied.key", "DENIED");
        let mut launcher = cell.launcher("write: .\ndeny: read ./*.key\n", &[]);
        let child = launcher.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the launcher");
        until("the program is ready", || cell.work().join("out/ready").exists());
        fs::remove_file(cell.work().join("denied.key")).expect("the host replaces it");
        cell.file("out/go", "");
        let output = child.wait_with_output().expect("its end");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("links=0") && !text.contains("ESCAPED"), "{text}");
    }
}
