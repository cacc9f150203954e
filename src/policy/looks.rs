//! Looks at paths of the host: while a plan is made, each place is looked at once.
//!
//! A plan asks for the same directories, links and programs again and again, and sees each of them the same: what
//! is decided from one look is never carried out on another. What the launch then mounts is compared with a
//! look of its own. Where nothing is remembered every question is a look.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag, lstat, stat};
use serde::{Deserialize, Serialize};

/// As many links as path_resolution(7) follows.
const MOST_LINKS: usize = 40;

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// What was seen. Paths are known by their bytes: as paths they would be taken apart for each question.
#[derive(Default)]
struct Seen {
    /// At each path, no link followed on the way or at its end.
    sights: HashMap<OsString, Result<Rc<Sight>, Errno>>,
    /// Directories as they were asked for, and where they are, links followed. Most paths differ in their last
    /// component alone.
    directories: HashMap<Vec<u8>, PathBuf>,
}

/// What is at a path.
#[derive(Debug)]
struct Sight {
    status: Status,
    /// What it says, if it is a link.
    target: Option<PathBuf>,
}

/// A file as the kernel knows it, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// `st_dev`
    pub dev: u64,
    /// `st_ino`
    pub ino: u64,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Which file it is.
    pub id: FileId,
    /// `st_mode`
    pub mode: u32,
    /// In bytes.
    pub size: u64,
}

impl Status {
    fn of(found: &FileStat) -> Self {
        let id = FileId { dev: found.st_dev, ino: found.st_ino };
        Self { id, mode: found.st_mode, size: u64::try_from(found.st_size).unwrap_or_default() }
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind() == SFlag::S_IFREG
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == SFlag::S_IFDIR
    }

    fn kind(&self) -> SFlag {
        SFlag::from_bits_truncate(self.mode) & SFlag::S_IFMT
    }
}

/// While it is there, this thread remembers what it has seen.
#[derive(Debug)]
pub struct Remembering(PhantomData<*const ()>);

/// Begins to remember.
#[must_use]
pub fn remember() -> Remembering {
    SEEN.with_borrow_mut(|seen| *seen = Some(Seen::default()));
    Remembering(PhantomData)
}

impl Remembering {
    /// What was absent is looked for again: something was made meanwhile.
    pub fn look_again(&self) {
        SEEN.with_borrow_mut(|seen| {
            seen.iter_mut().for_each(|seen| seen.sights.retain(|_, sight| sight.is_ok()))
        });
    }
}

impl Drop for Remembering {
    fn drop(&mut self) {
        SEEN.with_borrow_mut(|seen| *seen = None);
    }
}

/// As stat(2).
///
/// # Errors
/// Those of path_resolution(7).
pub fn status(path: &Path) -> io::Result<Status> {
    match walk(path) {
        Ok(Walked::At(_, sight)) => Ok(sight.status),
        Ok(Walked::AskKernel) => Ok(Status::of(&stat(path)?)),
        Err(errno) => Err(errno.into()),
    }
}

/// As lstat(2), of a path without links before its last component.
///
/// # Errors
/// Those of path_resolution(7).
pub fn status_itself(path: &Path) -> io::Result<Status> {
    Ok(look(path)?.status)
}

/// What the link at `path` says; `None` of what is no link.
///
/// # Errors
/// Those of path_resolution(7).
pub fn link(path: &Path) -> io::Result<Option<PathBuf>> {
    Ok(look(path)?.target.clone())
}

/// `path` without links.
///
/// # Errors
/// Those of path_resolution(7).
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    match walk(path)? {
        Walked::At(real, _) => Ok(real),
        Walked::AskKernel => path.canonicalize(),
    }
}

/// Whether something is there, links followed.
pub fn exists(path: &Path) -> bool {
    status(path).is_ok()
}

/// Whether a directory is there, links followed.
pub fn is_dir(path: &Path) -> bool {
    status(path).is_ok_and(|status| status.is_dir())
}

/// Whether a regular file is there, links followed.
pub fn is_file(path: &Path) -> bool {
    status(path).is_ok_and(|status| status.is_file())
}

/// [`canonical`] for a path whose last components may be absent, a dangling link included; `resolved` is
/// where the path starts and has no links.
pub(super) fn resolve_below(mut resolved: PathBuf, path: &Path) -> PathBuf {
    let mut links = 0;
    // Nothing below an absent component needs to be looked for.
    let mut absent: Option<PathBuf> = None;
    let mut rest = Rest::of(path);
    while let Some(component) = rest.next() {
        if component == ".." {
            resolved.pop();
            absent = absent.filter(|absent| resolved.starts_with(absent));
            continue;
        }
        resolved.push(component);
        if absent.is_some() {
            continue;
        }
        let target = match link(&resolved) {
            Ok(Some(target)) if links < MOST_LINKS => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                absent = Some(resolved.clone());
                continue;
            }
            _ => continue,
        };
        links += 1;
        rest.lead(&mut resolved, &target);
    }
    resolved
}

