//! What the reading of a policy needs from outside, and the host's own answer to it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A file as the kernel knows it, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// `st_dev`
    pub dev: u64,
    /// `st_ino`
    pub ino: u64,
}

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
    links: RefCell<Links>,
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
        let mut links = Links::default();
        let real_cwd = links.resolve_below(PathBuf::from("/"), &cwd);
        let links = RefCell::new(links);
        Self {
            cwd,
            real_cwd,
            home,
            environment,
            profiles: |_| None,
            profile_names: Vec::new,
            finder: None,
            made: Vec::new(),
            links,
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
        let mut links = self.links.borrow_mut();
        match path.strip_prefix(&self.cwd) {
            Ok(below) => links.resolve_below(self.real_cwd.clone(), below),
            Err(_) => links.resolve_below(PathBuf::from("/"), &path),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists() || self.made.iter().any(|made| made.starts_with(path))
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir() || self.made.iter().any(|made| made != path && made.starts_with(path))
    }

    fn identity(&self, path: &Path) -> Option<FileId> {
        let found = std::fs::metadata(path).ok()?;
        Some(FileId { dev: found.dev(), ino: found.ino() })
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
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
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

/// What is known of the paths that were looked at: the target of a link, none of what is no link. A plan asks
/// for the same directories again and again, and sees each of them the same. What is absent is looked for again.
#[derive(Clone, Debug, Default)]
struct Links(HashMap<PathBuf, Option<PathBuf>>);

impl Links {
    /// `canonicalize` for a path whose last components may be absent, a dangling link included; `resolved` is
    /// where the path starts and has no links.
    fn resolve_below(&mut self, mut resolved: PathBuf, path: &Path) -> PathBuf {
        const MOST_LINKS: usize = 40; // as path_resolution(7)
        let mut links = 0;
        // Nothing below an absent component needs to be looked for.
        let mut absent: Option<PathBuf> = None;
        let mut rest: Vec<OsString> = reversed(path);
        while let Some(component) = rest.pop() {
            if component.as_bytes() == b".." {
                resolved.pop();
                absent = absent.filter(|absent| resolved.starts_with(absent));
                continue;
            }
            resolved.push(&component);
            if absent.is_some() {
                continue;
            }
            let target = match self.target(&resolved) {
                Ok(Some(target)) if links < MOST_LINKS => target,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    absent = Some(resolved.clone());
                    continue;
                }
                _ => continue,
            };
            links += 1;
            if target.is_absolute() {
                resolved = PathBuf::from("/");
            } else {
                resolved.pop();
            }
            rest.extend(reversed(&target));
        }
        resolved
    }

    /// Where the link `path` leads, if it is one.
    fn target(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        if let Some(known) = self.0.get(path) {
            return Ok(known.clone());
        }
        let found = match std::fs::read_link(path) {
            // readlink(2): it is there and no link.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => None,
            other => Some(other?),
        };
        self.0.insert(path.to_owned(), found.clone());
        Ok(found)
    }
}

fn reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            _ => None,
        })
        .collect()
}
