//! Signals and priorities that would reach processes outside.

use std::process::Command;

use super::cell::{Cell, users};

/// A shell that runs the launcher in its own process group, and tells when it is hit itself.
const BYSTANDER: &str = r#"trap 'echo ESCAPED: a signal came out' USR2 TERM HUP; "$@"; echo code=$?"#;

#[test]
fn the_own_process_group_is_out_of_reach() {
    for user in users() {
        let cell = Cell::new("group", user);
        let launcher = cell.launcher("read: .", &[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", BYSTANDER, "sh"]).arg(launcher.get_program()).args(launcher.get_args());
        cell.dress(&mut shell);
        let fight = cell.watch(shell);
        fight.is_lost();
        assert!(fight.stdout.contains("code=0"), "{fight}");
    }
}
