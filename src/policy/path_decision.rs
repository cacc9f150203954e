//! Decisions about files, and what a mechanism must know of the rules for files before it starts.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::parse::Effect;
use super::path_rule::{PathPattern, normalized};
use super::verdict::{PathAccess, RuleId, Verdict};
use super::{Policy, Rule, RuleBody};

impl Policy {
    /// Decides on a path as it is in the final view of the process: absolute, links followed.
    pub fn decide_path(&self, access: PathAccess, resolved: &Path) -> Verdict {
        if !resolved.is_absolute() {
            return Verdict::no_rule("the path is not absolute");
        }
        let path = plain(resolved);
        let matches = self.index.paths(&self.rules).find(&self.rules, access, &path);
        let verdict = match (matches.deny, matches.grant) {
            (Some(id), _) => self.denied_by(id),
            (None, Some(rule)) => Verdict::Allow { rule },
            (None, None) => Verdict::no_rule(match access {
                PathAccess::Read => "no rule allows reading it",
                PathAccess::Write => "no rule allows writing it",
            }),
        };
        self.limited(verdict, |limit| limit.decide_path(access, resolved))
    }

    /// Whether some rule may grant something strictly below this directory, which must then be shown.
    pub fn covers_below(&self, directory: &Path) -> bool {
        self.index.paths(&self.rules).grants_below(&self.rules, &plain(directory))
            && self.limits.iter().all(|limit| limit.covers_below(directory))
    }

    /// Whether file content can only be judged at access time: there is a `deny:` for files, or a glob.
    pub fn full_mediation(&self) -> bool {
        self.rules.iter().any(|rule| match &rule.body {
            RuleBody::Path { pattern, .. } => rule.effect == Effect::Deny || pattern.is_glob(),
            _ => false,
        }) || self.limits.iter().any(Self::full_mediation)
    }

    /// The `deny:` rules for files that name one place: rule, what is denied, and the place with links followed.
    pub fn denied_literals(&self) -> impl Iterator<Item = (RuleId, PathAccess, &Path)> {
        self.rules.iter().enumerate().filter_map(|(at, rule)| match &rule.body {
            RuleBody::Path { access, pattern: PathPattern::Literal { resolved, .. } }
                if rule.effect == Effect::Deny =>
            {
                Some((RuleId(at), *access, resolved.as_path()))
            }
            _ => None,
        })
    }

    /// Whether a `deny:` rule for files spells a place below `path`, at least up to its first glob character.
    pub fn denies_below(&self, path: &Path) -> bool {
        let is_below = |place: &Path| place != path && place.starts_with(path);
        let denies = |rule: &Rule| match &rule.body {
            RuleBody::Path { pattern: PathPattern::Literal { spelled, resolved }, .. } => {
                rule.effect == Effect::Deny && (is_below(spelled) || is_below(resolved))
            }
            RuleBody::Path { pattern: PathPattern::Glob { base, spelled_base, .. }, .. } => {
                rule.effect == Effect::Deny && (base.starts_with(path) || spelled_base.starts_with(path))
            }
            _ => false,
        };
        self.rules.iter().any(denies) || self.limits.iter().any(|limit| limit.denies_below(path))
    }

    /// The trees of `runtime:` rules: where they are spelled, and where they are with links followed.
    pub fn runtime_trees(&self) -> impl Iterator<Item = (RuleId, &Path, &Path)> {
        self.rules.iter().enumerate().filter_map(|(at, rule)| match &rule.body {
            RuleBody::Runtime { path: PathPattern::Literal { spelled, resolved } } => {
                Some((RuleId(at), spelled.as_path(), resolved.as_path()))
            }
            _ => None,
        })
    }

    /// Whether a `deny:` rule without glob characters takes this very path, or a directory above it, away.
    pub fn is_denied_literal(&self, path: &Path) -> bool {
        let path = plain(path);
        self.rules.iter().any(|rule| match &rule.body {
            RuleBody::Path { pattern, .. } => {
                rule.effect == Effect::Deny && !pattern.is_glob() && pattern.covers(&path)
            }
            _ => false,
        })
    }
}

/// Most paths come in the plain form already.
fn plain(path: &Path) -> Cow<'_, Path> {
    let bytes = path.as_os_str().as_bytes();
    let odd = |pair: &[u8]| pair == b"//" || pair == b"/.";
    let is_plain = bytes.len() == 1 || !(bytes.ends_with(b"/") || bytes.windows(2).any(odd));
    if is_plain { Cow::Borrowed(path) } else { Cow::Owned(normalized(path)) }
}
