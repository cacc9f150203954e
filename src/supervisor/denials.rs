//! What was refused most often, with the rule that would allow it: the last words of a run.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use crate::policy::{Denied, PathAccess, Policy};

/// Different refusals that are counted; later ones still stand in the trace.
const KINDS: usize = 10_000;

/// Counts refusals.
#[derive(Debug, Default)]
pub struct Denials {
    counts: HashMap<String, (u64, Denied)>,
}

impl Denials {
    pub(super) fn count(&mut self, denied: Denied) {
        let key = format!("{denied:?}");
        if self.counts.len() < KINDS || self.counts.contains_key(&key) {
            self.counts.entry(key).or_insert((0, denied)).0 += 1;
        }
    }

    /// The `most` most frequent refusals: how often, and the rule that would allow each.
    #[must_use]
    pub fn most_frequent(&self, policy: &Policy, most: usize) -> Vec<(u64, Denied, String)> {
        let mut all: Vec<_> = self.counts.iter().collect();
        all.sort_by(|(a, (many, _)), (b, (more, _))| more.cmp(many).then_with(|| a.cmp(b)));
        all.into_iter()
            .take(most)
            .map(|(_, (count, denied))| (*count, denied.clone(), policy.suggestion(denied)))
            .collect()
    }
}

pub(super) fn path(access: PathAccess, path: &Path) -> Denied {
    Denied::Path { access, path: path.to_owned() }
}

pub(super) fn exec(exe: &Path, argv: &[OsString]) -> Denied {
    Denied::Exec { exe: exe.to_owned(), argv: argv.to_vec() }
}
