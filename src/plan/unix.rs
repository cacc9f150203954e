//! Which sockets of the host the run may reach: those that rules name, and those that match a
//! rule's pattern when the run starts.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::policy::{Effect, PathPattern, Policy, RuleBody};

/// Most sockets of one run; each costs two descriptors.
const MOST_SOCKETS: usize = 64;
/// Most names that are looked at for all patterns together.
const MOST_NAMES: usize = 4096;

/// Their paths with links followed, sorted.
pub(super) fn sockets(policy: &Policy) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = policy.unix_sockets().map(|(_, _, resolved)| resolved.to_owned()).collect();
    let mut names = MOST_NAMES;
    for rule in policy.rules.iter().filter(|rule| rule.effect == Effect::Grant) {
        if let RuleBody::UnixSocket(pattern @ PathPattern::Glob { base, glob, .. }) = &rule.body {
            // One level for each component: no tree is walked, `**` stands for one name here.
            let levels = Vec::<String>::from(glob.clone()).len();
            expand(pattern, base, levels, &mut names, &mut found);
        }
    }
    found.retain(|path| policy.decide_unix(path).is_allow());
    found.sort();
    found.dedup();
    found.truncate(MOST_SOCKETS);
    found
}

fn expand(
    pattern: &PathPattern,
    directory: &Path,
    levels: usize,
    names: &mut usize,
    found: &mut Vec<PathBuf>,
) {
    // A directory that the caller cannot list holds nothing that it could reach by a pattern.
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).take(*names).collect();
    *names -= entries.len();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if kind.is_socket() && pattern.covers(&path) {
            found.push(path);
        } else if kind.is_dir() && levels > 1 && pattern.may_cover_below(&path) {
            expand(pattern, &path, levels - 1, names, found);
        }
    }
}
