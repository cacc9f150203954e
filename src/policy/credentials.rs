//! Well-known places of secrets, and warnings for grants that cover them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::host::Host;
use super::parse::Effect;
use super::path_rule::PathPattern;
use super::placed::Placed;
use super::report::{Diagnostic, Severity};
use super::{Rule, RuleBody};

/// Below the home of the user.
const PLACES: [&str; 18] = [
    ".ssh",
    ".aws",
    ".config/gcloud",
    ".azure",
    ".kube",
    ".docker/config.json",
    ".netrc",
    ".git-credentials",
    ".gnupg",
    ".password-store",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    "snap/firefox",
    "snap/chromium",
];

/// Of the system.
const OF_SYSTEM: [&str; 5] =
    ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private", "/root/.ssh"];

/// The place of secrets that holds `path`, as a policy says it.
pub(super) fn place_of(path: &Path, home: Option<&Path>) -> Option<String> {
    let below = home.and_then(|home| path.strip_prefix(home).ok());
    let of_user = below.and_then(|below| PLACES.iter().find(|place| below.starts_with(place)));
    let of_system =
        || OF_SYSTEM.iter().find(|place| path.starts_with(place)).map(|place| (*place).to_owned());
    of_user.map(|place| format!("~/{place}")).or_else(of_system)
}

/// One warning for each grant that covers such a place, unless a rule names the place.
pub(super) fn warnings(rules: &[Placed], host: &dyn Host) -> Vec<Diagnostic> {
    let Some(home) = host.home() else {
        return Vec::new();
    };
    let places: Vec<(&str, [PathBuf; 2])> =
        PLACES.iter().map(|place| (*place, [home.join(place), host.resolve(&home.join(place))])).collect();
    // Few rules of a long policy lie anywhere near such a place.
    let near: Vec<&Placed> = rules.iter().filter(|placed| is_near(&placed.rule, &places)).collect();
    let is_open = |paths: &[PathBuf; 2]| !near.iter().any(|placed| is_about(&placed.rule, paths));
    let open: Vec<(&str, [PathBuf; 2])> =
        places.iter().filter(|(_, paths)| is_open(paths)).cloned().collect();
    near.iter().filter_map(|placed| warning(placed, &open)).collect()
}

fn warning(placed: &Placed, open: &[(&str, [PathBuf; 2])]) -> Option<Diagnostic> {
    let rule = &placed.rule;
    let RuleBody::Path { pattern, .. } = &rule.body else {
        return None;
    };
    if rule.effect == Effect::Deny {
        return None;
    }
    let covered = open.iter().filter(|(_, paths)| paths.iter().any(|path| pattern.covers(path)));
    let covered: Vec<String> = covered.map(|(place, _)| format!("~/{place}")).collect();
    let first = covered.first()?;
    let message = format!("`{}` covers places of secrets: {}", rule.text, covered.join(", "));
    let help = format!("add `deny: read {first}` and so on, or name each place that is meant");
    Some(Diagnostic { severity: Severity::Warning, message, help: Some(help), ..placed.at.clone() })
}

/// Whether a rule begins above, at or below one of the places, by the letters of its path alone.
fn is_near(rule: &Rule, places: &[(&str, [PathBuf; 2])]) -> bool {
    let RuleBody::Path { pattern, .. } = &rule.body else {
        return false;
    };
    let (PathPattern::Literal { spelled: one, resolved: other }
    | PathPattern::Glob { spelled_base: one, base: other, .. }) = pattern;
    let meets = |a: &PathBuf, b: &PathBuf| {
        let (a, b) = (a.as_os_str().as_bytes(), b.as_os_str().as_bytes());
        let common = a.len().min(b.len());
        a[..common] == b[..common]
    };
    places.iter().flat_map(|(_, paths)| paths).any(|place| meets(one, place) || meets(other, place))
}

/// Whether a rule names the place, or denies it.
fn is_about(rule: &Rule, paths: &[PathBuf; 2]) -> bool {
    match &rule.body {
        RuleBody::Path { pattern, .. } if rule.effect == Effect::Deny => {
            paths.iter().any(|path| pattern.covers(path))
        }
        RuleBody::Path { pattern: pattern @ PathPattern::Literal { .. }, .. } => {
            paths.iter().any(|path| pattern.names(path))
        }
        _ => false,
    }
}
