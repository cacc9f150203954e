//! Decisions about names, addresses and sockets.

use std::net::IpAddr;

use super::super::{Policy, Transport, Verdict};
use super::{policy, refused};

fn connects(policy: &Policy, names: &[&str], address: &str, port: u16) -> bool {
    verdict(policy, names, address, port).is_allow()
}

fn verdict(policy: &Policy, names: &[&str], address: &str, port: u16) -> Verdict {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    policy.decide_connect(&names, address.parse::<IpAddr>().expect("an address"), port, Transport::Tcp)
}

#[test]
fn names_are_resolved_by_rule() {
    let policy = policy("net: *.x.org, api.y.org:443, Bücher.example\ndeny: net bad.x.org, half.x.org:80\n");
    for name in ["a.x.org", "A.B.X.ORG.", "api.y.org", "bücher.example", "half.x.org"] {
        assert!(policy.decide_name(name).is_allow(), "{name}");
    }
    for name in [
        "x.org",
        "bad.x.org",
        "y.org",
        "1.2.3.4",
        "",
        "a..x.org",
        "a.x.org.evil",
        "localhost",
        "[::1]",
        "a\0.x.org",
        "7",
    ] {
        assert!(!policy.decide_name(name).is_allow(), "{name}");
    }
}

#[test]
fn connections_need_the_port_of_a_name() {
    let policy = policy("net: a.org:443, b.org, c.org:80\ndeny: net b.org:22\n");
    assert!(connects(&policy, &["a.org"], "1.1.1.1", 443));
    assert!(!connects(&policy, &["a.org"], "1.1.1.1", 80));
    assert!(connects(&policy, &["b.org"], "1.1.1.1", 80));
    assert!(!connects(&policy, &["b.org"], "1.1.1.1", 22));
    assert!(connects(&policy, &["a.org", "c.org"], "1.1.1.1", 80), "one name that allows the port is enough");
    assert!(!connects(&policy, &[], "1.1.1.1", 443), "a literal address needs a rule of its own");
    assert!(!connects(&policy, &["evil.org"], "1.1.1.1", 443), "names are judged again");
}

#[test]
fn a_star_is_never_an_address() {
    let policy = policy("net: *\n");
    assert!(connects(&policy, &["any.org"], "1.1.1.1", 1));
    assert!(!connects(&policy, &[], "1.1.1.1", 1));
    assert!(!connects(&policy, &["any.org"], "169.254.169.254", 80));
    assert!(!policy.decide_name("1.1.1.1").is_allow());
}

#[test]
fn special_ranges_need_a_rule_that_names_them() {
    let open = policy("net: x.org, cidr/0.0.0.0/0, cidr/::/0, cidr/8.0.0.0/7\n");
    for address in [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "192.168.1.1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "::",
        "::1",
        "fe80::1",
        "fd00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "::a00:1",
        "ff02::1",
    ] {
        assert!(!connects(&open, &["x.org"], address, 80), "{address}");
        assert!(!connects(&open, &[], address, 80), "{address}");
    }
    assert!(connects(&open, &[], "1.1.1.1", 80) && connects(&open, &[], "2606:4700::1", 80));

    let named = policy("net: 10.0.0.1, cidr/192.168.0.0/16:443, cidr/fd00::/8, [::ffff:172.16.0.1]\n");
    for (address, port) in [
        ("10.0.0.1", 1),
        ("::ffff:10.0.0.1", 1),
        ("2002:a00:1::", 1),
        ("192.168.3.4", 443),
        ("fd00::1", 9),
        ("172.16.0.1", 5),
    ] {
        assert!(connects(&named, &[], address, port), "{address}");
    }
    assert!(!connects(&named, &[], "192.168.3.4", 80) && !connects(&named, &[], "10.0.0.2", 1));
}

