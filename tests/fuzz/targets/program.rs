//! Program files of strangers: `#!` lines, the words of env, and ELF headers.
#![no_main]

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;

use agentbox::command::env_words;
use agentbox::sys::elf;
use agentbox::sys::shebang::{LOOKED_AT, parse};
use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};

fuzz_target!(|bytes: &[u8]| {
    first_line(bytes);
    first_line(&[b"#!", bytes].concat());
    if let Some(word) = env_words::program(OsStr::from_bytes(bytes)) {
        assert!(!word.as_bytes().contains(&b'='));
    }
    read_elf(bytes);
});

fn first_line(bytes: &[u8]) {
    let Some(line) = parse(bytes) else { return };
    assert!(bytes.starts_with(b"#!") && !line.interpreter.as_os_str().is_empty());
    let words = [line.interpreter.as_os_str(), line.argument.as_deref().unwrap_or_default()];
    for word in words.map(OsStr::as_bytes) {
        assert!(word.len() < LOOKED_AT && !word.iter().any(|byte| matches!(byte, b'\n' | 0)));
        assert!(bytes.windows(word.len().max(1)).any(|part| part == word) || word.is_empty());
        assert!(!word.starts_with(b" ") && !word.starts_with(b"\t"));
    }
    let name = words[0].as_bytes();
    assert!(!name.contains(&b' ') && !name.contains(&b'\t'));
}

fn read_elf(bytes: &[u8]) {
    let file: File = memfd_create("program", MFdFlags::MFD_CLOEXEC).expect("a file in memory").into();
    (&file).write_all(bytes).expect("room");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Some(elf) = elf::read(path.as_ref()) {
        assert!(bytes.starts_with(b"\x7fELF"));
        let length: usize = elf.needed.iter().map(|name| name.len()).sum();
        assert!(elf.needed.len() <= 256 && length <= 256 * 4096);
    }
}
