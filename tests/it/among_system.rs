//! Rules, and the launcher's own files, among what every program may read: trees of the system, /dev.

use std::process::Command;

use tempfile::TempDir;

use crate::support::{Ran, Running, Sandbox, User, everyone, skip};

/// Does each act and prints what came of it.
const ACT: &str = "import errno, os
def act(function, *words):
    try: print(function(*words) or 'done', end=' ')
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
def read(name): return open(name).read()
";

/// A directory of the system's, which only root makes.
fn in_usr() -> Option<TempDir> {
    let made = nix::unistd::geteuid().is_root().then(|| tempfile::tempdir_in("/usr/share"));
    if made.is_none() {
        skip("all of it", "only root makes a directory in /usr");
    }
    made.map(|made| made.expect("a directory"))
}

/// Whether the kernel opens any file of this run by itself.
fn is_left_to_the_kernel(ran: &Ran) -> bool {
    let files = ran.of("run.start")[0]["args"]["mechanisms"]["files"].as_str().expect("a text");
    files.contains("by the kernel")
}

#[test]
fn a_project_among_the_systems_files_keeps_its_policy_and_traces_to_itself() {
    let Some(there) = in_usr() else { return };
    let sandbox = Sandbox::new(User::Caller);
    let run = |words: &[&str]| {
        let mut command: Command = sandbox.command(&[&["run", "-q", "--"], words].concat());
        command.current_dir(there.path());
        let mut ran = Running::start(command).finish();
        ran.read_trace(&there.path().join("trace.jsonl"));
        ran
    };
    std::fs::create_dir(there.path().join("data")).expect("a directory");
    std::fs::write(there.path().join("data/f"), "data").expect("a file");
    std::fs::write(there.path().join("agentbox.policy"), "read: ./data").expect("a file");
    run(&["true"]).exits(0);
    let program = format!(
        "{ACT}
for name in 'agentbox.policy', 'trace.jsonl', 'trace.jsonl.1', 'data/f': act(read, name)
print(sorted(os.listdir('.')))"
    );
    let ran = run(&["python3", "-c", &program]);
    ran.exits(0).prints("EACCES EACCES EACCES data ['agentbox.policy', 'data']\n");
    ran.denied("read", "agentbox.policy").denied("read", "trace.jsonl");
    ran.recorded("fs.open_read", "path", "data/f");
    assert!(!is_left_to_the_kernel(&ran), "{ran}");
}

#[test]
fn a_rule_about_some_of_the_systems_files_has_their_reads_recorded() {
    let Some(there) = in_usr() else { return };
    let file = there.path().join("file.txt").display().to_string();
    std::fs::write(&file, "text").expect("a file");
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(&format!("read: {}", there.path().display()));
    let ran = sandbox.python(&format!("print(open('{file}').read())"));
    ran.exits(0).prints("text\n").recorded("fs.open_read", "path", &file);
    // One that names a tree which every program may read says nothing new.
    sandbox.policy("read: /usr");
    assert!(is_left_to_the_kernel(&sandbox.run(&["true"])));
}

#[test]
fn a_runtime_tree_with_the_policy_in_it_is_not_left_to_the_kernel() {
    everyone(|sandbox| {
        sandbox.file("agentbox.policy", "runtime: .");
        let run = |options: &[&str]| {
            let words = [&["run", "-q", "-t", "../trace.jsonl"], options, &["--", "cat", "agentbox.policy"]];
            let mut ran = sandbox.agentbox(&words.concat());
            ran.read_trace(&sandbox.trace());
            ran
        };
        let ran = run(&[]);
        ran.exits(1).prints("");
        assert!(!is_left_to_the_kernel(&ran), "{ran}");
    });
}

#[test]
fn a_rule_below_dev_has_its_files_recorded() {
    everyone(|sandbox| {
        let there = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let name = there.path().display().to_string();
        std::fs::write(there.path().join("file"), "text").expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(there.path(), mode).expect("chmod");
        let program = format!("import os; print(open('{name}/file').read(), os.listdir('{name}'))");
        for place in [name.as_str(), "/dev/shm"] {
            sandbox.policy(&format!("read: {place}"));
            let ran = sandbox.python(&program);
            ran.exits(0).prints(&format!("text {:?}\n", ["file"]).replace('"', "'"));
            ran.recorded("fs.open_read", "path", "/file");
            ran.recorded("fs.open_read", "path", &name);
        }
    });
}

#[test]
fn a_place_that_appears_where_programs_start_is_not_left_to_the_kernel() {
    everyone(|sandbox| {
        for later in ["/tmp/agentbox-later", "/var/tmp/agentbox-later"] {
            sandbox.policy(&format!("read: {later}\nexec: /tmp/agentbox-tool/*, /var/tmp/agentbox-tool/*"));
            let ran = sandbox.run(&["true"]);
            ran.exits(0);
            assert!(!is_left_to_the_kernel(&ran), "{ran}");
        }
        sandbox.policy("read: /tmp/agentbox-later");
        assert!(is_left_to_the_kernel(&sandbox.run(&["true"])));
    });
}
