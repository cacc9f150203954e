//! Takes every capability away (capabilities(7)), as root too.

use caps::CapSet;

/// Empties the bounding, ambient, inheritable, permitted and effective sets.
///
/// # Errors
/// When the kernel refuses to drop one of them.
pub fn drop_all() -> Result<(), caps::errors::CapsError> {
    crate::sys::process::drop_bounding_set()
        .map_err(|error| caps::errors::CapsError::from(error.to_string()))?;
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::clear(None, CapSet::Effective)?;
    caps::clear(None, CapSet::Permitted)
}

/// Empties the effective set of the calling thread: from then on a root launcher acts with the
/// rights that its files give it, as the agent would.
///
/// # Errors
/// When the kernel refuses.
pub fn act_without() -> Result<(), caps::errors::CapsError> {
    caps::clear(None, CapSet::Effective)
}
