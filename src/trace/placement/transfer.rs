//! Puts a finished trace in place: never over anything, never through a link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use super::super::error::TraceError;
use super::super::layout::{TEMPORARY_PREFIX, blobs_name};
use super::super::queue::now_micros;
use super::directory::{Directory, EntryKind, lock};
use super::room::{free_name, rotate};

/// How often the agent's leftovers may get in the way again.
const ATTEMPTS: usize = 16;

/// Where a trace went.
pub(super) struct Transferred {
    pub(super) path: PathBuf,
    /// What stood there, under its new name.
    pub(super) moved_aside: Option<PathBuf>,
}

/// Moves the trace `name` and its blobs from `home` to `to_name` in `to`.
pub(super) fn transfer(
    home: &Directory,
    name: &OsStr,
    to: &Directory,
    to_name: &OsStr,
) -> Result<Transferred, TraceError> {
    let mut to_name = to_name.to_owned();
    let mut moved_aside = None;
    let mut attempt = 0;
    loop {
        let result = move_blobs_and_trace(home, name, to, &to_name);
        attempt += 1;
        match result {
            Ok(()) => {
                return Ok(Transferred { path: to.join(&to_name), moved_aside });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {
                if is_being_written(to, &to_name) {
                    to_name = free_name(to, &to_name)?;
                } else if let Some(former) = rotate(to, &to_name)? {
                    moved_aside = Some(to.join(&former));
                }
            }
            Err(source) => {
                return Err(TraceError::Place { from: home.join(name), to: to.join(&to_name), source });
            }
        }
    }
}

/// The blobs go first: where the trace is, its blobs are.
fn move_blobs_and_trace(home: &Directory, name: &OsStr, to: &Directory, to_name: &OsStr) -> io::Result<()> {
    if to.entry(to_name)?.is_some() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let blobs = blobs_name(name);
    if home.entry(&blobs)?.is_some() {
        move_entry(home, &blobs, to, &blobs_name(to_name))?;
    }
    move_entry(home, name, to, to_name)
}

fn move_entry(home: &Directory, name: &OsStr, to: &Directory, to_name: &OsStr) -> io::Result<()> {
    match home.rename(name, to, to_name) {
        Err(error) if error.raw_os_error() == Some(Errno::EXDEV as i32) => {}
        result => return result,
    }
    let temporary = temporary_name();
    let is_directory = home.entry(name)?.is_some_and(|entry| entry.kind == EntryKind::Directory);
    if is_directory {
        let copied =
            copy_directory(home, name, to, &temporary).and_then(|()| to.rename(&temporary, to, to_name));
        if copied.is_err() {
            let _ = remove_tree(to, &temporary);
        }
        copied?;
        remove_tree(home, name)
    } else {
        let copied = copy_file(home, name, to, &temporary).and_then(|()| to.rename(&temporary, to, to_name));
        if copied.is_err() {
            let _ = to.remove_file(&temporary);
        }
        copied?;
        to.open_self()?.sync_all()?;
        home.remove_file(name)
    }
}

fn copy_file(from: &Directory, name: &OsStr, to: &Directory, to_name: &OsStr) -> io::Result<()> {
    let mut source = from.open_file(name)?;
    let mut target: File = to.create_file(to_name)?;
    // Plain reads and writes: copy_file_range refuses a target that is open for appending.
    io::copy(&mut io::BufReader::with_capacity(1 << 18, &mut source), &mut io::BufWriter::new(&mut target))?;
    target.sync_all()
}

fn copy_directory(from: &Directory, name: &OsStr, to: &Directory, to_name: &OsStr) -> io::Result<()> {
    let source = from.open_directory(name)?;
    let target = to.create_directory(to_name)?;
    for entry in source.names()? {
        if !entry.as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()) {
            copy_file(&source, &entry, &target, &entry)?;
        }
    }
    target.open_self()?.sync_all()
}

/// Removes a directory of plain files.
pub(super) fn remove_tree(parent: &Directory, name: &OsStr) -> io::Result<()> {
    let directory = parent.open_directory(name)?;
    for entry in directory.names()? {
        directory.remove_file(&entry)?;
    }
    parent.remove_directory(name)
}

/// Another run may have started on this name meanwhile: its trace is not to be moved under its feet.
fn is_being_written(directory: &Directory, name: &OsStr) -> bool {
    let is_file = matches!(directory.entry(name), Ok(Some(entry)) if entry.kind == EntryKind::File);
    is_file && directory.open_file(name).is_ok_and(|file| matches!(lock(file), Ok(None)))
}

fn temporary_name() -> OsString {
    OsString::from(format!("{TEMPORARY_PREFIX}{}-{}", std::process::id(), now_micros()))
}
