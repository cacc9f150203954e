//! What must be read, and rules that forbid to read it.

use super::{policy, refused};

#[test]
fn a_tunnel_beside_methods_or_paths_is_refused() {
    for text in [
        "net: x.org tunnel\nnet: GET x.org\n",
        "net: GET x.org/a\nnet: x.org:443 tunnel\n",
        "net: *.x.org tunnel\nnet: a.x.org/p\n",
        "net: *.x.org/p\nnet: a.x.org tunnel\n",
        "net: x.org tunnel\ndeny: net DELETE x.org\n",
        "net: cidr/10.0.0.0/8 tunnel\nnet: GET 10.0.0.1\n",
        "net: 10.0.0.1 tunnel\nnet: GET cidr/10.0.0.0/8\n",
        "net: localhost:1 tunnel\nnet: GET 127.0.0.1\n",
    ] {
        let report = refused(text);
        assert_eq!(report.diagnostics.len(), 1, "{text}{report}");
        let shown = report.to_string();
        assert!(shown.contains("agent.policy:1") && shown.contains("agent.policy:2"), "{shown}");
        assert!(shown.contains("`tunnel` leaves unread"), "{shown}");
    }
    let report = refused("net: GET x.org\nnet: udp:x.org:443\n").to_string();
    assert!(report.contains("datagrams leave unread") && report.contains("agent.policy:1)"), "{report}");
    for text in [
        "net: udp:x.org:123\nnet: GET x.org\n",
        "net: udp:x.org:443\nnet: x.org\n",
        "net: x.org:22 tunnel\nnet: GET x.org:443\n",
        "net: y.org tunnel\nnet: GET x.org\n",
        "net: *.x.org tunnel\nnet: GET x.org\n",
        "net: x.org tunnel @10/min\nnet: x.org private\n",
    ] {
        policy(text);
    }
}

#[test]
fn rules_that_need_reading_are_told_with_their_places() {
    let policy = policy("net: x.org, y.org tunnel\nread: ./a, net: GET z.org/a\ndeny: net PUT x.org\n");
    let report = policy.check_unread().expect_err("two rules");
    let places: Vec<String> =
        report.diagnostics.iter().map(|d| d.origin.as_ref().expect("a place").to_string()).collect();
    assert_eq!(places, ["agent.policy:2:17", "agent.policy:3:11"]);
    let shown = report.to_string();
    assert!(shown.contains("^^^^^^^^^^^\n") && shown.contains("--no-intercept"), "{shown}");
    assert!(super::policy("net: x.org @1/s\n").check_unread().is_ok());
}

#[test]
fn a_rule_that_adds_nothing_is_warned_about() {
    for (text, warned) in [
        ("net: x.org\nnet: GET x.org/a\n", true),
        ("net: *.org:443\nnet: GET x.org:443/a\n", true),
        ("net: x.org:443\nnet: GET x.org:80/a\n", false),
        ("net: x.org\nnet: GET x.org private\n", false),
        ("net: x.org\ndeny: net GET x.org/a\n", false),
        ("net: cidr/10.0.0.0/8\nnet: GET 10.0.0.1/a\n", true),
    ] {
        let warnings = policy(text).warnings;
        assert_eq!(warnings.iter().any(|w| w.message.contains("adds nothing")), warned, "{text}{warnings:?}");
    }
}

#[test]
fn the_digest_is_of_what_a_rule_means() {
    let same = |one: &str, two: &str| policy(one).digest() == policy(two).digest();
    assert!(same("net: HEAD|GET  X.org/%61 @1/s\n", "net: GET|HEAD|GET x.org/a   @1/s\n"));
    assert!(same("net: \"GET x.org/a\"\n", "net: GET x.org/a\n"));
    assert!(!same("net: GET x.org/a\n", "net: HEAD x.org/a\n"));
    assert!(!same("net: x.org @1/s\n", "net: x.org @1/min\n"));
    assert!(!same("net: x.org\n", "net: x.org/a\n"));
}
