//! What the kernel makes of a file that is to be executed: whether it can, and who interprets it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::AccessFlags;

use super::content::Identity;
use super::view::{Found, View};
use crate::sys::elf;
use crate::sys::mapping::{self, Numbers};
use crate::sys::shebang::{self, LOOKED_AT, Shebang};

/// What the kernel itself would refuse: told to the task before it is seized. False: its mount
/// starts no programs.
fn can_run(file: &Found) -> nix::Result<bool> {
    if file.kind() != SFlag::S_IFREG {
        return Err(Errno::EACCES);
    }
    // Asked through the mount, X_OK is refused by noexec too: the mode alone tells them apart.
    let modes = file.status.st_mode & 0o111;
    if fstatvfs(&file.file)?.flags().contains(FsFlags::ST_NOEXEC) {
        return if modes == 0 { Err(Errno::EACCES) } else { Ok(false) };
    }
    file.may(AccessFlags::X_OK)?;
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

/// Whether a program interpreter that is started with these words runs nothing: installers ask it in
/// this way which C library there is.
pub(super) fn only_tells(argv: &[OsString]) -> bool {
    match argv.get(1..).unwrap_or_default() {
        [] => true,
        [option] => option == "--version",
        _ => false,
    }
}

/// Beginnings of files, remembered for as long as the file has not changed. Should one have changed
/// unseen, the exec event shows another start than was expected, which is judged anew.
#[derive(Debug, Default)]
pub(super) struct Heads {
    known: HashMap<Identity, Head>,
}

/// What is remembered of a file.
#[derive(Debug, Default)]
struct Head {
    start: Option<Start>,
    /// Where it was when it could be run: another way to it may lead through another mount.
    runs_at: Option<PathBuf>,
    /// Where it was when it was found that nobody inside can change what it is started with.
    fixed_at: Option<PathBuf>,
    mapped: Option<Numbers>,
}

/// What the kernel reads of a file to start it.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// Its first bytes.
    pub(super) bytes: Vec<u8>,
    /// The loader that it names.
    pub(super) loader: Option<PathBuf>,
}

/// Files whose beginning is remembered.
const REMEMBERED: usize = 256;

impl Heads {
    /// As [`can_run`].
    pub(super) fn can_run(&mut self, file: &Found) -> nix::Result<bool> {
        let identity = Identity::of(&file.status);
        let runs_at = self.known.get(&identity).and_then(|head| head.runs_at.as_ref());
        if runs_at == Some(&file.path) {
            return Ok(true);
        }
        let can_run = can_run(file)?;
        if can_run && let Some(head) = self.remember(identity) {
            head.runs_at = Some(file.path.clone());
        }
        Ok(can_run)
    }

    /// What is to be remembered of a file, if it may be.
    fn remember(&mut self, identity: Identity) -> Option<&mut Head> {
        if !identity.is_settled() {
            return None;
        }
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        Some(self.known.entry(identity).or_default())
    }

    /// The start of `file`; that of a program if it cannot be read, as the kernel starts it then.
    pub(super) fn of(&mut self, view: &View, file: &Found) -> nix::Result<Start> {
        let identity = Identity::of(&file.status);
        if let Some(start) = self.known.get(&identity).and_then(|head| head.start.as_ref()) {
            return Ok(start.clone());
        }
        let Ok(opened) = readable(view, file) else {
            return Ok(Start { bytes: b"\x7fELF".to_vec(), loader: None });
        };
        let mut bytes = vec![0; LOOKED_AT];
        let count = nix::sys::uio::pread(opened.as_fd(), &mut bytes, 0)?;
        bytes.truncate(count);
        let start = Start { bytes, loader: elf::loader(&File::from(opened)) };
        if let Some(known) = self.remember(identity) {
            known.start = Some(start.clone());
        }
        Ok(start)
    }

    /// Whether it was found before that nobody inside can change what `file` is started with.
    pub(super) fn is_fixed(&self, file: &Found) -> bool {
        let known = self.known.get(&Identity::of(&file.status));
        known.and_then(|head| head.fixed_at.as_ref()) == Some(&file.path)
    }

    /// Remembers that.
    pub(super) fn note_fixed(&mut self, file: &Found) {
        if let Some(known) = self.remember(Identity::of(&file.status)) {
            known.fixed_at = Some(file.path.clone());
        }
    }

    /// The numbers that `file` has where it is mapped.
    pub(super) fn mapped(&mut self, view: &View, file: &Found) -> io::Result<Numbers> {
        let identity = Identity::of(&file.status);
        if let Some(numbers) = self.known.get(&identity).and_then(|head| head.mapped) {
            return Ok(numbers);
        }
        let numbers = mapping::numbers(readable(view, file)?.as_fd())?;
        if let Some(known) = self.remember(identity) {
            known.mapped = Some(numbers);
        }
        Ok(numbers)
    }
}

fn readable(view: &View, file: &Found) -> nix::Result<OwnedFd> {
    let path = file.path.as_os_str().as_bytes();
    let opened = view.reopen(file, path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
    opened.map(|(opened, _)| opened)
}

/// Reads a `#!` line; ENOEXEC for what is neither script nor program.
pub(super) fn shebang(head: &[u8]) -> nix::Result<Option<Shebang>> {
    if head.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    shebang::parse(head).map(Some).ok_or(Errno::ENOEXEC)
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
