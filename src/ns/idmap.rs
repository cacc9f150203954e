//! User and group id maps (user_namespaces(7)): the caller's ids, and no others. In a replay they look as those of the
//! recorded run.

use std::fs::OpenOptions;
use std::io::Write;

use crate::sys::refused::Refused;

/// Shows the caller's user and group as `inside` in the calling process's new user namespace.
///
/// # Errors
/// EPERM where the host lets user namespaces be made but not used.
pub fn write(inside: (u32, u32), caller: (u32, u32)) -> Result<(), Refused> {
    // An unprivileged map of groups needs setgroups(2) switched off first (Linux 3.19).
    put("/proc/self/setgroups", "deny").map_err(Refused::by("write(/proc/self/setgroups)"))?;
    let map = format!("{} {} 1", inside.0, caller.0);
    put("/proc/self/uid_map", &map).map_err(Refused::by("write(/proc/self/uid_map)"))?;
    let map = format!("{} {} 1", inside.1, caller.1);
    put("/proc/self/gid_map", &map).map_err(Refused::by("write(/proc/self/gid_map)"))
}

fn put(path: &str, line: &str) -> std::io::Result<()> {
    // The kernel takes the whole map in one write.
    OpenOptions::new().write(true).open(path)?.write_all(line.as_bytes())
}
