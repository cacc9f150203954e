//! What the documents promise of commands: the first of the README does what it prints, every command and option that
//! a document shows is there, and the machine that builds it runs the README's own test command.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Sandbox, User, everyone, has, skip};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(name: &str) -> String {
    fs::read_to_string(repository().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The blocks between fences, or that are indented by four, of a document.
fn blocks(document: &str) -> Vec<Vec<&str>> {
    let mut blocks = vec![Vec::new()];
    let mut is_inside = false;
    for line in document.lines() {
        match line.strip_prefix("    ") {
            _ if line.starts_with("```") => {
                is_inside = !is_inside;
                blocks.push(Vec::new());
            }
            _ if is_inside => blocks.last_mut().expect("a block").push(line),
            Some(code) => blocks.last_mut().expect("a block").push(code),
            None => {}
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// Copies a directory of plain files.
fn copy(sandbox: &Sandbox, name: &str) {
    for entry in fs::read_dir(repository().join(name)).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = format!("{name}/{}", entry.file_name().to_str().expect("text"));
        if entry.path().is_dir() {
            copy(sandbox, &name);
        } else {
            sandbox.file(name, fs::read(entry.path()).expect("a file"));
        }
    }
}

#[test]
fn the_first_command_of_the_readme_does_what_it_prints() {
    if !has("python3") {
        return skip("the example", "there is no python3");
    }
    let readme = text("README.md");
    let blocks = blocks(&readme);
    let words = blocks[0][0].strip_prefix("cargo run --release -- ").expect("the first command");
    let shown = blocks.iter().find(|block| block[0].starts_with("$ agentbox run")).expect("its output");
    assert_eq!(shown[0], format!("$ agentbox {words}"));
    everyone(|sandbox| {
        copy(sandbox, "examples");
        let ran = sandbox.agentbox(&words.split(' ').collect::<Vec<_>>());
        ran.exits(0);
        let place = sandbox.path("").canonicalize().expect("a place");
        let said =
            format!("{}{}", ran.stdout, ran.stderr).replace(place.to_str().expect("text"), "/src/agentbox");
        let expected: Vec<_> =
            shown[1..].iter().copied().filter(|line| !line.contains("recorded ")).collect();
        let said: Vec<_> = said.lines().filter(|line| !line.contains("recorded ")).collect();
        assert_eq!(said, expected, "{ran}");
        sandbox.agentbox(&["verify"]).exits(0);
        sandbox.agentbox(&["replay"]).exits(0).complains("replay ok");
    });
}

#[test]
fn every_command_and_option_that_a_document_shows_is_there() {
    let documents = fs::read_dir(repository().join("docs")).expect("the documents");
    let mut documents: Vec<PathBuf> = documents.map(|entry| entry.expect("an entry").path()).collect();
    documents.extend(["README.md", "SECURITY.md", "Dockerfile"].map(|name| repository().join(name)));
    let mut shown = BTreeSet::new();
    for document in &documents {
        let document = fs::read_to_string(document).expect("a document");
        for line in blocks(&document).into_iter().flatten() {
            let line = line.trim_start_matches("$ ");
            let line = line.split(" # ").next().unwrap_or_default();
            // What follows `--` is the command's.
            let words: Vec<_> =
                line.split_whitespace().take_while(|word| *word != "--").map(str::to_owned).collect();
            if words.first().is_some_and(|word| word == "agentbox") && words.len() > 1 {
                shown.insert(words);
            }
        }
    }
    assert!(shown.len() > 10, "{shown:?}");
    let sandbox = Sandbox::new(User::Caller);
    for words in shown {
        let depth = if words[1] == "policy" { 3 } else { 2 };
        let help = sandbox.agentbox(&[&words[1..depth.min(words.len())], &["--help".to_owned()]].concat());
        help.exits(0);
        for option in words.iter().filter(|word| word.starts_with("--")) {
            let option = option.split('=').next().unwrap_or_default();
            assert!(help.stdout.contains(option), "{words:?}: no {option}\n{help}");
        }
    }
}

#[test]
fn the_build_machine_runs_the_test_command_of_the_readme() {
    let readme = text("README.md");
    let test = blocks(&readme)[0][1].to_owned();
    assert_eq!(text(".ci/run").lines().last(), Some(format!("exec {test}").as_str()));
    let scripts = fs::read_dir(repository().join("scripts")).expect("the scripts");
    let scripts = scripts.map(|entry| entry.expect("an entry").path());
    for script in scripts.chain([repository().join(".ci/run")]) {
        let mode = fs::metadata(&script).expect("a script").permissions().mode();
        let first = fs::read_to_string(&script).expect("a script");
        if !first.starts_with("#!/bin/bash") && !first.starts_with("#!/bin/sh") {
            continue;
        }
        assert_eq!(mode & 0o111, 0o111, "{} is not executable", script.display());
        let shell = if first.starts_with("#!/bin/sh") { "sh" } else { "bash" };
        let parsed = Command::new(shell).arg("-n").arg(&script).status().expect("a shell");
        assert!(parsed.success(), "{}", script.display());
    }
    for gate in ["cargo fmt --check", "cargo clippy", "-D warnings", "cargo doc", "cargo test --locked"] {
        assert!(text(&test).contains(gate), "{gate}");
    }
}

#[test]
fn what_the_dockerfile_names_is_there() {
    let dockerfile = text("Dockerfile");
    let lines: Vec<_> = dockerfile.lines().filter(|line| !line.starts_with('#')).collect();
    // The compiler that the manifest asks for, or a newer one.
    let minor =
        |text: &str| text.split('.').nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
    let manifest = text("Cargo.toml");
    let wanted = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).and_then(minor);
    let used = lines.iter().find_map(|line| line.strip_prefix("FROM rust:")).and_then(minor);
    assert!(wanted.is_some() && used >= wanted, "{used:?} for {wanted:?}");
    let stages: BTreeSet<_> = lines.iter().filter_map(|line| line.split(" AS ").nth(1)).collect();
    for line in &lines {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["COPY", from, ..] if from.starts_with("--from=") => {
                assert!(stages.contains(&from[7..]), "{line}")
            }
            ["COPY", from, _] => assert!(repository().join(from).exists(), "{line}"),
            ["RUN", script, ..] => assert!(repository().join(script).exists(), "{line}"),
            _ => {}
        }
    }
    assert!(lines.contains(&"FROM scratch AS binary"), "the image is not empty");
}
