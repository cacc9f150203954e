//! Which programs start: names of links, scripts behind links, what the run itself has written.

use super::{LITERAL, shell};
use crate::support::everyone;

#[test]
fn a_pattern_covers_programs_under_the_names_of_their_links() {
    everyone(|sandbox| {
        sandbox.policy("exec: /usr/bin/*\n");
        // `sh` and `awk` are links on most systems.
        let ran =
            sandbox.python("import subprocess; subprocess.run('awk \"BEGIN { print 6 * 7 }\"', shell=True)");
        ran.exits(0).prints("42\n");
    });
}

#[test]
fn a_script_behind_a_link_runs_unless_the_agent_could_exchange_the_link() {
    everyone(|sandbox| {
        sandbox.policy(LITERAL).directory("out");
        sandbox.script("real", "#!/bin/sh\necho real\n");
        sandbox.link("real", "good");
        sandbox.link("../real", "out/theirs");
        sandbox.link("out/theirs", "hop");
        let ran = shell(sandbox, "./real; ./good; ./out/theirs || ./hop || echo refused");
        ran.exits(0).prints("real\nreal\nrefused\n").denied("exec", "/real");
    });
}

#[test]
fn what_was_written_starts_only_by_a_rule_that_names_its_place() {
    let script = "mkdir -p /tmp/build-1; cp /bin/true /tmp/build-1/t; /tmp/build-1/t && echo started";
    everyone(|sandbox| {
        let rules = "exec: mkdir, cp, sh\n";
        sandbox.policy(rules);
        let ran = sandbox.run(&["sh", "-c", script]);
        ran.exits(126).denied("exec", "/tmp/build-1/t");
        sandbox.policy(&format!("{rules}exec: /tmp/build-*/**\n"));
        sandbox.run(&["sh", "-c", script]).exits(0).prints("started\n");
    });
}

#[test]
fn a_write_root_may_be_absent_at_the_start() {
    everyone(|sandbox| {
        // The sandbox lies in /var/tmp, which is the run's own inside.
        sandbox.policy("read: .\nwrite: ./out\nexec: mkdir, cat\n");
        shell(sandbox, "mkdir out; echo text > out/f; cat out/f").exits(0).prints("text\n");
        assert_eq!(std::fs::read_to_string(sandbox.path("out/f")).expect("the file"), "text\n");
    });
}

#[test]
fn files_of_the_kernel_that_programs_do_without_are_named_last() {
    everyone(|sandbox| {
        sandbox.policy("exec: cat\n").file("f", "x");
        let script = "for i in 1 2 3; do cat /sys/kernel/mm/transparent_hugepage/enabled /sys/devices/system/cpu/online
            done 2>/dev/null; cat f";
        let ran = sandbox.run(&["sh", "-c", script]);
        let first = ran.stderr.lines().find(|line| line.contains("denied 1x"));
        let others: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("agentbox: denied")).collect();
        assert!(first.is_some() && others.first() == first.as_ref(), "{ran}");
    });
}
