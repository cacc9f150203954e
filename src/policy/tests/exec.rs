//! Decisions about program starts and variables.

use std::ffi::OsString;

use super::super::{Denied, FileId, Host, Policy, Verdict};
use super::{FakeHost, policy, policy_on};

fn host() -> FakeHost {
    FakeHost::new()
        .file("/usr/bin/git", "")
        .file("/usr/bin/busybox", "")
        .file("/usr/bin/python3.11", "")
        .file("/r/tools/a", "")
        .file("/r/bin/local", "")
        .file("/home/u/my tools/x*y", "")
        .directory("/r/tools")
        .link("/usr/bin/python3", "/usr/bin/python3.11")
        .link("/usr/bin/ls", "/usr/bin/busybox")
}

fn runs(policy: &Policy, exe: &str, argv: &[&str]) -> bool {
    verdict(policy, exe, argv).is_allow()
}

fn verdict(policy: &Policy, exe: &str, argv: &[&str]) -> Verdict {
    let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
    policy.decide_exec(exe.as_ref(), host().identity(exe.as_ref()), &argv)
}

#[test]
fn words_are_files_along_the_path() {
    let policy = policy_on(&host(), "exec: git status\nexec: python3, ls\n");
    assert!(runs(&policy, "/usr/bin/git", &["git", "status", "-s"]));
    assert!(runs(&policy, "/usr/bin/git", &["/bin/git", "status"]));
    assert!(!runs(&policy, "/usr/bin/git", &["git", "stat"]));
    assert!(!runs(&policy, "/usr/bin/git", &["git"]));
    assert!(!runs(&policy, "/usr/bin/git", &[]));
    assert!(!runs(&policy, "/tmp/git", &["git", "status"]), "a copy in another place");
    assert!(runs(&policy, "/usr/bin/python3.11", &["python3"]));
    assert!(runs(&policy, "/usr/bin/python3.11", &["/usr/bin/python3.11"]));
    assert!(runs(&policy, "/usr/bin/python3.11", &["-python3"]), "a login shell");
    assert!(runs(&policy, "/usr/bin/busybox", &["ls", "x"]));
    assert!(!runs(&policy, "/usr/bin/busybox", &["vi"]), "a program of many names");
}

#[test]
fn a_file_that_took_the_place_of_another_is_not_it() {
    let policy = policy_on(&host(), "exec: git\n");
    let other = Some(FileId { dev: 9, ino: 9 });
    assert!(!policy.decide_exec("/usr/bin/git".as_ref(), other, &["git".into()]).is_allow());
    assert!(policy.decide_exec("/usr/bin/git".as_ref(), None, &["git".into()]).is_allow());
}

#[test]
fn paths_directories_and_globs() {
    let policy = policy_on(&host(), "exec: ./bin/local --ok, ./tools, '~/my tools/x*y', /opt/*/bin/**\n");
    assert!(runs(&policy, "/r/bin/local", &["local", "--ok"]));
    assert!(!runs(&policy, "/r/bin/local", &["local"]));
    assert!(runs(&policy, "/r/tools/a", &["./tools/a"]));
    assert!(runs(&policy, "/r/tools/new/b", &["b"]));
    assert!(!runs(&policy, "/r/tools/a", &["sh"]));
    assert!(runs(&policy, "/home/u/my tools/x*y", &["x*y"]));
    assert!(!runs(&policy, "/home/u/my tools/xzy", &["xzy"]));
    assert!(runs(&policy, "/opt/t/bin/p", &["p"]));
    assert!(!runs(&policy, "/opt/t/lib/p", &["p"]));
}

#[test]
fn a_link_that_a_pattern_covers_is_a_name() {
    let policy = policy_on(&host(), "exec: /usr/bin/*\n");
    let id = host().identity("/usr/bin/busybox".as_ref());
    let runs = |spelled: &str, name: &str| {
        policy.decide_exec_of(spelled.as_ref(), "/usr/bin/busybox".as_ref(), id, &[name.into()]).is_allow()
    };
    assert!(runs("/usr/bin/ls", "/usr/bin/ls"));
    assert!(runs("/usr/bin/ls", "-ls"), "a login shell");
    assert!(!runs("/usr/bin/ls", "vi"));
    assert!(!runs("/r/vi", "vi"), "a link elsewhere");
    let denied = Denied::Exec { exe: "/usr/bin/busybox".into(), argv: vec!["/bin/ls".into()] };
    assert_eq!(policy.suggestion(&denied), "exec: ls");
    let denied = Denied::Exec { exe: "/usr/bin/busybox".into(), argv: vec!["ls".into()] };
    assert_eq!(policy.suggestion(&denied), "exec: ls");
}

#[test]
fn a_word_is_no_program_that_the_agent_can_replace() {
    let policy = policy_on(&host(), "write: /usr\nexec: git\nexec: /usr/bin/busybox\n");
    let Verdict::Deny { reason, .. } = verdict(&policy, "/usr/bin/git", &["git"]) else { panic!("denied") };
    assert!(reason.contains("name its path"), "{reason}");
    assert!(runs(&policy, "/usr/bin/busybox", &["busybox"]), "a path is named");
}

#[test]
fn denials_see_through_names_and_copies() {
    let policy = policy_on(&host(), "exec: /**\ndeny: exec git push, busybox\n");
    assert!(runs(&policy, "/usr/bin/git", &["git", "pull"]));
    assert!(!runs(&policy, "/usr/bin/git", &["git", "push"]));
    assert!(!runs(&policy, "/tmp/git", &["git", "push"]));
    assert!(!runs(&policy, "/usr/bin/busybox", &["anything"]));
}

#[test]
fn a_missing_program_is_a_note() {
    let policy = policy("exec: nothing-here\n");
    assert!(policy.notes[0].message.contains("no program `nothing-here`"), "{:?}", policy.notes);
    assert!(!policy.decide_exec("/x/nothing-here".as_ref(), None, &["nothing-here".into()]).is_allow());
}

#[test]
fn variables_are_passed_denied_and_set() {
    let policy = policy("env: AWS_*, HOME, A=1, A=2, EMPTY=\ndeny: env AWS_SECRET*, B\nenv: B=3\n");
    assert!(policy.decide_env("AWS_REGION").is_allow() && policy.decide_env("HOME").is_allow());
    assert!(!policy.decide_env("AWS_SECRET_KEY").is_allow() && !policy.decide_env("home").is_allow());
    let set: Vec<(String, String)> = policy.assigned_env();
    assert_eq!(set, [("A".into(), "2".into()), ("EMPTY".into(), String::new())]);
}
