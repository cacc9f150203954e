//! Takes every capability away (capabilities(7)), as root too.

use caps::CapSet;
use nix::errno::Errno;

use crate::sys::process;
use crate::sys::refused::Refused;

/// Empties the bounding set, which takes a call for each capability: what the caller can do by itself stays
/// until [`drop_all`].
///
/// # Errors
/// When the kernel refuses to drop one of them.
pub fn drop_bounding() -> Result<(), Refused> {
    process::drop_bounding_set().map_err(Refused::by("prctl(PR_CAPBSET_DROP)"))
}

/// Empties the ambient, inheritable, permitted and effective sets, after [`drop_bounding`].
///
/// # Errors
/// When the kernel refuses to empty one of them.
pub fn drop_all() -> Result<(), Refused> {
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
