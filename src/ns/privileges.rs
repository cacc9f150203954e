//! Takes every capability away (capabilities(7)), as root too.

use caps::CapSet;
use nix::errno::Errno;

use crate::sys::process;
use crate::sys::refused::Refused;

/// Empties the bounding, ambient, inheritable, permitted and effective sets.
///
/// # Errors
/// When the kernel refuses to drop one of them.
pub fn drop_all() -> Result<(), Refused> {
    process::drop_bounding_set().map_err(Refused::by("prctl(PR_CAPBSET_DROP)"))?;
    clear(CapSet::Ambient, "prctl(PR_CAP_AMBIENT)")?;
    clear(CapSet::Inheritable, "capset")?;
    clear(CapSet::Effective, "capset")?;
    clear(CapSet::Permitted, "capset")
}

/// Empties the effective set of the calling thread: from then on a root launcher acts with the
/// rights that its files give it, as the agent would.
///
/// # Errors
/// When the kernel refuses.
pub fn act_without() -> Result<(), Refused> {
    clear(CapSet::Effective, "capset")
}

fn clear(set: CapSet, call: &'static str) -> Result<(), Refused> {
    // The library keeps the errno as a text alone.
    caps::clear(None, set).map_err(|_| Refused::by(call)(Errno::last()))
}
