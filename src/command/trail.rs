//! A path followed link by link, as path_resolution(7) describes.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::{Executable, Link};
use crate::policy::looks;

/// The kernel's own limit (MAXSYMLINKS).
const MOST_LINKS: usize = 40;

/// Where a path ends, and the links it leads through.
pub(super) struct Trail {
    pub(super) real: PathBuf,
    pub(super) links: Vec<Link>,
}

/// Follows an absolute path. Every component must exist.
pub(super) fn follow(path: &Path) -> io::Result<Trail> {
    let mut pending: VecDeque<OsString> = VecDeque::new();
    prepend(&mut pending, path);
    let mut real = PathBuf::from("/");
    let mut links: Vec<Link> = Vec::new();
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        let Some(target) = looks::link(&next)? else {
            real = next;
            continue;
        };
        if links.len() == MOST_LINKS {
            return Err(io::Error::from(nix::errno::Errno::ELOOP));
        }
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        prepend(&mut pending, &target);
        links.push(Link { path: next, target });
    }
    Ok(Trail { real, links })
}

/// Every name of an executable: as spelled, each link that stands for the file itself, resolved.
pub(super) fn names(executable: &Executable) -> Vec<PathBuf> {
    let mut names = vec![executable.spelled.clone()];
    let links = follow(&executable.spelled).map(|trail| trail.links).unwrap_or_default();
    let files = links.into_iter().map(|link| link.path).filter(|path| looks::is_file(path));
    for name in files.chain([executable.resolved.clone()]) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn prepend(pending: &mut VecDeque<OsString>, path: &Path) {
    for part in path.components().rev() {
        match part {
            Component::Normal(name) => pending.push_front(name.to_owned()),
            Component::ParentDir => pending.push_front("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}
