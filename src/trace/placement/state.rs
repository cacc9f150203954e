//! The private state directory, where traces are written that the agent could otherwise reach.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::super::error::TraceError;
use super::super::layout::{DIRECTORY_MODE, PENDING_NAME, STATE_NAME};
use super::Protected;
use super::directory::Directory;

/// Places for the state directory, in the order in which they are tried.
#[derive(Clone, Debug)]
pub(super) struct StateDirectories(Vec<Candidate>);

#[derive(Clone, Debug)]
struct Candidate {
    path: PathBuf,
    /// Never made: users without a home have one that is absent (`/nonexistent`).
    home: Option<PathBuf>,
}

impl Candidate {
    /// Makes it where it may be made and is missing.
    fn make(&self) -> Option<Directory> {
        let has_home = self.home.as_ref().is_none_or(|home| home.is_dir());
        has_home.then(|| make_private(&self.path)).flatten()
    }
}

impl StateDirectories {
    /// Returns the places that this process's environment names.
    pub(super) fn from_environment() -> Self {
        let mut candidates = Vec::new();
        // A relative XDG_STATE_HOME is to be ignored (XDG Base Directory Specification).
        if let Some(state) =
            std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute())
        {
            candidates.push(Candidate { path: state.join(STATE_NAME), home: None });
        }
        if let Some(home) = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
            let path = home.join(".local/state").join(STATE_NAME);
            candidates.push(Candidate { path, home: Some(home) });
        }
        let path = PathBuf::from(format!("/tmp/{STATE_NAME}-{}", nix::unistd::geteuid()));
        candidates.push(Candidate { path, home: None });
        Self(candidates)
    }

    #[cfg(test)]
    pub(super) fn only(path: &Path) -> Self {
        Self(vec![Candidate { path: path.to_owned(), home: None }])
    }

    /// Opens the directory of waiting traces in the first place that is private, making it where it is missing.
    pub(super) fn create_pending(&self) -> Result<Directory, TraceError> {
        self.create(PENDING_NAME)
    }

    /// Opens the directory `name` in the first place that is private, making it where it is missing.
    pub(super) fn create(&self, name: &str) -> Result<Directory, TraceError> {
        let mut tried = PathBuf::new();
        for candidate in &self.0 {
            if candidate.make().is_some()
                && let Some(directory) = make_private(&candidate.path.join(name))
            {
                return Ok(directory);
            }
            tried.clone_from(&candidate.path);
        }
        Err(TraceError::StateDirectory { path: tried })
    }

    /// Returns the first place.
    pub(super) fn first(&self) -> &Path {
        &self.0[0].path
    }

    /// Returns every place of the state directory, whether something is there or not.
    pub(super) fn protected(&self) -> Vec<Protected> {
        let protect = |Candidate { path, .. }: &Candidate| {
            let identity = Directory::open_private(path).and_then(|found| found.identity());
            Protected { path: path.clone(), identity: identity.ok() }
        };
        self.0.iter().map(protect).collect()
    }

    /// Opens the list `name` in the first place that is private and can be written, making both where they are missing.
    pub(super) fn make_list(&self, name: &OsStr) -> Result<(Directory, File), TraceError> {
        let mut tried = PathBuf::new();
        for candidate in &self.0 {
            tried.clone_from(&candidate.path);
            let Some(directory) = candidate.make() else { continue };
            match directory.open_list(name) {
                Ok(file) => return Ok((directory, file)),
                Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
                Err(source) => return Err(TraceError::Lock { path: directory.join(name), source }),
            }
        }
        Err(TraceError::StateDirectory { path: tried })
    }

    /// Opens every place of the state directory that there is.
    pub(super) fn existing(&self) -> Vec<Directory> {
        self.0.iter().filter_map(|candidate| Directory::open_private(&candidate.path).ok()).collect()
    }

    /// Opens every directory `name` that there is in them.
    pub(super) fn existing_below(&self, name: &str) -> Vec<Directory> {
        self.existing().iter().filter_map(|state| state.open_private_in(OsStr::new(name)).ok()).collect()
    }
}

/// Makes sure that `path` is a directory of this user alone.
fn make_private(path: &Path) -> Option<Directory> {
    if let Ok(found) = Directory::open_private(path) {
        return Some(found);
    }
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).create(parent).ok()?;
    }
    // Existing is as good as made: what it is, is checked when it is opened.
    let _ = DirBuilder::new().mode(DIRECTORY_MODE).create(path);
    Directory::open_private(path).ok()
}
