//! Variables that hold a key: what `init` offers, and what a command that failed may have missed.

use std::ffi::OsString;

/// The names of those that are set, in order.
pub(super) fn set(environment: &[(OsString, OsString)]) -> Vec<String> {
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let mut keys: Vec<String> = environment
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, _)| name.to_str())
        .filter(|name| name.ends_with("_API_KEY") && is_plain(name))
        .map(str::to_owned)
        .collect();
    keys.sort();
    keys.dedup();
    keys
}
