//! The grammar: what is read, what is refused, and how an error is shown.

use super::super::{RuleBody, Severity, parse};
use super::{FakeHost, policy, refused};

fn values(text: &str) -> Vec<String> {
    policy(text).rules.iter().map(|rule| rule.text.clone()).collect()
}

#[test]
fn rules_are_read() {
    for (text, rules) in [
        ("allow: read ./a, ./b", vec!["read: ./a", "read: ./b"]),
        ("allow: read ./a, write: ./b", vec!["read: ./a", "write: ./b"]),
        ("exec: sh -c 'a, b' , git", vec!["exec: sh -c 'a, b'", "exec: git"]),
        ("exec: sh -c \"a # b\" # c", vec!["exec: sh -c \"a # b\""]),
        ("exec: env python3", vec!["exec: env python3"]),
        ("exec: read: ./a", vec!["exec: read: ./a"]),
        ("net: unix:/a,b", vec!["net: unix:/a", "net: b"]),
        ("read: c:/x", vec!["read: c:/x"]),
        ("read: \"./a, b#c\", ./d", vec!["read: \"./a, b#c\"", "read: ./d"]),
        ("deny: read **/.env, ./x", vec!["deny: read **/.env", "deny: read ./x"]),
        ("DENY: Net evil.org:80", vec!["deny: net evil.org:80"]),
        ("env: A=b c, B=", vec!["env: A=b c", "env: B="]),
        ("env: \"A=b, c\"", vec!["env: \"A=b, c\""]),
        ("net: a.org, b.org:443\nc.org", vec!["net: a.org", "net: b.org:443", "net: c.org"]),
        (
            "read: ./a\u{2028}write: ./b\u{85}net: h\rnet: i\x0bnet: j",
            vec!["read: ./a", "write: ./b", "net: h", "net: i", "net: j"],
        ),
        ("read: ./a b c", vec!["read: ./a b c"]),
        ("write: ./out @here", vec!["write: ./out @here"]),
        ("runtime: /opt/tool", vec!["runtime: /opt/tool"]),
        (
            "net: [2001:db8::1]:443, cidr/10.0.0.0/8:80",
            vec!["net: [2001:db8::1]:443", "net: cidr/10.0.0.0/8:80"],
        ),
        ("net: a.org private tunnel", vec!["net: a.org private tunnel"]),
    ] {
        assert_eq!(values(text), rules, "{text:?}");
    }
}

#[test]
fn quoted_values_are_literal() {
    let policy = policy("read: \"./a \\\"b\\\\ *\"");
    assert_eq!(policy.rules[0].value, "./a \"b\\ *");
    let RuleBody::Path { pattern, .. } = &policy.rules[0].body else { panic!("a path rule") };
    assert!(!pattern.is_glob());
}

