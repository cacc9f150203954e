//! A git worktree: its repository lies elsewhere, and a rule for the working directory does not show it.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the repository of a git worktree lies.
#[derive(Debug)]
pub(super) struct Worktree {
    /// What belongs to this worktree alone.
    pub(super) gitdir: PathBuf,
    /// The repository that it is a worktree of.
    pub(super) common: Option<PathBuf>,
}

/// The worktree that holds `directory`.
pub(super) fn around(directory: &Path) -> Option<Worktree> {
    directory.ancestors().find_map(at)
}

/// The repository behind a `.git` file (gitrepository-layout(5)): `gitdir: PATH`, and there
/// `commondir`.
fn at(directory: &Path) -> Option<Worktree> {
    let file = directory.join(".git");
    if !fs::symlink_metadata(&file).ok()?.is_file() {
        return None;
    }
    let text = fs::read_to_string(&file).ok()?;
    let gitdir = fs::canonicalize(directory.join(text.strip_prefix("gitdir:")?.trim())).ok()?;
    let common = fs::read_to_string(gitdir.join("commondir")).ok();
    let common = common.and_then(|text| fs::canonicalize(gitdir.join(text.trim())).ok());
    Some(Worktree { gitdir, common })
}
