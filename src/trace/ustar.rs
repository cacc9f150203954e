//! The container of a packed trace: ustar (POSIX.1-2017, pax), of which each member has one form alone.
//!
//! Whatever is not as it is written here is refused: links, other owners and modes, paths, what follows the end.

use thiserror::Error;

/// Headers and contents fill whole blocks.
pub(super) const BLOCK: usize = 512;
/// What follows the last member.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Where the fields of a header are.
const NAME: std::ops::Range<usize> = 0..100;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;
const MAGIC: std::ops::Range<usize> = 257..265;
const MARK: &[u8; 8] = b"ustar\x0000";
/// The kind of a plain file.
const FILE: u8 = b'0';
/// Sizes from here on are binary: as GNU tar writes them, and all others read them.
const LARGEST_OCTAL: u64 = 0o77_777_777_777;

/// Why a file is no packed trace.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// It ends too early.
    #[error("it is cut off")]
    CutOff,
    /// A member is no plain file.
    #[error("its member {name} is no file: nothing but files is in a packed trace")]
    NoFile {
        /// Its name, as far as it is text.
        name: String,
    },
    /// A member has a name that none has, or comes twice, or too early.
    #[error("its member {name} does not belong there")]
    Foreign {
        /// Its name, as far as it is text.
        name: String,
    },
    /// A header is none that is written.
    #[error("the header of its member {name} is none that `agentbox pack` writes")]
    Header {
        /// Its name, as far as it is text.
        name: String,
    },
    /// A member is said to be longer than the file.
    #[error("its member {name} is said to have {size} bytes, more than there are")]
    TooLarge {
        /// Its name.
        name: String,
        /// Bytes.
        size: u64,
    },
    /// Something follows the end.
    #[error("something follows its end")]
    AfterEnd,
    /// The policy beside the trace is not the one in it.
    #[error("its policy is not the one that its trace holds")]
    OtherPolicy,
}

/// The header of a member.
pub(super) fn header(name: &str, size: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = header.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(NAME.start, name.as_bytes());
    // Mode, user, group.
    put(100, b"0000600\x000000000\x000000000\x00");
    if size <= LARGEST_OCTAL {
        put(SIZE.start, format!("{size:011o}\0").as_bytes());
    } else {
        put(SIZE.start, &[0x80]);
        put(SIZE.end - 8, &size.to_be_bytes());
    }
    // Time.
    put(136, b"00000000000\x00");
    put(KIND, &[FILE]);
    put(MAGIC.start, MARK);
    // Device.
    put(329, b"0000000\x000000000\x00");
    // The sum of all bytes, in which its own field counts as spaces.
    put(CHECKSUM.start, &[b' '; 8]);
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// The name and size of the member that `header` begins; `None` at the end.
pub(super) fn read(block: &[u8; BLOCK]) -> Result<Option<(String, u64)>, Fault> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let name = block[NAME].split(|&byte| byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    if block[MAGIC] != *MARK {
        return Err(Fault::Header { name });
    }
    if block[KIND] != FILE {
        return Err(Fault::NoFile { name });
    }
    let size = match size(&block[SIZE]) {
        Some(size) if header(&name, size) == *block => size,
        _ => return Err(Fault::Header { name }),
    };
    Ok(Some((name, size)))
}

fn size(field: &[u8]) -> Option<u64> {
    if field.first() == Some(&0x80) {
        return field.last_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes));
    }
    let digits = std::str::from_utf8(field.strip_suffix(b"\0")?).ok()?;
    u64::from_str_radix(digits, 8).ok()
}

/// Zeros that follow a content of `size` bytes.
pub(super) fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    usize::try_from((block - size % block) % block).unwrap_or(0)
}

/// Whether a file that begins with this block is meant to be a packed trace whose first member is `name`.
pub(super) fn begins_with(block: &[u8], name: &str) -> bool {
    let is_named = block.starts_with(name.as_bytes()) && block.get(name.len()) == Some(&0);
    is_named && block.get(MAGIC) == Some(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        for size in [0, 1, 512, LARGEST_OCTAL, LARGEST_OCTAL + 1, u64::MAX] {
            assert_eq!(read(&header("blobs/x", size)), Ok(Some(("blobs/x".to_owned(), size))), "{size}");
        }
        assert_eq!(read(&[0; BLOCK]), Ok(None));
        assert_eq!([0, 1, 511, 512].map(padding), [0, 511, 1, 0]);
    }

    #[test]
    fn any_other_byte_is_refused() {
        let whole = header("policy", 7);
        for at in 0..BLOCK {
            let mut other = whole;
            other[at] ^= 1;
            assert!(read(&other).is_err(), "byte {at}");
        }
    }
}
