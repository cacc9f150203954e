//! Verdicts and digests of the older tool for the base rules, and every place where this one differs.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::Value;

use super::super::{Host, PathAccess, Policy, Transport, parse};
use super::{FakeHost, policy_on};

const CASES: &str = include_str!("../../../tests/policies/base-rules.jsonl");

/// Kind, query, and why the answer is another one.
const DIFFERENCES: [(&str, &str, &str); 2] = [
    (
        "net",
        r#"["localhost",8080]"#,
        "`127.0.0.1:PORT` is the host's loopback port, by whichever name it is called",
    ),
    ("exec", r#"["env","python3"]"#, "the file that the kernel runs decides, and `env` is its base name"),
];

fn host() -> FakeHost {
    FakeHost::new()
        .file("/usr/bin/git", "")
        .file("/usr/bin/echo", "")
        .file("/usr/bin/env", "")
        .file("/usr/bin/echos", "")
}

#[test]
fn base_rules_mean_what_they_meant() {
    let mut differed = Vec::new();
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        if case["case"] == "parse" {
            check_parse(&case);
        } else {
            let expected = case["existing"].as_bool().expect("a verdict");
            if decide(&case) != expected {
                differed.push((case["kind"].as_str().expect("a kind").to_owned(), case["query"].to_string()));
            }
        }
    }
    let named: Vec<(String, String)> =
        DIFFERENCES.iter().map(|(kind, query, _)| ((*kind).into(), (*query).into())).collect();
    assert_eq!(differed, named);
}

fn check_parse(case: &Value) {
    let text = case["policy"].as_str().expect("a text");
    let existing = &case["existing"];
    let parsed = parse(text, "agent.policy", &host());
    if existing["ok"] == true {
        let policy = parsed.unwrap_or_else(|report| panic!("{text:?}: {report}"));
        assert_eq!(policy.digest(), existing["policy_sha256"].as_str().expect("a digest"), "{text:?}");
        return;
    }
    let report = parsed.expect_err(text);
    // "line N: what" there, `N` and the same words here.
    let error = existing["error"].as_str().expect("an error");
    let (line, what) = error["line ".len()..].split_once(": ").expect("a line number");
    let diagnostic = &report.diagnostics[0];
    assert_eq!(
        diagnostic.origin.as_ref().map(|origin| origin.line.to_string()).as_deref(),
        Some(line),
        "{text:?}"
    );
    assert_eq!(diagnostic.message.replace('`', "'"), what, "{text:?}");
}

fn decide(case: &Value) -> bool {
    let kind = case["kind"].as_str().expect("a kind");
    let rules = case["rules"].as_array().expect("rules");
    let text: String =
        rules.iter().map(|rule| format!("{kind}: {}\n", rule.as_str().expect("a rule"))).collect();
    let policy = policy_on(&host(), &text);
    let query = &case["query"];
    match kind {
        "env" => policy.decide_env(query.as_str().expect("a name")).is_allow(),
        "read" => policy.decide_path(PathAccess::Read, query.as_str().expect("a path").as_ref()).is_allow(),
        "write" => policy.decide_path(PathAccess::Write, query.as_str().expect("a path").as_ref()).is_allow(),
        "net" => connect(&policy, query[0].as_str().expect("a host"), query[1].as_u64().expect("a port")),
        "exec" => exec(&policy, query),
        other => panic!("unknown kind {other}"),
    }
}

fn connect(policy: &Policy, host: &str, port: u64) -> bool {
    let port = u16::try_from(port).expect("a port");
    if let Ok(address) = host.parse::<IpAddr>() {
        return policy.decide_connect(&[], address, port, Transport::Tcp).is_allow();
    }
    let address = if host == "localhost" { "127.0.0.1" } else { "1.1.1.1" };
    policy.decide_name(host).is_allow()
        && policy
            .decide_connect(&[host.to_owned()], address.parse().expect("an address"), port, Transport::Tcp)
            .is_allow()
}

fn exec(policy: &Policy, query: &Value) -> bool {
    let words = query.as_array().expect("words");
    let argv: Vec<OsString> = words.iter().map(|word| word.as_str().expect("a word").into()).collect();
    let host = host();
    let name = words.first().and_then(Value::as_str).unwrap_or("");
    let found = if name.contains('/') {
        PathBuf::from(name)
    } else {
        host.find_program(name).into_iter().next().unwrap_or_default()
    };
    let exe = host.resolve(&found);
    policy.decide_exec(&exe, host.identity(&exe), &argv).is_allow()
}

/// A policy of base rules that the older tool took, the words of the warning or error here, and why it differs.
const OTHER_TEXTS: [(&str, &str, &str); 17] = [
    ("read: ./*", "glob characters", "a pattern now; every such policy is warned about"),
    ("read: ./a[1]", "glob characters", "a pattern now"),
    ("net: unix:/run/*", "glob characters", "`*` stays within a component now"),
    ("read: \"./a\"", "quotes around a value", "quotes quote now"),
    ("read: ./a#b", "`#` begins a comment", "the same meaning, no longer silent"),
    ("write: ./out @10MB", "not enforced by this version", "a cap now, and caps are not enforced yet"),
    ("read: ./a\nfoo: bar", "unknown rule", "was a directory named `foo: bar`"),
    ("allow: read ./a, write ./b", "write the colon", "was a directory named `write ./b`"),
    ("exec: sh -c \"a # b", "never closed", "was a rule that matched nothing"),
    ("net: 127.0.0.0/8", "cidr/", "matched nothing"),
    ("net: ::1", "brackets", "was the host `:` at port 1"),
    ("net: [::1]:80", "", "was a set of characters, and is the loopback now"),
    ("net: api-*.x", "whole label", "only whole labels are patterns"),
    ("net: h?.x", "whole label", "only whole labels are patterns"),
    ("net: 127.*", "cidr/", "matched names such as 127.evil.com too"),
    ("net: h:*", "no port", "matched nothing"),
    ("read: ~nobody/x", "no user", "was a directory named `~nobody`"),
];

#[test]
fn what_is_read_otherwise_is_told() {
    for (text, told, why) in OTHER_TEXTS {
        let answer = match parse(text, "agent.policy", &host()) {
            Ok(policy) => policy.warnings.iter().map(ToString::to_string).collect::<String>(),
            Err(report) => report.diagnostics.iter().map(ToString::to_string).collect(),
        };
        assert!(answer.contains(told), "{text:?} ({why}): {answer:?}");
    }
}

/// Rule, host and port, the verdict here; the older tool said the contrary.
const OTHER_VERDICTS: [(&str, &str, u64, bool, &str); 4] = [
    ("*", "1.2.3.4", 80, false, "`*` never stands for an address"),
    ("*", "localhost", 80, false, "a name that leads to the loopback needs a rule for it"),
    ("h.example.", "h.example", 80, true, "one trailing dot is dropped from rules as from queries"),
    ("localhost:80", "127.0.0.1", 80, true, "both are the loopback of the host"),
];

#[test]
fn hosts_that_are_judged_otherwise() {
    for (rule, name, port, expected, why) in OTHER_VERDICTS {
        let policy = policy_on(&host(), &format!("net: {rule}\n"));
        assert_eq!(connect(&policy, name, port), expected, "{rule}: {why}");
    }
}
