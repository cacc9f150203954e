//! What is said to those who name a trace that is none, moved one without its bodies, or changed a script.

use std::fs;

use serde_json::json;

use crate::support::{Forged, Sandbox, User};

fn recorded() -> Sandbox {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("exec: cat\n");
    sandbox.script("agent.sh", "#!/bin/sh\necho one\n");
    sandbox.run(&["./agent.sh"]).exits(0).prints("one\n");
    sandbox
}

#[test]
fn a_trace_that_is_none_is_told() {
    let sandbox = Sandbox::new(User::Caller);
    let empty = sandbox.file("empty.jsonl", "");
    let empty = empty.to_str().expect("text");
    for (name, why) in [("nosuch.jsonl", "there is no trace "), (empty, "is empty, so it is no trace")] {
        let commands: [&[&str]; 6] = [
            &["show", "-t", name],
            &["verify", "-t", name],
            &["replay", "-t", name],
            &["diff", name, name],
            &["pack", name, "-o", "x"],
            &["unpack", name],
        ];
        for words in commands {
            let ran = sandbox.agentbox(words);
            ran.exits(2).complains(why);
            assert_eq!(ran.stdout, "", "{ran}");
        }
    }
    sandbox.agentbox(&["show"]).exits(2).complains("agentbox run");
}

#[test]
fn a_trace_that_was_moved_alone_says_what_is_missing() {
    let sandbox = recorded();
    let moved = sandbox.path("moved.jsonl");
    fs::copy(sandbox.trace(), &moved).expect("copied");
    let name = moved.to_str().expect("text");
    for words in [["verify", "-t", name], ["replay", "-t", name]] {
        let ran = sandbox.agentbox(&words);
        ran.exits(1);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains(&format!("there is no directory {name}.blobs")), "{ran}");
    }
}

#[test]
fn a_script_that_no_rule_grants_is_compared() {
    let sandbox = recorded();
    let first = sandbox.beside("first.jsonl");
    fs::copy(sandbox.trace(), &first).expect("copied");
    let blobs = |path: &std::path::Path| {
        path.with_file_name(format!("{}.blobs", path.file_name().expect("named").display()))
    };
    fs::create_dir(blobs(&first)).expect("made");
    for entry in fs::read_dir(blobs(&sandbox.trace())).expect("blobs") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), blobs(&first).join(entry.file_name())).expect("copied");
    }
    sandbox.script("agent.sh", "#!/bin/sh\necho one # the same\n");
    sandbox.run(&["./agent.sh"]).exits(0);
    let trace = sandbox.trace();
    let ran = sandbox.agentbox(&["diff", first.to_str().expect("text"), trace.to_str().expect("text")]);
    ran.exits(1);
    assert!(
        ran.stdout.contains("run@0  input-changed  run.start") && ran.stdout.contains("script_sha256"),
        "{ran}"
    );
    sandbox.agentbox(&["diff", first.to_str().expect("text"), first.to_str().expect("text")]).exits(0);
}

#[test]
fn placeholders_that_are_none_are_refused() {
    let sandbox = recorded();
    let path = sandbox.beside("forged.jsonl");
    for wrong in [
        json!([["KEY", ""]]),
        json!([["KEY", "\u{0}"]]),
        json!([["A=B", "0123456789abcdef0123456789abcdef"]]),
    ] {
        let mut forged = Forged::of(&sandbox.trace(), &path);
        forged.private(|private| private["placeholders"] = wrong.clone());
        forged.write();
        let policy = sandbox.beside("agentbox.policy");
        let words = ["replay", "-t", path.to_str().expect("text"), "-p", policy.to_str().expect("text")];
        sandbox.agentbox(&words).exits(2).complains("a placeholder of a secret");
    }
}

#[test]
fn what_is_missing_or_in_the_way_is_told_in_one_line() {
    let sandbox = Sandbox::new(User::Caller);
    let one_line = |words: &[&str], code: i32, said: &str| {
        let ran = sandbox.agentbox(words);
        ran.exits(code).prints("").complains(said);
        assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
    };
    one_line(&["run", "--", "true"], 2, "`agentbox init` writes a first policy");
    one_line(&["run", "-p", "no.policy", "--", "true"], 2, "cannot read the policy no.policy: ");
    sandbox.file("agent.policy", "exec: cat\n");
    one_line(&["run", "-p", "agent.policy", "--", ""], 127, "'': command not found: the name is empty");
    one_line(&["run", "-p", "agent.policy", "-t", "no/t", "--", "true"], 2, "make it first");
}

#[test]
fn one_of_a_kind_is_counted_in_the_singular() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: ./in.txt\n");
    let ran = sandbox.run(&["sh", "-c", "echo hello; id"]);
    ran.exits(126).complains(", 1 denial -> ");
    let shown = sandbox.agentbox(&["show", "-t", sandbox.trace().to_str().expect("text"), "--op", "stdio"]);
    assert!(shown.exits(0).stdout.contains("stdout, 6 bytes"), "{shown}");
    sandbox.file("agentbox.policy", "read: .\n");
    let shown = sandbox.agentbox(&["policy", "show"]);
    let closed = |line: &&str| line.contains("agentbox's own: no rule opens it");
    assert_eq!(shown.exits(0).stdout.lines().filter(closed).count(), 1, "{shown}");
}

#[test]
fn a_pack_is_never_written_over() {
    let sandbox = recorded();
    let trace = sandbox.trace();
    let words = ["pack", trace.to_str().expect("text"), "-o", "run.pack"];
    sandbox.agentbox(&words).exits(0);
    sandbox.agentbox(&words).exits(2).complains("run.pack is there already and is left as it is");
}
