//! `include:`: where its paths start, circles, profiles.

use super::super::{PathAccess, load, parse};
use super::{FakeHost, policy_on};

#[test]
fn paths_start_at_the_included_file() {
    let host = FakeHost::new()
        .file("/r/sub/other.policy", "read: ./data\ninclude: more.policy\n")
        .file("/r/sub/more.policy", "write: out\n");
    let policy = policy_on(&host, "include: sub/other.policy\nread: ./data\n");
    let labels: Vec<String> = (0..3).map(|at| policy.rule_label(super::super::RuleId(at))).collect();
    assert_eq!(labels, ["sub/other.policy:1", "sub/more.policy:1", "agent.policy:2"]);
    for path in ["/r/sub/data/x", "/r/sub/out", "/r/data"] {
        assert!(policy.decide_path(PathAccess::Read, path.as_ref()).is_allow(), "{path}");
    }
    assert!(!policy.decide_path(PathAccess::Read, "/r/out".as_ref()).is_allow());
    assert_eq!(policy.included, ["sub/other.policy", "sub/more.policy"]);
}

#[test]
fn circles_are_errors() {
    let host = FakeHost::new()
        .file("/r/agent.policy", "include: b.policy\n")
        .file("/r/b.policy", "include: ./agent.policy\n");
    let report = load("agent.policy".as_ref(), &host).expect_err("a circle");
    assert!(report.diagnostics[0].message.contains("includes itself"), "{report}");
    assert_eq!(report.diagnostics[0].origin.as_ref().expect("a place").file, "b.policy");
}

#[test]
fn the_same_file_counts_once() {
    let host = FakeHost::new().file("/r/a.policy", "read: ./x\n");
    assert_eq!(policy_on(&host, "include: a.policy, ./a.policy\n").rules.len(), 1);
}

#[test]
fn faults_of_included_files_are_reported_with_the_others() {
    let host = FakeHost::new().file("/r/a.policy", "raed: ./x\n");
    let report =
        parse("include: a.policy, absent.policy\nnet: h:0\ninclude: profile/none\n", "agent.policy", &host)
            .expect_err("faults");
    let places: Vec<String> =
        report.diagnostics.iter().filter_map(|d| d.origin.as_ref()).map(ToString::to_string).collect();
    assert_eq!(places, ["a.policy:1:1", "agent.policy:1:20", "agent.policy:2:6", "agent.policy:3:10"]);
}

#[test]
fn profiles_come_with_the_product() {
    let policy = policy_on(&FakeHost::new(), "include: profile/git\n");
    assert_eq!(policy.rules.len(), 3);
    assert_eq!(policy.rule_label(super::super::RuleId(1)), "profile/git:2");
    assert!(policy.decide_path(PathAccess::Read, "/r/.git/config".as_ref()).is_allow());
    assert!(policy.decide_path(PathAccess::Read, "/home/u/.gitconfig".as_ref()).is_allow());
}

#[test]
fn an_absent_policy_says_how_to_make_one() {
    let report = load("agent.policy".as_ref(), &FakeHost::new()).expect_err("no file");
    assert!(report.render(false).contains("agentbox init"), "{report}");
}