/// Where a path leads.
enum Walked {
    At(PathBuf, Rc<Sight>),
    /// Links of /proc lead where no text says.
    AskKernel,
}

fn walk(path: &Path) -> Result<Walked, Errno> {
    match walk_from_known(path) {
        Some(walked) => walked,
        None => walk_from_root(path),
    }
}

/// Walks the last component alone, where the directory around it is known or can be. `None` where it leads on.
fn walk_from_known(path: &Path) -> Option<Result<Walked, Errno>> {
    let bytes = path.as_os_str().as_bytes();
    let (above, name) = bytes.split_at(memchr::memrchr(b'/', bytes)?);
    if above.is_empty() || !is_plain(bytes) || SEEN.with_borrow(Option::is_none) {
        return None;
    }
    let known = SEEN.with_borrow(|seen| seen.as_ref()?.directories.get(above).cloned());
    let mut real = match known {
        Some(real) => real,
        None => {
            let Ok(Walked::At(real, sight)) = walk_from_root(Path::new(OsStr::from_bytes(above))) else {
                return None;
            };
            if !sight.status.is_dir() {
                return None;
            }
            SEEN.with_borrow_mut(|seen| {
                seen.as_mut().map(|seen| seen.directories.insert(above.to_owned(), real.clone()));
            });
            real
        }
    };
    real.push(OsStr::from_bytes(&name[1..]));
    match look(&real) {
        Ok(sight) if sight.target.is_some() => None,
        Ok(sight) => Some(Ok(Walked::At(real, sight))),
        Err(errno) => Some(Err(errno)),
    }
}

/// Whether each component is a name.
fn is_plain(path: &[u8]) -> bool {
    let is_name = |component: &[u8]| !matches!(component, b"" | b"." | b"..");
    path.strip_prefix(b"/").is_some_and(|rest| rest.split(|&byte| byte == b'/').all(is_name))
}

fn walk_from_root(path: &Path) -> Result<Walked, Errno> {
    // A slash at the end asks for a directory.
    let ends_in_slash = path.as_os_str().as_bytes().ends_with(b"/");
    if !path.is_absolute() || ends_in_slash {
        return Ok(Walked::AskKernel);
    }
    let mut links = 0;
    let mut rest = Rest::of(path);
    let mut resolved = PathBuf::from("/");
    let mut at = look(&resolved)?;
    while let Some(component) = rest.next() {
        if !at.status.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if component == ".." {
            resolved.pop();
            at = look(&resolved)?;
            continue;
        }
        resolved.push(&component);
        if resolved.starts_with("/proc") {
            return Ok(Walked::AskKernel);
        }
        at = look(&resolved)?;
        if let Some(target) = &at.target {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::ELOOP);
            }
            rest.lead(&mut resolved, target);
            at = look(&resolved)?;
        }
    }
    Ok(Walked::At(resolved, at))
}

/// Components that are still to be walked, the last one first.
struct Rest(Vec<OsString>);

impl Rest {
    fn of(path: &Path) -> Self {
        let mut rest = Self(Vec::new());
        rest.add(path);
        rest
    }

    fn add(&mut self, path: &Path) {
        self.0.extend(path.components().rev().filter_map(|component| match component {
            Component::Normal(name) => Some(name.into()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        }));
    }

    fn next(&mut self) -> Option<OsString> {
        self.0.pop()
    }

    /// Goes on where the link `resolved` leads.
    fn lead(&mut self, resolved: &mut PathBuf, target: &Path) {
        if target.is_absolute() {
            *resolved = PathBuf::from("/");
        } else {
            resolved.pop();
        }
        self.add(target);
    }
}

fn look(path: &Path) -> Result<Rc<Sight>, Errno> {
    let known =
        SEEN.with_borrow(|seen| seen.as_ref().and_then(|seen| seen.sights.get(path.as_os_str()).cloned()));
    known.unwrap_or_else(|| {
        let found = look_now(path).map(Rc::new);
        SEEN.with_borrow_mut(|seen| {
            seen.as_mut().map(|seen| seen.sights.insert(path.as_os_str().to_owned(), found.clone()));
        });
        found
    })
}

fn look_now(path: &Path) -> Result<Sight, Errno> {
    let status = Status::of(&lstat(path)?);
    let is_link = status.kind() == SFlag::S_IFLNK;
    let target = is_link.then(|| nix::fcntl::readlink(path).map(PathBuf::from)).transpose()?;
    Ok(Sight { status, target })
}

#[cfg(test)]
mod tests;
