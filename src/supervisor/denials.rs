//! What was refused most often, and by which rule: the last words of a run.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::Path;

use crate::policy::{Denied, PathAccess, RuleId};

/// Different refusals that are counted; later ones still stand in the trace.
const KINDS: usize = 10_000;
/// Longest name that is kept for that; one can have megabytes.
const LONGEST_NAME: usize = 1024;

/// Counts refusals.
#[derive(Debug, Default)]
pub struct Denials {
    counts: HashMap<String, (u64, Denied, Option<RuleId>)>,
    /// Ports that servers inside could not have, each with the rule that has it stand for the host's.
    pub held: BTreeMap<u16, String>,
}

impl Denials {
    /// `rule` is the `deny:` rule that refused it.
    pub(super) fn count(&mut self, denied: Denied, rule: Option<RuleId>) {
        let key = format!("{denied:?} {rule:?}");
        if self.counts.len() < KINDS || self.counts.contains_key(&key) {
            self.counts.entry(key).or_insert((0, denied, rule)).0 += 1;
        }
    }

    /// All refusals, the most frequent first: how often, and the `deny:` rule, if one refused it. What
    /// programs only look at and do without comes last.
    #[must_use]
    pub fn most_frequent(&self) -> Vec<(u64, &Denied, Option<RuleId>)> {
        let mut all: Vec<_> = self.counts.iter().collect();
        all.sort_by(|(a, (many, denied, _)), (b, (more, other, _))| {
            is_probe(denied).cmp(&is_probe(other)).then_with(|| more.cmp(many)).then_with(|| a.cmp(b))
        });
        all.into_iter().map(|(_, (count, denied, rule))| (*count, denied, *rule)).collect()
    }
}

/// C libraries and language runtimes size themselves by files of the kernel, and manage without.
#[must_use]
pub fn is_probe(denied: &Denied) -> bool {
    matches!(denied, Denied::Path { path, .. } if ["/sys", "/proc"].iter().any(|tree| path.starts_with(tree)))
}

pub(super) fn path(access: PathAccess, path: &Path) -> Denied {
    Denied::Path { access, path: path.to_owned() }
}

pub(super) fn exec(exe: &Path, argv: &[OsString]) -> Denied {
    // By the name alone: what it was asked to do differs each time.
    let name = argv.first().filter(|name| name.len() <= LONGEST_NAME);
    Denied::Exec { exe: exe.to_owned(), argv: name.cloned().into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::{Denials, path};
    use crate::policy::{PathAccess, RuleId};

    #[test]
    fn what_programs_do_without_comes_last() {
        let mut denials = Denials::default();
        for name in ["/sys/a", "/sys/a", "/srv/rare", "/srv/often", "/srv/often"] {
            denials.count(path(PathAccess::Read, name.as_ref()), None);
        }
        denials.count(path(PathAccess::Read, "/srv/rare".as_ref()), Some(RuleId(3)));
        let found: Vec<_> = denials.most_frequent();
        let said = |name: &str| path(PathAccess::Read, name.as_ref());
        assert_eq!(
            found,
            [
                (2, &said("/srv/often"), None),
                (1, &said("/srv/rare"), None),
                (1, &said("/srv/rare"), Some(RuleId(3))),
                (2, &said("/sys/a"), None),
            ]
        );
    }
}
