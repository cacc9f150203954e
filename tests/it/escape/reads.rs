//! Reads: no race reaches a denied file, and none reaches a granted one without a record.

use std::os::unix::ffi::OsStrExt as _;

use super::cell::{Cell, Fight, users};

const MEDIATED: &str = "read: .\nwrite: ./out\ndeny: read ./shut\n";

fn cell(guest: &str, user: u32) -> Cell {
    let cell = Cell::new(guest, user);
    for side in ["out/a", "open"] {
        cell.file(&format!("{side}/file.txt"), "OPENED");
    }
    for side in ["out/b", "shut"] {
        cell.file(&format!("{side}/file.txt"), "DENIED");
    }
    cell.file("denied.txt", "DENIED");
    cell
}

/// How many reads of a file are recorded.
fn recorded(fight: &Fight, end: &str) -> u64 {
    let led = |entry: &serde_json::Value| {
        let name = |key: &str| entry["args"][key].as_str().map(str::to_owned);
        name("resolved").or_else(|| name("path")).is_some_and(|path| path.ends_with(end))
    };
    let reads = fight.found("observe", "fs.open_read").filter(|entry| led(entry));
    reads.map(|entry| entry["count"].as_u64().unwrap_or(1)).sum()
}

#[test]
fn races_do_not_reach_a_denied_file() {
    for user in users() {
        for mode in ["path", "link", "how", "files", "cwd"] {
            let cell = cell("race", user);
            let fight = cell.attack(MEDIATED, &[mode, "1500"]);
            fight.is_lost();
            assert_eq!(fight.denials("read", "file.txt"), fight.number("refused"), "{mode}: {fight}");
        }
        for denied in ["./out/b", "./out/b/*", "./out/*/file.txt"] {
            let policy = format!("read: .\nwrite: ./out\ndeny: read {denied}\n");
            let fight = cell("race", user).attack(&policy, &["dir", "1000"]);
            assert!(denied.contains('*') || fight.number("reads") == 1000, "{fight}");
            if denied != "./out/*/file.txt" {
                fight.is_lost();
            }
            assert_eq!(fight.number("other"), 0, "{fight}");
        }
    }
}

#[test]
fn races_do_not_read_a_granted_file_unrecorded() {
    for user in users() {
        // The kernel has to be let read what it may start.
        for policy in ["read: .\n", "read: .\nexec: ./open/tool\n", "read: .\nexec: /**\n"] {
            let cell = cell("race", user);
            let fight = cell.attack(policy, &["system", "4000"]);
            fight.is_lost();
            assert!(fight.number("reads") > 100, "{fight}");
            assert!(recorded(&fight, "open/file.txt") >= fight.number("reads"), "{fight}");
            let files = if policy.contains("exec") { "" } else { "; system files by the kernel" };
            assert_eq!(fight.files(), format!("injected descriptors{files}"), "{fight}");
        }
    }
}

#[test]
fn races_do_not_reach_the_launchers_files_under_observe() {
    for user in users() {
        let cell = cell("race", user);
        let policy = cell.file("open/file.txt", "# DENIED\nread: ./nothing\n");
        let mut command = cell.launching(&["--observe"], &policy, &cell.trace());
        command.arg(cell.guest()).args(["system", "4000"]);
        let fight = cell.watch(command);
        fight.is_lost();
        assert_eq!(fight.number("reads"), 0, "{fight}");
        assert_eq!(fight.files(), "injected descriptors", "{fight}");
    }
}

#[test]
fn every_alias_of_a_file_is_recorded() {
    for user in users() {
        for policy in ["read: .\n", MEDIATED] {
            let cell = cell("alias", user);
            let fight = cell.attack(policy, &["open/file.txt"]);
            fight.is_lost();
            assert!(fight.number("reads") >= 18, "{fight}");
            assert_eq!(recorded(&fight, "open/file.txt"), fight.number("reads"), "{fight}");
        }
        let cell = cell("alias", user);
        let fight = cell.attack(MEDIATED, &["shut/file.txt"]);
        fight.is_lost();
        assert_eq!(fight.number("reads"), 0);
    }
}

#[test]
fn a_fifo_is_never_taken_for_another_file() {
    for user in users() {
        let cell = cell("fifo", user);
        cell.attack("read: .\nwrite: ./out\ndeny: read ./denied.txt\n", &[]).is_lost();
    }
}

#[test]
fn a_denied_file_is_carried_nowhere() {
    let files = ["a/.env", "b/c/.env", "b/c/d/secret.txt", ".env", "keys/x.pem"];
    for user in users() {
        for (rules, denied) in [
            ("deny: read **/.env\n", &["a/.env", "b/c/.env", ".env"][..]),
            ("deny: read ./b/c\n", &["b/c/.env", "b/c/d/secret.txt"]),
            ("deny: read ./b/**/secret.txt\ndeny: read ./keys/*\n", &["b/c/d/secret.txt", "keys/x.pem"]),
            ("deny: read ./a/.env\n", &["a/.env"]),
            ("deny: read ./caf*/x.txt\n", &[]),
        ] {
            let cell = Cell::new("carry", user);
            for file in files {
                let content = if denied.contains(&file) { "DENIED" } else { "OPENED" };
                cell.file(file, content);
            }
            cell.file("latin/x.txt", if denied.is_empty() { "DENIED" } else { "OPENED" });
            let latin = cell.work().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
            std::fs::rename(cell.work().join("latin"), latin).expect("a name that is no UTF-8");
            cell.attack(&format!("write: .\n{rules}"), denied).is_lost();
            for file in denied {
                assert_eq!(std::fs::read_to_string(cell.work().join(file)).expect(file), "DENIED");
            }
        }
    }
}
