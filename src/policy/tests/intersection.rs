//! What two policies both allow is allowed, and nothing else.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;

use super::super::{Asked, PathAccess, Policy, Transport};
use super::{FakeHost, policy_on};

const POLICIES: [&str; 7] = [
    "read: .\nwrite: ./out\nexec: sh\nenv: *\nnet: *.example.org\n",
    "read: ./a\nread: ./b/*.txt\nwrite: ./out/sub\ndeny: read **/.env\nexec: /usr/bin\nnet: api.example.org:443\n",
    "write: .\ndeny: write ./out/fixed\nexec: sh -c\nenv: A_*\ndeny: env A_KEY\nnet: GET api.example.org/v1/**\n",
    "read: **/*.txt\nread: ./out\nexec: /usr/bin/*\nenv: A_ONE\nnet: localhost:8000\nnet: cidr/10.0.0.0/8:80\n",
    "read: /\ndeny: read ./a\nnet: *.example.org tunnel\ndeny: net secret.example.org\n",
    "runtime: ./b\nread: ./out/sub\nexec: sh\nexec: ls\nnet: POST api.example.org\n",
    "read: ./a/x\n",
];
const PATHS: [&str; 12] = [
    "/",
    "/r",
    "/r/a",
    "/r/a/x",
    "/r/a/.env",
    "/r/b",
    "/r/b/n.txt",
    "/r/b/n.key",
    "/r/out",
    "/r/out/fixed",
    "/r/out/sub/deep/n.txt",
    "/etc/passwd",
];

fn read(text: &str) -> Policy {
    let mut host = FakeHost::new();
    for file in ["/usr/bin/sh", "/usr/bin/ls", "/r/a/x", "/r/b/n.txt", "/r/out/sub/deep/n.txt"] {
        host = host.file(file, "");
    }
    policy_on(&host, text)
}

/// All that a policy may be asked, and what it answers.
fn answers(policy: &Policy) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    for path in PATHS {
        for access in [PathAccess::Read, PathAccess::Write] {
            let verdict = policy.decide_path(access, Path::new(path));
            all.push((format!("{access:?} {path}"), verdict.is_allow()));
        }
    }
    for words in [["/usr/bin/sh", "-c"], ["/usr/bin/sh", "-x"], ["/usr/bin/ls", "-c"]] {
        let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
        let verdict = policy.decide_exec(Path::new(words[0]), None, &argv);
        all.push((format!("{words:?}"), verdict.is_allow()));
    }
    for name in ["A_ONE", "A_KEY", "OTHER"] {
        all.push((name.to_owned(), policy.decide_env(name).is_allow()));
    }
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    for (name, to) in
        [("api.example.org", "93.184.216.34"), ("secret.example.org", "93.184.216.35"), ("", "10.1.1.1")]
    {
        let names: Vec<String> = Some(name.to_owned()).into_iter().filter(|name| !name.is_empty()).collect();
        all.push((format!("name {name}"), policy.decide_name(name).is_allow()));
        for port in [80, 443] {
            let verdict = policy.decide_connect(&names, address(to), port, Transport::Tcp);
            all.push((format!("{name} {to} {port}"), verdict.is_allow()));
            for (method, path) in [("GET", "/v1/x"), ("POST", "/v1/x"), ("GET", "/v2")] {
                let asked = Asked { method, path, upgrade: false };
                let verdict = policy.decide_request(&names, address(to), port, &asked);
                all.push((format!("{name} {port} {method} {path}"), verdict.is_allow()));
            }
        }
    }
    all
}

#[test]
fn both_have_to_allow() {
    let mut allowed = 0;
    for one in POLICIES {
        for other in POLICIES {
            let (one, other) = (read(one), read(other));
            let both = one.clone().intersect(other.clone());
            for ((mine, theirs), (what, found)) in
                answers(&one).into_iter().zip(answers(&other)).zip(answers(&both))
            {
                let expected = mine.1 && theirs.1;
                assert_eq!(found, expected, "{what}\n{}\n{}", one.text, other.text);
                allowed += usize::from(found);
            }
            for path in PATHS {
                let below = |policy: &Policy| policy.covers_below(Path::new(path));
                assert!(!below(&both) || (below(&one) && below(&other)), "{path}");
            }
        }
    }
    assert!(allowed > 100, "{allowed}");
}

#[test]
fn what_is_refused_names_who_refuses() {
    let (one, other) = (read(POLICIES[0]), read(POLICIES[6]));
    let name = other.name.clone();
    let both = one.intersect(other);
    let verdict = both.decide_path(PathAccess::Read, Path::new("/r/b"));
    assert!(format!("{verdict:?}").contains(&format!("{name}: no rule allows reading it")), "{verdict:?}");
}
