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
    ("net", r#"["localhost",8080]"#, "`127.0.0.1:PORT` is the host's loopback port, by whichever name it is called"),
    ("exec", r#"["env","python3"]"#, "the file that the kernel runs decides, and `env` is its base name"),
];

fn host() -> FakeHost {
    FakeHost::new().file("/usr/bin/git", "").file("/usr/bin/echo", "").file("/usr/bin/env", "").file("/usr/bin/echos", "")
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
    let named: Vec<(String, String)> = DIFFERENCES.iter().map(|(kind, query, _)| ((*kind).into(), (*query).into())).collect();
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
    assert_eq!(diagnostic.origin.as_ref().map(|origin| origin.line.to_string()).as_deref(), Some(line), "{text:?}");
    assert_eq!(diagnostic.message.replace('`', "'"), what, "{text:?}");
}

fn decide(case: &Value) -> bool {
    let kind = case["kind"].as_str().expect("a kind");
    let rules = case["rules"].as_array().expect("rules");
    let text: String = rules.iter().map(|rule| format!("{kind}: {}\n", rule.as_str().expect("a rule"))).collect();
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
    let found = if name.contains('/') { PathBuf::from(name) } else { host.find_program(name).into_iter().next().unwrap_or_default() };
    let exe = host.resolve(&found);
    policy.decide_exec(&exe, host.identity(&exe), &argv).is_allow()
}
