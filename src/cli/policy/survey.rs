//! Everything that a policy amounts to on this host, as `policy show` prints it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use serde::Serialize;

use super::meaning;
use crate::fsview::Content;
use crate::plan::{HostFacts, LaunchPlan, Root, Why, names_bundle};
use crate::policy::{Diagnostic, Effect, Policy, RuleBody, RuleId, Severity, Verdict};
use crate::trace::display_bytes;

/// The whole answer.
#[derive(Debug, Serialize)]
pub(super) struct Survey {
    pub(super) policy: String,
    pub(super) sha256: String,
    pub(super) included: Vec<String>,
    pub(super) rules: Vec<RuleRow>,
    /// What is said about the policy as a whole.
    pub(super) remarks: Vec<Remark>,
    /// Trees and files of the host that are visible.
    pub(super) roots: Vec<RootRow>,
    /// Directories that a run has for itself.
    pub(super) private: Vec<String>,
    /// Files that the launcher makes.
    pub(super) generated: Vec<String>,
    /// Trusted certificates: copies of the host's with that of the run's own authority.
    pub(super) trusted: Vec<String>,
    pub(super) devices: Vec<String>,
    /// Files that no rule opens.
    pub(super) closed: Vec<String>,
    pub(super) environment: Vec<VariableRow>,
    pub(super) hosts: Vec<HostRow>,
    /// Sockets of the host that can be reached.
    pub(super) sockets: Vec<String>,
}

/// One rule.
#[derive(Debug, Serialize)]
pub(super) struct RuleRow {
    pub(super) at: String,
    pub(super) text: String,
    /// What it stands for on this host.
    pub(super) stands_for: Vec<String>,
    /// In words.
    pub(super) meaning: String,
    pub(super) remarks: Vec<Remark>,
}

/// A warning or a note.
#[derive(Debug, Serialize)]
pub(super) struct Remark {
    pub(super) severity: &'static str,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// A tree or file of the host.
#[derive(Debug, Serialize)]
pub(super) struct RootRow {
    pub(super) path: String,
    /// `read`, `write`, and `run` where that is not noexec.
    pub(super) rights: Vec<&'static str>,
    /// `system`, `runtime` or `rule`.
    pub(super) why: &'static str,
    pub(super) reason: String,
    /// Opens there are not recorded one by one.
    pub(super) unrecorded: bool,
}

/// A variable that the command gets.
#[derive(Debug, Serialize)]
pub(super) struct VariableRow {
    pub(super) name: String,
    pub(super) reason: String,
}

/// A host that the command may reach or never reaches.
#[derive(Debug, Serialize)]
pub(super) struct HostRow {
    pub(super) host: String,
    pub(super) allowed: bool,
    pub(super) rule: String,
}

impl Survey {
    pub(super) fn of(plan: &LaunchPlan, facts: &HostFacts) -> Self {
        let policy = &plan.access.policy;
        let diagnostics = || policy.warnings.iter().chain(&policy.notes);
        Self {
            policy: policy.name.clone(),
            sha256: policy.digest(),
            included: policy.included.clone(),
            rules: rules(policy, facts),
            remarks: diagnostics().filter(|one| one.origin.is_none()).map(remark).collect(),
            roots: plan.roots.iter().map(root).collect(),
            private: plan.access.private.iter().map(text).collect(),
            generated: files(plan, |content| matches!(content, Content::Bytes(_))),
            trusted: files(plan, |content| !matches!(content, Content::Bytes(_))),
            devices: plan.access.devices.iter().map(text).collect(),
            closed: closed(plan),
            environment: environment(plan, facts),
            hosts: hosts(policy),
            sockets: plan.unix.iter().map(text).collect(),
        }
    }
}

/// A file that is protected for several reasons is told once.
fn closed(plan: &LaunchPlan) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let paths = plan.access.protected.iter().map(|file| text(&file.path));
    paths.filter(|path| seen.insert(path.clone())).collect()
}

fn files(plan: &LaunchPlan, which: impl Fn(&Content) -> bool) -> Vec<String> {
    plan.fs.files.iter().filter(|file| which(&file.content)).map(|file| text(&file.path)).collect()
}

pub(super) fn text(path: impl AsRef<OsStr>) -> String {
    display_bytes(path.as_ref().as_encoded_bytes())
}

fn rules(policy: &Policy, facts: &HostFacts) -> Vec<RuleRow> {
    let diagnostics = || policy.warnings.iter().chain(&policy.notes);
    let all = policy.rules.iter().enumerate();
    all.map(|(at, rule)| RuleRow {
        at: policy.rule_label(RuleId(at)),
        text: rule.text.clone(),
        stands_for: meaning::stands_for(rule, facts),
        meaning: meaning::in_words(rule),
        remarks: diagnostics().filter(|one| one.origin.as_ref() == Some(&rule.origin)).map(remark).collect(),
    })
    .collect()
}

fn remark(diagnostic: &Diagnostic) -> Remark {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    Remark { severity, message: diagnostic.message.clone(), help: diagnostic.help.clone() }
}

fn root(root: &Root) -> RootRow {
    let (why, reason) = match &root.why {
        Why::System => ("system", "every program needs it".to_owned()),
        Why::Runtime(reason) => ("runtime", reason.clone()),
        Why::Rule(rule) => ("rule", format!("`{rule}`")),
    };
    let mut rights = vec!["read"];
    rights.extend(root.writable.then_some("write"));
    // Elsewhere nothing but a rule decides what starts; a writable place is noexec besides.
    rights.extend((root.writable && root.executable).then_some("run"));
    RootRow { path: text(&root.path), rights, why, reason, unrecorded: root.is_system() }
}

fn environment(plan: &LaunchPlan, facts: &HostFacts) -> Vec<VariableRow> {
    let policy = &plan.access.policy;
    let assigned: Vec<String> = policy.assigned_env().into_iter().map(|(name, _)| name).collect();
    let row = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
        let name = text(name);
        let secret = policy.secrets().find(|(_, secret)| secret.name == name);
        let reason = match policy.decide_env(&name) {
            _ if let Some((rule, _)) = secret => format!("a placeholder, by {}", policy.rule_label(rule)),
            Verdict::Allow { rule } if assigned.contains(&name) => {
                format!("set by {}", policy.rule_label(rule))
            }
            Verdict::Allow { rule } => format!("passed on by {}", policy.rule_label(rule)),
            Verdict::Deny { .. } if names_bundle(&name) => "set by agentbox: the run's bundle".to_owned(),
            Verdict::Deny { .. } if facts.variable(&name) == Some(value.as_os_str()) => {
                "passed on: every program needs it".to_owned()
            }
            Verdict::Deny { .. } => "set by agentbox".to_owned(),
        };
        VariableRow { name, reason }
    };
    plan.process.env.iter().map(row).collect()
}

fn hosts(policy: &Policy) -> Vec<HostRow> {
    let spoken = policy.rules.iter().enumerate().filter_map(|(at, rule)| match &rule.body {
        RuleBody::Net(_) | RuleBody::UnixSocket(_) => Some(HostRow {
            host: rule.value.clone(),
            allowed: rule.effect == Effect::Grant,
            rule: policy.rule_label(RuleId(at)),
        }),
        _ => None,
    });
    spoken.collect()
}

/// Whether something is there now.
pub(super) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
