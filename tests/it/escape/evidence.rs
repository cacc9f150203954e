//! The launcher's own files: the agent can neither read them nor put others in their place.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::cell::{Cell, users};

/// Whatever the policy grants, and also where nothing is refused.
const WAYS: [(&[&str], &str); 3] = [
    (&[], "read: .\nwrite: .\n"),
    (&[], "write: .\ndeny: read ./nothing/*.x\n"),
    (&["--observe"], "write: .\n"),
];

#[test]
fn the_policy_cannot_be_touched() {
    let cases: [(&str, &[&str]); 3] = [
        ("used.policy", &["used.policy", "agentbox.policy", "config", "config/included.policy"]),
        ("link.policy", &["link.policy", "agentbox.policy", "config", "config/real.policy"]),
        ("linked/real.policy", &["linked", "agentbox.policy", "config", "config/real.policy"]),
    ];
    for user in users() {
        for (policy, targets) in cases {
            for (options, rules) in WAYS {
                let cell = Cell::new("evidence", user);
                cell.file("used.policy", &format!("{rules}include: config/included.policy\n"));
                cell.file("config/included.policy", "env: NOTHING\n");
                cell.file("config/real.policy", rules);
                symlink("config/real.policy", cell.work().join("link.policy")).expect("a link");
                symlink("config", cell.work().join("linked")).expect("a link");
                let before = fingerprint(&cell.work());
                let mut command = cell.launching(options, Path::new(policy), &cell.trace());
                command.arg(cell.guest()).args(targets);
                cell.watch(command).is_lost();
                assert_eq!(fingerprint(&cell.work()), before, "{policy}");
            }
        }
    }
}

#[test]
fn traces_cannot_be_touched() {
    for user in users() {
        for (options, rules) in WAYS {
            let cell = Cell::new("evidence", user);
            let policy = cell.file("used.policy", rules);
            let names = ["trace.jsonl", "trace.jsonl.1", "trace.jsonl.2", "trace.jsonl.blobs"];
            for round in 0..3 {
                let trace = cell.work().join("trace.jsonl");
                let mut command = cell.launching(options, &policy, &trace);
                command.arg(cell.guest()).args(names);
                cell.watch(command).is_lost();
                assert!(trace.is_file(), "round {round}");
                let verified = std::process::Command::new(env!("CARGO_BIN_EXE_agentbox"))
                    .args(["verify", "-t"])
                    .arg(&trace)
                    .output()
                    .expect("it runs");
                assert!(verified.status.success(), "{verified:?}");
            }
            assert!(cell.work().join("trace.jsonl.2").is_file());
        }
    }
}

/// Names, kinds and contents, but for what the guest may make.
fn fingerprint(directory: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let status = path.symlink_metadata().expect("a status");
        if path.ends_with("free") {
            continue;
        }
        lines.push(format!("{} {:?} {:?}", path.display(), status.file_type(), fs::read(&path).ok()));
        if status.is_dir() {
            lines.extend(fingerprint(&path));
        }
    }
    lines.sort();
    lines
}
