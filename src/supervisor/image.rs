//! What the kernel makes of a file that is to be executed: whether it can, and who interprets it.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{AccessFlags, faccessat};

use super::view::Found;

/// First line of a script that the kernel looks at (BINPRM_BUF_SIZE).
const FIRST_LINE: usize = 256;

/// What the kernel itself would refuse: told to the task before it is seized. False: its mount
/// starts no programs.
pub(super) fn can_run(file: &Found) -> nix::Result<bool> {
    if file.kind() != SFlag::S_IFREG {
        return Err(Errno::EACCES);
    }
    // Asked through the mount, X_OK is refused by noexec too: the mode alone tells them apart.
    let modes = file.status.st_mode & 0o111;
    if fstatvfs(&file.file)?.flags().contains(FsFlags::ST_NOEXEC) {
        return if modes == 0 { Err(Errno::EACCES) } else { Ok(false) };
    }
    let (path, flags) = (file.own_path(), nix::fcntl::AtFlags::AT_EACCESS);
    faccessat(nix::fcntl::AT_FDCWD, path.as_str(), AccessFlags::X_OK, flags)?;
    Ok(true)
}

/// The program interpreters of the usual C libraries.
pub(super) fn is_loader(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let loader = name.starts_with(b"ld-linux")
        || name.starts_with(b"ld-musl")
        || name == b"ld.so"
        || name.starts_with(b"ld-2.");
    loader && (name.windows(3).any(|part| part == b".so"))
}

/// The beginning of a file; EACCES is what the kernel gives when it cannot be read either.
pub(super) fn head_of(file: &Found) -> nix::Result<Vec<u8>> {
    let opened =
        nix::fcntl::open(file.own_path().as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    let Ok(opened) = opened else { return Ok(b"\x7fELF".to_vec()) };
    let mut head = vec![0; FIRST_LINE];
    let count = nix::sys::uio::pread(opened.as_fd(), &mut head, 0)?;
    head.truncate(count);
    Ok(head)
}

/// Parses a `#!` line as binfmt_script does; ENOEXEC for what is neither script nor program.
pub(super) fn shebang(head: &[u8]) -> nix::Result<Option<(OsString, Option<OsString>)>> {
    if head.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    let line = head.strip_prefix(b"#!").ok_or(Errno::ENOEXEC)?;
    let line = line.split(|&byte| byte == b'\n' || byte == 0).next().unwrap_or_default();
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let line = line.trim_ascii_start();
    let end = line.iter().position(blank).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return Err(Errno::ENOEXEC);
    }
    let argument = rest.trim_ascii();
    let argument = (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned());
    Ok(Some((OsStr::from_bytes(name).to_owned(), argument)))
}

/// What `env` will start for a `#!/usr/bin/env NAME` line.
pub(super) fn follow_up(image: &Found, argv: &[OsString]) -> Option<Vec<OsString>> {
    if image.path.file_name()? != "env" {
        return None;
    }
    let mut rest = argv.iter().skip(1).peekable();
    let split: Vec<OsString> = match rest.peek()?.as_bytes() {
        option if option.starts_with(b"-S") => {
            let words = option.get(2..)?.to_vec();
            rest.next();
            words
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty())
                .map(|word| OsStr::from_bytes(word).to_owned())
                .collect()
        }
        option if option.starts_with(b"-") => return None,
        _ => Vec::new(),
    };
    Some(split.into_iter().chain(rest.cloned()).collect())
}
