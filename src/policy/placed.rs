//! A checked rule, and where it stands.

use super::Rule;
use super::report::Diagnostic;

/// A rule with the line that it stands in, for remarks that come later.
pub(super) struct Placed {
    pub(super) rule: Rule,
    pub(super) at: Diagnostic,
    pub(super) quoted: bool,
}
