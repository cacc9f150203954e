//! The files of a sandbox, to be compared before and after.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Sandbox;

/// Every file of the working directory, with its content.
pub(crate) fn tree(sandbox: &Sandbox) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(directory: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = path.symlink_metadata().expect("is there");
            let stamp = format!("{:o} {}.{}", metadata.mode(), metadata.mtime(), metadata.mtime_nsec());
            let mut content = stamp.into_bytes();
            if metadata.is_dir() {
                walk(&path, found);
            } else if metadata.is_file() {
                content.extend(fs::read(&path).expect("reads"));
            }
            found.insert(path, content);
        }
    }
    let mut found = BTreeMap::new();
    walk(&sandbox.path(""), &mut found);
    found
}
