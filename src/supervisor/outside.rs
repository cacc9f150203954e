//! Files of no mount of the run: the standard streams that came in as descriptors. The path of
//! such a file is one of the host, and may be that of another file inside.

use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt as _;

use nix::fcntl::OFlag;

use super::Supervisor;
use super::access::{Area, Decision};
use super::call::Call;
use super::view::Found;
use crate::policy::PathAccess;

/// Reached through a descriptor that a task holds, not by a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// What the descriptor was opened for; none when it was not looked at.
    pub(super) flags: Option<OFlag>,
}

impl Supervisor {
    /// Decides on `found`, whether its path or a descriptor led there.
    pub(super) fn decide_found(
        &self,
        call: &Call,
        access: PathAccess,
        wanted: Option<OFlag>,
        found: &Found,
    ) -> Decision {
        if let Some(held) = found.held
            && is_outside(call, found)
        {
            // Opened again for what the descriptor can do already, as /dev/stdout is.
            return match (held.flags, wanted) {
                (Some(flags), Some(wanted)) if covers(flags, wanted) => Decision::Allow(Area::Private),
                _ => Decision::Deny {
                    rule: None,
                    reason: "it came in as an open file, and was not opened for this".to_owned(),
                },
            };
        }
        if is_anonymous(found) {
            return Decision::Allow(Area::Private);
        }
        self.access.decide(access, &found.path, Some(found.id()))
    }
}

/// Whether a file that is open with `flags` can already do what an open with `wanted` could.
fn covers(flags: OFlag, wanted: OFlag) -> bool {
    let mode = |flags: OFlag| flags & OFlag::O_ACCMODE;
    let truncates = wanted.contains(OFlag::O_TRUNC) && mode(flags) == OFlag::O_RDONLY;
    !flags.contains(OFlag::O_PATH)
        && !truncates
        && (mode(flags) == OFlag::O_RDWR || mode(flags) == mode(wanted))
}

/// Whether the file lies in a mount that the task does not have; so does what cannot be told.
pub(super) fn is_outside(call: &Call, found: &Found) -> bool {
    let path = found.path.as_os_str().as_bytes();
    if path.first() != Some(&b'/') || path.starts_with(b"/memfd:") {
        return false;
    }
    let id = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", found.file.as_raw_fd()));
    let id = id
        .ok()
        .and_then(|text| Some(text.lines().find_map(|l| l.strip_prefix("mnt_id:"))?.trim().to_owned()));
    let (Some(id), Ok(mounts)) = (id, call.task.read("mountinfo")) else { return true };
    !mounts
        .split(|&byte| byte == b'\n')
        .any(|line| line.split(|&byte| byte == b' ').next() == Some(id.as_bytes()))
}

/// Pipes, memfds, sockets and other objects without a name: the process has them already.
fn is_anonymous(found: &Found) -> bool {
    let path = found.path.as_os_str().as_bytes();
    path.first() != Some(&b'/') || path.starts_with(b"/memfd:") || found.status.st_nlink == 0
}

#[cfg(test)]
mod tests {
    use super::covers;
    use nix::fcntl::OFlag;

    #[test]
    fn a_descriptor_is_opened_again_for_no_more_than_it_can() {
        let (read, write, both) = (OFlag::O_RDONLY, OFlag::O_WRONLY, OFlag::O_RDWR);
        assert!(covers(read, read) && covers(write, write) && covers(both, read) && covers(both, both));
        assert!(!covers(read, write) && !covers(read, both) && !covers(write, read) && !covers(write, both));
        assert!(covers(write, write | OFlag::O_TRUNC) && !covers(read, read | OFlag::O_TRUNC));
        assert!(!covers(OFlag::O_PATH, read));
    }
}
