//! The secrets of a run: taken out of the launcher's environment, and kept out of everything that is shown.

use std::ffi::OsString;

use super::Failure;
use crate::netproxy::secret::Secrets;
use crate::plan::{HostFacts, LaunchPlan};
use crate::policy::Policy;

/// What a document shows where a run has a random placeholder.
const SHOWN: &str = "placeholder";

/// Takes the values; the lines tell of variables that are not set.
pub(super) fn gather(policy: &Policy, facts: &HostFacts) -> Result<(Secrets, Vec<String>), Failure> {
    let secrets = Secrets::gather(policy, |name| facts.variable(name));
    let secrets = secrets.map_err(|error| Failure::usage(error.to_string()))?;
    let (mut told, mut lines) = (Vec::new(), Vec::new());
    for (id, secret) in policy.secrets() {
        let is_set = facts.variable(&secret.name).is_some_and(|value| !value.is_empty());
        if !is_set && !told.contains(&secret.name) {
            told.push(secret.name.clone());
            let (name, rule) = (&secret.name, policy.rule_label(id));
            lines.push(format!("agentbox: {name} is not set, so the command does not get it ({rule})"));
        }
    }
    Ok((secrets, lines))
}

/// Refuses a run in which a value would be seen by the command, or stand in the trace.
pub(super) fn check(secrets: &Secrets, typed: &[OsString], plan: &LaunchPlan) -> Result<(), Failure> {
    let refuse = |what: &str, name: &str, help: &str| {
        Err(Failure::usage(format!("{what} holds the value of the secret {name}: {help}")))
    };
    let policy = &plan.access.policy;
    let words = typed.iter().map(|word| word.as_encoded_bytes());
    if let Some(name) = words
        .chain(plan.process.argv.iter().map(|word| word.as_encoded_bytes()))
        .find_map(|word| secrets.shown_in(word))
    {
        return refuse("the command line", name, "let the command read it from its variable");
    }
    let rules = policy.rules.iter().map(|rule| rule.text.as_str());
    if let Some(name) = rules.chain([policy.text.as_str()]).find_map(|text| secrets.shown_in(text.as_bytes()))
    {
        return refuse("the policy", name, "take it out: a policy is part of the trace");
    }
    for (variable, value) in &plan.process.env {
        if let Some(name) = secrets.shown_in(value.as_encoded_bytes()) {
            let variable = variable.to_string_lossy();
            let help =
                format!("take away the rule that passes {variable} on, or write a `secret:` rule for it too");
            return refuse(&format!("the variable {}", variable.escape_debug()), name, &help);
        }
    }
    Ok(())
}

/// What a document shows of a run's placeholders: the same text every time.
pub(super) fn shown(policy: &Policy, facts: &HostFacts) -> Vec<(String, String)> {
    let is_set = |name: &str| facts.variable(name).is_some_and(|value| !value.is_empty());
    let names = policy.secrets().map(|(_, secret)| secret.name.clone()).filter(|name| is_set(name));
    names.map(|name| (name, SHOWN.to_owned())).collect()
}
