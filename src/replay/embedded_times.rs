//! Files that hold times of other files: two of them that say the same but for that.

use std::io::Read as _;

use serde_json::{Map, Value};

use crate::trace::StoredBlobs;

/// What a file may hold when it is unpacked, in bytes: an archive of zeros is small.
const MOST: u64 = 64 << 20;

/// Says what two files of the same name differ in, if it is times (and numbers of inodes) alone.
#[must_use]
pub fn explains_by_time(recorded: &[u8], live: &[u8]) -> Option<&'static str> {
    explain(recorded, live, 2)
}

/// The same for the files that an entry of each of two traces says were written, where both are kept.
pub fn between(
    recorded: &StoredBlobs,
    live: &StoredBlobs,
) -> impl Fn(&Map<String, Value>, &Map<String, Value>) -> bool + use<> {
    let (ours, theirs) = (recorded.clone(), live.clone());
    move |recorded, live| {
        let files = (body(recorded, &ours), body(live, &theirs));
        matches!(files, (Some(ours), Some(theirs)) if explains_by_time(&ours, &theirs).is_some())
    }
}

fn body(entry: &Map<String, Value>, blobs: &StoredBlobs) -> Option<Vec<u8>> {
    let content = entry.get("args")?.get("content")?.get("blob")?.as_str()?;
    blobs.read(content, MOST).ok()
}

/// Takes the times out; `None` where the file cannot be read.
type Masked = fn(&[u8]) -> Option<Vec<u8>>;
/// What it holds of other files, whether a file is of it, and how its times are taken out.
type FileKind = (&'static str, fn(&[u8]) -> bool, Masked);

const KINDS: [FileKind; 6] = [
    ("the time of its source", |file| file.get(2..8) == Some(b"\r\n\0\0\0\0"), python),
    ("times and inode numbers of the files in it", |file| file.starts_with(b"DIRC"), git_index),
    ("the times of the files in it", |file| file.get(257..262) == Some(b"ustar"), tar),
    ("the times of the files in it", |file| file.starts_with(b"PK\x03\x04"), zip),
    ("the times of the files in it", |file| file.starts_with(b"!<arch>\n"), ar),
    ("the time when it was made", |file| file.len() == GO_ENTRY && file.starts_with(b"v1 "), go_entry),
];

fn explain(recorded: &[u8], live: &[u8], depth: u32) -> Option<&'static str> {
    if let (Some(ours), Some(theirs)) = (gzip(recorded), gzip(live)) {
        if recorded.get(8..) == live.get(8..) {
            return Some("the time in its header");
        }
        let (ours, theirs) = (unpack(ours)?, unpack(theirs)?);
        if ours == theirs {
            return None;
        }
        return if depth > 0 { explain(&ours, &theirs, depth - 1) } else { None };
    }
    let (what, _, masked) = KINDS.iter().find(|(_, is, _)| is(recorded) && is(live))?;
    (masked(recorded)? == masked(live)?).then_some(what)
}

fn gzip(file: &[u8]) -> Option<&[u8]> {
    file.starts_with(b"\x1f\x8b\x08").then_some(file)
}

fn unpack(file: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    flate2::read::MultiGzDecoder::new(file).take(MOST + 1).read_to_end(&mut content).ok()?;
    u64::try_from(content.len()).is_ok_and(|size| size <= MOST).then_some(content)
}

/// Python's compiled modules: flags 0 say that a time follows (PEP 552).
fn python(file: &[u8]) -> Option<Vec<u8>> {
    let mut masked = file.to_vec();
    masked.get_mut(8..12)?.fill(0);
    Some(masked)
}

/// The index of git (gitformat-index(5)), versions 2 to 4.
fn git_index(file: &[u8]) -> Option<Vec<u8>> {
    let digest = if ends_with_sha1(file) { 20 } else { 32 };
    let (version, entries) = (number(file, 4)?, number(file, 8)?);
    let mut masked = file.get(..12)?.to_vec();
    let mut at = 12;
    for _ in 0..entries {
        // ctime, mtime, device, inode; then mode, owner and group; a size that git cannot be sure of is 0.
        masked.extend(file.get(at + 24..at + 36)?);
        let flags = at + 40 + digest;
        let extended = u8::from(file.get(flags)? & 0x40 != 0);
        let name = flags + 2 + 2 * usize::from(extended);
        let end = match version {
            2 | 3 => {
                let length = name + file.get(name..)?.iter().position(|&byte| byte == 0)? - at;
                at + (length + 8) / 8 * 8
            }
            4 => {
                let prefix = file.get(name..)?.iter().position(|&byte| byte & 0x80 == 0)? + 1;
                name + prefix + file.get(name + prefix..)?.iter().position(|&byte| byte == 0)? + 1
            }
            _ => return None,
        };
        masked.extend(file.get(at + 40..end)?);
        at = end;
    }
    let rest = file.get(at..file.len().checked_sub(digest)?)?;
    // The cache of what is untracked holds times of directories.
    if rest.starts_with(b"UNTR") {
        return None;
    }
    masked.extend(rest);
    Some(masked)
}

