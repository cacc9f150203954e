//! The few facts of an ELF file that say which other files it needs (elf(5)).
//!
//! The file is a stranger's: every offset is checked against the file, every count is bounded, and
//! anything odd ends the reading with what was found so far.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Bounds on what is read of one file.
/// As many as the kernel reads (load_elf_phdrs() of fs/binfmt_elf.c).
const MOST_SEGMENTS: u64 = 65_536 / 56;
const MOST_DYNAMIC_BYTES: u64 = 64 * 1024;
const LONGEST_STRING: usize = 4096;
const MOST_NEEDED: usize = 256;

/// What an ELF file needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// The dynamic loader; none in a static program or a library.
    pub loader: Option<PathBuf>,
    /// Names of libraries, in order.
    pub needed: Vec<OsString>,
    /// Where to look for them: DT_RUNPATH, or DT_RPATH where there is none. `$ORIGIN` is kept.
    pub search: Vec<OsString>,
}

/// Reads the file at `path`; none if it is no ELF file or cannot be read.
#[must_use]
pub fn read(path: &Path) -> Option<Elf> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    Reader::new(&file, length)?.elf()
}

/// The loader that the kernel maps beside the program in `file` (PT_INTERP), as it is spelled; none if it is static, or
/// no ELF file.
#[must_use]
pub fn loader(file: &File) -> Option<PathBuf> {
    let length = file.metadata().ok()?.len();
    let reader = Reader::new(file, length)?;
    reader.loader(&reader.segments()?)
}

/// A part of the file that a program header describes.
#[derive(Clone, Copy)]
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

struct Reader<'a> {
    file: &'a File,
    length: u64,
    wide: bool,
    little: bool,
}

impl<'a> Reader<'a> {
    fn new(file: &'a File, length: u64) -> Option<Self> {
        let mut ident = [0; 16];
        file.read_exact_at(&mut ident, 0).ok()?;
        if !ident.starts_with(b"\x7fELF") {
            return None;
        }
        let wide = match ident[4] {
            1 => false,
            2 => true,
            _ => return None,
        };
        let little = match ident[5] {
            1 => true,
            2 => false,
            _ => return None,
        };
        Some(Self { file, length, wide, little })
    }

    fn elf(&self) -> Option<Elf> {
        let segments = self.segments()?;
        let mut elf = Elf { loader: self.loader(&segments), ..Elf::default() };
        if let Some(segment) = of_kind(&segments, PT_DYNAMIC) {
            self.dynamic(*segment, &segments, &mut elf);
        }
        Some(elf)
    }

    fn loader(&self, segments: &[Segment]) -> Option<PathBuf> {
        let text = self.string(of_kind(segments, PT_INTERP)?.offset)?;
        (!text.is_empty()).then(|| text.into())
    }

    fn segments(&self) -> Option<Vec<Segment>> {
        let (table_at, size_at, count_at) = if self.wide { (32, 54, 56) } else { (28, 42, 44) };
        let (offset, address, file_size) = if self.wide { (8, 16, 32) } else { (4, 8, 16) };
        let header = self.bytes(0, if self.wide { 64 } else { 52 })?;
        let size = usize::try_from(self.number(&header, size_at, 2)?).ok()?;
        let count = self.number(&header, count_at, 2)?.min(MOST_SEGMENTS);
        let length = size.checked_mul(usize::try_from(count).ok()?)?;
        let table = self.bytes(self.word(&header, table_at)?, length)?;
        let segment = |entry: &[u8]| {
            Some(Segment {
                kind: self.number(entry, 0, 4)?,
                offset: self.word(entry, offset)?,
                address: self.word(entry, address)?,
                size: self.word(entry, file_size)?,
            })
        };
        table.chunks_exact(size.max(1)).map(segment).collect()
    }

