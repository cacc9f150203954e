//! Programs in places that rules name and that do not exist yet.

use std::path::{Path, PathBuf};

use super::roots::{Root, exec_reaches};
use crate::fsview::PendingRoot;
use crate::policy::{Policy, is_within};
use crate::sys::mount::NOEXEC;

/// Directories around such places from which the kernel may start programs then: Landlock has no rule for what is not
/// there. Its rights reach into everything below: where something else is there, the place starts no programs.
/// `direct` starts programs already, and `private` are the run's own directories.
pub(super) fn around(
    policy: &Policy,
    pending: &mut [PendingRoot],
    roots: &[Root],
    (direct, private): (&[PathBuf], &[PathBuf]),
) -> Vec<PathBuf> {
    let starts = |path: &Path| exec_reaches(policy, path);
    let quiet: Vec<_> = pending.iter().map(|place| place.path.clone()).filter(|path| !starts(path)).collect();
    let mut around = Vec::new();
    for place in pending.iter_mut().filter(|place| starts(&place.path)) {
        if direct.iter().any(|path| is_within(&place.path, path)) {
            continue;
        }
        let is_below = |path: &Path| is_within(path, &place.base);
        let is_shared =
            roots.iter().any(|root| is_below(&root.path) && !root.is_system() && !starts(&root.path))
                || private.iter().any(|own| is_below(own) || is_within(&place.path, own))
                || quiet.iter().any(|other| is_below(other));
        if is_shared {
            place.attributes |= NOEXEC;
        } else {
            around.push(place.base.clone());
        }
    }
    around
}
