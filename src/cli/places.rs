//! Places that options name.

use std::io::ErrorKind;
use std::path::PathBuf;

/// What the user names lies where the user is, whatever directory the trace names.
pub(super) fn absolute_path(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}

pub(super) fn empty_directory(text: &str) -> Result<PathBuf, String> {
    let path = absolute_path(text)?;
    match path.read_dir().map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(path),
        Ok(false) => Err("it is not empty: name a directory that is empty or absent".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(path),
        Err(error) => Err(error.to_string()),
    }
}
