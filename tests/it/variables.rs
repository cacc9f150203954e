//! Replays in other surroundings than the recorded ones: variables, and outputs that nobody sees.

use crate::support::{Ran, Sandbox, User};

/// The environment of the second run differs by `name`, which is `value` then.
fn with_variable(name: &str, value: &str) -> Ran {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("exec: bash\nenv: MODE\nenv: APP_*\nenv: SSH_*\nenv: SET=fixed\n");
    for name in ["MODE", "APP_ONE", "OTHER", "SSH_TTY", "SET", "LANG"] {
        sandbox.environment(name, if name == "LANG" { "C.UTF-8" } else { "first" });
    }
    sandbox.run(&["bash", "-c", "echo $MODE $APP_ONE $APP_TWO $SET"]).exits(0);
    let trace = sandbox.trace();
    let replay = |options: &[&str]| {
        sandbox.agentbox(&[&["replay", "-t", trace.to_str().expect("text")], options].concat())
    };
    replay(&[]).exits(0);
    sandbox.environment(name, value);
    let ran = replay(&[]);
    if ran.code != 0 {
        for options in [["--force"].as_slice(), &["--lenient", "environment-changed"]] {
            // It gets what it got.
            replay(options).exits(0).prints("first first fixed\n").complains(name);
        }
    }
    ran
}

#[test]
fn a_variable_that_the_command_would_get_otherwise_is_named() {
    for (name, value) in [("MODE", "second"), ("APP_ONE", ""), ("APP_TWO", "second"), ("LANG", "C")] {
        let ran = with_variable(name, value);
        ran.exits(1)
            .complains(&format!("the variable {name} has changed: recorded "))
            .complains("nothing was run");
        assert!(!ran.stderr.contains("first") && !ran.stderr.contains("second"), "a value\n{ran}");
    }
    for (name, value) in [("OTHER", "second"), ("SSH_TTY", "second"), ("SET", "second"), ("TERM", "vt100")] {
        with_variable(name, value).exits(0);
    }
}

#[test]
fn a_variable_that_is_missing_today_is_a_note() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("exec: bash\nenv: MODE\n").environment("MODE", "first");
    sandbox.run(&["bash", "-c", "echo $MODE $LC_TIME"]).exits(0).prints("first\n");
    let trace = sandbox.trace();
    let replay = |options: &[&str]| {
        sandbox.agentbox(&[&["replay", "-t", trace.to_str().expect("text")], options].concat())
    };
    let note = "the variable MODE is not set here; the command gets what was recorded: ";
    sandbox.no_environment();
    replay(&[]).exits(0).prints("first\n").complains(note).complains("replay ok");
    let quiet = replay(&["--quiet"]);
    assert!(!quiet.exits(0).stderr.contains("MODE"), "{quiet}");
    sandbox.environment("LC_TIME", "C");
    replay(&[]).exits(0).prints("first\n").complains(note).complains("the variable LC_TIME is ");
    // Another value is a reason to stop still.
    sandbox.environment("MODE", "second");
    replay(&[]).exits(1).complains("the variable MODE has changed").complains("nothing was run");
}

#[test]
fn rules_that_came_and_went_are_named() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: .\nenv: MODE\nenv: SET=1\n");
    sandbox.run(&["true"]).exits(0);
    let trace = sandbox.trace();
    sandbox.policy("read: .\nenv: MODE\nenv: SET=2\n");
    let ran = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
    ran.exits(1).complains("agentbox.policy has changed: recorded ");
    ran.complains("    gone: env: SET=1\n").complains("    new: env: SET=2\n");
    sandbox.policy("read: .\nenv: A\nenv: B\nenv: C\nenv: D\n");
    let ran = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
    ran.exits(1).complains("    gone: env: MODE\n").complains("    and 4 more rules\n");
}

#[test]
fn outputs_that_nobody_saw_are_told() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("exec: bash\n");
    let mut command = sandbox.run_command(&[], &["bash", "-c", "echo seen; echo unseen >&2"]);
    command.stderr(std::process::Stdio::null());
    command.stdout(std::process::Stdio::null());
    assert!(command.status().expect("it runs").success());
    let trace = sandbox.trace();
    let ran = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
    ran.exits(0).complains("recorded steps matched, stdout and stderr not compared");
}
