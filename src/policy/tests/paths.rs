//! Decisions about files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::{PathAccess, Policy, RuleId, Verdict};
use super::{FakeHost, policy, policy_on};
use crate::policy::parse;

fn reads(policy: &Policy, path: &str) -> bool {
    policy.decide_path(PathAccess::Read, path.as_ref()).is_allow()
}

fn writes(policy: &Policy, path: &str) -> bool {
    policy.decide_path(PathAccess::Write, path.as_ref()).is_allow()
}

#[test]
fn deny_wins_whatever_the_order() {
    for text in ["read: .\ndeny: read ./a\nread: ./a/b\n", "read: ./a/b\ndeny: read ./a\nread: .\n"] {
        let policy = policy(text);
        assert!(reads(&policy, "/r/x") && !reads(&policy, "/r/a") && !reads(&policy, "/r/a/b"));
        assert!(!reads(&policy, "/rx") && !reads(&policy, "/"));
    }
}

#[test]
fn writing_implies_reading_both_ways() {
    let policy = policy("write: ./out\ndeny: read ./out/secret\ndeny: write ./out/fixed\n");
    assert!(reads(&policy, "/r/out/x") && writes(&policy, "/r/out/x"));
    assert!(!reads(&policy, "/r/out/secret") && !writes(&policy, "/r/out/secret"));
    assert!(reads(&policy, "/r/out/fixed") && !writes(&policy, "/r/out/fixed"));
}

#[test]
fn the_most_specific_grant_is_named() {
    let policy = policy("read: .\nread: ./a/*.py\nread: ./a\nwrite: ./a/b\n");
    let rule = |path: &str| policy.decide_path(PathAccess::Read, path.as_ref()).rule();
    assert_eq!(rule("/r/x"), Some(RuleId(0)));
    assert_eq!(rule("/r/a/x.py"), Some(RuleId(1)));
    assert_eq!(rule("/r/a/x"), Some(RuleId(2)));
    assert_eq!(rule("/r/a/b/c"), Some(RuleId(3)));
    assert!(matches!(policy.decide_path(PathAccess::Read, "/x".as_ref()), Verdict::Deny { rule: None, .. }));
    assert_eq!(policy.rule_label(RuleId(3)), "agent.policy:4");
}

#[test]
fn globs_cover_names_that_are_no_text() {
    let policy = policy("read: .\ndeny: read **/.env*\ndeny: read ./*.key\n");
    let path =
        |bytes: &[u8]| policy.decide_path(PathAccess::Read, Path::new(OsStr::from_bytes(bytes))).is_allow();
    assert!(path(b"/r/\xff\n/x"));
    assert!(!path(b"/r/\xff\n/.env\xff"));
    assert!(!path(b"/r/a/.env/inside"));
    assert!(!path(b"/r/\xff\n.key"));
    assert!(path(b"/r/a/b.key"));
}

#[test]
fn relative_globs_start_at_the_launch_directory() {
    let policy = policy("read: /\ndeny: read **/.env\ndeny: read /etc/**/*.pem\n");
    assert!(!reads(&policy, "/r/.env") && !reads(&policy, "/r/a/b/.env"));
    assert!(reads(&policy, "/other/.env"));
    assert!(!reads(&policy, "/etc/x.pem") && !reads(&policy, "/etc/a/b/x.pem"));
}

#[test]
fn both_spellings_of_a_link_count() {
    let host = FakeHost::new().link("/r/link", "/data/real");
    let policy =
        policy_on(&host, "read: ./link\nread: /data\ndeny: read ./link/secret\ndeny: read ./link/**/*.key\n");
    assert!(reads(&policy, "/data/real/x"));
    for path in ["/data/real/secret", "/r/link/secret", "/data/real/a/b.key", "/r/link/a/b.key"] {
        assert!(!reads(&policy, path), "{path}");
    }
}

