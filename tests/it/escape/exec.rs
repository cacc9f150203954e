//! Program starts: what was not judged never runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::cell::{Cell, users};

const POLICY: &str = "read: .\nwrite: ./out, ./mine\nexec: ./tools/show good\nexec: ./mine/script\n\
                      exec: ./tools/tool.sh\nexec: env\ndeny: exec id\n";

fn cell(user: u32) -> Cell {
    let cell = Cell::new("exec", user);
    cell.file("out/.keep", "");
    cell.file("mine/.keep", "");
    for name in ["show", "evil"] {
        let path = cell.file(&format!("tools/{name}"), "");
        crate::support::copy_program(cell.guest(), &path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    cell.script("tools/tool.sh", "#!/bin/sh\nexit 0\n");
    cell.script("fake.sh", "#!/bin/sh\nexit 42\n");
    cell
}

#[test]
fn races_start_nothing_else() {
    for user in users() {
        for (mode, tries) in
            [("path", 700), ("argv", 700), ("pointer", 700), ("thread", 300), ("rewrite", 150)]
        {
            let fight = cell(user).attack(POLICY, &[mode, &tries.to_string()]);
            fight.is_lost();
            assert_eq!(fight.number("other"), 0, "{mode}: {fight}");
            let denied = fight.found("deny", "exec").map(|entry| entry["count"].as_u64().unwrap_or(1));
            let stopped = fight.number("refused") + fight.number("killed");
            assert_eq!(denied.sum::<u64>(), stopped, "{mode}: {fight}");
            assert!(stopped > 50, "{mode}: {fight}");
        }
    }
}

#[test]
fn no_trick_starts_another_program() {
    for user in users() {
        cell(user).attack(POLICY, &["tricks", "1"]).is_lost();
    }
}

#[test]
fn a_moved_directory_gives_no_script_another_meaning() {
    for user in users() {
        let cell = Cell::new("swap", user);
        cell.script("tools/a.sh", "#!/bin/sh\nexit 0\n");
        cell.script("mine/a.sh", "#!/bin/sh\nexit 42\n");
        let policy = "read: ./tools\nwrite: ./mine\nexec: ./tools/a.sh\n";
        let fight = cell.attack(policy, &["script", "600"]);
        fight.is_lost();
        assert!(fight.number("ok") > 0 && fight.number("killed") + fight.number("refused") > 0, "{fight}");
        assert!(fight.denials("exec", "a.sh") >= fight.number("killed"), "{fight}");
    }
}

#[test]
fn a_moved_link_gives_no_program_a_denied_loader() {
    for user in users() {
        let cell = Cell::new("swap", user);
        cell.file("mine/.keep", "");
        for (name, words) in [
            ("bin/okay", crate::images::loader(0)),
            ("bin/plain.env", crate::images::loader(42)),
            ("tools/prog", crate::images::program("mine/ld")),
        ] {
            cell.script(name, "");
            crate::images::build(&cell.work(), name, &words);
        }
        let policy = "read: ./bin\nwrite: ./mine\nexec: ./tools/prog, ./bin/okay\ndeny: read **/*.env\n";
        let fight = cell.attack(policy, &["loader", "400"]);
        fight.is_lost();
        assert!(fight.number("ok") > 0 && fight.number("refused") > 0, "{fight}");
    }
}
