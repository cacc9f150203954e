//! Files of /proc that tell about the machine and not about the run: what is there, and what the
//! run could read, is masked.
//!
//! The list is that of container runtimes (runc's default `maskedPaths`), and what the host's root
//! reads by owning it: a root launcher's run has its user id. What asks for a capability in the
//! host's user namespace (kcore, kmsg) is closed by itself, and /proc as a whole is read-only.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::HostFacts;
use crate::policy::{PathAccess, Policy};

pub(super) const PROC: &str = "/proc";

const TOLD: [&str; 15] = [
    "acpi",
    "asound",
    "interrupts",
    "keys",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "pagetypeinfo",
    "sched_debug",
    "scsi",
    "slabinfo",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
];

/// What is masked for this caller; a rule that grants a file keeps it visible.
pub(super) fn masked(policy: &Policy, facts: &HostFacts) -> impl Iterator<Item = PathBuf> {
    readable(facts.caller).filter(|path| !policy.decide_path(PathAccess::Read, path).is_allow())
}

/// What `caller` could read.
pub(super) fn readable(caller: (u32, u32)) -> impl Iterator<Item = PathBuf> {
    TOLD.iter().map(|name| Path::new(PROC).join(name)).filter(move |path| is_readable(path, caller))
}

/// Without capabilities.
fn is_readable(path: &Path, caller: (u32, u32)) -> bool {
    let Ok(status) = path.symlink_metadata() else { return false };
    let class = match (status.uid() == caller.0, status.gid() == caller.1) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    status.mode() >> class & 0o4 != 0
}
