//! Which functions of Python's interpreter its programs call to read CLOCK_MONOTONIC.
//!
//! The interpreter reads that clock for its locks as well, as often as its threads happen to wait. What a program asks
//! for goes through functions that a table has by their names (`PyMethodDef`): they are looked for there, in the memory
//! of the program itself, which deceives nobody but itself.

use std::fs;
use std::ops::Range;

use super::Clock;
use crate::sys::memory;

/// The functions of the module `time`.
const NAMES: [&[u8]; 4] =
    [b"\0monotonic\0", b"\0monotonic_ns\0", b"\0perf_counter\0", b"\0perf_counter_ns\0"];
/// Bytes of the longest of these.
const LONGEST: usize = 17;
/// The library that has the interpreter's code, where its program has not.
const LIBRARY: &str = "libpython";
/// Bytes of such a function.
const LENGTH: u64 = 256;
/// Bytes of each part of the tables of an interpreter that are looked through.
const MOST: u64 = 32 << 20;
/// Pairs of words of them that are kept: Python has some thousands.
const PAIRS: usize = 1 << 16;
/// Bytes that are looked through at once: no memory of ours is needed for all of it.
const PIECE: usize = 64 << 10;
/// What two pieces share: a pair of words.
const OVERLAP: usize = 16;

/// The tables of an interpreter.
#[derive(Debug, Clone, Default)]
pub(super) struct Functions {
    /// Where a function begins, and where that stands which may be its name.
    named: Vec<(u64, u64)>,
    /// Where names are.
    constants: Vec<Range<u64>>,
}

impl Clock {
    /// Whether a place of the interpreter that `process` runs is one of these functions; of none, looks where its code
    /// is. `None` where it is no interpreter.
    pub(super) fn is_own_place(&mut self, process: i32, place: u64) -> Option<bool> {
        let program = self.programs.get_mut(&process).filter(|program| program.control.is_interpreter)?;
        if place == 0 {
            if let Some(code) = code_of_library(process) {
                program.control.text = code;
                // Killed meanwhile: nobody reads it.
                let _ = program.control.write(process);
            }
            return Some(false);
        }
        let Range { start, end } = program.control.text;
        let functions =
            self.interpreters.entry((start, end)).or_insert_with(|| Functions::of(process, place));
        Some(functions.have(process, place))
    }
}

impl Functions {
    /// Those of the interpreter that `process` runs, whose code has `place`.
    ///
    /// Strings are constant, tables of methods are not. The tables are much shorter than the strings: these are looked
    /// at where a table says that there is one.
    pub(super) fn of(process: i32, place: u64) -> Self {
        let Parts { code, tables, constants } = parts_of(process, place);
        let mut named = Vec::new();
        for range in &tables {
            pieces(process, range, |bytes| {
                let room = PAIRS - named.len();
                named.extend(pairs_in(bytes, &code, &constants).take(room));
            });
        }
        Self { named, constants }
    }

    /// Whether one of them has this place, which is where a function that it has called returns to.
    pub(super) fn have(&self, process: i32, place: u64) -> bool {
        let is_near =
            |start: u64| place.checked_sub(start).is_some_and(|offset| (1..LENGTH).contains(&offset));
        self.named.iter().any(|(start, name)| is_near(*start) && self.is_name(process, *name))
    }

    fn is_name(&self, process: i32, address: u64) -> bool {
        // As it is looked for: with what is before it.
        let start = address.wrapping_sub(1);
        let Some(range) = self.constants.iter().find(|range| range.contains(&start)) else { return false };
        let mut bytes = [0; LONGEST];
        let length = usize::try_from(range.end - start).map_or(LONGEST, |left| left.min(LONGEST));
        let count = memory::read(process, start, &mut bytes[..length]).unwrap_or(0);
        NAMES.iter().any(|name| bytes[..count].starts_with(name))
    }
}

/// Pairs of words such as a table has: where a constant is, and where code is. The other way round.
fn pairs_in(bytes: &[u8], code: &[Range<u64>], constants: &[Range<u64>]) -> impl Iterator<Item = (u64, u64)> {
    let is_in = |ranges: &[Range<u64>], address: u64| ranges.iter().any(|range| range.contains(&address));
    // Most words are soon seen to be none.
    let first = code.iter().map(|range| range.start).min().unwrap_or(0);
    let size = code.iter().map(|range| range.end).max().map_or(0, |end| end - first);
    let (words, _) = bytes.as_chunks::<8>();
    let pairs = words.iter().zip(words.iter().skip(1));
    pairs
        .map(|(name, function)| (u64::from_le_bytes(*function), u64::from_le_bytes(*name)))
        .filter(move |(function, _)| function.wrapping_sub(first) < size)
        .filter(move |(function, name)| is_in(code, *function) && is_in(constants, *name))
}

