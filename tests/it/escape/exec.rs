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
