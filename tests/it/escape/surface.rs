//! The surface of the kernel that a run has: what leads past the sandbox is refused.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::cell::{Cell, users};

#[test]
fn nothing_leads_past_the_sandbox() {
    for user in users() {
        for mode in ["calls", "sockets", "files"] {
            for policy in ["read: .\nwrite: ./out\n", "read: .\nwrite: ./out\ndeny: read ./none/*.x\n"] {
                let cell = Cell::new("surface", user);
                cell.file("out/.keep", "");
                let secret = cell.file("secret.txt", "SECRET");
                let before = fs::metadata(&secret).expect("a file");
                let fight = cell.attack(policy, &[mode]);
                fight.is_lost();
                assert_eq!(fight.code, Some(0), "{fight}");
                let after = fs::metadata(&secret).expect("a file");
                assert_eq!(
                    (before.mode(), before.mtime_nsec(), before.ctime_nsec()),
                    (after.mode(), after.mtime_nsec(), after.ctime_nsec())
                );
                for entry in fs::read_dir(cell.work().join("out")).expect("a directory") {
                    let entry = entry.expect("an entry");
                    let mode = entry.metadata().expect("a status").mode();
                    assert_eq!(mode & 0o6000, 0, "{:?}", entry.path());
                }
            }
        }
    }
}

#[test]
fn sockets_are_planted_nowhere_else() {
    for user in users() {
        let cell = Cell::new("plant", user);
        let fight = cell.attack("write: ./absent/place\nread: ./other/absent\n", &[]);
        fight.is_lost();
        let names = |directory: &std::path::Path| -> Vec<_> {
            fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.file_name()).collect()
        };
        assert!(names(&cell.work()).is_empty(), "{:?}", names(&cell.work()));
        assert!(!names(cell.root()).iter().any(|name| name == "planted"));
    }
}

#[test]
fn new_files_have_the_mode_that_the_agent_gives_them() {
    for user in users() {
        let cell = Cell::new("surface", user);
        let policy = cell.file("../policy", "write: .\n");
        let launcher = cell.bare(&policy);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "umask 077; exec \"$@\"", "sh"])
            .arg(launcher.get_program())
            .args(launcher.get_args());
        shell.args(["sh", "-c", "umask 0; echo > open; umask 027; echo > half; echo done"]);
        cell.dress(&mut shell);
        cell.watch(shell).is_lost();
        for (name, mode) in [("open", 0o666), ("half", 0o640)] {
            let status = fs::metadata(cell.work().join(name)).expect(name);
            assert_eq!(status.mode() & 0o777, mode, "{name}");
        }
    }
}
