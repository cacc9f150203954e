//! Rules about secrets: their form, and what must not stand beside them.

use std::net::IpAddr;

use super::super::{Asked, Policy};
use super::{policy, refused};

fn shown(policy: &Policy) -> Vec<String> {
    policy.secrets().map(|(_, secret)| secret.to_string()).collect()
}

#[test]
fn hosts_ports_and_fields_are_read() {
    let policy = policy(
        "net: *.x.org, b.test:8443\nsecret: TOKEN -> API.x.org., TOKEN->b.test:8443 header X-Token:, K2 -> a.x.org\n",
    );
    let expected = ["TOKEN -> api.x.org:443", "TOKEN -> b.test:8443 header x-token", "K2 -> a.x.org:443"];
    assert_eq!(shown(&policy), expected);
    let same = super::policy(
        "net: *.x.org, b.test:8443\nsecret: K2 -> a.x.org:443, TOKEN -> api.x.org:443\nsecret: TOKEN -> b.test:8443 header x-token\n",
    );
    assert_eq!(policy.digest(), same.digest());
    assert_eq!(shown(&super::policy("net: 127.0.0.1:1\nsecret: A -> localhost:1\n")), ["A -> localhost:1"]);
}

#[test]
fn what_is_no_secret_is_told_with_what_is() {
    for (rule, message, help) in [
        ("A", "`->` and the host are missing", "secret: NAME -> HOST"),
        ("A ->", "the host is missing", "secret: NAME -> HOST"),
        ("$A -> x.org", "`$A` is no name", "write `A`"),
        ("A=1 -> x.org", "never stands in a policy", ""),
        ("A_* -> x.org", "no name of one variable", ""),
        ("PATH -> x.org", "given to every command", ""),
        ("A -> *.x.org", "a pattern stands for many", "each host"),
        ("A -> https://x.org/v1", "a URL is no host", "write `-> x.org`"),
        ("A -> x.org/v1", "not to a path", "write `-> x.org`"),
        ("A -> 10.0.0.1", "belongs to a name", ""),
        ("A -> x.org:0", "is no port", ""),
        ("A -> x.org headr X-Token", "did you mean `header`?", ""),
        ("A -> x.org tunnel", "belongs to the `net:` rule", ""),
        ("A -> x.org header", "the name of the header field is missing", ""),
        ("A -> x.org header Host", "holds no secret", ""),
        ("A -> x.org header X Y", "`Y` follows", "a rule for each field"),
        ("\"A -> x.org\"", "no quotes", ""),
    ] {
        let report = refused(&format!("net: x.org\nsecret: {rule}\n"));
        let diagnostic = &report.diagnostics[0];
        assert_eq!(report.diagnostics.len(), 1, "{rule}: {report}");
        assert!(diagnostic.message.contains(message), "{rule}: {}", diagnostic.message);
        assert!(diagnostic.help.as_deref().unwrap_or("").contains(help), "{rule}: {:?}", diagnostic.help);
        assert!(diagnostic.to_string().starts_with("agent.policy:2:9: "), "{rule}: {diagnostic}");
    }
    assert!(refused("deny: secret A -> x.org\n").to_string().contains("unknown verb"));
}

#[test]
fn what_defeats_a_secret_is_refused() {
    for (text, message) in [
        ("net: x.org\nsecret: A -> x.org\nenv: A\n", "gives the process the value of `A` itself"),
        ("net: x.org\nsecret: A -> x.org\nenv: *\n", "gives the process the value of `A` itself"),
        ("net: x.org\nsecret: A -> x.org\nenv: A=1\n", "gives the process the value of `A` itself"),
        ("net: y.org\nsecret: A -> x.org\n", "no `net:` rule allows `x.org` at port 443"),
        ("net: x.org:80\nsecret: A -> x.org\n", "no `net:` rule allows `x.org` at port 443"),
        ("net: x.org tunnel\nsecret: A -> x.org\n", "`tunnel` leaves unread"),
        ("net: *.org tunnel, x.org\nsecret: A -> x.org\n", "`tunnel` leaves unread"),
        ("net: x.org, udp:x.org:443\nsecret: A -> x.org\n", "datagrams leave unread"),
    ] {
        let report = refused(text);
        assert_eq!(report.diagnostics.len(), 1, "{text}{report}");
        assert!(report.diagnostics[0].message.contains(message), "{text}{report}");
    }
    policy("net: x.org\nsecret: A -> x.org\nenv: A*\ndeny: env A\n");
    policy("net: x.org:22 tunnel, x.org:443\nsecret: A -> x.org\n");
    let unread = policy("net: x.org\nsecret: A -> x.org\n").check_unread().expect_err("it is read");
    assert!(unread.to_string().contains("^^^^^^^^^^"), "{unread}");
}

#[test]
fn the_host_of_a_secret_is_read_or_nothing() {
    let policy = policy("net: *.org\nsecret: A -> x.org\nnet: UPGRADE|GET x.org/live\n");
    let address: IpAddr = "93.184.216.34".parse().expect("an address");
    let must_read = |name: &str, port| policy.must_read(&[name.to_owned()], address, port);
    assert!(must_read("x.org", 443) && !must_read("x.org", 80) && !must_read("y.org", 443));
    let upgrades = |name: &str, path| {
        let asked = Asked { method: "GET", path, upgrade: true };
        policy.decide_request(&[name.to_owned()], address, 443, &asked).is_allow()
    };
    assert!(policy.warnings.iter().all(|warning| !warning.message.contains("adds nothing")));
    assert!(upgrades("x.org", "/live") && !upgrades("x.org", "/other") && upgrades("y.org", "/other"));
}