/// Text, what the message holds, what the help holds.
const FAULTS: &[(&str, &str, &str)] = &[
    ("read: ./a\nraed: ./b", "unknown rule `raed`, did you mean `read`?", "`read: …`"),
    ("read: ./a\nfoo: bar", "unknown rule `foo`", "the rules are"),
    ("read: ./a\nwirte ./c", "begins with what looks like a key, `wirte`", "`write: ./c`"),
    ("read: ./a, wirte ./c", "begins with what looks like a key, `wirte`", "`write: ./c`"),
    ("deny: .env", "unknown verb `.env`", "`deny: read .env`, or `deny: read **/.env`"),
    ("read: ./a, wirte:./b", "unknown rule `wirte`, did you mean `write`?", "`write: …`"),
    ("foo: bar", "unknown rule `foo`", ""),
    ("deny: ./a", "unknown verb `./a` after `deny:`", "`deny: read PATH`"),
    ("deny:", "unknown verb `` after `deny:`", ""),
    ("deny: secret X", "unknown verb `secret`", "the verbs are read, write, net, exec and env"),
    ("deny: listen 80", "unknown verb `listen`", "the verbs are read, write, net, exec and env"),
    ("allow", "value `allow` appears before any rule key", "write the colon"),
    ("allow: read: ./a", "unknown verb `read:` after `allow:`", "leave out the second colon"),
    ("allow: raed ./a", "unknown verb `raed`", "did you mean `allow: read"),
    ("allow: read\t./a", "unknown verb `read\t./a`", ""),
    ("allow: read ./a, write ./b", "begins with the key `write`", "write the colon: `write: ./b`"),
    ("read: write ./b", "begins with the key `write`", "write the colon"),
    ("exec: git, env python3", "begins with the key `env`", "write the colon"),
    ("read: ,./a", "empty value for `read`", ""),
    ("read: # c", "empty value for `read`", ""),
    ("allow: read", "empty value for `read`", ""),
    ("read: \"\"", "empty value in quotes", ""),
    ("read: \"./a", "never closed", "close it"),
    ("exec: sh -c 'a", "never closed", "close it"),
    ("exec: sh -c \"a # b", "never closed", "close it"),
    ("read: \"./a\"b", "text follows the closing quote", ""),
    ("read: \"./a\" b", "`b` follows the path", ""),
    ("read: \"./a\\n\"", "`\\n` is no escape", ""),
    ("read: './a b'", "single quotes do not quote", "double quotes"),
    ("\u{feff}read: ./a", "byte order mark", "without"),
    ("read: ./a\0b", "NUL", "remove"),
    ("read: ./a\u{202e}b", "control character", "remove"),
    ("read: ./a[b", "never closed", "double quotes"),
    ("read: ./[z-a]", "backwards", ""),
    ("read: ./a**", "`**` must stand alone", ""),
    ("read: ./*/..", "`..` cannot follow", ""),
    ("read: ~nobody-here/x", "no user `nobody-here`", ""),
    ("runtime: /opt/*", "takes no glob", ""),
    ("write: /proc", "the host's kernel", "remove"),
    ("write: /proc/sys/kernel/core_pattern", "the host's kernel", "remove"),
    ("write: /proc/[0-9]*/comm", "the host's kernel", "remove"),
    ("exec: *", "holds no slash", "`exec: /**`"),
    ("exec: ''", "empty", ""),
    ("env: A B", "no name of a variable", "comma"),
    ("env: 1X", "no name of a variable", "NAME"),
    ("env: 2=x", "no name of a variable", "NAME"),
    ("env: $HOME", "no name of a variable", "`HOME`"),
    ("env: A=\"b c\"", "quotes count at the start", "around the whole"),
    ("deny: env A=b", "takes a name", ""),
    ("net: h:*", "`*` is no port", ""),
    ("net: h:0", "`0` is no port", ""),
    ("net: h:65536", "no port", ""),
    ("net: h:\u{0661}", "no port", ""),
    ("net: ::1", "stands in brackets", "`net: [::1]`"),
    ("net: 127.0.0.0/8", "begins with `cidr/`", "`net: cidr/127.0.0.0/8`"),
    ("net: [set].x", "no IPv6 address", ""),
    ("net: api-*.x", "only a whole label", ""),
    ("net: h?.x", "only a whole label", ""),
    ("net: 127.*", "its last part is a number", "cidr/"),
    ("net: 127.1", "its last part is a number", "four decimal"),
    ("net: 0x7f.1", "its last part is a number", ""),
    ("net: 2130706433", "its last part is a number", ""),
    ("net: 010.0.0.1", "its last part is a number", ""),
    ("net: a..b", "no name of a host", ""),
    ("net: a b", "`b` follows the host", "comma"),
    ("net: a.org prviate", "did you mean `private`", ""),
    ("net: https://a.org/x", "a URL is no host", "`net: a.org`"),
    ("net: cidr/10.0.0.1/8", "bits set", "`cidr/10.0.0.0/8`"),
    ("net: cidr/10.0.0.0/33", "no prefix length", "32"),
    ("net: cidr/10.0.0.0", "length of its prefix", ""),
    ("net: 10.0.0.1 private", "`private` belongs to a name", ""),
    ("net: unix:", "needs a path", ""),
    ("net: unix:@x", "abstract", ""),
    ("net: unix:/run/a.sock @10/min", "takes no suffix", "quotes"),
    ("net: GET unix:/run/a.sock", "do not go with `unix:`", ""),
    ("net: GET", "no host follows", "`net: GET|HEAD "),
    ("net: GET private", "no host follows", ""),
    ("net: GET|HEAD", "no host follows", ""),
    ("net: get a.org", "written in capitals", "`GET`"),
    ("net: GET|head a.org", "written in capitals", "`HEAD`"),
    ("net: GET| HEAD a.org", "broken off", "without blanks"),
    ("net: GET |HEAD a.org", "broken off", "without blanks"),
    ("net: GET||HEAD a.org", "a method is missing", ""),
    ("net: GTE a.org", "did you mean `GET`", "`GET`"),
    ("net: X-TRA|P*T a.org", "`P*T` is no method", ""),
    ("net: GET|CONNECT a.org", "CONNECT would let anything through", "HOST:PORT"),
    ("net: GET a.org b.org", "`b.org` follows the host", "comma"),
    ("net: a.org/x?y=1", "query is not matched", "leave out"),
    ("net: a.org/x/a**", "`**` must stand alone", ""),
    ("net: a.org/x/{id}", "`{` does not stand in a path", "`%7B`"),
    ("net: a.org/é", "`é` does not stand in a path", "`%C3%A9`"),
    ("net: \"a.org/a b\"", "` ` does not stand in a path", "`%20`"),
    ("net: a.org/x/../y", "no request can match", ""),
    ("net: a.org/x%2fy", "no request can match", ""),
    ("net: a.org//x", "no request can match", ""),
    ("net: a.org/100%", "no request can match", ""),
    ("net: a.org @10/m", "did you mean `min`", "`@10/min`"),
    ("net: a.org @10/day", "unknown unit `day`", "`@10/min`"),
    ("net: a.org @10", "no rate", "`@10/min`"),
    ("net: a.org @ten/s", "no number", ""),
    ("net: a.org @+1/s", "no number", ""),
    ("net: a.org @0/s", "allows nothing", "deny"),
    ("net: a.org @1/s @2/s", "one rate", ""),
    ("net: UNIX:/a", "`unix:` is written in small letters", "net: unix:"),
    ("net: Udp:a.org:5000", "`udp:` is written in small letters", "net: udp:"),
    ("foo: bar", "unknown rule `foo`", "secret, listen, runtime"),
    ("net: GET a.org tunnel", "`tunnel` leaves unread", "leave out"),
    ("net: a.org/x tunnel", "`tunnel` leaves unread", "leave out"),
    ("deny: net a.org @1/s", "a suffix belongs to a rule that grants", ""),
];