    fn dynamic(&self, segment: Segment, segments: &[Segment], elf: &mut Elf) {
        let entries = self.entries(segment);
        let value = |tag| entries.iter().find(|(found, _)| *found == tag).map(|(_, value)| *value);
        let Some(strings) = value(DT_STRTAB).and_then(|address| place(segments, address)) else {
            return;
        };
        let text = |offset: u64| self.string(strings.checked_add(offset)?);
        let needed = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
        elf.needed = needed.take(MOST_NEEDED).filter_map(|(_, offset)| text(*offset)).collect();
        let search = value(DT_RUNPATH).or_else(|| value(DT_RPATH)).and_then(text);
        if let Some(search) = search {
            let dirs = search.as_bytes().split(|byte| *byte == b':');
            elf.search =
                dirs.filter(|dir| !dir.is_empty()).map(|dir| OsString::from_vec(dir.to_vec())).collect();
        }
    }

    fn entries(&self, segment: Segment) -> Vec<(u64, u64)> {
        let half = if self.wide { 8 } else { 4 };
        let length = segment.size.min(MOST_DYNAMIC_BYTES);
        let length = usize::try_from(length).unwrap_or_default();
        let Some(bytes) = self.bytes(segment.offset, length) else {
            return Vec::new();
        };
        bytes
            .chunks_exact(2 * half)
            .map_while(|entry| Some((self.word(entry, 0)?, self.word(entry, half)?)))
            .take_while(|(tag, _)| *tag != DT_NULL)
            .collect()
    }

    /// A number of the file's word size.
    fn word(&self, bytes: &[u8], at: usize) -> Option<u64> {
        self.number(bytes, at, if self.wide { 8 } else { 4 })
    }

    fn number(&self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        let mut number = [0; 8];
        let slot = number.get_mut(..size)?;
        slot.copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
        if !self.little {
            slot.reverse();
        }
        Some(u64::from_le_bytes(number))
    }

    /// A part of the file; none if it does not lie in it.
    fn bytes(&self, at: u64, length: usize) -> Option<Vec<u8>> {
        if at.checked_add(length as u64)? > self.length {
            return None;
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// A string that ends with a zero byte inside the file.
    fn string(&self, at: u64) -> Option<OsString> {
        let left = usize::try_from(self.length.checked_sub(at)?).ok()?;
        let bytes = self.bytes(at, left.min(LONGEST_STRING))?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(OsString::from_vec(bytes[..end].to_vec()))
    }
}

fn of_kind(segments: &[Segment], kind: u64) -> Option<&Segment> {
    segments.iter().find(|segment| segment.kind == kind)
}

/// The place in the file of an address in memory.
fn place(segments: &[Segment], address: u64) -> Option<u64> {
    let inside = |segment: &&Segment| {
        segment.kind == PT_LOAD && address >= segment.address && address - segment.address < segment.size
    };
    let segment = segments.iter().find(inside)?;
    segment.offset.checked_add(address - segment.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Option<Elf> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("f");
        std::fs::write(&path, bytes).expect("a file");
        read(&path)
    }

    #[test]
    fn this_test_program() {
        let path = std::env::current_exe().expect("its own path");
        let elf = read(&path).expect("an ELF file");
        assert!(elf.loader.is_some_and(|loader| loader.is_absolute()));
        assert!(elf.needed.iter().any(|name| name.to_string_lossy().starts_with("libc.so")));
    }

    #[test]
    fn no_elf() {
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"#!/bin/sh\n"), None);
        assert_eq!(parse(b"\x7fELF"), None);
        assert_eq!(parse(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn garbage_never_panics(
            tail in proptest::collection::vec(any::<u8>(), 0..512),
            class in 0u8..4,
            data in 0u8..4,
        ) {
            let mut bytes = b"\x7fELF".to_vec();
            bytes.extend([class, data]);
            bytes.extend(tail);
            parse(&bytes);
        }

        #[test]
        fn damage_never_panics(at in 0usize..4096, value in any::<u8>()) {
            let path = std::env::current_exe().expect("its own path");
            let mut start = vec![0; 4096];
            File::open(path).and_then(|file| file.read_exact_at(&mut start, 0)).expect("a start");
            start[at] = value;
            parse(&start);
        }
    }
}
