//! What a captured run listed and never opened, and is not here: places that hold nothing but its status.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::initial::{entry_path, is_direct};
use crate::fsview::initial::{Content, Former, Status};
use crate::supervisor::{LINKS_IN, RecordedStatuses};
use crate::trace::StoredBlobs;

/// The longest list of links that is read, in bytes.
const MOST: u64 = 16 << 20;

/// What links held, by their paths.
pub(super) type Links = BTreeMap<PathBuf, OsString>;

/// Takes what an entry says of links into `links`.
///
/// # Errors
/// When the body cannot be read.
pub(super) fn add(links: &mut Links, entry: &Map<String, Value>, blobs: &StoredBlobs) -> io::Result<()> {
    if entry.get("op").and_then(Value::as_str) != Some(LINKS_IN) {
        return Ok(());
    }
    let args = entry.get("args").and_then(Value::as_object);
    let body = args.and_then(|args| args.get("links")?.get("blob")?.as_str());
    let (Some(directory), Some(body)) = (args.and_then(entry_path), body) else { return Ok(()) };
    let body = blobs.read(body, MOST)?;
    let mut words = body.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    while let (Some(name), Some(target)) = (words.next(), words.next()) {
        if let Some(path) = below(&directory, &name) {
            links.entry(path).or_insert(target);
        }
    }
    Ok(())
}

/// The path of a name in a directory, if it can lead nowhere else.
pub(super) fn below(directory: &Path, name: &OsString) -> Option<PathBuf> {
    let path = directory.join(name);
    (is_direct(&path) && path.parent() == Some(directory) && path.file_name() == Some(name)).then_some(path)
}

/// What stands for the file at `path`, if it is known what that was.
pub(super) fn placeholder(path: &Path, statuses: &RecordedStatuses, links: &Links) -> Option<Former> {
    let (mode, size, mtime_ns) = statuses.former(path)?;
    let status = Status { mode: mode & 0o1777, mtime_ns };
    match mode & nix::libc::S_IFMT {
        nix::libc::S_IFREG => Some(Former::File { status, size, content: Content::Unread }),
        nix::libc::S_IFDIR => Some(Former::Directory(status)),
        nix::libc::S_IFLNK => Some(Former::Link { target: links.get(path)?.clone(), status }),
        nix::libc::S_IFIFO => Some(Former::Special { socket: false, status }),
        nix::libc::S_IFSOCK => Some(Former::Special { socket: true, status }),
        _ => None,
    }
}
