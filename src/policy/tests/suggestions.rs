//! The rule that mends a denial reads back as that one thing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::{Denied, PathAccess, Transport};
use super::{FakeHost, policy, policy_on};

fn path(path: &[u8]) -> String {
    policy("").suggestion(&Denied::Path {
        access: PathAccess::Read,
        path: Path::new(OsStr::from_bytes(path)).to_owned(),
    })
}

#[test]
fn paths() {
    assert_eq!(path(b"/r"), "read: .");
    assert_eq!(path(b"/r/x"), "read: ./x");
    assert_eq!(path(b"/etc/x"), "read: /etc/x");
    assert_eq!(path(b"/home/u/.npmrc"), "read: ~/.npmrc");
    assert_eq!(path(b"/home/u"), "read: /home/u");
    assert_eq!(path(b"/"), "read: /");
    assert_eq!(path(b"/proc/sys/x"), "read: /proc/sys/x");
    assert!(path(b"/proc/2").starts_with('#') && path(b"/proc/2/task/3/comm").starts_with('#'));
    assert_eq!(path(b"/r/a, \"b\" \\*#"), r##"read: "./a, \"b\" \\*#""##);
    assert_eq!(path(b"/r/My Documents"), "read: ./My Documents");
    assert_eq!(path(b"/r/a ./b"), "read: \"./a ./b\"");
    assert!(path(b"/home/u/.ssh/id_rsa").starts_with("# ~/.ssh is a place of secrets"));
    assert!(path(b"/r/a\nwrite: /").starts_with('#'));
    assert!(path(b"/r/\xff").starts_with('#'));
}

#[test]
fn programs() {
    let host = FakeHost::new().file("/usr/bin/git", "");
    let policy = policy_on(&host, "write: ./out\n");
    let exec =
        |exe: &str, name: &str| policy.suggestion(&Denied::Exec { exe: exe.into(), argv: vec![name.into()] });
    assert_eq!(exec("/usr/bin/git", "git"), "exec: git");
    assert_eq!(exec("/usr/bin/git", "/usr/bin/git"), "exec: git");
    assert_eq!(exec("/usr/bin/dash", "/bin/sh"), "exec: sh");
    assert_eq!(exec("/usr/sbin/ip", "/usr/sbin/ip"), "exec: /usr/sbin/ip");
    assert_eq!(exec("/opt/v1/bin/tool", "/opt/bin/tool2"), "exec: /opt/bin/tool2");
    assert_eq!(exec("/r/out/tool", "tool"), "exec: ./out/tool");
    assert_eq!(exec("/r/it's *", "x"), r"exec: './it'\''s *'");
    let nameless = Denied::Exec { exe: "/usr/bin/git".into(), argv: Vec::new() };
    assert!(policy.suggestion(&nameless).starts_with('#'));
}

#[test]
fn hosts_and_the_rest() {
    let policy = policy("");
    let connect = |names: &[&str], address: &str| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let address = address.parse().expect("an address");
        policy.suggestion(&Denied::Connect { names, address, port: 443, transport: Transport::Tcp })
    };
    assert_eq!(connect(&["X.org."], "1.1.1.1"), "net: x.org:443");
    assert_eq!(connect(&["db.corp"], "10.0.0.1"), "net: db.corp:443 private");
    assert_eq!(connect(&["unix"], "1.1.1.1"), "net: unix.:443");
    assert_eq!(connect(&["udp"], "1.1.1.1"), "net: udp.:443");
    assert_eq!(connect(&["localhost"], "127.0.0.1"), "net: localhost:443");
    assert_eq!(connect(&["localhost"], "10.0.0.1"), "net: 10.0.0.1:443");
    assert_eq!(connect(&[], "1.1.1.1"), "net: 1.1.1.1:443");
    assert_eq!(connect(&[], "2606:4700::1"), "net: [2606:4700::1]:443");
    let to_port_0 = Denied::Connect {
        names: vec!["x.org".into()],
        address: [1; 4].into(),
        port: 0,
        transport: Transport::Tcp,
    };
    let datagram =
        Denied::Connect { names: Vec::new(), address: [1; 4].into(), port: 443, transport: Transport::Udp };
    assert_eq!(policy.suggestion(&datagram), "net: udp:1.1.1.1:443");
    let named = |host: &str, address: [u8; 4], port| {
        let (names, address) = (vec![host.to_owned()], address.into());
        policy.suggestion(&Denied::Connect { names, address, port, transport: Transport::Udp })
    };
    assert_eq!(named("ntp.corp", [10, 0, 0, 1], 123), "net: udp:ntp.corp:123 private");
    assert_eq!(named("udp", [1; 4], 123), "net: udp:udp:123");
    assert!(named("x.org", [8; 4], 53).starts_with('#'));
    assert!(policy.suggestion(&to_port_0).starts_with('#'));
    assert_eq!(policy.suggestion(&Denied::Name("Y.org".into())), "net: y.org");
    assert_eq!(policy.suggestion(&Denied::Unix("/run/a b".into())), "net: \"unix:/run/a b\"");
    assert_eq!(policy.suggestion(&Denied::Env("A_B".into())), "env: A_B");
    for name in ["A B", "0w", ""] {
        assert!(policy.suggestion(&Denied::Env(name.into())).starts_with('#'), "{name}");
    }
}