/// Where the code of Python's library lies.
fn code_of_library(process: i32) -> Option<Range<u64>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let is_library = |file: &str| file.rsplit('/').next().is_some_and(|name| name.starts_with(LIBRARY));
    let mut code =
        maps.lines().filter_map(mapping).filter(|(_, rights, file)| rights.contains('x') && is_library(file));
    code.next().map(|(range, ..)| range)
}

/// What a process has mapped of a file (proc_pid_maps(5)).
#[derive(Debug, Default)]
struct Parts {
    code: Vec<Range<u64>>,
    /// What can be changed.
    tables: Vec<Range<u64>>,
    constants: Vec<Range<u64>>,
}

/// Those of the file whose code has a place.
fn parts_of(process: i32, place: u64) -> Parts {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let mut parts = Parts::default();
    let file = maps.lines().filter_map(mapping).find(|(range, ..)| range.contains(&place));
    let Some((_, _, file)) = file.filter(|(_, _, file)| file.starts_with('/')) else { return parts };
    for (range, rights, _) in maps.lines().filter_map(mapping).filter(|(.., name)| *name == file) {
        let kind = match rights {
            _ if rights.contains('x') => &mut parts.code,
            _ if rights.contains('w') => &mut parts.tables,
            _ => &mut parts.constants,
        };
        kind.push(range);
    }
    parts
}

/// Where a mapping lies, what may be done with it, and its file.
fn mapping(line: &str) -> Option<(Range<u64>, &str, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?..number(end)?, rights, words.nth(3)?))
}

/// Gives what stands there in pieces, each with the end of the one before it.
fn pieces(process: i32, range: &Range<u64>, mut see: impl FnMut(&[u8])) {
    let mut bytes = vec![0; PIECE + OVERLAP];
    let end = range.end.min(range.start.saturating_add(MOST));
    let mut start = range.start;
    while start < end {
        let length = usize::try_from(end - start).map_or(bytes.len(), |left| left.min(bytes.len()));
        if memory::read_exact(process, start, &mut bytes[..length]).is_err() {
            return;
        }
        see(&bytes[..length]);
        start += PIECE as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_file_are_its_mappings_that_are_no_code() {
        let line = "006d2000-00945000 r--p 002d2000 fe:00 247706                /usr/bin/python3.11";
        assert_eq!(mapping(line), Some((0x6d_2000..0x94_5000, "r--p", "/usr/bin/python3.11")));
        assert!(mapping(&line.replace("r--p", "r-xp")).is_some_and(|(_, rights, _)| rights == "r-xp"));
        assert_eq!(mapping("7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 "), None);
    }

    #[test]
    fn functions_are_found_by_their_names() {
        let text = *b"x\0monotonic\0perf_counter\0monotonics\0";
        let own = i32::try_from(std::process::id()).expect("a process");
        let start = std::ptr::from_ref(&text).addr() as u64;
        let constants: Vec<_> = std::iter::once(start..start + text.len() as u64).collect();
        let functions = |name: u64| Functions { named: vec![(0x4000, name)], constants: constants.clone() };
        let names: Vec<_> = (0..0x1000).filter(|at| functions(start + at).have(own, 0x4010)).collect();
        assert_eq!(names, [2, 0xc]);
        let functions = functions(start + 2);
        assert!(functions.have(own, 0x4010) && !functions.have(own, 0x3fff) && !functions.have(own, 0x4100));
    }

    #[test]
    fn a_table_has_functions_behind_their_names() {
        let words = [7_u64, 0x1002, 0x4000, 0x4000, 0x1fff, 0x4fff, 0x1003, 0x5000];
        let bytes: Vec<_> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let (code, constants) = (0x4000..0x5000, 0x1000..0x2000);
        let (code, constants) = (std::slice::from_ref(&code), std::slice::from_ref(&constants));
        let pairs: Vec<_> = pairs_in(&bytes, code, constants).collect();
        assert_eq!(pairs, [(0x4000, 0x1002), (0x4fff, 0x1fff)]);
        assert!(pairs_in(&bytes[..20], code, constants).next().is_none());
    }
}
