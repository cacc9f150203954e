//! A git worktree: its repository lies elsewhere, and a rule for the working directory does not show it.

use std::fs::{self, File};
use std::io::Read as _;
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
    let text = read(&file)?;
    let gitdir = fs::canonicalize(directory.join(text.strip_prefix("gitdir:")?.trim())).ok()?;
    let common = read(&gitdir.join("commondir"));
    let common = common.and_then(|text| fs::canonicalize(gitdir.join(text.trim())).ok());
    Some(Worktree { gitdir, common })
}

/// A short file: whoever has put another one there, or something that never ends, is not waited for.
fn read(path: &Path) -> Option<String> {
    const MOST: u64 = 16 << 10;
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}
