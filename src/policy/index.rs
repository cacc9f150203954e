//! The path rules of a policy, arranged so that one access looks at few of them.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use super::glob::Glob;
use super::parse::Effect;
use super::path_rule::{PathPattern, components};
use super::verdict::{PathAccess, RuleId};
use super::{Rule, RuleBody};

/// Built at the first question; never a part of what a policy is.
#[derive(Default)]
pub(super) struct Index(OnceLock<PathIndex>);

impl Index {
    pub(super) fn paths(&self, rules: &[Rule]) -> &PathIndex {
        self.0.get_or_init(|| PathIndex::new(rules))
    }
}

impl Clone for Index {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Index {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Index")
    }
}

/// The rules about paths.
#[derive(Default)]
pub(super) struct PathIndex {
    literals: HashMap<Vec<u8>, Slot>,
    /// Whether some literal has so many bytes.
    lengths: Vec<bool>,
    globs: Vec<GlobRule>,
    /// Every directory above a literal grant.
    above: HashSet<Vec<u8>>,
}

/// A rule with a pattern, once for each spelling of its base.
struct GlobRule {
    id: RuleId,
    kind: Kind,
    base: Vec<u8>,
    /// How many names the base has.
    depth: usize,
    glob: Glob,
    specificity: (usize, bool, usize),
}

impl GlobRule {
    fn covers(&self, path: &[u8], names: &[&[u8]]) -> bool {
        // The root's own slash is the one that follows it.
        let base = if self.depth == 0 { &[][..] } else { &self.base };
        let is_below =
            path.strip_prefix(base).is_some_and(|below| below.first().is_none_or(|byte| *byte == b'/'));
        is_below && self.glob.covers(names.get(self.depth..).unwrap_or_default().iter().copied())
    }
}

/// The rules whose literal is one certain path.
#[derive(Clone, Copy, Default)]
struct Slot([Option<RuleId>; 5]);

/// What a rule does to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    GrantRead,
    GrantWrite,
    Runtime,
    DenyRead,
    DenyWrite,
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::GrantRead, Self::GrantWrite, Self::Runtime, Self::DenyRead, Self::DenyWrite];

    fn of(effect: Effect, access: PathAccess) -> Self {
        match (effect, access) {
            (Effect::Grant, PathAccess::Read) => Self::GrantRead,
            (Effect::Grant, PathAccess::Write) => Self::GrantWrite,
            (Effect::Deny, PathAccess::Read) => Self::DenyRead,
            (Effect::Deny, PathAccess::Write) => Self::DenyWrite,
        }
    }

    fn is_deny(self) -> bool {
        matches!(self, Self::DenyRead | Self::DenyWrite)
    }

    /// Writing implies reading: a grant to write also grants to read, and what may not be read may not be
    /// written (else a rename inside a write root would carry a denied file to a readable name).
    fn touches(self, access: PathAccess) -> bool {
        match access {
            PathAccess::Read => self != Self::DenyWrite,
            PathAccess::Write => {
                matches!(self, Self::GrantWrite | Self::DenyRead | Self::DenyWrite)
            }
        }
    }
}

/// The best of the rules that match, for both effects.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Matches {
    pub(super) grant: Option<RuleId>,
    pub(super) deny: Option<RuleId>,
}

