//! What a policy that holds secrets must and must not say besides.

use super::Policy;
use super::RuleBody;
use super::host_rule::NetRule;
use super::parse::Effect;
use super::placed::Placed;
use super::report::{Diagnostic, Severity};
use super::secret_rule::SecretRule;
use super::verdict::{RuleId, Transport};

/// One error for each secret that the process would get all the same, or that goes nowhere.
pub(super) fn conflicts(rules: &[Placed]) -> Vec<Diagnostic> {
    rules
        .iter()
        .filter_map(|placed| match &placed.rule.body {
            RuleBody::Secret(secret) => {
                passed_on(placed, secret, rules).or_else(|| nowhere(placed, secret, rules))
            }
            _ => None,
        })
        .collect()
}

fn error(placed: &Placed, message: String, help: String) -> Diagnostic {
    Diagnostic { severity: Severity::Error, message, help: Some(help), ..placed.at.clone() }
}

/// An `env:` rule hands the value itself over.
fn passed_on(placed: &Placed, secret: &SecretRule, rules: &[Placed]) -> Option<Diagnostic> {
    let about = |effect| {
        rules.iter().find(move |other| {
            let matches = matches!(&other.rule.body, RuleBody::Env(env) if env.matches(&secret.name));
            matches && other.rule.effect == effect
        })
    };
    let other = &about(Effect::Grant).filter(|_| about(Effect::Deny).is_none())?.rule;
    let message = format!(
        "`{}` ({}:{}) gives the process the value of `{}` itself",
        other.text, other.origin.file, other.origin.line, secret.name
    );
    let help = match other.value == secret.name {
        true => "remove one of the two".to_owned(),
        false => format!("remove one of the two, or add `deny: env {}`", secret.name),
    };
    Some(error(placed, message, help))
}

/// No `net:` rule lets requests to the host be made.
fn nowhere(placed: &Placed, secret: &SecretRule, rules: &[Placed]) -> Option<Diagnostic> {
    let place = secret.place();
    let grants = |net: &NetRule| net.transport == Transport::Tcp && net.overlaps(&place);
    let is_granted = rules.iter().any(|other| {
        other.rule.effect == Effect::Grant && matches!(&other.rule.body, RuleBody::Net(net) if grants(net))
    });
    let SecretRule { host, port, .. } = secret;
    (!is_granted).then(|| {
        let message = format!("no `net:` rule allows `{host}` at port {port}, so the secret goes nowhere");
        error(placed, message, format!("add `net: {host}:{port}`"))
    })
}

impl Policy {
    /// The `secret:` rules.
    pub fn secrets(&self) -> impl Iterator<Item = (RuleId, &SecretRule)> {
        self.rules.iter().enumerate().filter_map(|(at, rule)| match &rule.body {
            RuleBody::Secret(secret) => Some((RuleId(at), secret)),
            _ => None,
        })
    }
}
