//! Mounts of a test's own: what gets out of a run is seen, what others of this host mount is not.

use std::collections::BTreeSet;
use std::fs;
use std::panic::resume_unwind;
use std::thread::{Builder, current, scope};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Runs a test in a mount namespace of its own, where the caller may make one. Its mounts are shared: what gets out
/// of a run's namespace comes into this one (mount_namespaces(7)).
pub(crate) fn apart(test: impl FnOnce() + Send) {
    let name = current().name().unwrap_or("a test").to_owned();
    let body = || {
        if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
            for kind in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
                let none = None::<&str>;
                mount(none, "/", none, MsFlags::MS_REC | kind, none).expect("another propagation");
            }
        }
        test();
    };
    let done = scope(|scope| Builder::new().name(name).spawn_scoped(scope, body).expect("a thread").join());
    if let Err(panic) = done {
        resume_unwind(panic);
    }
}

/// The mounts that the calling thread sees: the number of each, and where it is. They can become fewer, where somebody
/// on this host removes the directory of one.
pub(crate) fn seen() -> BTreeSet<(String, String)> {
    let text = fs::read_to_string("/proc/thread-self/mountinfo").expect("mounts");
    let word = |line: &str, at: usize| line.split(' ').nth(at).unwrap_or_default().to_owned();
    text.lines().map(|line| (word(line, 0), word(line, 4))).collect()
}
