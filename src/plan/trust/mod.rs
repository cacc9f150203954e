//! The certificate of the run's own authority, in every place where a program looks for roots.
//!
//! A run that reads TLS shows its own certificates to the clients inside. They trust them, for each
//! bundle of roots in the view is the host's with the authority's certificate after it
//! ([`bundles`], [`python`], [`java`]), and the variables that name a bundle name such a one
//! ([`variables`]). The host's own files are never changed: a changed copy covers them.

mod bundles;
mod java;
mod python;
mod subject;
#[cfg(test)]
mod tests;
mod variables;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::roots::programs;
use super::{HostFacts, Root};
use crate::command::Command;
use crate::fsview::{Content, GeneratedFile};
use crate::policy::{Effect, ExecProgram, Host, PathAccess, PathPattern, Policy, RuleBody, Verdict};

/// Where files are that cover none of the host's.
pub(super) const OWN: &str = "/run/agentbox/tls";

/// Whether a run under `policy` reads TLS of some host, unless it is told not to.
#[must_use]
pub fn intercepts(policy: &Policy, enforce: bool) -> bool {
    let reads = |body: &RuleBody| matches!(body, RuleBody::Net(rule) if !rule.tunnel);
    // Where nothing is refused, every host is reached.
    !enforce || policy.rules.iter().any(|rule| rule.effect == Effect::Grant && reads(&rule.body))
}

/// What decides where the certificate goes.
pub(super) struct Around<'a> {
    pub(super) policy: &'a Policy,
    pub(super) command: &'a Command,
    pub(super) roots: &'a [Root],
    pub(super) facts: &'a HostFacts,
    pub(super) host: &'a dyn Host,
    pub(super) enforce: bool,
}

impl Around<'_> {
    /// The file behind `path` if a copy of ours may cover it: the view shows it, and the agent
    /// cannot change it. What it may change is its own: a mount there would refuse it.
    fn coverable(&self, path: &Path) -> Option<PathBuf> {
        if !self.host.exists(path) {
            return None;
        }
        let real = self.host.resolve(path);
        let mut around = self.roots.iter().filter(|root| real.starts_with(&root.path));
        let is_shown = if self.enforce { around.next().is_some() } else { around.any(Root::is_system) };
        let is_writable = self.policy.decide_path(PathAccess::Write, &real).is_allow();
        (is_shown && !is_writable && self.takes(&real)).then_some(real)
    }

    /// Whether certificates may be taken over from `real`, links followed: no rule denies it.
    fn takes(&self, real: &Path) -> bool {
        let verdict = self.policy.decide_path(PathAccess::Read, real);
        !matches!(verdict, Verdict::Deny { rule: Some(_), .. }) && Content::can_take(real)
    }

    /// Programs that may be started: those of the command, and those that rules name one by one.
    fn programs(&self) -> Vec<PathBuf> {
        let named = self.policy.granted_programs().flat_map(|(_, exec)| programs(&exec.program));
        let own = self.command.images.iter().map(|image| image.resolved.clone());
        own.chain(named).map(|program| self.host.resolve(&program)).collect()
    }

    /// Whether a rule that names more than one program grants some below `directory`.
    fn grants_some(&self, directory: &Path) -> bool {
        self.policy.granted_programs().any(|(_, exec)| match &exec.program {
            ExecProgram::Path { pattern: PathPattern::Literal { resolved, .. }, directory: true, .. } => {
                directory.starts_with(resolved) || resolved.starts_with(directory)
            }
            ExecProgram::Glob(pattern) => pattern.may_cover_below(directory),
            ExecProgram::Word { .. } | ExecProgram::Path { .. } => false,
        })
    }

    /// Whether the run has a place for files of ours: the host's own /run is not touched.
    fn has_own_place(&self) -> bool {
        self.enforce && !self.roots.iter().any(|root| Path::new(OWN).starts_with(&root.path))
    }
}

/// Files of the view with the certificate, as they come to be known.
struct Trust<'a> {
    around: &'a Around<'a>,
    files: Vec<GeneratedFile>,
}

impl Trust<'_> {
    fn file(&mut self, path: PathBuf, content: Content) {
        if !self.has(&path) {
            self.files.push(GeneratedFile { path, content });
        }
    }

    /// A bundle at `path` of the certificates in `of` and ours.
    fn bundle(&mut self, path: PathBuf, of: Vec<PathBuf>) {
        self.file(path, Content::Bundle { of });
    }

    fn has(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.path == path)
    }
}

/// The files that a run gets for an authority with this common name. Sets the variables that name
/// them in `env`.
pub(super) fn files(
    authority: &str,
    around: &Around<'_>,
    env: &mut Vec<(OsString, OsString)>,
) -> Vec<GeneratedFile> {
    let mut trust = Trust { around, files: Vec::new() };
    let roots = bundles::find(around);
    roots.cover(&mut trust, authority);
    for bundle in python::bundles(around) {
        trust.bundle(bundle.clone(), vec![bundle]);
    }
    for store in java::keystores(around) {
        let of = roots.host.clone();
        trust.file(store.clone(), Content::Keystore { store, of });
    }
    variables::set(env, &mut trust, &roots);
    trust.files
}
