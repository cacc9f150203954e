//! Standard output of our own words: where it cannot be written, one line says so.

use std::io;

use super::Failure;

/// The exit code of a command that answers `code` and has written that to standard output with this result.
///
/// # Errors
/// It was not written: the failure keeps a code that says something worse than success. Who closes the pipe early has
/// read enough.
pub(super) fn written(code: u8, result: io::Result<()>) -> Result<u8, Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::unwritten(code, &error)),
        _ => Ok(code),
    }
}
