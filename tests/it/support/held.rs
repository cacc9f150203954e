//! What a killed one still holds.

use std::fs::{self, File};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use super::{Sandbox, until};

/// Waits until nobody holds what lies in the sandbox's state directory. One that was killed has no words and no
/// working directory any more while the kernel closes what it had open: namespaces are left in between
/// (kernel/exit.c, `do_exit`).
pub(crate) fn nothing_is_held(sandbox: &Sandbox) {
    until("nothing is held", || is_free(&sandbox.beside("state/agentbox")));
}

/// Whether nobody holds a lock on this or on what is in it (flock(2)).
fn is_free(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return true };
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()
        && inside.into_iter().all(|entry| is_free(&entry.path()))
}
