//! A run takes nothing but the plan, and the printed document is the whole plan: what a document
//! leaves out, the run does not have.
//!
//! A program of its own without the test harness: the launch clones the calling process, which
//! therefore must have one thread. Each case is a process: this program again, with `--case`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Output};

use agentbox::command;
use agentbox::netproxy::StreamOptions;
use agentbox::plan::{HostFacts, LaunchPlan, Request};
use agentbox::policy::{self, LaunchHost};
use agentbox::run::{self, Repeat};
use agentbox::trace::{Placement, Reach};
use serde_json::{Value, json};

/// A case: its name, what it changes in the document and then in what was read, and what is true of the run.
struct Case {
    name: &'static str,
    change: fn(&mut Value),
    alter: fn(&mut LaunchPlan),
    holds: fn(&Output) -> bool,
}

const CASES: [Case; 6] = [
    Case {
        name: "the_document_alone_is_enough",
        change: |_| {},
        alter: |_| {},
        holds: |run| run.status.code() == Some(0) && run.stdout == b"hello\n",
    },
    Case {
        name: "a_dropped_mount_is_gone",
        change: |document| {
            let mounts = document["mounts"].as_array_mut().expect("mounts");
            let before = mounts.len();
            mounts.retain(|mount| !mount["destination"].as_str().expect("a path").ends_with("/data"));
            assert_eq!(mounts.len() + 1, before);
        },
        alter: |_| {},
        holds: |run| run.status.code() == Some(1) && run.stdout.is_empty() && says(run, "No such file"),
    },
    Case {
        name: "a_changed_argument_is_the_one_that_is_used",
        change: |document| document["process"]["args"][1] = json!("data/other.txt"),
        alter: |_| {},
        holds: |run| run.status.code() == Some(0) && run.stdout == b"other\n",
    },
    Case {
        name: "a_masked_path_is_hidden",
        change: |document| {
            let file = std::env::current_dir().expect("a directory").join("data/in.txt");
            document["linux"]["maskedPaths"] = json!([file]);
        },
        alter: |_| {},
        holds: |run| run.status.code() == Some(1) && run.stdout.is_empty() && says(run, "Permission denied"),
    },
    Case {
        name: "what_the_launch_does_not_do_is_refused",
        change: |document| document["process"]["noNewPrivileges"] = json!(false),
        alter: |_| {},
        holds: |run| run.status.code() == Some(125) && run.stdout.is_empty() && says(run, "`process`"),
    },
    Case {
        name: "what_the_document_does_not_say_is_not_run",
        change: |_| {},
        alter: |plan| drop(plan.header.insert("policy".to_owned(), json!("another"))),
        holds: |run| {
            run.status.code() == Some(125)
                && run.stdout.is_empty()
                && says(run, "does not say all of the plan")
        },
    },
];

fn says(run: &Output, text: &str) -> bool {
    String::from_utf8_lossy(&run.stderr).contains(text)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [option, name] = words.as_slice()
        && option == "--case"
    {
        let case = CASES.iter().find(|case| case.name == name).expect("a case");
        return carry_out(case);
    }
    let listed = words.iter().any(|word| word == "--list");
    let filter = words.iter().find(|word| !word.starts_with('-'));
    let chosen: Vec<&Case> =
        CASES.iter().filter(|case| filter.is_none_or(|filter| case.name.contains(filter.as_str()))).collect();
    if listed {
        chosen.iter().for_each(|case| say(&format!("{}: test", case.name)));
        return ExitCode::SUCCESS;
    }
    say(&format!("\nrunning {} tests", chosen.len()));
    let failed = chosen.iter().filter(|case| !passes(case)).count();
    let result = if failed == 0 { "ok" } else { "FAILED" };
    let (passed, left) = (chosen.len() - failed, CASES.len() - chosen.len());
    say(&format!(
        "\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {left} filtered out\n"
    ));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("stdout");
}

/// Runs a case in a process and a directory of its own.
fn passes(case: &Case) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("data")).expect("a directory");
    std::fs::write(directory.path().join("data/in.txt"), "hello\n").expect("a file");
    std::fs::write(directory.path().join("data/other.txt"), "other\n").expect("a file");
    std::fs::write(directory.path().join("agentbox.policy"), "read: ./data\n").expect("a policy");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--case", case.name])
        .current_dir(directory.path())
        .output()
        .expect("it starts");
    let holds = (case.holds)(&output);
    say(&format!("test {} ... {}", case.name, if holds { "ok" } else { "FAILED" }));
    if !holds {
        say(&format!("{output:?}"));
    }
    holds
}

/// Plans `cat data/in.txt`, writes the plan, changes the text, and runs what it says then.
fn carry_out(case: &Case) -> ExitCode {
    let begun =
        run::begin(None, run::Input::Passed, run::Outputs::default()).expect("the run's first process");
    let facts = HostFacts::gather().expect("facts");
    let host = LaunchHost::new().expect("a working directory");
    let policy = policy::load(Path::new("agentbox.policy"), &host).expect("a policy");
    let typed = vec!["/bin/cat".into(), "data/in.txt".into()];
    let command = command::resolve(&typed, &facts.environment, &facts.cwd).expect("a command");
    let placement =
        Placement::plan(Path::new("trace.jsonl"), &Reach::default(), false).expect("a place for the trace");
    let protected = Vec::new();
    let request = Request {
        policy,
        command,
        typed,
        facts: &facts,
        protected,
        enforce: true,
        authority: None,
        placeholders: Vec::new(),
        replay: false,
    };
    let plan = LaunchPlan::new(request, &host);
    let mut document = serde_json::to_value(plan.to_spec().expect("a document")).expect("JSON");
    drop(plan);
    (case.change)(&mut document);
    let text = document.to_string();
    let read = LaunchPlan::from_spec(&serde_json::from_str(&text).expect("a document"));
    let failed = |error: &dyn std::fmt::Display| {
        writeln!(std::io::stderr(), "{error}").expect("stderr");
        ExitCode::from(125)
    };
    let signals = run::hold_signals().expect("signals");
    let altered = read.map(|mut plan| {
        (case.alter)(&mut plan);
        plan
    });
    match altered
        .map(|plan| run::run(begun, plan, placement, signals, StreamOptions::default(), Repeat::Never))
    {
        Ok(Ok(outcome)) => ExitCode::from(outcome.code),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}
