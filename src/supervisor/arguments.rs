//! Argument vectors and environments of waiting tasks, read once.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nix::errno::Errno;

use crate::sys::memory;

/// Longest argument list: the kernel's own limit is a quarter of the stack limit, at most 6 MiB.
const ARGUMENT_BYTES: usize = 6 << 20;
/// Bytes of a pointer, and of the pointers that are read at once.
const POINTER: usize = 8;
const BLOCK: usize = 32 * POINTER;
/// Bytes that are enough for most arguments.
const SHORT: usize = 128;

/// Reads a null-terminated array of strings.
pub(super) fn read_words(pid: i32, address: u64) -> nix::Result<Vec<OsString>> {
    if address == 0 { Ok(Vec::new()) } else { words_at(pid, address, None) }
}

/// Reads what a program start is called with: the path, which is short most often and `None` where it is
/// not, and the arguments.
pub(super) fn read_start(
    pid: i32,
    path: u64,
    arguments: u64,
) -> nix::Result<(Option<Vec<u8>>, Vec<OsString>)> {
    if arguments == 0 {
        return Ok((None, Vec::new()));
    }
    let pieces = [(path, to_page_end(path).min(SHORT)), (arguments, to_page_end(arguments).min(BLOCK))];
    let mut buffer = [0; SHORT + BLOCK];
    let read = memory::read_pieces(pid, &pieces, &mut buffer).unwrap_or(0);
    let [(_, length), _] = pieces;
    let (typed, block) = buffer[..read].split_at(length.min(read));
    let end = typed.iter().position(|&byte| byte == 0);
    let words = words_at(pid, arguments, Some(pointers_in(block)).filter(|first| !first.is_empty()))?;
    Ok((end.map(|end| typed[..end].to_vec()), words))
}

/// Reads an array of strings, whose first pointers were read before or not.
fn words_at(pid: i32, address: u64, mut first: Option<Vec<u64>>) -> nix::Result<Vec<OsString>> {
    let fault = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EFAULT));
    let mut words = Vec::new();
    let mut bytes = 0;
    let mut at = address;
    loop {
        let mut pointers = first.take().map_or_else(|| read_pointers(pid, at), Ok).map_err(fault)?;
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
    let mut block = [0; BLOCK];
    let want = to_page_end(at).min(BLOCK);
    let mut got = if want < POINTER { 0 } else { memory::read(pid, at, &mut block[..want])? };
    if got < POINTER {
        memory::read_exact(pid, at, &mut block[..POINTER])?;
        got = POINTER;
    }
    Ok(pointers_in(&block[..got]))
}

fn pointers_in(block: &[u8]) -> Vec<u64> {
    block.as_chunks().0.iter().map(|&pointer| u64::from_ne_bytes(pointer)).collect()
}

/// A piece that does not cross the end of a page is there as a whole or not at all.
fn to_page_end(at: u64) -> usize {
    memory::PAGE - usize::try_from(at).unwrap_or(0) % memory::PAGE
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

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    fn own() -> i32 {
        std::process::id().cast_signed()
    }

    #[test]
    fn words_are_read_as_they_are_however_many_and_long() {
        for (count, longest) in [(0, 0), (1, 1), (31, 5), (32, 200), (33, 127), (100, 10_000)] {
            let wanted: Vec<_> = (0..count).map(|at| "x".repeat(longest * at / count)).collect();
            let strings: Vec<_> =
                wanted.iter().map(|word| CString::new(word.as_str()).expect("no zero byte")).collect();
            let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr() as u64).collect();
            pointers.push(0);
            let at = pointers.as_ptr() as u64;
            let wanted: Vec<OsString> = wanted.into_iter().map(OsString::from).collect();
            assert_eq!(read_words(own(), at).as_ref(), Ok(&wanted));
            let path = CString::new("/usr/bin/true").expect("no zero byte");
            let read = read_start(own(), path.as_ptr() as u64, at);
            assert_eq!(read, Ok((Some(b"/usr/bin/true".to_vec()), wanted.clone())));
            // The path is read by itself then, and says why it cannot be.
            assert_eq!(read_start(own(), 8, at), Ok((None, wanted)));
        }
    }

    #[test]
    fn words_that_are_not_there_are_a_fault() {
        let word = c"word";
        let pointers = [word.as_ptr() as u64, 8, word.as_ptr() as u64, 0];
        assert_eq!(read_words(own(), pointers.as_ptr() as u64), Err(Errno::EFAULT));
        assert_eq!(read_start(own(), word.as_ptr() as u64, 8), Err(Errno::EFAULT));
        assert_eq!(read_start(own(), word.as_ptr() as u64, 0), Ok((None, Vec::new())));
    }
}
