//! Rules that lead through a link which the command itself can put there.
//!
//! A rule stands for the place where a link leads when the policy is read. In a directory that a `write:` rule opens,
//! an earlier run may have made that link: what it leads to is the agent's choice and no grant of the user's.

use std::path::{Component, Path, PathBuf};

use super::exec_rule::{ExecProgram, ProgramFile};
use super::host::Host;
use super::parse::Effect;
use super::path_rule::PathPattern;
use super::placed::Placed;
use super::report::{Diagnostic, Severity};
use super::verdict::PathAccess;
use super::{Rule, RuleBody};

/// As many links as path_resolution(7) follows.
const MOST_LINKS: usize = 40;

/// One error for each such rule that leads to what no other rule grants.
pub(super) fn conflicts(rules: &[Placed], host: &dyn Host) -> Vec<Diagnostic> {
    let writes = writes(rules);
    let planted: Vec<(usize, PathBuf, &Rule)> = rules
        .iter()
        .enumerate()
        .filter(|(_, placed)| placed.rule.effect == Effect::Grant)
        .filter_map(|(at, placed)| {
            let (link, write) = planted_link(ends(&placed.rule)?, &writes, host)?;
            Some((at, link, write))
        })
        .collect();
    let is_planted = |at: usize| planted.iter().any(|(other, ..)| *other == at);
    let granted = |placed: &Placed, place: &Path| {
        let untouched =
            rules.iter().enumerate().filter(|(at, _)| !is_planted(*at)).map(|(_, other)| &other.rule);
        untouched.filter(|other| other.effect == Effect::Grant).any(|other| opens(other, &placed.rule, place))
    };
    let told = |(at, link, write): &(usize, PathBuf, &Rule)| {
        let placed = &rules[*at];
        let (_, place) = ends(&placed.rule)?;
        // A socket is reached by its own rules alone.
        let is_socket = matches!(placed.rule.body, RuleBody::UnixSocket(_));
        let is_open = !is_socket && (is_systems(&placed.rule, place) || granted(placed, place));
        (!is_open).then(|| error(placed, place, link, write))
    };
    planted.iter().filter_map(told).collect()
}

/// Takes out of words the programs to which such a link leads: whoever can write in a directory of `PATH` would choose
/// what may be started. One warning for each that the word does not stand for otherwise.
pub(super) fn withdraw(rules: &mut [Placed], host: &dyn Host) -> Vec<Diagnostic> {
    let writes = writes(rules);
    let (mut warnings, mut withdrawn) = (Vec::new(), Vec::new());
    for (at, placed) in rules.iter().enumerate().filter(|(_, placed)| placed.rule.effect == Effect::Grant) {
        let RuleBody::Exec(exec) = &placed.rule.body else { continue };
        let ExecProgram::Word { word, files } = &exec.program else { continue };
        // What lies where the command can write is allowed by no word anyway.
        let leads_out = |file: &&ProgramFile| {
            denies(rules, &file.resolved) || !writes.iter().any(|(_, write)| write.covers(&file.resolved))
        };
        let planted = |file: &ProgramFile| planted_link((&file.path, &file.resolved), &writes, host);
        let found = files.iter().filter(leads_out).filter_map(|file| Some((file, planted(file)?)));
        let found: Vec<_> = found.collect();
        let is_kept = |file: &ProgramFile| !found.iter().any(|(other, _)| other.path == file.path);
        for (file, (link, write)) in &found {
            if files.iter().filter(|other| is_kept(other)).all(|other| other.resolved != file.resolved) {
                warnings.push(warning(placed, word, &file.resolved, link, write));
            }
        }
        withdrawn.extend(found.iter().map(|(file, _)| (at, file.path.clone())));
    }
    for (at, path) in withdrawn {
        if let RuleBody::Exec(exec) = &mut rules[at].rule.body
            && let ExecProgram::Word { files, .. } = &mut exec.program
        {
            files.retain(|file| file.path != path);
        }
    }
    warnings
}

fn writes(rules: &[Placed]) -> Vec<(&Rule, &PathPattern)> {
    grants(rules)
        .filter_map(|placed| match &placed.rule.body {
            RuleBody::Path { access: PathAccess::Write, pattern } => Some((&placed.rule, pattern)),
            _ => None,
        })
        .collect()
}

/// Whether some rule keeps the command from changing what is at `place`.
fn denies(rules: &[Placed], place: &Path) -> bool {
    rules.iter().filter(|placed| placed.rule.effect == Effect::Deny).any(|placed| match &placed.rule.body {
        RuleBody::Path { pattern, .. } => pattern.covers(place),
        _ => false,
    })
}

