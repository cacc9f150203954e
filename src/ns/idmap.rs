//! User and group id maps (user_namespaces(7)): the caller's ids, and no others.

use std::fs::OpenOptions;
use std::io::Write;

use crate::sys::refused::Refused;

/// Maps `uid` and `gid` to themselves in the calling process's new user namespace.
///
/// # Errors
/// EPERM where the host lets user namespaces be made but not used.
pub fn write(uid: u32, gid: u32) -> Result<(), Refused> {
    // An unprivileged map of groups needs setgroups(2) switched off first (Linux 3.19).
    put("/proc/self/setgroups", "deny").map_err(Refused::by("write(/proc/self/setgroups)"))?;
    let map = format!("{uid} {uid} 1");
    put("/proc/self/uid_map", &map).map_err(Refused::by("write(/proc/self/uid_map)"))?;
    let map = format!("{gid} {gid} 1");
    put("/proc/self/gid_map", &map).map_err(Refused::by("write(/proc/self/gid_map)"))
}

fn put(path: &str, line: &str) -> std::io::Result<()> {
    // The kernel takes the whole map in one write.
    OpenOptions::new().write(true).open(path)?.write_all(line.as_bytes())
}
