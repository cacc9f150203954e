//! What its file says of a program: which clock suits it, the tape or one at real rate, and where its code is.
//!
//! Go and the JVM read the clock in threads of their own, as often as these happen to run, and wait in loops
//! for it to go on: a tape would leave them out of step at once.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use memchr::memmem;

use super::symbols::Symbols;

/// Bytes of a note section, of a dynamic section that are looked at.
const MOST: u64 = 8192;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_NOTE: u64 = 4;
const PF_X: u64 = 1;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Every launcher of a JDK needs it: java, javac, keytool.
const JAVA_LAUNCHER: &[u8] = b"libjli.so\0";
/// Python's interpreter has one of these functions, or calls it.
const PYTHON: [&[u8]; 2] = [b"\0Py_BytesMain\0", b"\0Py_Main\0"];
/// Bytes of the names of symbols that are looked through: Python has some 60 KiB. Node has more.
const NAMES: u64 = 1 << 18;
/// libuv's, and that of Node's platform for V8.
const NODE: [&[u8]; 2] = [b"uv_hrtime\0", b"_ZN4node12NodePlatform27MonotonicallyIncreasingTimeEv\0"];

/// What a program reads the clock from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::supervisor) enum Pace {
    /// A tape for each thread.
    #[default]
    Tape,
    /// The same; what its programs read of CLOCK_MONOTONIC is told apart.
    Interpreter,
    /// A clock at real rate.
    RealRate,
    /// The same, and a tape for each thread of what Java code reads.
    Java,
}

impl Pace {
    /// That of a program of this image.
    pub(in crate::supervisor) fn of(file: &File) -> Self {
        let program = Program { file };
        let segments = program.segments();
        let of = |kind: u64| segments.iter().filter(move |segment| segment.kind == kind);
        if of(PT_NOTE).any(|segment| is_go(&program.read(segment.offset, segment.size))) {
            return Self::RealRate;
        }
        match of(PT_DYNAMIC).next() {
            Some(segment) if program.needs_java(segment, &segments) => Self::Java,
            Some(segment) if program.is_python(segment, &segments) => Self::Interpreter,
            _ => Self::Tape,
        }
    }
}

/// Notes (elf(5)): the Go linker puts its build id into one that bears its name.
fn is_go(notes: &[u8]) -> bool {
    let mut rest = notes;
    while let Some((head, body)) = rest.split_first_chunk::<12>() {
        let [name, content] =
            [0, 4].map(|at| number(head, at, 4).and_then(|size| usize::try_from(size).ok()));
        let (Some(name), Some(content)) = (name, content) else { return false };
        if body.get(..name).is_some_and(|name| name == b"Go\0\0" || name == b"Go\0") {
            return true;
        }
        let padded = |size: usize| size.checked_next_multiple_of(4);
        let next = padded(name).zip(padded(content)).and_then(|(name, content)| name.checked_add(content));
        let Some(next) = next.and_then(|next| body.get(next..)) else { return false };
        rest = next;
    }
    false
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

struct Segment {
    kind: u64,
    flags: u64,
    offset: u64,
    address: u64,
    size: u64,
}

struct Program<'a> {
    file: &'a File,
}

/// Where a program's own code lies, by its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::supervisor) struct Text {
    entry: u64,
    start: u64,
    size: u64,
    /// The functions by which Node's programs, and V8, read CLOCK_MONOTONIC.
    clocks: Option<[u64; 2]>,
}

impl Text {
    /// That of the largest of its segments; none when it cannot be told.
    pub(in crate::supervisor) fn of(file: &File) -> Self {
        let program = Program { file };
        let segments = program.segments();
        let code = segments.iter().filter(|segment| segment.kind == PT_LOAD && segment.flags & PF_X != 0);
        let entry = number(&program.read(0, 64), 24, 8);
        let found = code.max_by_key(|segment| segment.size).zip(entry);
        let clocks = program.clocks_of_node(&segments);
        found.map_or_else(Self::default, |(code, entry)| {
            let (start, size) = (code.address, code.size);
            Self { entry, start, size, clocks }
        })
    }

    /// Where that is in a program that begins at `entry`.
    pub(super) fn at(self, entry: u64) -> Range<u64> {
        let start = entry.wrapping_sub(self.entry).wrapping_add(self.start);
        start..start.saturating_add(self.size)
    }

    /// Where those functions are in it; 0 where it is not Node.
    pub(super) fn clocks_at(self, entry: u64) -> [u64; 2] {
        let moved = entry.wrapping_sub(self.entry);
        self.clocks.map_or([0; 2], |clocks| clocks.map(|clock| clock.wrapping_add(moved)))
    }
}