/// Whether it is the system's own, which is readable without any rule, and can be started by who writes programs.
fn is_systems(rule: &Rule, place: &Path) -> bool {
    !matches!(rule.body, RuleBody::Path { access: PathAccess::Write, .. }) && place.starts_with("/usr")
}

/// Whether `other` grants at `place` what `rule` would.
fn opens(other: &Rule, rule: &Rule, place: &Path) -> bool {
    let pattern = match (&other.body, &rule.body) {
        (
            RuleBody::Path { access: PathAccess::Read, .. } | RuleBody::Runtime { .. },
            RuleBody::Path { access: PathAccess::Write, .. },
        ) => return false,
        (RuleBody::Path { pattern, .. } | RuleBody::Runtime { path: pattern }, _) => pattern,
        (RuleBody::Exec(exec), RuleBody::Exec(_)) => match &exec.program {
            ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => pattern,
            ExecProgram::Word { files, .. } => return files.iter().any(|file| file.resolved == place),
        },
        _ => return false,
    };
    pattern.covers(place)
}

fn grants(rules: &[Placed]) -> impl Iterator<Item = &Placed> {
    rules.iter().filter(|placed| placed.rule.effect == Effect::Grant)
}

/// The place that a rule spells and the one that it leads to.
fn ends(rule: &Rule) -> Option<(&Path, &Path)> {
    let pattern = match &rule.body {
        RuleBody::Path { pattern, .. }
        | RuleBody::Runtime { path: pattern }
        | RuleBody::UnixSocket(pattern) => pattern,
        RuleBody::Exec(exec) => match &exec.program {
            ExecProgram::Path { pattern, .. } | ExecProgram::Glob(pattern) => pattern,
            ExecProgram::Word { .. } => return None,
        },
        _ => return None,
    };
    Some(match pattern {
        PathPattern::Literal { spelled, resolved } => (spelled, resolved),
        PathPattern::Glob { spelled_base, base, .. } => (spelled_base, base),
    })
}

/// The first link on the way that stands where a `write:` rule lets the command put one, and that rule.
fn planted_link<'a>(
    (spelled, resolved): (&Path, &Path),
    writes: &[(&'a Rule, &PathPattern)],
    host: &dyn Host,
) -> Option<(PathBuf, &'a Rule)> {
    if spelled == resolved || writes.is_empty() {
        return None;
    }
    links_to(spelled, host).into_iter().find_map(|link| {
        let directory = link.parent()?;
        let can_change = |pattern: &PathPattern| {
            // A root itself is a mount, and is neither removed nor renamed inside.
            pattern.covers(directory) || (pattern.is_glob() && pattern.covers(&link))
        };
        let (rule, _) = writes.iter().find(|(_, pattern)| can_change(pattern))?;
        Some((link, *rule))
    })
}

/// Where the links on the way to `spelled` stand.
fn links_to(spelled: &Path, host: &dyn Host) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut left = Some(spelled.to_owned());
    while let Some(path) = left.take() {
        let mut walked = PathBuf::from("/");
        let mut components = path.components();
        while let Some(component) = components.next() {
            match component {
                Component::Normal(name) => walked.push(name),
                Component::ParentDir => {
                    walked.pop();
                }
                _ => continue,
            }
            let Some(target) = host.link(&walked).filter(|_| links.len() < MOST_LINKS) else { continue };
            links.push(walked.clone());
            walked.pop();
            left = Some(walked.join(target).join(components.as_path()));
            break;
        }
    }
    links
}

fn warning(placed: &Placed, word: &str, place: &Path, link: &Path, write: &Rule) -> Diagnostic {
    let (place, link, origin) = (place.display(), link.display(), &write.origin);
    let message = format!(
        "`{word}` does not stand for {place}: the link {link} leads there, which the command can change under `{}` ({}:{})",
        write.text, origin.file, origin.line
    );
    let help = format!("name {place} itself if that is meant");
    Diagnostic { severity: Severity::Warning, message, help: Some(help), ..placed.at.clone() }
}

fn error(placed: &Placed, place: &Path, link: &Path, write: &Rule) -> Diagnostic {
    let message = format!(
        "this leads to {} through the link {}, which the command can change under `{}` ({}:{})",
        place.display(),
        link.display(),
        write.text,
        write.origin.file,
        write.origin.line
    );
    let help = format!("name {} itself if that is meant, or remove the rule or the link", place.display());
    Diagnostic { severity: Severity::Error, message, help: Some(help), ..placed.at.clone() }
}