#[test]
fn faults_are_named_with_what_mends_them() {
    for &(text, message, help) in FAULTS {
        let report = refused(text);
        assert_eq!(report.diagnostics.len(), 1, "{text:?}: {report}");
        let diagnostic = &report.diagnostics[0];
        assert!(diagnostic.message.contains(message), "{text:?}: {}", diagnostic.message);
        assert!(diagnostic.help.as_deref().unwrap_or("").contains(help), "{text:?}: {:?}", diagnostic.help);
        assert!(diagnostic.origin.is_some(), "{text:?}");
    }
}

#[test]
fn what_is_not_enforced_is_refused() {
    for text in
        ["read-once: ./a", "write: ./out @10MB", "write: \"./out\" @10MB", "limit: memory 2GiB, pids 256"]
    {
        for diagnostic in refused(text).diagnostics {
            assert!(
                diagnostic.message.contains("not enforced by this version yet, so the policy is refused"),
                "{text:?}: {diagnostic}"
            );
            assert!(diagnostic.to_string().starts_with("agent.policy:1:"), "{diagnostic}");
        }
    }
}

#[test]
fn all_errors_come_at_once_with_their_places() {
    let report = refused("# head\nraed: ./a\n  net: h:0, i, j:x # c\nexec: 'a\nread: ./ok\n");
    let places: Vec<String> = report
        .diagnostics
        .iter()
        .map(|diagnostic| diagnostic.origin.as_ref().expect("a place").to_string())
        .collect();
    assert_eq!(places, ["agent.policy:2:1", "agent.policy:3:8", "agent.policy:3:16", "agent.policy:4:7"]);
}

#[test]
fn the_picture_shows_line_and_caret() {
    let picture = refused("read: ./a\n\traed: é\n").render(false);
    assert_eq!(
        picture,
        "error: unknown rule `raed`, did you mean `read`?\n\
         \u{20}--> agent.policy:2:2\n\
         \u{20} |\n\
         2 |     raed: é\n\
         \u{20} |     ^^^^\n\
         \u{20} |\n\
         \u{20} = help: write `read: …`"
    );
    assert!(refused("raed: x").render(true).contains('\u{1b}'));
}

#[test]
fn a_comment_in_a_value_is_warned_about() {
    let policy = policy("read: ./data#public\n");
    assert_eq!(policy.rules[0].text, "read: ./data");
    assert!(policy.warnings[0].message.contains("`#` begins a comment"), "{:?}", policy.warnings);
    assert_eq!(policy.warnings[0].severity, Severity::Warning);
}

#[test]
fn long_lines_keep_their_place_and_little_else() {
    let line = format!("env: {}h h\n", "NAME, ".repeat(100_000));
    let report = refused(&line);
    let picture = report.render(false);
    assert!(
        picture.contains("agent.policy:1:600006") && picture.contains("^^^") && picture.len() < 3_000,
        "{picture}"
    );
    assert!(report.diagnostics[0].line.len() <= 1_000);
}

#[test]
fn long_policies_are_read_fast() {
    let lines: String = (0..10_000).map(|n| format!("read: ./dir{n}/**/*.py, ./file{n}\n")).collect();
    let start = std::time::Instant::now();
    let policy = parse(&lines, "agent.policy", &FakeHost::new()).expect("it parses");
    assert_eq!(policy.rules.len(), 20_000);
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed()); // a debug build on a busy machine
}