impl Program<'_> {
    /// What there is of the bytes from `offset` on.
    fn read(&self, offset: u64, size: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(size.min(MOST)).unwrap_or(0)];
        let count = self.file.read_at(&mut bytes, offset).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    fn segments(&self) -> Vec<Segment> {
        const HEADER: usize = 56;
        let head = self.read(0, 64);
        let (Some(offset), Some(count)) = (number(&head, 32, 8), number(&head, 56, 2)) else {
            return Vec::new();
        };
        let table = self.read(offset, count * HEADER as u64);
        let (headers, _) = table.as_chunks::<HEADER>();
        headers
            .iter()
            .filter_map(|header| {
                Some(Segment {
                    kind: number(header, 0, 4)?,
                    flags: number(header, 4, 4)?,
                    offset: number(header, 8, 8)?,
                    address: number(header, 16, 8)?,
                    size: number(header, 32, 8)?,
                })
            })
            .collect()
    }

    /// The numbers of a dynamic section (elf(5)).
    fn entries(&self, dynamic: &Segment) -> Vec<(u64, u64)> {
        let table = self.read(dynamic.offset, dynamic.size);
        let (entries, _) = table.as_chunks::<16>();
        entries.iter().filter_map(|entry| Some((number(entry, 0, 8)?, number(entry, 8, 8)?))).collect()
    }

    /// Where in the file the names are to which such a section refers.
    fn names_at(entries: &[(u64, u64)], segments: &[Segment]) -> Option<u64> {
        Self::table_at(entries, segments, DT_STRTAB)
    }

    /// Where in the file a table is to which it refers by this tag.
    fn table_at(entries: &[(u64, u64)], segments: &[Segment], tag: u64) -> Option<u64> {
        let (_, table) = entries.iter().find(|(own, _)| *own == tag)?;
        let holds = |segment: &&Segment| {
            segment.kind == PT_LOAD && table.wrapping_sub(segment.address) < segment.size
        };
        let segment = segments.iter().find(holds)?;
        Some((table - segment.address).saturating_add(segment.offset))
    }

    /// The functions by which Node's programs, and V8, read CLOCK_MONOTONIC.
    fn clocks_of_node(&self, segments: &[Segment]) -> Option<[u64; 2]> {
        let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
        let entries = self.entries(dynamic);
        entries.iter().find(|(tag, size)| *tag == DT_STRSZ && *size > NAMES)?;
        let table = |tag| Self::table_at(&entries, segments, tag);
        let tables = [table(DT_STRTAB)?, table(DT_SYMTAB)?, table(DT_GNU_HASH)?];
        let symbols = Symbols::of(self.file, tables)?;
        let [of_loop, of_engine] = NODE.map(|name| symbols.value(name));
        Some([of_loop?, of_engine?])
    }

    fn needs_java(&self, dynamic: &Segment, segments: &[Segment]) -> bool {
        let entries = self.entries(dynamic);
        let Some(names) = Self::names_at(&entries, segments) else { return false };
        entries.iter().filter(|(tag, _)| *tag == DT_NEEDED).any(|(_, name)| {
            self.read(names.saturating_add(*name), JAVA_LAUNCHER.len() as u64) == JAVA_LAUNCHER
        })
    }

    fn is_python(&self, dynamic: &Segment, segments: &[Segment]) -> bool {
        let entries = self.entries(dynamic);
        let size = entries.iter().find(|(tag, _)| *tag == DT_STRSZ).map_or(0, |(_, size)| *size);
        let Some(at) = Self::names_at(&entries, segments).filter(|_| size <= NAMES) else { return false };
        let mut names = vec![0; usize::try_from(size).unwrap_or(0)];
        let count = self.file.read_at(&mut names, at).unwrap_or(0);
        names.truncate(count);
        PYTHON.iter().any(|name| memmem::find(&names, name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_go_are_found_among_others() {
        let note = |name: &[u8], content: &[u8]| {
            let sizes = [name.len(), content.len(), 4].map(|size| u32::try_from(size).expect("short"));
            let mut note: Vec<u8> = sizes.into_iter().flat_map(u32::to_le_bytes).collect();
            for part in [name, content] {
                note.extend_from_slice(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let gnu = note(b"GNU\0", b"12345");
        assert!(is_go(&[gnu.clone(), note(b"Go\0\0", b"id")].concat()));
        assert!(!is_go(&gnu) && !is_go(b"") && !is_go(&[0xff; 40]));
    }

    #[test]
    fn this_program_reads_from_a_tape() {
        let own = File::open("/proc/self/exe").expect("this program");
        assert_eq!(Pace::of(&own), Pace::Tape);
    }

    #[test]
    fn the_code_of_this_program_is_where_its_functions_are() {
        let vector = std::fs::read("/proc/self/auxv").expect("its vector");
        let (pairs, _) = vector.as_chunks::<16>();
        let entry =
            pairs.iter().find(|pair| number(*pair, 0, 8) == Some(9)).and_then(|pair| number(pair, 8, 8));
        let own = File::open("/proc/self/exe").expect("this program");
        let text = Text::of(&own).at(entry.expect("AT_ENTRY"));
        assert!(text.contains(&(is_go as fn(&[u8]) -> bool as usize as u64)), "{text:x?}");
        assert!(!text.contains(&(std::ptr::from_ref(&vector) as usize as u64)), "{text:x?}");
    }
}
