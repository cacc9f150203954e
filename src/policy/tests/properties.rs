//! Properties that hold for any text and any rules.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::super::source::decode;
use super::super::{Denied, FileId, PathAccess, Transport, parse};
use super::{FakeHost, policy};

/// Pieces of which hostile and ordinary policies are made.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "read:",
            "write: ",
            "deny: ",
            "allow: read ",
            "net: ",
            "exec: ",
            "env: ",
            "include: ",
            "runtime:",
            "limit: ",
            "unix:",
            "cidr/",
            "\"",
            "'",
            "\\",
            "#",
            ",",
            "\n",
            "\r\n",
            " ",
            "\t",
            "*",
            "**",
            "?",
            "[",
            "]",
            "/",
            "./",
            "~",
            "..",
            "@10",
            ":",
            "443",
            "[::1]",
            "10.0.0.0/8",
            "private",
            "é",
            "\u{feff}",
            "\0",
            "\u{2028}",
            "=",
            "a",
            "x.org",
            "raed: ",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,6}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn path() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..5)
        .prop_map(|names| names.iter().fold(PathBuf::from("/"), |path, name| path.join(name)))
}

/// Deny, access, place.
fn rule() -> impl Strategy<Value = (bool, bool, PathBuf)> {
    (prop::bool::weighted(0.3), any::<bool>(), path())
}

/// Components of a pattern, one of them at least with a glob character.
fn glob() -> impl Strategy<Value = Vec<String>> {
    let part = prop::sample::select(vec!["a", "b", "*", "**", "[ab]", "?", "a*", "[!a]"]);
    prop::collection::vec(part.prop_map(str::to_owned), 1..6).prop_map(|mut parts| {
        parts.push("*".to_owned());
        parts
    })
}

fn plain_match(parts: &[&str], names: &[&str]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((&"**", rest)), _) if plain_match(rest, names) => true,
        (Some((&"**", _)), Some((_, below))) => plain_match(parts, below),
        (Some((part, rest)), Some((name, below))) => {
            let matched = match *part {
                "*" | "?" => true, // every name here has one letter
                "a" | "a*" => *name == "a",
                "b" => *name == "b",
                "[ab]" => *name != "c",
                _ => *name != "a",
            };
            matched && plain_match(rest, below)
        }
        (Some(_), None) => false,
    }
}

proptest! {
    // A failure is printed in its smallest form; nothing is written beside the source.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in text()) {
        match parse(&text, "agent.policy", &FakeHost::new()) {
            Ok(policy) => {
                let _ = policy.digest();
                let _ = policy.decide_path(PathAccess::Read, "/r/a".as_ref());
                let _ = policy.decide_exec("/usr/bin/a".as_ref(), Some(FileId { dev: 1, ino: 1 }), &["a".into()]);
                let _ = policy.decide_connect(&["x.org".into()], [10, 0, 0, 1].into(), 443, Transport::Tcp);
                for remark in policy.warnings.iter().chain(&policy.notes) {
                    let _ = remark.render(true);
                }
            }
            Err(report) => {
                prop_assert!(!report.diagnostics.is_empty());
                let _ = report.render(true);
                for diagnostic in &report.diagnostics {
                    prop_assert!(diagnostic.origin.is_some() && diagnostic.help.is_some(), "{}", diagnostic);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_text_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        match decode("agent.policy", bytes) {
            Ok(text) => drop(parse(&text, "agent.policy", &FakeHost::new())),
            Err(diagnostic) => drop(diagnostic.render(false)),
        }
    }

    #[test]
    fn nested_rules_decide_as_a_plain_search(rules in prop::collection::vec(rule(), 0..12), asked in path()) {
        let text: String = rules
            .iter()
            .map(|(deny, write, path)| {
                let verb = if *write { "write" } else { "read" };
                if *deny { format!("deny: {verb} {}\n", path.display()) } else { format!("{verb}: {}\n", path.display()) }
            })
            .collect();
        let policy = policy(&text);
        let above = |path: &Path| asked.starts_with(path);
        let denied = |write: bool| rules.iter().any(|(deny, w, path)| *deny && (write || !*w) && above(path));
        let granted = |write: bool| rules.iter().any(|(deny, w, path)| !*deny && (!write || *w) && above(path));
        let read = policy.decide_path(PathAccess::Read, &asked);
        let write = policy.decide_path(PathAccess::Write, &asked);
        prop_assert_eq!(read.is_allow(), granted(false) && !denied(false));
        prop_assert_eq!(write.is_allow(), granted(true) && !denied(true));
        if let Some(id) = read.rule().filter(|_| read.is_allow()) {
            let longest = rules.iter().filter(|(deny, _, path)| !*deny && above(path)).map(|(.., path)| path).max_by_key(|path| path.as_os_str().len());
            prop_assert_eq!(Some(&rules[id.0].2), longest);
        }
        let below = rules.iter().any(|(deny, _, path)| !*deny && (above(path) || (path.starts_with(&asked) && path != &asked)));
        prop_assert_eq!(policy.covers_below(&asked), below);
    }

    #[test]
    fn globs_match_as_a_plain_search(parts in glob(), asked in path()) {
        let policy = policy(&format!("deny: read /{}\n", parts.join("/")));
        let names: Vec<&str> = asked.iter().skip(1).filter_map(|name| name.to_str()).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        // What matches a directory covers everything below it.
        let covered = (0..=names.len()).any(|length| plain_match(&parts, &names[..length]));
        prop_assert_eq!(policy.decide_path(PathAccess::Read, &asked).rule().is_some(), covered);
    }

    #[test]
    fn suggestions_read_back_as_that_place(name in "\\PC{1,12}", directory in prop::sample::select(vec!["/r", "/home/u", "/x", "/"])) {
        prop_assume!(!name.split('/').any(|part| part.is_empty() || part == "." || part == ".."));
        let place = Path::new(directory).join(&name);
        let line = policy("").suggestion(&Denied::Path { access: PathAccess::Write, path: place.clone() });
        let read = policy(&line);
        prop_assert_eq!(read.rules.len(), usize::from(!line.starts_with('#')));
        for rule in &read.rules {
            let super::super::RuleBody::Path { pattern, .. } = &rule.body else { panic!("a path rule") };
            prop_assert!(pattern.names(&place), "{} {:?}", line, pattern);
        }
        let exec = policy("").suggestion(&Denied::Exec { exe: place.clone(), argv: vec!["other".into()] });
        let allows = policy(&exec).decide_exec(&place, None, &[place.clone().into_os_string()]);
        prop_assert!(allows.is_allow() || exec.starts_with('#'), "{}", exec);
    }
}
