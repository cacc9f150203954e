//! The file of a body that is being stored.

use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, ftruncate, unlinkat};

use super::super::layout::{FILE_MODE, TEMPORARY_PREFIX};
use super::Directory;

/// A file in the directory of blobs that has no name of its own yet. It is open only while it is written.
pub(super) struct Temporary {
    directory: Arc<Directory>,
    name: String,
    length: i64,
}

impl Temporary {
    pub(super) fn create(directory: &Arc<Directory>, header: &[u8], content: &[u8]) -> io::Result<Self> {
        let mut temporary = Self { directory: Arc::clone(directory), name: unused(directory), length: 0 };
        temporary.write(header, content, OFlag::O_CREAT | OFlag::O_EXCL)?;
        Ok(temporary)
    }

    /// Adds to it, all or nothing.
    pub(super) fn append(&mut self, header: &[u8], content: &[u8]) -> io::Result<()> {
        self.write(header, content, OFlag::O_APPEND)
    }

    fn write(&mut self, header: &[u8], content: &[u8], how: OFlag) -> io::Result<()> {
        let mut file = open(&self.directory, &self.name, how)?;
        match write(&mut file, header, content) {
            Ok(()) => {
                self.length += i64::try_from(header.len() + content.len()).unwrap_or(i64::MAX);
                Ok(())
            }
            Err(error) => {
                // Half a frame would spoil what may yet follow.
                let _ = ftruncate(&file, self.length);
                Err(error)
            }
        }
    }

    pub(super) fn keep_as(mut self, name: &str) -> io::Result<()> {
        let directory = self.directory.place.fd()?;
        renameat(directory, self.name.as_str(), directory, name)?;
        self.name.clear();
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let (false, Ok(directory)) = (self.name.is_empty(), self.directory.place.fd()) {
            let _ = unlinkat(directory, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// A file that nobody else can name, and that is gone when it is closed.
pub(super) fn nameless(directory: &Directory) -> io::Result<File> {
    let name = unused(directory);
    let file = open(directory, &name, OFlag::O_CREAT | OFlag::O_EXCL)?;
    unlinkat(directory.place.fd()?, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
    Ok(file)
}

fn unused(directory: &Directory) -> String {
    format!("{TEMPORARY_PREFIX}{}", directory.next.fetch_add(1, Ordering::Relaxed))
}

fn open(directory: &Directory, name: &str, how: OFlag) -> io::Result<File> {
    let flags = how | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(FILE_MODE);
    Ok(File::from(openat(directory.place.fd()?, name, flags, mode)?))
}

fn write(file: &mut File, header: &[u8], content: &[u8]) -> io::Result<()> {
    let written = match header {
        [] => 0,
        _ => file.write_vectored(&[IoSlice::new(header), IoSlice::new(content)])?,
    };
    file.write_all(header.get(written..).unwrap_or_default())?;
    file.write_all(&content[written.saturating_sub(header.len())..])
}