impl PathIndex {
    fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        for (at, rule) in rules.iter().enumerate() {
            match &rule.body {
                RuleBody::Path { access, pattern } => {
                    index.add(RuleId(at), Kind::of(rule.effect, *access), pattern)
                }
                RuleBody::Runtime { path } => index.add(RuleId(at), Kind::Runtime, path),
                _ => {}
            }
        }
        index
    }

    fn add(&mut self, id: RuleId, kind: Kind, pattern: &PathPattern) {
        let (spelled, resolved) = match pattern {
            PathPattern::Literal { spelled, resolved } => (spelled, resolved),
            PathPattern::Glob { base, spelled_base, glob, .. } => {
                let bases = [Some(base), Some(spelled_base).filter(|spelled| *spelled != base)];
                self.globs.extend(bases.into_iter().flatten().map(|base| GlobRule {
                    id,
                    kind,
                    base: key(base).to_vec(),
                    depth: components(base).count(),
                    glob: glob.clone(),
                    specificity: pattern.specificity(),
                }));
                return;
            }
        };
        for path in [resolved, spelled] {
            let length = key(path).len();
            self.lengths.resize(self.lengths.len().max(length + 1), false);
            self.lengths[length] = true;
            let slot = self.literals.entry(key(path).to_vec()).or_default();
            slot.0[kind as usize].get_or_insert(id);
            if !kind.is_deny() {
                self.above.extend(path.ancestors().skip(1).map(|above| key(above).to_vec()));
            }
        }
    }

    /// `path` is absolute and has no `.` or `..`.
    pub(super) fn find(&self, rules: &[Rule], access: PathAccess, path: &Path) -> Matches {
        let Matches { mut grant, mut deny } = self.nearest(access, path);
        if self.globs.is_empty() {
            return Matches { grant, deny };
        }
        let names: Vec<&[u8]> = components(path).collect();
        let specificity =
            |id: Option<RuleId>| id.and_then(|id| pattern_of(rules, id)).map(PathPattern::specificity);
        let (mut best_grant, mut best_deny) = (specificity(grant), specificity(deny));
        for rule in self.globs.iter().filter(|rule| rule.kind.touches(access)) {
            let (found, best) =
                if rule.kind.is_deny() { (&mut deny, &mut best_deny) } else { (&mut grant, &mut best_grant) };
            if best.is_none_or(|best| rule.specificity > best) && rule.covers(key(path), &names) {
                (*found, *best) = (Some(rule.id), Some(rule.specificity));
            }
        }
        Matches { grant, deny }
    }

    /// The literal rules nearest to the path.
    fn nearest(&self, access: PathAccess, path: &Path) -> Matches {
        let mut nearest = Matches::default();
        for slot in ancestors(key(path)).filter_map(|above| self.slot(above)) {
            let rule = |denies: bool| {
                let wanted = |kind: &&Kind| kind.is_deny() == denies && kind.touches(access);
                Kind::ALL.iter().filter(wanted).find_map(|kind| slot.0[*kind as usize])
            };
            nearest.grant = nearest.grant.or_else(|| rule(false));
            nearest.deny = nearest.deny.or_else(|| rule(true));
        }
        nearest
    }

    /// Most paths are not looked up: no literal is as long.
    fn slot(&self, path: &[u8]) -> Option<&Slot> {
        if self.lengths.get(path.len()).copied().unwrap_or(false) { self.literals.get(path) } else { None }
    }

    /// Whether some grant covers something strictly below a directory.
    pub(super) fn grants_below(&self, rules: &[Rule], directory: &Path) -> bool {
        self.above.contains(key(directory))
            || self.nearest(PathAccess::Read, directory).grant.is_some()
            || self.globs.iter().any(|rule| {
                !rule.kind.is_deny()
                    && pattern_of(rules, rule.id).is_some_and(|pattern| pattern.may_cover_below(directory))
            })
    }
}

fn pattern_of(rules: &[Rule], id: RuleId) -> Option<&PathPattern> {
    match &rules.get(id.0)?.body {
        RuleBody::Path { pattern, .. } | RuleBody::Runtime { path: pattern } => Some(pattern),
        _ => None,
    }
}

fn key(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The path and every directory above it, the root last.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut next = Some(path);
    std::iter::from_fn(move || {
        let here = next?;
        next = match here.iter().rposition(|byte| *byte == b'/') {
            Some(0) if here.len() == 1 => None,
            Some(0) => Some(&here[..1]),
            Some(slash) => Some(&here[..slash]),
            None => None,
        };
        Some(here)
    })
}
