//! Heads: which traces were made here, so that one that came from elsewhere is not run unasked.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Map, Value};

use super::super::canonical;
use super::super::error::TraceError;
use super::super::event::path_value;
use super::super::layout::HEADS_NAME;
use super::state::StateDirectories;

/// Notes that the trace at `path` with this head was made by this user on this host.
///
/// # Errors
/// When the state directory cannot hold it.
pub fn remember_head(head: &str, path: &Path) -> Result<(), TraceError> {
    let parent = StateDirectories::from_environment().create(HEADS_NAME)?;
    let note: Map<String, Value> =
        path_value("path", path.as_os_str().as_encoded_bytes()).into_iter().collect();
    let mut text = String::new();
    canonical::write_object(&mut text, &note);
    let written = match parent.create_file(&OsString::from(head)) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    };
    written.map_err(|source| TraceError::Create { path: parent.join(head.as_ref()), source })
}

/// Whether the trace with this head was made here.
#[must_use]
pub fn is_known_head(head: &str) -> bool {
    let is_hash = head.len() == 64 && head.bytes().all(|byte| byte.is_ascii_hexdigit());
    let places = StateDirectories::from_environment().existing_below(HEADS_NAME);
    is_hash && places.iter().any(|place| matches!(place.entry(head.as_ref()), Ok(Some(_))))
}
