//! Opens of the system's own files: most opens of most programs, which the kernel carries out itself.
//!
//! Should the path mean another file by the time the kernel looks, Landlock withholds every file that
//! is recorded.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::Supervisor;
use super::access::{Area, Decision};
use super::call::Reply;
use super::request::Request;
use super::spelling::is_clean;
use super::view::Found;
use crate::policy::PathAccess;
use crate::sys::seccomp::Notification;

/// Paths that are remembered.
const REMEMBERED: usize = 4096;

/// Paths that led to files of the system, or to nothing there.
#[derive(Debug, Default)]
pub(super) struct SystemFiles {
    known: HashSet<Vec<u8>>,
}

impl SystemFiles {
    fn remember(&mut self, absolute: &[u8]) {
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(absolute.to_vec());
    }
}

impl Supervisor {
    /// Whether the kernel may carry out opens of devices and pipes as this one: the path that it reads may mean
    /// another one by then, as the pipe that is standard input, which must not be written to.
    pub(super) fn kernel_may_open(&self, request: &Request) -> bool {
        let is_harmless = self.view.input.is_none() || request.access() == PathAccess::Read;
        request.fixed && !self.access.full_mediation && is_harmless
    }

    /// Whether the path as it was typed says so, whoever waits in the call. Only a task that was looked at, for what it
    /// makes is named after it.
    pub(super) fn may_continue(&self, call: &Notification, request: &Request) -> bool {
        request.path.first() == Some(&b'/')
            && self.tasks.has_met(call.pid)
            && self.is_system_by_spelling(request, &request.path)
    }

    /// Whether the path alone says that the kernel may carry the open out.
    pub(super) fn is_system_by_spelling(&self, request: &Request, absolute: &[u8]) -> bool {
        !self.access.full_mediation
            && only_reads(request)
            && (is_plainly_system(absolute) || self.system_files.known.contains(absolute))
    }

    /// Whether the kernel may carry the open out: it only reads, the file is one of the system's own,
    /// and no rule denies anything inside the view.
    pub(super) fn is_system_file(&mut self, request: &Request, absolute: &[u8], found: &Found) -> bool {
        let system = only_reads(request)
            && !self.access.full_mediation
            && self.access.is_system(&found.path)
            // A file of no place here, which Landlock withholds.
            && found.path != Path::new("/dev/stdin")
            && !self.access.is_protected(&found.path, Some(self.view.id_of(found)))
            // /dev/shm: Landlock gives no right there.
            && !self.access.is_private(&found.path)
            // Landlock knows the view alone.
            && !self.view.is_inherited(found);
        if system && self.stays_system(absolute) {
            self.system_files.remember(absolute);
        }
        system
    }

    /// Notes that nothing is at a path where the system has its files, as where compilers look for each header:
    /// what comes to be there is the system's too.
    pub(super) fn note_absent_of_system(&mut self, request: &Request, absolute: &[u8], reply: &Reply) {
        let path = Path::new(OsStr::from_bytes(absolute));
        let is_of_system = matches!(reply, Reply::Errno(Errno::ENOENT))
            && only_reads(request)
            && !self.access.full_mediation
            && self.stays_system(absolute)
            // No rule names it, which would have each look recorded.
            && matches!(self.access.decide(PathAccess::Read, path, None), Decision::Allow(Area::System))
            // A link that leads to nothing may lead out of the system's trees.
            && self.view.lacks_without_links(absolute);
        if is_of_system {
            self.system_files.remember(absolute);
        }
    }

    /// Whether a path that led to a file of the system will do so again: the agent cannot change the
    /// way, and it means the same for every task.
    pub(super) fn stays_system(&self, absolute: &[u8]) -> bool {
        let changing = [&b"/proc/"[..], b"/dev/", b"/sys/"];
        // Links into /usr that the view makes.
        let links = [&b"/lib/"[..], b"/lib64/", b"/bin/", b"/sbin/"];
        is_clean(absolute)
            && !changing.iter().any(|tree| absolute.starts_with(tree))
            && (links.iter().any(|link| absolute.starts_with(link))
                || self.access.is_system(Path::new(OsStr::from_bytes(absolute))))
    }
}

fn only_reads(request: &Request) -> bool {
    // Flags that stand in memory could change.
    request.fixed && request.access() == PathAccess::Read && !request.flags.contains(OFlag::O_CREAT)
}

/// Whether the path is spelled inside /usr, or where we would see other files than the task.
fn is_plainly_system(absolute: &[u8]) -> bool {
    let trees = [&b"/usr/"[..], b"/proc/sys/net/"];
    trees.iter().any(|tree| absolute.starts_with(tree))
        // Where administrators link into the homes of users.
        && !absolute.starts_with(b"/usr/local/")
        && !absolute.windows(3).any(|part| part == b"/..")
}