#[test]
fn private_names_may_lead_inside() {
    let policy = policy("net: db.corp.example:5432 private, web.example\n");
    assert!(connects(&policy, &["db.corp.example"], "10.0.0.7", 5432));
    assert!(!connects(&policy, &["db.corp.example"], "10.0.0.7", 80));
    let Verdict::Deny { reason, .. } = verdict(&policy, &["web.example"], "10.0.0.7", 80) else {
        panic!("denied")
    };
    assert!(reason.contains("private"), "{reason}");
}

#[test]
fn own_addresses_count_as_inside() {
    let mut policy = policy("net: x.org, cidr/0.0.0.0/0\n");
    policy.local_addresses = vec!["203.0.114.9/32".parse().expect("an address")];
    assert!(!connects(&policy, &["x.org"], "203.0.114.9", 80));
    assert!(!connects(&policy, &[], "::ffff:203.0.114.9", 80));
    assert!(connects(&policy, &["x.org"], "203.0.114.10", 80));
    // A local route leads to all of a range.
    policy.local_addresses = vec!["93.184.1.0/24".parse().expect("a range")];
    assert!(!connects(&policy, &["x.org"], "93.184.1.7", 80));
    assert!(!connects(&policy, &[], "::ffff:93.184.1.7", 80));
    assert!(connects(&policy, &["x.org"], "93.184.2.7", 80));
}

#[test]
fn denied_addresses_stay_denied_for_names() {
    let policy = policy("net: x.org private\ndeny: net cidr/10.0.0.0/8, 1.1.1.1:80\n");
    assert!(!connects(&policy, &["x.org"], "10.1.1.1", 443));
    assert!(!connects(&policy, &["x.org"], "::ffff:1.1.1.1", 80));
    assert!(connects(&policy, &["x.org"], "1.1.1.1", 443));
    assert!(connects(&policy, &["x.org"], "192.168.0.1", 443));
}

#[test]
fn loopback_rules_mean_the_host() {
    let policy = policy("net: 127.0.0.1:5432, localhost:6379, [::1]:8080, x.org:443\n");
    for (address, port) in
        [("127.0.0.1", 5432), ("::1", 5432), ("::1", 6379), ("127.0.0.1", 8080), ("0.0.0.0", 5432)]
    {
        assert!(connects(&policy, &[], address, port), "{address}:{port}");
    }
    assert!(!connects(&policy, &[], "127.0.0.1", 80) && !connects(&policy, &[], "127.0.0.2", 5432));
    assert_eq!(policy.loopback_ports(), [Some(5432), Some(6379), Some(8080)]);
    let ports = policy.named_ports();
    assert_eq!((ports.any, ports.ports.into_iter().collect::<Vec<_>>()), (false, vec![443]));
    assert!(policy.decide_name("localhost").is_allow());
}

#[test]
fn rules_without_a_port_are_any_port() {
    let policy = policy("net: localhost, x.org, y.org:22\ndeny: net z.org:25\n");
    assert_eq!(policy.loopback_ports(), [None]);
    assert!(policy.named_ports().any);
    assert_eq!(policy.named_ports().ports.into_iter().collect::<Vec<_>>(), [22]);
}

#[test]
fn datagrams_are_not_let_out() {
    let policy = policy("net: 1.1.1.1\n");
    let address = "1.1.1.1".parse().expect("an address");
    assert!(!policy.decide_connect(&[], address, 53, Transport::Udp).is_allow());
}

#[test]
fn sockets_are_exact_or_patterns() {
    let policy = policy("net: unix:/run/a b.sock, unix:./dir/*.sock\ndeny: net unix:/r/dir/x.sock\n");
    for path in ["/run/a b.sock", "/r/dir/y.sock"] {
        assert!(policy.decide_unix(path.as_ref()).is_allow(), "{path}");
    }
    for path in ["/run/a b.sock/x", "/run/a", "/r/dir/x.sock", "/r/dir/sub/y.sock", "run/a b.sock"] {
        assert!(!policy.decide_unix(path.as_ref()).is_allow(), "{path}");
    }
    let sockets: Vec<_> =
        policy.unix_sockets().map(|(rule, spelled, _)| (rule.0, spelled.to_owned())).collect();
    assert_eq!(sockets, [(0, "/run/a b.sock".into())]);
}

