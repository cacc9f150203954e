//! What a path in a rule stands for: one place with everything below it, or a pattern.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::glob::Glob;
use super::host::Host;
use super::lossless;
use super::pattern::{GlobError, has_glob};
use super::value::Value;

/// The places that a rule speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathPattern {
    /// A file, or a directory with everything below it.
    Literal {
        /// Absolute, `.` and `..` taken out, links kept.
        #[serde(with = "lossless::path")]
        spelled: PathBuf,
        /// Absolute, links followed when the policy was read.
        #[serde(with = "lossless::path")]
        resolved: PathBuf,
    },
    /// Every path below `base` that the pattern matches, and everything below those.
    Glob {
        /// As written.
        spelled: String,
        /// The longest directory before the first glob character, links followed.
        #[serde(with = "lossless::path")]
        base: PathBuf,
        /// The same directory, links kept.
        #[serde(with = "lossless::path")]
        spelled_base: PathBuf,
        /// The components below it.
        glob: Glob,
    },
}

impl PathPattern {
    /// The file or directory in which all lies that it matches, links followed.
    pub(crate) fn base(&self) -> &Path {
        match self {
            Self::Literal { resolved, .. } => resolved,
            Self::Glob { base, .. } => base,
        }
    }
}

/// Why a path in a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathFault {
    #[error("{0}")]
    Glob(#[from] GlobError),
    #[error("`~` stands for a home directory, and none is known here")]
    NoHome,
    #[error("there is no user `{0}` on this host")]
    NoUser(String),
    #[error("single quotes do not quote here")]
    SingleQuotes,
    #[error("a cap (`{0}`) is not enforced by this version yet, so the policy is refused")]
    Cap(String),
    #[error("`{0}` follows the path")]
    Tail(String),
}

impl PathFault {
    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::Glob(GlobError::OpenSet | GlobError::BackwardRange(..)) => {
                "put the path in double quotes if the bracket belongs to its name"
            }
            Self::Glob(GlobError::JoinedStars) => "write `**/` for any depth, `*` for any name",
            Self::Glob(GlobError::ParentAfterGlob) => "write the path without `..`",
            Self::Glob(GlobError::TooLong) => "write a shorter pattern",
            Self::NoHome => "set HOME or write the absolute path",
            Self::NoUser(_) => "write the absolute path, or `./~…` for a file of that name",
            Self::SingleQuotes => "use double quotes",
            Self::Cap(_) => "remove the cap, or put the path in quotes if it belongs to its name",
            Self::Tail(_) => "put the whole path in the quotes, or write a comma between two paths",
        }
    }
}

impl PathPattern {
    /// Whether all that it speaks of lies in the host's proc(5).
    pub(super) fn is_of_kernel(&self) -> bool {
        let places = match self {
            Self::Literal { spelled, resolved } => [spelled, resolved],
            Self::Glob { base, spelled_base, .. } => [spelled_base, base],
        };
        places.iter().any(|place| place.starts_with("/proc"))
    }

    /// Reads the value of a path rule; relative paths start at `base`.
    pub(super) fn parse(value: &Value, base: &Path, host: &dyn Host) -> Result<Self, PathFault> {
        if value.quoted {
            if is_cap(&value.tail) {
                return Err(PathFault::Cap(value.tail.clone()));
            }
            if !value.tail.is_empty() {
                return Err(PathFault::Tail(value.tail.clone()));
            }
            return Self::literal(&value.text, base, host);
        }
        if value.text.starts_with('\'') {
            return Err(PathFault::SingleQuotes);
        }
        let last = value.text.rsplit(char::is_whitespace).next().unwrap_or("");
        if last.len() < value.text.len() && is_cap(last) {
            return Err(PathFault::Cap(last.to_owned()));
        }
        if has_glob(&value.text) {
            Self::glob(&value.text, base, host)
        } else {
            Self::literal(&value.text, base, host)
        }
    }

    /// A path in which no character means more than itself, but for a leading `~`.
    pub(super) fn literal(text: &str, base: &Path, host: &dyn Host) -> Result<Self, PathFault> {
        let path = anchored(text, base, host)?;
        Ok(Self::Literal { resolved: host.resolve(&path), spelled: normalized(&path) })
    }

