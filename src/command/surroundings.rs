//! The launcher's environment and directory, as the search for a program sees them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::policy::{is_within, looks};

/// Where shells look when `PATH` is unset.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Trees that every run sees without a rule; nothing in them needs a root of its own.
const SYSTEM: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ssl/certs"];

/// What surrounds a command line: variables and the current directory.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) env: &'a [(OsString, OsString)],
    pub(super) cwd: &'a Path,
}

impl<'a> Surroundings<'a> {
    /// The last value of a variable; an empty one counts as unset.
    pub(super) fn var(&self, name: &str) -> Option<&'a OsStr> {
        let (_, value) = self.env.iter().rev().find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value.as_os_str())
    }

    /// The directory that a variable names, or `~/default`.
    pub(super) fn dir(&self, variable: &str, default: &str) -> Option<PathBuf> {
        match self.var(variable) {
            Some(value) => Some(self.absolute(Path::new(value))),
            None => self.home().map(|home| home.join(default)),
        }
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.var("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
    }

    /// `path` from the current directory, `.` components dropped, `..` and links kept.
    pub(super) fn absolute(&self, path: &Path) -> PathBuf {
        let joined = self.cwd.join(path);
        joined.components().filter(|part| *part != Component::CurDir).collect()
    }

    /// The elements of `PATH` as absolute directories; an empty element is the current directory.
    pub(super) fn path_dirs(&self) -> Vec<PathBuf> {
        let path = match self.env.iter().rev().find(|(key, _)| key == "PATH") {
            Some((_, value)) => value.as_os_str(),
            None => OsStr::new(DEFAULT_PATH),
        };
        let elements = path.as_bytes().split(|byte| *byte == b':');
        elements.map(|dir| self.absolute(Path::new(OsStr::from_bytes(dir)))).collect()
    }

    /// The current directory and its parents, nearest first.
    pub(super) fn upwards(&self) -> impl Iterator<Item = &'a Path> {
        self.cwd.ancestors()
    }
}

/// Whether every run sees `path` without a rule.
pub(super) fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|tree| is_within(path, Path::new(tree)))
}

/// A file's text if it is there, is a regular file, and is small enough to be a setting.
pub(super) fn read_setting(path: &Path) -> Option<String> {
    const LIMIT: u64 = 256 * 1024;
    let meta = looks::status(path).ok()?;
    if !meta.is_file() || meta.size > LIMIT {
        return None;
    }
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// `name` with `suffix` bytes appended, without a detour through text.
pub(super) fn os_string(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
