//! Makes room for a trace: a former trace is renamed, anything else is left alone unless it may be overwritten.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};

use super::super::error::TraceError;
use super::super::layout::{blobs_name, former_name, former_number};
use super::super::scan::looks_like_a_trace;
use super::directory::{Directory, Entry, EntryKind, file_identity, lock};

/// What may become of a file that is no trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Overwrite {
    Never,
    OtherFiles,
}

/// Frees `name` in `directory`, before a run.
pub(super) fn make_room(directory: &Directory, name: &OsStr, overwrite: Overwrite) -> Result<(), TraceError> {
    let occupied = |what| TraceError::Occupied { path: directory.join(name), what };
    let read = |source| TraceError::Read { path: directory.join(name), source };
    let Some(entry) = directory.entry(name).map_err(read)? else {
        return adopt_blobs(directory, name);
    };
    match entry.kind {
        EntryKind::Directory => return Err(occupied("a directory")),
        EntryKind::Special => return Err(occupied("no regular file")),
        EntryKind::Link if overwrite == Overwrite::Never => {
            return Err(occupied("a symbolic link, which is not followed"));
        }
        EntryKind::Link => directory.remove_file(name).map_err(read)?,
        EntryKind::File => make_room_of_file(directory, name, &entry, overwrite)?,
    }
    adopt_blobs(directory, name)
}

/// Renames a trace, and removes what is empty or may be overwritten.
fn make_room_of_file(
    directory: &Directory,
    name: &OsStr,
    entry: &Entry,
    overwrite: Overwrite,
) -> Result<(), TraceError> {
    let path = || directory.join(name);
    let read = |source| TraceError::Read { path: path(), source };
    let file = directory.open_file(name).map_err(read)?;
    let same = file_identity(&file).map_err(read)? == entry.identity;
    let Some(mut file) = lock(file).map_err(read)?.filter(|_| same) else {
        return Err(TraceError::Busy { path: path() });
    };
    let mut start = [0; 64];
    let count = file.read(&mut start).map_err(read)?;
    if looks_like_a_trace(&start[..count]) {
        return rotate(directory, name).map(drop);
    }
    if entry.size > 0 && overwrite == Overwrite::Never {
        return Err(TraceError::NotReplaceable { path: path() });
    }
    directory.remove_file(name).map_err(read)
}

/// Renames what stands at `name`, and its blobs, to the next number. Returns the new name, if anything was there.
pub(super) fn rotate(directory: &Directory, name: &OsStr) -> Result<Option<OsString>, TraceError> {
    let mut number = highest_former(directory, name)? + 1;
    let former = loop {
        let former = former_name(name, number);
        match directory.rename(name, directory, &former) {
            Ok(()) => break Some(former),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break None,
            Err(source) => return Err(rename_error(directory, name, &former, source)),
        }
    };
    adopt_blobs(directory, name)?;
    Ok(former)
}

/// Returns a name for one more former trace that is free now.
pub(super) fn free_name(directory: &Directory, name: &OsStr) -> Result<OsString, TraceError> {
    Ok(former_name(name, highest_former(directory, name)? + 1))
}

/// Gives a directory of blobs whose trace is gone to the last former trace, to which it belongs when a rotation was
/// cut short; where that has blobs of its own, to a number of its own.
fn adopt_blobs(directory: &Directory, name: &OsStr) -> Result<(), TraceError> {
    let blobs = blobs_name(name);
    let read = |source| TraceError::Read { path: directory.join(&blobs), source };
    if directory.entry(&blobs).map_err(read)?.is_none() || directory.remove_directory(&blobs).is_ok() {
        return Ok(());
    }
    let mut number = highest_former(directory, name)?.max(1);
    loop {
        let former = blobs_name(&former_name(name, number));
        match directory.rename(&blobs, directory, &former) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(source) => return Err(rename_error(directory, &blobs, &former, source)),
        }
    }
}

fn highest_former(directory: &Directory, name: &OsStr) -> Result<u32, TraceError> {
    let names =
        directory.names().map_err(|source| TraceError::Read { path: directory.path().to_owned(), source })?;
    let highest = names.iter().filter_map(|candidate| former_number(name, candidate)).max();
    Ok(highest.unwrap_or(0).min(u32::MAX / 2))
}

fn rename_error(directory: &Directory, from: &OsStr, to: &OsStr, source: io::Error) -> TraceError {
    TraceError::Rename { from: directory.join(from), to: directory.join(to), source }
}
