//! Paths that lead to nothing in the view: refused where the host has something there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

use super::access::{Area, Decision, is_of_opener};
use super::call::{Call, Reply};
use super::spelling::{is_clean, lexical};
use super::view::{Spelled, View};
use super::{Stop, Supervisor};
use crate::policy::PathAccess;
use crate::trace::{Event, Kind};

/// How many links a path may lead through (path_resolution(7)).
pub(super) const LINKS: usize = 40;

/// What a call wants of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// To read what is there.
    Read,
    /// To change, move or remove what is there.
    Change,
    /// To have something there, made where it is not.
    Make,
}

impl Wish {
    fn access(self) -> PathAccess {
        if self == Self::Read { PathAccess::Read } else { PathAccess::Write }
    }
}

impl Supervisor {
    /// What is not in the view: refused if the host has it, absent otherwise. `errno` is what the view says.
    pub(super) fn absent(
        &mut self,
        call: &Call,
        wish: impl Into<Wish>,
        spelled: &Spelled,
        errno: Errno,
    ) -> Result<Reply, Stop> {
        let wish = wish.into();
        let access = wish.access();
        let path = self.view.leads_to(&spelled.absolute);
        let decision = self.access.decide(access, &path, None);
        if let Decision::Allow(area) = decision {
            if let Area::Rule(rule) = area
                && access == PathAccess::Read
            {
                let label = self.access.grant_label(rule);
                let event = Event::new(Kind::Observe, "fs.open_read").arg("exists", false);
                let event = spelled.add_to(event, "path", &path).proc(call.task.lineage.clone()).rule(label);
                self.recorder.record_folded(event)?;
            }
            if area == Area::Private {
                self.denials.missed_in_private(&path);
            }
            return Ok(Reply::Errno(errno));
        }
        let exists = match wish {
            // Whether the host has it is not told.
            _ if is_of_opener(&path) => true,
            Wish::Make => path.parent().is_some_and(|parent| !is_the_runs_own(parent) && parent.is_dir()),
            Wish::Read | Wish::Change => self.host_has(&path),
        };
        if !exists {
            return Ok(Reply::Errno(errno));
        }
        match self.judge(call, access, spelled, &path, &decision)? {
            Some(_) => Ok(Reply::Errno(errno)),
            None => Ok(Reply::Errno(Errno::EACCES)),
        }
    }

    /// Whether the host has something there that the view does not show. The look is made with the
    /// caller's rights: it tells nothing that they could not see.
    pub(super) fn host_has(&self, path: &Path) -> bool {
        // What is made inside alone is all there is.
        !self.view.is_diverted(path) && is_on_host(path)
    }

    /// What cannot be looked at: below a directory that a rule closed by a mount, it is refused by
    /// that rule.
    pub(super) fn unreachable(
        &mut self,
        call: &Call,
        access: PathAccess,
        spelled: &Spelled,
        errno: Errno,
    ) -> Result<Reply, Stop> {
        if errno == Errno::EACCES {
            let path = self.view.blocked_at(&spelled.absolute);
            let decision = self.access.decide(access, &path, None);
            // Only for the record: the answer is the same.
            self.judge(call, access, spelled, &path, &decision)?;
        }
        Ok(Reply::Errno(errno))
    }
}

/// Whether the host has something at this path. Of its processes and terminals it is not asked: who
/// could try their numbers would see them.
pub(super) fn is_on_host(path: &Path) -> bool {
    !is_the_runs_own(path) && path.symlink_metadata().is_ok()
}

/// Whether the view has a file system of its own there, which says all that there is.
pub(super) fn is_the_runs_own(path: &Path) -> bool {
    ["/proc", "/dev/pts"].iter().any(|own| path.starts_with(own))
}

impl View {
    /// Where a path leads that is not in the view: its links followed as far as the view goes,
    /// the rest as it is spelled. The host is not looked at.
    pub(super) fn leads_to(&self, absolute: &[u8]) -> PathBuf {
        if is_clean(absolute) && self.lacks_without_links(absolute) {
            return PathBuf::from(OsStr::from_bytes(absolute));
        }
        let mut place = PathBuf::from("/");
        let mut rest = PathBuf::from(OsStr::from_bytes(absolute));
        for _ in 0..LINKS {
            let mut components = rest.strip_prefix("/").unwrap_or(&rest).components();
            let link = components.by_ref().find_map(|component| match component {
                Component::ParentDir => {
                    place.pop();
                    None
                }
                Component::Normal(name) => {
                    place.push(name);
                    self.link_at(&place)
                }
                _ => None,
            });
            let Some(target) = link else { return place };
            place.pop();
            rest = place.join(target).join(components.as_path());
            place = PathBuf::from("/");
        }
        lexical(absolute)
    }

    /// Whether the way ends at a name that is not there, with no link before it and none of that name.
    pub(super) fn lacks_without_links(&self, absolute: &[u8]) -> bool {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(resolve);
        matches!(openat2(&self.root, OsStr::from_bytes(absolute), how), Err(Errno::ENOENT))
    }

    /// What the link at `path` says, if there is one.
    fn link_at(&self, path: &Path) -> Option<OsString> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file = self.open(path.as_os_str().as_bytes(), flags, Mode::empty()).ok()?;
        nix::fcntl::readlinkat(&file, "").ok()
    }
}