fn datagrams(policy: &Policy, names: &[&str], address: &str, port: u16) -> bool {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let address = address.parse::<IpAddr>().expect("an address");
    policy.decide_connect(&names, address, port, Transport::Udp).is_allow()
}

#[test]
fn datagrams_need_a_rule_of_their_own() {
    let policy = policy(
        "net: a.org, b.org:443, udp:b.org:443, udp:*.pool.org:123, udp:10.0.0.7:5000, udp:[2001:db8::7]:5000
net: udp:cidr/10.1.0.0/16:6000, udp:localhost:7000, udp:corp.org:8000 private
deny: net bad.pool.org, b.org:9, udp:10.1.2.3:6000\n",
    );
    for (names, address, port) in [
        (&["b.org"][..], "1.1.1.1", 443),
        (&["x.pool.org"], "1.1.1.1", 123),
        (&[], "10.0.0.7", 5000),
        (&[], "2001:db8::7", 5000),
        (&[], "::ffff:10.0.0.7", 5000),
        (&[], "10.1.0.1", 6000),
        (&["localhost"], "127.0.0.1", 7000),
        (&[], "::1", 7000),
        (&["corp.org"], "192.168.0.1", 8000),
    ] {
        assert!(datagrams(&policy, names, address, port), "{names:?} {address} {port}");
    }
    for (names, address, port) in [
        (&["a.org"][..], "1.1.1.1", 443),
        (&["b.org"], "1.1.1.1", 444),
        (&["b.org"], "10.0.0.1", 443),
        (&["bad.pool.org"], "1.1.1.1", 123),
        (&[], "1.1.1.1", 123),
        (&[], "10.1.2.3", 6000),
    ] {
        assert!(!datagrams(&policy, names, address, port), "{names:?} {address} {port}");
    }
    assert!(!connects(&policy, &["x.pool.org"], "1.1.1.1", 123), "a stream is another matter");
    assert!(policy.decide_name("x.pool.org").is_allow(), "the name may be resolved");
    assert!(!policy.named_ports().ports.contains(&123) && policy.loopback_ports().is_empty());
    assert_eq!(policy.loopback_datagram_ports(), [7000, 8000]);
    assert_eq!(policy.datagram_ports().into_iter().collect::<Vec<_>>(), [123, 443, 5000, 6000, 8000]);
}

#[test]
fn datagram_rules_that_are_refused() {
    for (text, reason) in [
        ("net: udp:a.org", "datagrams need a port"),
        ("net: udp:", "needs a host"),
        ("net: udp: a.org:1", "needs a host"),
        ("net: udp:a.org:53", "name server"),
        ("net: udp:a.org:0", "no port"),
        ("net: udp:a.org:443 tunnel", "does not go with"),
        ("net: udp:10.0.0.1:443 private", "belongs to a name"),
        ("net: udp:2001:db8::1", "in brackets"),
        ("deny: net udp:a.org", "datagrams need a port"),
    ] {
        let report = super::refused(text);
        let message = &report.diagnostics[0].message;
        assert!(message.contains(reason), "{text}: {message}");
    }
}

#[test]
fn an_offered_port_is_no_port_of_the_host() {
    let policy = policy("listen: 3000, 3001\nlisten: 3000\nnet: localhost, x.org private\n");
    assert_eq!(policy.published_ports().into_iter().map(|(port, _)| port).collect::<Vec<_>>(), [3000, 3001]);
    assert!(!connects(&policy, &["localhost"], "127.0.0.1", 3000));
    assert!(!connects(&policy, &["x.org"], "::1", 3001));
    assert!(connects(&policy, &["localhost"], "127.0.0.1", 3002));
    assert!(connects(&policy, &["x.org"], "10.0.0.1", 3000));
    // Whoever asked the host's port 53 would be answered by the launcher.
    assert!(refused("listen: 53\n").to_string().contains("own name server"));
}