    pub(super) fn glob(text: &str, base: &Path, host: &dyn Host) -> Result<Self, PathFault> {
        let first =
            text.split('/').take_while(|part| !has_glob(part)).map(|part| part.len() + 1).sum::<usize>();
        let (directory, pattern) = text.split_at(first);
        let path = if directory.is_empty() { base.to_owned() } else { anchored(directory, base, host)? };
        let parts: Vec<String> = pattern.split('/').map(str::to_owned).collect();
        Ok(Self::Glob {
            spelled: text.to_owned(),
            base: host.resolve(&path),
            spelled_base: normalized(&path),
            glob: Glob::new(&parts)?,
        })
    }

    /// Whether it is a pattern.
    pub fn is_glob(&self) -> bool {
        matches!(self, Self::Glob { .. })
    }

    /// Whether it stands for this path (absolute, no `.` and `..`) or a directory above it.
    pub fn covers(&self, path: &Path) -> bool {
        match self {
            Self::Literal { spelled, resolved } => path.starts_with(resolved) || path.starts_with(spelled),
            Self::Glob { base, spelled_base, glob, .. } => {
                let under =
                    |base: &Path| path.strip_prefix(base).is_ok_and(|below| glob.covers(components(below)));
                under(base) || (spelled_base != base && under(spelled_base))
            }
        }
    }

    /// Whether it is a literal for exactly this path.
    pub fn names(&self, path: &Path) -> bool {
        match self {
            Self::Literal { spelled, resolved } => path == resolved || path == spelled,
            Self::Glob { .. } => false,
        }
    }

    /// Whether something strictly below this directory may be covered.
    pub fn may_cover_below(&self, directory: &Path) -> bool {
        let reaches = |base: &Path| base.starts_with(directory) && base != directory;
        match self {
            Self::Literal { spelled, resolved } => {
                self.covers(directory) || reaches(spelled) || reaches(resolved)
            }
            Self::Glob { base, spelled_base, glob, .. } => [base, spelled_base].into_iter().any(|base| {
                base.starts_with(directory)
                    || directory.strip_prefix(base).is_ok_and(|below| glob.may_cover_below(components(below)))
            }),
        }
    }

    /// Orders rules that match the same path: the greater one says more about it.
    pub(super) fn specificity(&self) -> (usize, bool, usize) {
        match self {
            Self::Literal { resolved, .. } => {
                (components(resolved).count(), true, resolved.as_os_str().len())
            }
            Self::Glob { base, glob, .. } => {
                let (parts, pinned) = glob.specificity();
                (components(base).count() + parts, false, base.as_os_str().len() + pinned)
            }
        }
    }
}

/// `.` and `..` taken out of an absolute path, links not looked at.
pub(super) fn normalized(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    normal
}

/// Whether `path` is `directory` or lies below it; both are absolute and have no `.`, `..` or doubled slashes.
/// As `Path::starts_with`, which takes paths apart: a plan asks that some thousand times.
pub fn is_within(path: &Path, directory: &Path) -> bool {
    let (path, directory) = (path.as_os_str().as_bytes(), directory.as_os_str().as_bytes());
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/') || directory.ends_with(b"/"))
}

/// The names of a path.
pub(super) fn components(path: &Path) -> impl Iterator<Item = &[u8]> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    })
}

/// Makes a path absolute; a leading `~` or `~name` is a home directory.
pub(super) fn anchored(text: &str, base: &Path, host: &dyn Host) -> Result<PathBuf, PathFault> {
    let Some(after) = text.strip_prefix('~') else {
        return Ok(base.join(text));
    };
    let (user, rest) = after.split_once('/').unwrap_or((after, ""));
    let home = if user.is_empty() {
        host.home().map(Path::to_owned).ok_or(PathFault::NoHome)?
    } else {
        host.user_home(user).ok_or_else(|| PathFault::NoUser(user.to_owned()))?
    };
    // Without the slashes that follow: `~//etc` is not `/etc`.
    Ok(home.join(OsStr::new(rest.trim_start_matches('/'))))
}

/// `@10MB`, `@5/s`: a blank, an at sign and a number at the end.
fn is_cap(word: &str) -> bool {
    word.strip_prefix('@').is_some_and(|size| size.starts_with(|c: char| c.is_ascii_digit()))
}