fn ends_with_sha1(file: &[u8]) -> bool {
    use sha1::Digest as _;
    let Some((content, end)) = file.split_last_chunk::<20>() else { return false };
    // All zeros where index.skipHash is set.
    end == &[0; 20] || sha1::Sha1::digest(content).as_slice() == end
}

fn number(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(file.get(at..at + 4)?.try_into().ok()?))
}

/// Archives of tar (pax(1), "ustar Interchange Format" and "pax Interchange Format").
fn tar(file: &[u8]) -> Option<Vec<u8>> {
    const BLOCK: usize = 512;
    let mut masked = Vec::with_capacity(file.len());
    let mut rest = file;
    while let Some((header, after)) = rest.split_first_chunk::<BLOCK>() {
        let kind = header[156];
        let size = if header.iter().all(|&byte| byte == 0) { 0 } else { octal(&header[124..136])? };
        let content = after.get(..size)?;
        let extended = kind == b'x' || kind == b'g';
        masked.extend(&header[..if extended { 124 } else { 136 }]);
        masked.extend(&header[156..]);
        if extended {
            pax(content, &mut masked)?
        } else {
            masked.extend(content)
        }
        rest = after.get(size.div_ceil(BLOCK) * BLOCK..).unwrap_or_default();
    }
    masked.extend(rest);
    Some(masked)
}

fn octal(field: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if text.is_empty() { Some(0) } else { usize::from_str_radix(text, 8).ok() }
}

/// Records as `30 mtime=1350244992.023960108`, and a newline.
fn pax(mut records: &[u8], masked: &mut Vec<u8>) -> Option<()> {
    while !records.is_empty() {
        let space = records.iter().position(|&byte| byte == b' ')?;
        let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
        let record = records.get(space + 1..length)?;
        if !["mtime=", "atime=", "ctime="].iter().any(|time| record.starts_with(time.as_bytes())) {
            masked.extend(record);
        }
        records = records.get(length..)?;
    }
    Some(())
}

/// Archives of zip (APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16).
fn zip(file: &[u8]) -> Option<Vec<u8>> {
    let mut masked = file.to_vec();
    let end = (0..=file.len().checked_sub(22)?).rev().find(|at| file[*at..].starts_with(b"PK\x05\x06"))?;
    let entries = usize::from(little_16(file, end + 10)?);
    let mut at = little_32(file, end + 16)?;
    for _ in 0..entries {
        if !file.get(at..)?.starts_with(b"PK\x01\x02") {
            return None;
        }
        let lengths = [28, 30, 32].map(|field| little_16(file, at + field).map(usize::from));
        let [Some(name), Some(extra), Some(comment)] = lengths else { return None };
        masked.get_mut(at + 12..at + 16)?.fill(0);
        mask_extra(&mut masked, at + 46 + name, extra)?;
        let local = little_32(file, at + 42)?;
        masked.get_mut(local + 10..local + 14)?.fill(0);
        let (local_name, local_extra) = (little_16(file, local + 26)?, little_16(file, local + 28)?);
        mask_extra(&mut masked, local + 30 + usize::from(local_name), usize::from(local_extra))?;
        at += 46 + name + extra + comment;
    }
    Some(masked)
}

/// Extended timestamps, and those of Windows.
fn mask_extra(masked: &mut [u8], start: usize, length: usize) -> Option<()> {
    let mut at = start;
    while at + 4 <= start + length {
        let (kind, size) = (little_16(masked, at)?, usize::from(little_16(masked, at + 2)?));
        if kind == 0x5455 || kind == 0x000a {
            masked.get_mut(at + 4..at + 4 + size)?.fill(0);
        }
        at += 4 + size;
    }
    Some(())
}

fn little_16(file: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?))
}

fn little_32(file: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?)).ok()
}

/// Archives of ar: the time of each member stands in decimal digits after its name.
fn ar(file: &[u8]) -> Option<Vec<u8>> {
    let mut masked = file.to_vec();
    let mut at = 8;
    while at < file.len() {
        masked.get_mut(at + 16..at + 28)?.fill(0);
        let size: usize = std::str::from_utf8(file.get(at + 48..at + 58)?).ok()?.trim().parse().ok()?;
        at += 60 + size.next_multiple_of(2);
    }
    Some(masked)
}

/// Bytes of an entry of Go's cache of builds (cmd/go/internal/cache): `v1`, two digests in hex, and a size and a time
/// in nanoseconds of 20 columns each, with spaces between them and a newline at the end.
const GO_ENTRY: usize = 3 + 2 * 65 + 2 * 21;

fn go_entry(file: &[u8]) -> Option<Vec<u8>> {
    let mut masked = file.to_vec();
    let digits = masked.get_mut(GO_ENTRY - 21..GO_ENTRY - 1)?;
    let is_time = std::str::from_utf8(digits).ok()?.trim_start().bytes().all(|byte| byte.is_ascii_digit());
    digits.fill(b' ');
    is_time.then_some(masked)
}

#[cfg(test)]
mod tests;
