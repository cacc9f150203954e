//! `policy show` as a user runs it, and the commands that are still missing.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::skip;

const POLICY: &str = "\
read: ./src, ./gone
write: ./out
deny: read **/.env
exec: sh, nosuchprogram
exec: sh -c true
env: SHOWN_IN_TEST_*, X=secret
net: api.example.org:443, unix:./host.sock
deny: net evil.example.org
";

fn agentbox(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_agentbox"))
        .args(arguments)
        .current_dir(directory)
        .env("SHOWN_IN_TEST_A", "value")
        .output()
        .expect("it runs")
}

fn stage() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["src", "out"] {
        fs::create_dir(directory.path().join(name)).expect("a directory");
    }
    fs::write(directory.path().join("agentbox.policy"), POLICY).expect("written");
    directory
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(directory: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&agentbox(directory, arguments))).expect("JSON")
}

#[test]
fn every_rule_is_shown_with_its_place_and_what_it_stands_for() {
    let directory = stage();
    let here = directory.path().canonicalize().expect("a path");
    let shown = text(&agentbox(directory.path(), &["policy", "show"]));
    let line = |start: &str| {
        let found = shown.lines().find(|line| line.trim_start().starts_with(start));
        found.unwrap_or_else(|| panic!("{start}: {shown}")).to_owned()
    };
    let columns: Vec<usize> = ["agentbox.policy:1  read: ./src", "agentbox.policy:2", "agentbox.policy:3"]
        .iter()
        .map(|start| line(start).find("= ").expect("a column"))
        .collect();
    assert_eq!(columns, [columns[0]; 3], "{shown}");
    assert!(line("agentbox.policy:1  read: ./src").ends_with(&format!("= {}/src", here.display())));
    assert!(line("agentbox.policy:1  read: ./gone").ends_with("/gone (not there)"));
    assert!(line("agentbox.policy:3").ends_with("/**/.env"));
    assert!(line("agentbox.policy:4  exec: nosuchprogram").ends_with("= no program is found"));
    assert!(line("agentbox.policy:6  env: SHOWN_IN_TEST_*").ends_with("= SHOWN_IN_TEST_A"));
    assert!(line("note: no program `nosuchprogram`").contains("PATH"));
    assert!(line("/usr,").contains("/bin, "), "{shown}");
    assert!(line("read, every program needs it:").starts_with("  "), "{shown}");
    assert!(line(&format!("{}/out", here.display())).contains("read,write  `write: ./out`"));
    assert!(line("SHOWN_IN_TEST_A").ends_with("passed on by agentbox.policy:6"));
    assert!(line("X ").ends_with("set by agentbox.policy:6"));
    assert!(line("evil.example.org").ends_with("denied by agentbox.policy:8"));
    assert!(line(&format!("{}/agentbox.policy", here.display())).contains("no rule opens it"));
    assert!(!shown.contains("value") && !shown.contains("help:"), "values and proposals stay out: {shown}");
}

#[test]
fn explaining_says_it_in_words() {
    let directory = stage();
    let shown = text(&agentbox(directory.path(), &["policy", "show", "--explain"]));
    assert!(
        shown.lines().any(|line| line.starts_with("  /usr ") && line.ends_with("every program needs it"))
    );
    for sentence in [
        "allows reading and changing this",
        "refuses reading this",
        "starting it with arguments that begin with `-c true`",
        "connecting to this Unix socket of the host",
        "resolving the name and connecting to it, port 443",
        "help: install it before the start",
    ] {
        assert!(shown.contains(sentence), "{sentence}: {shown}");
    }
}

#[test]
fn a_command_adds_what_it_needs() {
    let directory = stage();
    let tool = directory.path().join("tool");
    fs::write(&tool, "#!/bin/sh\n").expect("written");
    fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    fs::write(directory.path().join("p"), "env: LANG\n").expect("written");
    let paths = |shown: &Value, why: &str| -> Vec<String> {
        let roots = shown["roots"].as_array().expect("a list").iter().filter(|root| root["why"] == why);
        roots.map(|root| root["path"].as_str().expect("text").to_owned()).collect()
    };
    let alone = json(directory.path(), &["policy", "show", "-p", "p", "--json"]);
    assert!(paths(&alone, "runtime").is_empty(), "{alone}");
    assert!(paths(&alone, "rule").is_empty(), "{alone}");
    assert!(paths(&alone, "system").contains(&"/usr".to_owned()));
    let with = json(directory.path(), &["policy", "show", "-p", "p", "--json", "--", "./tool"]);
    let own = directory.path().canonicalize().expect("a path").join("tool");
    assert_eq!(paths(&with, "runtime"), [own.to_str().expect("UTF-8")], "{with}");
    for root in with["roots"].as_array().expect("a list") {
        assert!(root["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{root}");
    }
}

#[test]
fn names_cannot_draw_on_the_terminal() {
    let directory = stage();
    // The policy itself can hold no such character, but a link that it names can lead to one.
    fs::create_dir(directory.path().join("a\u{1b}[2J\u{202e}b")).expect("a directory");
    std::os::unix::fs::symlink("a\u{1b}[2J\u{202e}b", directory.path().join("link")).expect("a link");
    fs::write(directory.path().join("p"), "read: ./link\n").expect("written");
    for options in [&["policy", "show", "-p", "p"][..], &["policy", "show", "-p", "p", "--json"]] {
        let shown = text(&agentbox(directory.path(), options));
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
    }
    let shown = json(directory.path(), &["policy", "show", "-p", "p", "--json"]);
    assert!(
        shown["rules"][0]["stands_for"][0].as_str().expect("text").contains('\u{1b}'),
        "JSON keeps the meaning"
    );
}

#[test]
fn mistakes_have_the_exit_codes_of_a_run() {
    let directory = stage();
    fs::write(directory.path().join("bad"), "raed: ./x\n").expect("written");
    let code = |arguments: &[&str]| {
        let output = agentbox(directory.path(), arguments);
        assert!(output.stdout.is_empty());
        output.status.code()
    };
    assert_eq!(code(&["policy", "show", "-p", "absent"]), Some(2));
    assert_eq!(code(&["policy", "show", "-p", "bad"]), Some(2));
    assert_eq!(code(&["policy", "show", "--", "no-such-program"]), Some(127));
}

#[test]
fn missing_commands_say_so_in_one_line() {
    let directory = stage();
    for words in ["why 3", "learn t", "check t", "export --csv x t"]
        .into_iter()
        .chain(["undo t", "apply t", "keygen --out k", "prove 3", "doctor --json"])
        .chain(["policy test", "policy diff a b", "why --help"])
    {
        let arguments: Vec<&str> = words.split(' ').collect();
        let output = agentbox(directory.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(
            said.starts_with("agentbox: this version does not have `") && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn the_runs_own_bundle_is_not_said_to_be_passed_on() {
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    if !Path::new(bundle).exists() {
        return skip("the variables of a bundle", "this host has no bundle at that place");
    }
    let directory = stage();
    fs::write(directory.path().join("agentbox.policy"), "net: a.example.org\n").expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_agentbox"))
        .args(["policy", "show", "--explain"])
        .current_dir(directory.path())
        .env("SSL_CERT_FILE", bundle)
        .output()
        .expect("it runs");
    let shown = text(&output);
    let line = shown.lines().find(|line| line.trim_start().starts_with("SSL_CERT_FILE "));
    assert!(line.is_some_and(|line| line.ends_with("set by agentbox: the run's bundle")), "{shown}");
}
