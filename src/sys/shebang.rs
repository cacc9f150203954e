//! The `#!` line of a script, as fs/binfmt_script.c of Linux reads it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// What the kernel looks at to choose a loader (BINPRM_BUF_SIZE in linux/binfmts.h).
pub const LOOKED_AT: usize = 256;

/// A `#!` line: the interpreter and at most one argument, blanks inside it included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shebang {
    /// As it is spelled; a relative path starts at the directory of the task.
    pub interpreter: PathBuf,
    /// All that follows, as one argument. It is empty where a zero byte follows the blanks.
    pub argument: Option<OsString>,
}

/// Reads the first bytes of a file. None for a line that the kernel refuses.
#[must_use]
pub fn parse(start: &[u8]) -> Option<Shebang> {
    let start = &start[..start.len().min(LOOKED_AT)];
    if !start.starts_with(b"#!") {
        return None;
    }
    // The kernel's buffer is filled with zeros past the end of the file.
    let mut buffer = [0; LOOKED_AT];
    buffer[..start.len()].copy_from_slice(start);
    let mut line = &buffer[2..line_end(&buffer)?];
    while let [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    let line = trim_start(line);
    let name_end = line.iter().position(|byte| is_terminator(*byte)).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    // An empty name before a zero byte cannot be opened.
    if name.is_empty() {
        return None;
    }
    let argument = match rest.first() {
        None | Some(0) => None,
        Some(_) => trim_start(rest).split(|byte| *byte == 0).next(),
    };
    Some(Shebang {
        interpreter: PathBuf::from(OsStr::from_bytes(name)),
        argument: argument.map(|argument| OsStr::from_bytes(argument).to_owned()),
    })
}

/// The newline; else the last byte of the buffer, if the interpreter's name ends before or there.
fn line_end(buffer: &[u8; LOOKED_AT]) -> Option<usize> {
    // strnchr() looks for the newline no further than the first zero byte.
    let stop = buffer.iter().position(|byte| matches!(byte, b'\n' | 0));
    if let Some(newline) = stop.filter(|at| buffer[*at] == b'\n') {
        return Some(newline);
    }
    let name = trim_start(&buffer[2..]);
    name.iter().any(|byte| is_terminator(*byte)).then_some(LOOKED_AT - 1)
}

fn is_terminator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0)
}

fn trim_start(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn line(interpreter: &str, argument: Option<&str>) -> Option<Shebang> {
        Some(Shebang { interpreter: interpreter.into(), argument: argument.map(OsString::from) })
    }

    #[test]
    fn one_argument_with_its_blanks() {
        assert_eq!(parse(b"#!/bin/sh\n"), line("/bin/sh", None));
        assert_eq!(parse(b"#! \t/bin/sh  -e -u \t\nrest"), line("/bin/sh", Some("-e -u")));
        assert_eq!(parse(b"#!/bin/sh"), line("/bin/sh", None));
    }

    #[test]
    fn only_spaces_and_tabs_are_blanks() {
        assert_eq!(parse(b"#!/usr/bin/env python3\r\n"), line("/usr/bin/env", Some("python3\r")));
        assert_eq!(parse(b"#!\x0c/bin/sh\n"), line("\x0c/bin/sh", None));
        assert_eq!(parse(b"#!/bin/sh\x0b-x\n"), line("/bin/sh\x0b-x", None));
    }

    #[test]
    fn a_zero_byte_ends_names_and_arguments() {
        assert_eq!(parse(b"#!/bin/sh\0 -x\n"), line("/bin/sh", None));
        assert_eq!(parse(b"#!/bin/sh -x\0y z\n"), line("/bin/sh", Some("-x")));
        // The line has no end then: blanks before the zero byte stay.
        assert_eq!(parse(b"#!/bin/sh -x \0y\n"), line("/bin/sh", Some("-x ")));
        assert_eq!(parse(b"#!/bin/sh "), line("/bin/sh", Some("")));
    }

    #[test]
    fn what_the_kernel_refuses() {
        for bytes in [&b"#!"[..], b"#!\n", b"#!   \n/bin/sh", b"", b"#", b" #!/bin/sh\n", b"#! \0/bin/sh\n"] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(parse(&[b"#!".as_slice(), &[b' '; LOOKED_AT]].concat()), None);
    }

    #[test]
    fn a_long_line_is_cut_at_the_buffer() {
        let mut name_too_long = b"#!/".to_vec();
        name_too_long.resize(LOOKED_AT, b'x');
        assert_eq!(parse(&name_too_long), None);
        name_too_long[LOOKED_AT - 1] = b' ';
        assert_eq!(parse(&name_too_long).map(|line| line.interpreter.as_os_str().len()), Some(LOOKED_AT - 3));

        let mut long_argument = b"#!/bin/sh ".to_vec();
        long_argument.resize(LOOKED_AT + 9, b'y');
        let cut = parse(&long_argument).expect("the interpreter's name is whole");
        assert_eq!(cut.interpreter, PathBuf::from("/bin/sh"));
        assert_eq!(cut.argument.map(|argument| argument.len()), Some(LOOKED_AT - 1 - 10));
    }

    /// The kernel's own words: `/bin/echo` prints the argument and the script's path.
    #[test]
    fn the_kernel_reads_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        for rest in
            ["\n", " -x y \n", " x\r\n", "\t x\0y z\n", " x \0y\n", "\0 x\n", " x ", "", "\t", " \0\n"]
        {
            let text = format!("#!/bin/echo{rest}");
            std::fs::write(&path, &text).expect("a file");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).expect("its mode");
            // Another test may fork while the file is open for writing.
            let output = (0..50).find_map(|_| Command::new(&path).output().ok()).expect("it runs");
            let line = parse(text.as_bytes()).expect("a line");
            let words = [line.argument, Some(path.clone().into_os_string())];
            let words: Vec<OsString> = words.into_iter().flatten().collect();
            let expected = [words.join(OsStr::new(" ")).as_bytes(), b"\n"].concat();
            assert_eq!(output.stdout, expected, "{text:?}");
        }
    }
}
