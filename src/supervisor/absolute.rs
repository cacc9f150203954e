//! What a path means that a task names: joined with where it starts, and with the task's own links put into words.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nix::errno::Errno;

use super::spelling::{is_own_link, name_self};
use super::task::Task;
use super::view::{Spelled, View};

impl View {
    /// The absolute spelling of `path` as the task means it: joined with the directory behind
    /// `directory` (AT_FDCWD: its working directory), /proc/self put into words.
    pub(super) fn absolute(task: &Task, directory: i32, path: &[u8]) -> nix::Result<Spelled> {
        Self::absolute_from(task, None, directory, path)
    }

    /// The same where it is known already at what `directory` starts.
    pub(super) fn absolute_from(
        task: &Task,
        start: Option<OsString>,
        directory: i32,
        path: &[u8],
    ) -> nix::Result<Spelled> {
        let joined = Self::join(task, start, directory, path)?;
        let named = match name_self(task, &joined) {
            Cow::Owned(named) => Some(named),
            Cow::Borrowed(_) => None,
        };
        Ok(Spelled { typed: path.to_vec(), absolute: named.unwrap_or_else(|| joined.into_owned()) })
    }

    /// As [`absolute`](Self::absolute), for a call that does not follow a link at the end: one that means the
    /// task stays what it is.
    pub(super) fn unfollowed(task: &Task, directory: i32, path: &[u8]) -> nix::Result<Vec<u8>> {
        let joined = Self::join(task, None, directory, path)?;
        Ok(if is_own_link(&joined) { joined.into_owned() } else { name_self(task, &joined).into_owned() })
    }

    fn join<'a>(
        task: &Task,
        start: Option<OsString>,
        directory: i32,
        path: &'a [u8],
    ) -> nix::Result<Cow<'a, [u8]>> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.first() == Some(&b'/') {
            return Ok(path.into());
        }
        let base = start.map_or_else(|| task.start(directory), Ok)?;
        if base.as_bytes().first() != Some(&b'/') {
            return Err(Errno::ENOTDIR);
        }
        let mut joined = base.into_vec();
        joined.reserve_exact(1 + path.len());
        joined.push(b'/');
        joined.extend_from_slice(path);
        Ok(joined.into())
    }
}
