//! Warnings and notes.

use super::super::Policy;
use super::{FakeHost, policy, policy_on};

fn warnings(policy: &Policy) -> Vec<&str> {
    policy.warnings.iter().map(|warning| warning.message.as_str()).collect()
}

#[test]
fn a_plain_policy_has_no_warnings() {
    let policy = policy("read: ./src\nwrite: ./out\nnet: api.x.org:443\nenv: AWS_*\ndeny: read **/.env\n");
    assert_eq!(warnings(&policy), Vec::<&str>::new());
}

#[test]
fn other_meanings_than_before_are_told_once() {
    let globs = policy("read: ./*.txt\nread: ./b[1]\n");
    assert_eq!(globs.warnings.len(), 1);
    assert!(
        globs.warnings[0].message.contains("glob characters") && globs.warnings[0].message.contains("1 more")
    );
    let quotes = policy("read: \"./a b\"\n");
    assert!(quotes.warnings[0].message.contains("quotes"), "{:?}", quotes.warnings);
    assert_eq!(warnings(&policy("read: \"./a,b\", \"./c#1\"\n")), Vec::<&str>::new());
    for new in
        ["deny: read **/.env", "read: ./**/*.rs", "runtime: /opt/x", "env: A=b", "net: db.x.org private"]
    {
        let policy = policy(&format!("read: ./*.txt, \"./a b\"\n{new}\n"));
        assert_eq!(warnings(&policy), Vec::<&str>::new(), "the older tool had no {new}");
    }
}

#[test]
fn places_of_secrets_are_named() {
    let wide = policy("read: ~\n");
    assert!(warnings(&wide)[0].contains("~/.ssh, ~/.aws, ~/.config/gcloud"), "{:?}", wide.warnings);
    assert_eq!(wide.warnings[0].origin.as_ref().expect("a place").to_string(), "agent.policy:1:7");
    let named = policy("read: ~\nread: ~/.ssh\ndeny: read ~/.aws, ~/.config\n");
    assert!(warnings(&named)[0].contains("~/.azure") && !warnings(&named)[0].contains(".ssh"));
    let glob = policy("read: ~/**/*.json\n");
    assert!(
        warnings(&glob).iter().any(|warning| warning.contains("~/.docker/config.json")),
        "{:?}",
        glob.warnings
    );
    assert!(policy("read: ~/.ssh/known_hosts, ~/project\n").warnings.is_empty());
    assert!(policy("read: ~/.ssh\n").warnings.is_empty());
}

#[test]
fn a_comma_in_an_existing_name_is_told() {
    let host = FakeHost::new().file("/r/a,b", "").file("/r/a", "").file("/r/b", "");
    assert!(warnings(&policy_on(&host, "read: ./a,b\n"))[0].contains("`/r/a,b` exists"));
    assert!(policy_on(&host, "read: ./a, ./b\n").warnings.is_empty());
}

#[test]
fn hosts_that_say_less_or_more_than_meant() {
    assert!(warnings(&policy("net: cidr/0.0.0.0/0\n"))[0].contains("does not open the private"));
    assert!(warnings(&policy("net: api.*\n"))[0].contains("any owner"));
    assert!(warnings(&policy("net: * private\n"))[0].contains("metadata"));
    assert!(warnings(&policy("deny: net *\n"))[0].contains("addresses"));
    assert!(warnings(&policy("net: localhost:53\n"))[0].contains("own name server"));
    assert!(policy("net: *, *:443\n").warnings.is_empty());
}

#[test]
fn paths_that_another_tool_would_read_otherwise() {
    assert!(warnings(&policy("read: $HOME/x\n"))[0].contains("not expanded"));
    assert!(warnings(&policy("read: ./a ./b\n"))[0].contains("a blank does not end a path"));
    let host = FakeHost::new().file("/r/a ./b", "").file("/r/My Documents", "");
    assert!(policy_on(&host, "read: ./My Documents\n").warnings.is_empty());
    assert!(policy("read: ./My Documents\n").warnings.is_empty());
}
