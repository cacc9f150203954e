//! A file that is open for writing, and how its content is recorded.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use serde_json::Value;

use super::content::Content;
use super::digest::{self, Digests};
use super::view::own_path;
use crate::policy::FileId;
use crate::trace::{Event, Kind, Recorder, TraceError};

/// A file that is open for writing, or was.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) path: PathBuf,
    pub(super) proc: String,
    pub(super) rule: String,
    /// O_PATH, so that the file can be read again whatever its name is by then.
    pub(super) file: OwnedFd,
    /// From before its mode forbade to read it.
    pub(super) reader: Option<File>,
    pub(super) recorded: Option<Content>,
    pub(super) id: FileId,
    pub(super) shareable: bool,
    /// It was closed since it was opened last.
    pub(super) is_closed: bool,
}

/// Records what it holds by now; `named`: at its path.
pub(super) fn record(
    written: &mut Written,
    digests: &mut Digests,
    recorder: &Recorder,
    keeps: bool,
    named: bool,
) -> Result<(), TraceError> {
    let event = Event::new(Kind::Observe, "fs.write").path("path", &written.path);
    let event = event.proc(written.proc.clone()).rule(written.rule.clone());
    // When it was read last is for the run's own reads.
    let noatime = libc::O_NOATIME | libc::O_CLOEXEC;
    let path = own_path(written.file.as_fd());
    let opened = OpenOptions::new().read(true).custom_flags(noatime).open(&path);
    // Another user's file.
    let opened = opened.or_else(|_| File::open(&path));
    let opened = opened.or_else(|error| written.reader.as_ref().map_or(Err(error), File::try_clone));
    let content = match &opened {
        Ok(file) if written.shareable => digests.anew(file.as_fd()),
        Ok(file) => digests.of(file.as_fd()),
        Err(error) => Err(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))),
    };
    if let Ok(content) = &content
        && written.recorded.as_ref() == Some(content)
    {
        return Ok(());
    }
    // Where there is no digest, that it was written still stands.
    let mut event = digest::add_to(event, &content);
    if !named {
        event = event.arg("unlinked", true);
    }
    if let (Ok(file), Ok(content), true) = (&opened, &content, keeps && named)
        && holds_times(file, content.size)
        && let Some(body) = timed(&written.file, content, recorder)?
    {
        event = event.arg("content", body);
    }
    recorder.record(event)?;
    written.recorded = content.ok();
    Ok(())
}

/// The content as a private body, so that a replay's can be compared with it apart from times.
fn timed(file: &OwnedFd, content: &Content, recorder: &Recorder) -> Result<Option<Value>, TraceError> {
    let kept = super::first_change::keep(file, i64::try_from(content.size).unwrap_or(0), recorder)?;
    // Written to meanwhile: the next digest has the next body.
    Ok(kept.ok().filter(|body| body["blob"] == content.sha256.as_str()))
}

/// Whether it holds times, as a rule of other files: compiled Python, an index of git, an archive.
fn holds_times(file: &File, size: u64) -> bool {
    /// Smallest and largest file that is looked at, in bytes.
    const SIZES: std::ops::RangeInclusive<u64> = 16..=16 << 20;
    let mut head = [0; 262];
    if !SIZES.contains(&size) {
        return false;
    }
    let Ok(length) = file.read_at(&mut head, 0) else { return false };
    let head = &head[..length];
    let starts: [&[u8]; 4] = [b"DIRC", b"PK\x03\x04", b"!<arch>\n", b"\x1f\x8b\x08"];
    // An entry of Go's cache of builds.
    let is_go_s = head.starts_with(b"v1 ") && size == 175;
    is_go_s
        || starts.iter().any(|start| head.starts_with(start))
        || head.get(2..8) == Some(b"\r\n\0\0\0\0")
        || head.get(257..262) == Some(b"ustar")
}
