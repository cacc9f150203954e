//! The search of a shell: a word along `PATH`, or a path as it is.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use super::CommandError;
use super::surroundings::Surroundings;
use crate::policy::looks;

/// The file that `word` starts, absolute and as spelled.
pub(super) fn find(word: &OsStr, around: &Surroundings<'_>) -> Result<PathBuf, CommandError> {
    find_except(word, around, None)
}

/// As [`find`], passing over the directory `skipped` of `PATH`.
pub(super) fn find_except(
    word: &OsStr,
    around: &Surroundings<'_>,
    skipped: Option<&Path>,
) -> Result<PathBuf, CommandError> {
    let not_found =
        |why: &str| CommandError::NotFound { word: word.to_string_lossy().into_owned(), why: why.to_owned() };
    if word.is_empty() {
        let (word, why) = ("''".to_owned(), "the name is empty".to_owned());
        return Err(CommandError::NotFound { word, why });
    }
    if word.as_bytes().contains(&0) {
        return Err(not_found("the name contains a NUL byte"));
    }
    if word.as_bytes().contains(&b'/') {
        let path = around.absolute(Path::new(word));
        return check(&path).map(|()| path.clone()).map_err(|refusal| match refusal {
            Refusal::Absent => not_found("there is no such file"),
            Refusal::Hidden => CommandError::NotExecutable { program: path, reason: HIDDEN.to_owned() },
            Refusal::Unusable(reason) => CommandError::NotExecutable { program: path, reason },
        });
    }
    // As in sh(1): a file that cannot be executed is remembered, and the search goes on.
    let mut unusable = None;
    for dir in around.path_dirs() {
        if skipped == Some(dir.as_path()) {
            continue;
        }
        let path = dir.join(word);
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(Refusal::Absent | Refusal::Hidden) => {}
            Err(Refusal::Unusable(_)) if looks::is_dir(&path) => {}
            Err(Refusal::Unusable(reason)) => {
                unusable.get_or_insert(CommandError::NotExecutable { program: path, reason });
            }
        }
    }
    Err(unusable.unwrap_or_else(|| not_found("it is in no directory of PATH")))
}

/// Every executable of that name along `PATH`; a word with a slash is itself or nothing.
pub(super) fn every(word: &OsStr, around: &Surroundings<'_>) -> Vec<PathBuf> {
    if word.is_empty() || word.as_bytes().contains(&0) {
        return Vec::new();
    }
    let candidates = if word.as_bytes().contains(&b'/') {
        vec![around.absolute(Path::new(word))]
    } else {
        around.path_dirs().into_iter().map(|dir| dir.join(word)).collect()
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for path in candidates {
        if check(&path).is_ok() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// Whether the kernel would let us execute the file at `path`.
pub(super) fn is_executable(path: &Path) -> bool {
    check(path).is_ok()
}

/// What a caller says of [`Refusal::Hidden`].
pub(super) const HIDDEN: &str = "a directory on its path cannot be searched";

/// Why a file is not the one to start.
pub(super) enum Refusal {
    Absent,
    /// A directory on the path cannot be searched.
    Hidden,
    Unusable(String),
}

/// Judges one candidate. `faccessat` and not the mode bits: access lists and noexec mounts count.
pub(super) fn check(path: &Path) -> Result<(), Refusal> {
    let meta = looks::status(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Refusal::Absent,
        io::ErrorKind::PermissionDenied => Refusal::Hidden,
        _ => Refusal::Unusable(error.to_string()),
    })?;
    if meta.is_dir() {
        return Err(Refusal::Unusable("it is a directory".to_owned()));
    }
    if !meta.is_file() {
        return Err(Refusal::Unusable("it is not a regular file".to_owned()));
    }
    faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS).map_err(|errno| {
        Refusal::Unusable(match errno {
            Errno::EACCES => "permission denied (no execute permission, or a noexec mount)".to_owned(),
            other => other.desc().to_owned(),
        })
    })
}
