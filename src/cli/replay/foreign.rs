//! A trace from elsewhere: what its own policy allowed there, and what of its command is shown here.

use std::path::PathBuf;

use crate::cli::Failure;
use crate::command::Command;
use crate::plan;
use crate::policy::{self, Denied, Host as _, LaunchHost, PathAccess, Policy};
use crate::replay::Recording;

/// The policy of a trace from elsewhere, of which `host` tells what it meant there. What `command` needs itself was
/// allowed there without a rule.
pub(super) fn its_policy(
    recording: &Recording,
    name: &str,
    host: &LaunchHost,
    command: Option<&Command>,
) -> Result<Policy, Failure> {
    let rules = recording.start.get("policy_rules").and_then(serde_json::Value::as_array);
    let rules: Vec<&str> = rules.into_iter().flatten().filter_map(serde_json::Value::as_str).collect();
    let name = format!("{name} (of the trace)");
    let text = rules.join("\n") + "\n";
    let policy = policy::parse(&text, &name, host)?;
    let own = command.map(|command| own_rules(command, &policy)).unwrap_or_default();
    // Rules that do not go with the others are none of its own.
    Ok(policy::parse(&(text + &own.join("\n") + "\n"), &name, host).unwrap_or(policy))
}

fn own_rules(command: &Command, policy: &Policy) -> Vec<String> {
    let read =
        |path: &PathBuf| policy.suggestion(&Denied::Path { access: PathAccess::Read, path: path.clone() });
    let programs = command.images.iter().map(|image| exec_rule(&image.spelled, policy));
    let runtime = command.runtime.iter().map(|root| read(&root.path).replacen("read:", "runtime:", 1));
    let rules = [exec_rule(&command.program, policy)].into_iter().chain(programs).chain(runtime);
    rules.filter(|rule| !rule.starts_with('#')).collect()
}

fn exec_rule(program: &std::path::Path, policy: &Policy) -> String {
    policy.suggestion(&Denied::Exec { exe: program.to_owned(), argv: vec![program.as_os_str().to_owned()] })
}

/// Of the command of a trace from elsewhere nothing is shown that no rule names: neither what lies around its program
/// nor its script.
///
/// # Errors
/// When nothing is shown of its program either.
pub(super) fn confine(command: &mut Command, policy: &Policy, host: &LaunchHost) -> Result<(), Failure> {
    let is_read = |path: &PathBuf| policy.decide_path(PathAccess::Read, &host.resolve(path)).is_allow();
    if !policy.names_program(&command.program) {
        if !plan::is_systems(&command.resolved) && !is_read(&command.program) {
            return Err(Failure::usage(format!(
                "the program of the recorded command is not the system's, and of a trace from elsewhere nothing is shown \
                 unasked: name it in your policy: {}",
                exec_rule(&command.program, policy)
            )));
        }
        command.runtime.clear();
        command.links.clear();
    }
    // It was shown there without a rule, and read without a record where none granted it.
    let is_granted = |file: &PathBuf| policy.first().decide_path(PathAccess::Read, file).is_allow();
    let is_shown = |script: &PathBuf| policy.names_program(script) || is_granted(&host.resolve(script));
    command.script = command.script.take().filter(is_shown);
    Ok(())
}