/// What an earlier run can have put there leads nowhere.
#[test]
fn a_link_that_the_command_can_change_is_no_way_out() {
    let host = || {
        let host = FakeHost::new().link("/r/out/link", "/data/real").link("/r/mine", "/r/out/link");
        host.link("/r/out/inside", "/r/out/real")
            .link("/r/out/ls", "/usr/bin/ls")
            .link("/r/kept", "/data/kept")
    };
    let refused = |text: &str| match parse(text, "agent.policy", &host()) {
        Ok(policy) => panic!("accepted: {text:?} as {:?}", policy.rules),
        Err(report) => report.to_string(),
    };
    for rule in [
        "read: ./out/link",
        "write: ./out/link",
        "read: ./out/link/deeper",
        "read: ./out/link/*.txt",
        "read: ./mine",
        "runtime: ./out/link",
        "exec: ./out/link/tool",
        "net: unix:./out/link/s.sock",
        "write: ./out/ls",
    ] {
        for write in ["write: ./out", "write: .", "write: ./out/*", "write: ./o*/**"] {
            let report = refused(&format!("{write}\n{rule}\n"));
            assert!(
                report.contains("which the command can change under `write: "),
                "{write}, {rule}: {report}"
            );
        }
    }
    for text in [
        // Nobody writes there, or what it leads to is granted anyway.
        "read: ./out/link\nwrite: ./other\n",
        "write: ./out/link\n",
        "write: ./out\nread: ./out/link, /data\n",
        "write: ./out, /data\nwrite: ./out/link\n",
        "write: ./out\nread: ./out/inside\n",
        "write: ./out\nexec: ./out/ls\n",
        "write: ./out\nread: ./kept\n",
        "write: ./out\ndeny: read ./out/link\n",
        "write: ./out\nexec: ./out/link/tool, /data/real/tool\n",
    ] {
        policy_on(&host(), text);
    }
    assert!(refused("write: ./out\nwrite: ./out/link\nread: /data\n").contains("leads to /data/real"));
}

#[test]
fn odd_spellings_are_normalised() {
    let policy = policy("read: ./a\n");
    assert!(reads(&policy, "/r//a/./b/"));
    assert!(!reads(&policy, "/r/a/../x"));
    assert!(!reads(&policy, "r/a"));
}

#[test]
fn ancestors_of_grants_are_known() {
    let policy = policy("read: ./a/b/c\nread: ./g/*/x/**\ndeny: read /d/e\nruntime: /opt/x/y\n");
    for path in [
        "/",
        "/r",
        "/r/a",
        "/r/a/b",
        "/r/a/b/c",
        "/r/a/b/c/d",
        "/r/g",
        "/r/g/any",
        "/r/g/any/x/y",
        "/opt",
        "/opt/x",
    ] {
        assert!(policy.covers_below(path.as_ref()), "{path}");
    }
    for path in ["/r/b", "/r/a/c", "/d", "/r/g/any/y", "/x"] {
        assert!(!policy.covers_below(path.as_ref()), "{path}");
    }
}

#[test]
fn mediation_is_full_with_denials_and_globs_alone() {
    for (text, full) in [
        ("read: ./a\ndeny: net x.org\nexec: ./tools/*\n", false),
        ("deny: read ./a\n", true),
        ("deny: write ./a\n", true),
        ("read: ./*.py\n", true),
        ("write: ./**\n", true),
        ("read: \"./*.py\"\n", false),
    ] {
        assert_eq!(policy(text).full_mediation(), full, "{text:?}");
    }
}

#[test]
fn literal_denials_are_listed() {
    let policy = policy("deny: read ./a, **/b\ndeny: write ./c\n");
    let listed: Vec<_> =
        policy.denied_literals().map(|(rule, access, path)| (rule.0, access, path.to_owned())).collect();
    assert_eq!(listed, [(0, PathAccess::Read, "/r/a".into()), (2, PathAccess::Write, "/r/c".into())]);
    assert!(policy.is_denied_literal("/r/a/x".as_ref()) && !policy.is_denied_literal("/r/b".as_ref()));
}

#[test]
fn runtime_trees_are_readable_and_not_writable() {
    let policy = policy("runtime: /opt/tool\ndeny: read /opt/tool/secret\n");
    assert!(reads(&policy, "/opt/tool/lib/x") && !writes(&policy, "/opt/tool/lib/x"));
    assert!(!reads(&policy, "/opt/tool/secret"));
    assert_eq!(policy.runtime_trees().map(|(rule, ..)| rule.0).collect::<Vec<_>>(), [0]);
}

#[test]
fn homes_are_expanded() {
    let policy = policy("read: ~/a, ~other/b, \"~/c d\", ~//e\n");
    for path in ["/home/u/a", "/home/other/b", "/home/u/c d", "/home/u/e"] {
        assert!(reads(&policy, path), "{path}");
    }
    assert!(!reads(&policy, "/e"));
}

#[test]
fn a_launch_directory_may_be_no_text() {
    let mut host = FakeHost::new();
    host.cwd = OsStr::from_bytes(b"/r\xff*").into();
    let policy = policy_on(&host, "read: ./a\nread: **/*.py\n");
    let path =
        |bytes: &[u8]| policy.decide_path(PathAccess::Read, Path::new(OsStr::from_bytes(bytes))).is_allow();
    assert!(path(b"/r\xff*/a/b") && path(b"/r\xff*/c/d.py"));
    assert!(!path(b"/r\xffx/c/d.py"));
}
