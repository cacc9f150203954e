//! Symbolic links of the host that lead to what is visible: shown as the links that they are.

use std::path::{Component, Path, PathBuf};

use super::roots::programs;
use crate::fsview::Link;
use crate::policy::{PathPattern, Policy, RuleBody, looks};

/// Links that every Linux system has.
pub(super) fn standard() -> Vec<Link> {
    let pairs = [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/ptmx", "pts/ptmx"),
        ("/var/run", "/run"),
        ("/etc/mtab", "/proc/self/mounts"),
    ];
    pairs.into_iter().map(|(path, target)| Link { path: path.into(), target: target.into() }).collect()
}

/// Links on the way to `spelled`; at most 40, as the kernel follows.
pub(super) fn leading_to(spelled: &Path) -> Vec<Link> {
    let mut links = Vec::new();
    let mut rest: Vec<PathBuf> = vec![spelled.to_owned()];
    while let Some(path) = rest.pop() {
        if links.len() >= 40 {
            break;
        }
        let mut walked = PathBuf::from("/");
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            match component {
                Component::Normal(name) => walked.push(name),
                Component::ParentDir => {
                    walked.pop();
                    continue;
                }
                _ => continue,
            }
            let Ok(Some(target)) = looks::link(&walked) else { continue };
            links.push(Link { path: walked.clone(), target: target.clone().into_os_string() });
            walked.pop();
            let mut next = walked.join(target);
            next.extend(components);
            rest.push(next);
            break;
        }
    }
    links
}

/// Paths as rules spell them.
pub(super) fn named(policy: &Policy) -> impl Iterator<Item = PathBuf> {
    let patterns = policy.rules.iter().filter_map(|rule| match &rule.body {
        RuleBody::Path { pattern, .. }
        | RuleBody::Runtime { path: pattern }
        | RuleBody::UnixSocket(pattern) => Some(pattern),
        _ => None,
    });
    let spelled = patterns.map(|pattern| match pattern {
        PathPattern::Literal { spelled, .. } => spelled.clone(),
        PathPattern::Glob { spelled_base, .. } => spelled_base.clone(),
    });
    spelled.chain(policy.granted_programs().flat_map(|(_, exec)| programs(&exec.program)))
}
