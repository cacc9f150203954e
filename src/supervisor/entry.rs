//! What to name for a refused change: of a name that is made, removed or moved, the directory around it.
//!
//! A rule for a file that is not there yet is a mount once the file is made, which is neither removed nor renamed
//! (EBUSY), and a program that takes another random name each time never finds it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::absent::{is_on_host, is_the_runs_own};
use super::call::{Call, Reply, low_half};
use super::mutate::Target;
use super::{Stop, Supervisor, denials};
use crate::policy::{Denied, PathAccess};
use crate::trace::{Event, Kind};

/// Random letters at the end of a name (mkdtemp(3)).
const RANDOM: usize = 6;

/// What was refused, as its rule has to name it.
pub(super) fn refused(call: &Call, access: PathAccess, resolved: &Path) -> Denied {
    let plain = || denials::path(access, resolved);
    if access == PathAccess::Read || is_the_runs_own(resolved) {
        return plain();
    }
    let entry =
        |directory: &Path| Denied::Entry { path: resolved.to_owned(), directory: directory.to_owned() };
    if let Some(directory) = repository(resolved).filter(|_| is_git(call)) {
        return entry(&directory);
    }
    match resolved.parent() {
        Some(parent) if is_of_names(call, resolved) => entry(parent),
        _ => plain(),
    }
}

/// Whether the call makes, removes or moves the name, and not only what it stands for.
fn is_of_names(call: &Call, path: &Path) -> bool {
    let number = i64::from(call.number);
    let removing = [libc::SYS_unlink, libc::SYS_unlinkat, libc::SYS_rmdir];
    let moving = [libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2];
    let mode = match number {
        libc::SYS_mkdir => Some(call.arguments[1]),
        libc::SYS_mkdirat => Some(call.arguments[2]),
        _ => None,
    };
    match mode {
        // A directory that has its name for good is one to grant by itself.
        Some(mode) => low_half(mode) & 0o077 == 0 || path.file_name().is_none_or(seems_random),
        None => removing.contains(&number) || moving.contains(&number) || !is_on_host(path),
    }
}

/// Whether digits, small and capital letters alternate at the end of a name.
fn seems_random(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let Some(end) = name.len().checked_sub(RANDOM).map(|start| &name[start..]) else { return false };
    let kind = |byte: &u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    let changes = end.windows(2).filter(|two| kind(&two[0]) != kind(&two[1])).count();
    end.iter().all(u8::is_ascii_alphanumeric) && changes > 1
}

/// The directory of git's that holds the name (gitrepository-layout(5)).
fn repository(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .skip(1)
        .find(|above| above.file_name().is_some_and(|name| name == ".git"))
        .map(Path::to_owned)
}

/// Whether git asks. It is a hint for a hint: nothing is allowed by it.
fn is_git(call: &Call) -> bool {
    let Ok(program) = call.task.link("exe") else { return false };
    let name = Path::new(&program).file_name().unwrap_or_default().as_bytes();
    name == b"git" || name.starts_with(b"git-")
}

impl Supervisor {
    /// The answer to a call that would remove or move what a rule names, a mount of its own, or what is on the way to it.
    pub(super) fn refuse_mount(&mut self, call: &Call, target: &Target) -> Result<Reply, Stop> {
        let (path, policy) = (target.place.path(), &self.access.policy);
        if let Some(directory) = path.parent()
            && policy.shown().any(|place| place.starts_with(&path))
        {
            let helps = !policy.decide_path(PathAccess::Write, directory).is_allow();
            let label = if helps { "no rule allows changing the names around it" } else { IS_NAMED };
            let event = Event::new(Kind::Deny, "write").arg("enforced", true);
            let event = target.spelled.add_to(event, "target", &path).arg("pid", call.task.inner_tgid());
            let event = event.proc(call.task.lineage.clone()).rule(label);
            self.deny(event, Denied::Entry { path: path.clone(), directory: directory.to_owned() }, None)?;
        }
        Ok(Reply::Errno(Errno::EBUSY))
    }
}

/// Why it stays where it is, although the names around it may change.
const IS_NAMED: &str = "no rule: what a rule names by itself is neither removed nor renamed";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_names_are_told_from_plain_ones() {
        for name in ["target0mAJtI", "tmp.Xa8d0c2K1B", "foo.C9jtOX"] {
            assert!(seems_random(OsStr::new(name)), "{name}");
        }
        for name in ["target", "python3", "build2024", "MyProject", "out", "v1.2.3", "node_modules"] {
            assert!(!seems_random(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_repository_is_found_above() {
        let found = |path: &str| repository(Path::new(path));
        assert_eq!(found("/w/.git/objects/9b"), Some("/w/.git".into()));
        assert_eq!(found("/w/.git"), None);
        assert_eq!(found("/w/.gitignore"), None);
    }
}
