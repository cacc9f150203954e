//! What the reading of a policy needs from outside, and the host's own answer to it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::looks::{self, FileId};

/// Everything that the reading of a policy asks of the machine; tests answer from a table.
pub trait Host {
    /// The launch directory, absolute: relative paths of a policy start here.
    fn cwd(&self) -> &Path;
    /// The home of the invoking user (`~`).
    fn home(&self) -> Option<&Path>;
    /// The home of another user (`~name`).
    fn user_home(&self, name: &str) -> Option<PathBuf>;
    /// Follows the symbolic links of the longest prefix that exists and keeps the rest lexically. Never fails.
    fn resolve(&self, path: &Path) -> PathBuf;
    /// What the symbolic link at this path says, if there is one; no link on the way to it is one.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// Whether something is there, links followed.
    fn exists(&self, path: &Path) -> bool;
    /// Whether a directory is there, links followed.
    fn is_dir(&self, path: &Path) -> bool;
    /// The file behind a path, links followed.
    fn identity(&self, path: &Path) -> Option<FileId>;
    /// Every program of this name along the launcher's `PATH`, in its order.
    fn find_program(&self, word: &str) -> Vec<PathBuf>;
    /// The content of a policy file.
    ///
    /// # Errors
    /// Those of open and read, and `InvalidData` for a file that is too large for a policy.
    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The launcher's environment.
    fn environment(&self) -> Vec<(OsString, OsString)>;
    /// The text of a policy that comes with the product (`include: profile/NAME`).
    fn profile(&self, _name: &str) -> Option<&'static str> {
        None
    }
    /// The names of all such policies.
    fn profile_names(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// The machine as the launcher sees it.
#[derive(Clone, Debug)]
pub struct LaunchHost {
    cwd: PathBuf,
    /// The same with its links followed: most paths start there.
    real_cwd: PathBuf,
    home: Option<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    profiles: fn(&str) -> Option<&'static str>,
    profile_names: fn() -> Vec<&'static str>,
    finder: Option<Finder>,
    /// What counts as being there although it is not.
    made: Vec<PathBuf>,
}

/// Finds every program that a word names along the `PATH` of an environment, seen from a directory.
pub type Finder = fn(&OsStr, &[(OsString, OsString)], &Path) -> Vec<PathBuf>;

impl LaunchHost {
    /// Reads the launch directory and the environment of this process.
    ///
    /// # Errors
    /// The launch directory is gone or cannot be read.
    pub fn new() -> io::Result<Self> {
        let environment: Vec<_> = std::env::vars_os().collect();
        Ok(Self::with(std::env::current_dir()?, environment))
    }

    /// A launcher started in `cwd` (absolute) with this environment.
    pub fn with(cwd: PathBuf, environment: Vec<(OsString, OsString)>) -> Self {
        let home =
            value(&environment, "HOME").map(PathBuf::from).filter(|home| home.is_absolute()).or_else(|| {
                home_in_passwd(|fields| fields.get(2) == Some(&nix::unistd::getuid().to_string().as_str()))
            });
        let real_cwd = looks::resolve_below(PathBuf::from("/"), &cwd);
        Self {
            cwd,
            real_cwd,
            home,
            environment,
            profiles: |_| None,
            profile_names: Vec::new,
            finder: None,
            made: Vec::new(),
        }
    }

    /// The same with a table of policies that come with the product.
    pub fn profiles(
        mut self,
        table: fn(&str) -> Option<&'static str>,
        names: fn() -> Vec<&'static str>,
    ) -> Self {
        self.profiles = table;
        self.profile_names = names;
        self
    }

    /// The same with another way to find programs: one that knows version managers.
    pub fn finder(mut self, finder: Finder) -> Self {
        self.finder = Some(finder);
        self
    }

    /// The same with places that a run will find there, made for it.
    pub fn made(mut self, places: Vec<PathBuf>) -> Self {
        self.made = places;
        self
    }
}

impl Host for LaunchHost {
    fn cwd(&self) -> &Path {
        &self.cwd
    }

    fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    fn user_home(&self, name: &str) -> Option<PathBuf> {
        home_in_passwd(|fields| fields.first() == Some(&name))
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        let path = self.cwd.join(path);
        match path.strip_prefix(&self.cwd) {
            Ok(below) => looks::resolve_below(self.real_cwd.clone(), below),
            Err(_) => looks::resolve_below(PathBuf::from("/"), &path),
        }
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        looks::link(path).ok().flatten()
    }

    fn exists(&self, path: &Path) -> bool {
        looks::exists(path) || self.made.iter().any(|made| made.starts_with(path))
    }

    fn is_dir(&self, path: &Path) -> bool {
        looks::is_dir(path) || self.made.iter().any(|made| made != path && made.starts_with(path))
    }

    fn identity(&self, path: &Path) -> Option<FileId> {
        looks::status(path).ok().map(|found| found.id)
    }

    fn find_program(&self, word: &str) -> Vec<PathBuf> {
        if let Some(finder) = self.finder {
            return finder(OsStr::new(word), &self.environment, &self.cwd);
        }
        let Some(path) = value(&self.environment, "PATH") else {
            return Vec::new();
        };
        std::env::split_paths(path)
            .map(|dir| self.cwd.join(dir).join(word))
            .filter(|file| is_program(file))
            .collect()
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        std::fs::File::open(path)?.take(LARGEST_POLICY + 1).read_to_end(&mut content)?;
        if content.len() as u64 > LARGEST_POLICY {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than 16 MiB"));
        }
        Ok(content)
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.clone()
    }

    fn profile(&self, name: &str) -> Option<&'static str> {
        (self.profiles)(name)
    }

    fn profile_names(&self) -> Vec<&'static str> {
        (self.profile_names)()
    }
}

/// A policy is text written by people; more than this is a mistake (`/dev/zero`) and must not fill the memory.
const LARGEST_POLICY: u64 = 16 << 20;

fn value<'a>(environment: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
}

fn is_program(path: &Path) -> bool {
    looks::status(path).is_ok_and(|found| found.is_file() && found.mode & 0o111 != 0)
}

/// Reads /etc/passwd itself: a static binary has no other name services.
fn home_in_passwd(wanted: impl Fn(&[&str]) -> bool) -> Option<PathBuf> {
    let text = std::fs::read("/etc/passwd").ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.len() >= 7 && wanted(fields))
        .map(|fields| PathBuf::from(fields[5]))
        .filter(|home| home.is_absolute())
}
