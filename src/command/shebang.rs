//! The first bytes of a program file, read as the kernel reads them.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::sys::shebang::{LOOKED_AT, Shebang, parse};

/// What kind of program a file is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// An ELF program.
    Elf,
    /// A script with a `#!` line that the kernel accepts.
    Script(Shebang),
    /// Neither: execve(2) answers ENOEXEC.
    Unknown,
    /// May be executed and not read: an ELF program, if anything.
    Unreadable,
}

/// Looks at a file that was found executable.
pub(super) fn look_at(path: &Path) -> io::Result<Image> {
    let mut options = OpenOptions::new();
    // A name may have become a FIFO since it was judged: never wait for it.
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Image::Unreadable);
        }
        Err(error) => return Err(error),
    };
    let mut start = Vec::with_capacity(LOOKED_AT);
    file.take(LOOKED_AT as u64).read_to_end(&mut start)?;
    Ok(classify(&start))
}

fn classify(start: &[u8]) -> Image {
    if start.starts_with(b"\x7fELF") {
        return Image::Elf;
    }
    parse(start).map_or(Image::Unknown, Image::Script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(classify(b"\x7fELF\x02"), Image::Elf);
        assert_eq!(classify(b"echo hello\n"), Image::Unknown);
        assert_eq!(classify(b""), Image::Unknown);
        assert!(matches!(classify(b"#!/bin/sh\n"), Image::Script(_)));
    }
}
