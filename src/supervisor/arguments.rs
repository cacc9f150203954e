//! Argument vectors and environments of waiting tasks, read once.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nix::errno::Errno;

use crate::sys::memory;

/// Longest argument list: the kernel's own limit is a quarter of the stack limit, at most 6 MiB.
const ARGUMENT_BYTES: usize = 6 << 20;
/// Bytes of a pointer, and how many pointers are read at once.
const POINTER: usize = 8;
const POINTERS: usize = 32;
/// Bytes that are enough for most arguments.
const SHORT: usize = 128;

/// Reads a null-terminated array of strings.
pub(super) fn read_words(pid: i32, address: u64) -> nix::Result<Vec<OsString>> {
    let fault = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EFAULT));
    let mut words = Vec::new();
    let mut bytes = 0;
    let mut at = address;
    if address == 0 {
        return Ok(words);
    }
    loop {
        let mut pointers = read_pointers(pid, at).map_err(fault)?;
        at = at.wrapping_add((pointers.len() * POINTER) as u64);
        let end = pointers.iter().position(|pointer| *pointer == 0);
        pointers.truncate(end.unwrap_or(pointers.len()));
        let mut short = read_short(pid, &pointers).into_iter();
        for pointer in pointers {
            let word = match short.next().flatten() {
                Some(word) => word,
                None => memory::read_string(pid, pointer, ARGUMENT_BYTES).map_err(fault)?,
            };
            bytes += word.len() + 9;
            if bytes > ARGUMENT_BYTES {
                return Err(Errno::E2BIG);
            }
            words.push(OsString::from_vec(word));
        }
        if end.is_some() {
            return Ok(words);
        }
    }
}

/// The strings at these addresses, all read at once; `None` for those that are longer than most, and
/// from the first on that cannot be read.
fn read_short(pid: i32, pointers: &[u64]) -> Vec<Option<Vec<u8>>> {
    let to_page_end = |at: u64| memory::PAGE - usize::try_from(at).unwrap_or(0) % memory::PAGE;
    let piece = |&at: &u64| (at, to_page_end(at).min(SHORT));
    let pieces: Vec<_> = pointers.iter().take(memory::PIECES).map(piece).collect();
    let mut buffer = vec![0; pieces.iter().map(|(_, length)| length).sum()];
    let read = memory::read_pieces(pid, &pieces, &mut buffer).unwrap_or(0);
    let mut rest = buffer.get(..read).unwrap_or_default();
    let word = |(_, length): &(u64, usize)| {
        let (word, after) = rest.split_at_checked(*length).unwrap_or_default();
        rest = after;
        word.iter().position(|&byte| byte == 0).map(|end| word[..end].to_vec())
    };
    pieces.iter().map(word).collect()
}

/// Some pointers of an array, at least one. What follows its end need not be mapped.
fn read_pointers(pid: i32, at: u64) -> std::io::Result<Vec<u64>> {
    let mut block = [0; POINTERS * POINTER];
    let to_page_end = memory::PAGE - usize::try_from(at).unwrap_or(0) % memory::PAGE;
    let want = to_page_end.min(block.len());
    let mut got = if want < POINTER { 0 } else { memory::read(pid, at, &mut block[..want])? };
    if got < POINTER {
        memory::read_exact(pid, at, &mut block[..POINTER])?;
        got = POINTER;
    }
    Ok(block[..got].as_chunks().0.iter().map(|&pointer| u64::from_ne_bytes(pointer)).collect())
}

/// Splits what /proc/PID/cmdline and environ give.
pub(super) fn split_words(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|&byte| byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// An argv as one line that a shell would split the same way.
pub(super) fn quoted(argv: &[OsString]) -> OsString {
    let mut line = Vec::new();
    for word in argv {
        if !line.is_empty() {
            line.push(b' ');
        }
        let bytes = word.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(byte);
        if !bytes.is_empty() && bytes.iter().all(plain) {
            line.extend_from_slice(bytes);
            continue;
        }
        line.push(b'\'');
        for &byte in bytes {
            if byte == b'\'' { line.extend_from_slice(b"'\"'\"'") } else { line.push(byte) }
        }
        line.push(b'\'');
    }
    OsString::from_vec(line)
}
