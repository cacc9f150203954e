//! The first bytes of a program file, read as the kernel reads them.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::surroundings::os_string;

/// What the kernel looks at to choose a loader (BINPRM_BUF_SIZE in linux/binfmts.h).
pub const LOOKED_AT: usize = 256;

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

/// A `#!` line: the interpreter and at most one argument, blanks inside it included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shebang {
    /// As it is spelled; a relative path starts at the directory of the task.
    pub interpreter: PathBuf,
    /// All that follows, as one argument.
    pub argument: Option<OsString>,
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

/// The rules of fs/binfmt_script.c: the line ends at the newline or at the edge of the buffer (and
/// then the interpreter's name must have ended before), blanks around it do not count, and all
/// that follows the interpreter is one argument.
#[must_use]
pub fn parse(start: &[u8]) -> Option<Shebang> {
    let rest = start.strip_prefix(b"#!")?;
    let line = match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) => &rest[..end],
        None if start.len() < LOOKED_AT => rest,
        None => {
            let cut = &rest[..LOOKED_AT - 3];
            let name = trim(cut);
            name.iter().any(|byte| is_blank(*byte) || *byte == 0).then_some(cut)?
        }
    };
    // The buffer is zero-filled past the end of the file, and names end at a zero byte.
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let line = trim(line);
    let end = line.iter().position(|byte| is_blank(*byte)).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    if interpreter.is_empty() {
        return None;
    }
    let argument = trim(argument);
    Some(Shebang {
        interpreter: PathBuf::from(os_string(interpreter)),
        argument: (!argument.is_empty()).then(|| os_string(argument)),
    })
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_blank(*first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && is_blank(*last)
    {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(interpreter: &str, argument: Option<&str>) -> Option<Shebang> {
        Some(Shebang { interpreter: interpreter.into(), argument: argument.map(OsString::from) })
    }

    #[test]
    fn one_argument_with_its_blanks() {
        assert_eq!(parse(b"#!/bin/sh\n"), line("/bin/sh", None));
        assert_eq!(parse(b"#! \t/bin/sh  -e -u \t\nrest"), line("/bin/sh", Some("-e -u")));
        assert_eq!(parse(b"#!/bin/sh"), line("/bin/sh", None));
        assert_eq!(parse(b"#!/usr/bin/env python3\r\n"), line("/usr/bin/env", Some("python3\r")));
    }

    #[test]
    fn what_the_kernel_refuses() {
        for bytes in [&b"#!"[..], b"#!\n", b"#!   \n/bin/sh", b"", b"#", b" #!/bin/sh\n"] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_long_line_is_cut_at_the_buffer() {
        let mut name_too_long = b"#!/".to_vec();
        name_too_long.resize(LOOKED_AT, b'x');
        assert_eq!(parse(&name_too_long), None);

        let mut long_argument = b"#!/bin/sh ".to_vec();
        long_argument.resize(LOOKED_AT, b'y');
        let cut = parse(&long_argument).expect("the interpreter's name is whole");
        assert_eq!(cut.interpreter, PathBuf::from("/bin/sh"));
        assert_eq!(cut.argument.map(|argument| argument.len()), Some(LOOKED_AT - 1 - 10));
    }

    #[test]
    fn kinds() {
        assert_eq!(classify(b"\x7fELF\x02"), Image::Elf);
        assert_eq!(classify(b"echo hello\n"), Image::Unknown);
        assert_eq!(classify(b""), Image::Unknown);
    }
}
