//! Which functions of Python's interpreter its programs call to read CLOCK_MONOTONIC.
//!
//! The interpreter reads that clock for its locks as well, as often as its threads happen to wait. What a program asks
//! for goes through functions that a table has by their names (`PyMethodDef`): they are looked for there, in the memory
//! of the program itself, which deceives nobody but itself.

use std::fs;
use std::ops::Range;

use memchr::memmem;

use super::Clock;
use crate::sys::memory;

/// The functions of the module `time`.
const NAMES: [&[u8]; 4] =
    [b"\0monotonic\0", b"\0monotonic_ns\0", b"\0perf_counter\0", b"\0perf_counter_ns\0"];
/// How they begin.
const BEGINNINGS: [&[u8]; 2] = [b"\0monotonic", b"\0perf_counter"];
/// The library that has the interpreter's code, where its program has not.
const LIBRARY: &str = "libpython";
/// Bytes of such a function.
const LENGTH: u64 = 256;
/// Bytes of each part of the data of an interpreter that are looked through.
const MOST: u64 = 32 << 20;
/// And at once: no memory of ours is needed for all of it.
const PIECE: usize = 64 << 10;
/// What two pieces share: more than a name, and words.
const OVERLAP: usize = 64;

/// Where these functions begin.
#[derive(Debug, Clone, Default)]
pub(super) struct Functions(Vec<u64>);

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
        Some(functions.have(place))
    }
}

impl Functions {
    /// Those of the interpreter that `process` runs, whose code has `place`.
    pub(super) fn of(process: i32, place: u64) -> Self {
        let data = data_of(process, place);
        // Strings are constant, tables of methods are not.
        let of_kind = |can_change: bool| data.iter().filter(move |(_, is_so)| *is_so == can_change);
        let mut names = Vec::new();
        for (range, _) in of_kind(false) {
            pieces(process, range, |start, bytes| names.extend(names_in(start, bytes)));
        }
        let (Some(first), Some(last)) = (names.iter().min().copied(), names.iter().max().copied()) else {
            return Self::default();
        };
        let mut functions = Vec::new();
        for (range, _) in of_kind(true) {
            pieces(process, range, |_, bytes| {
                let (words, _) = bytes.as_chunks::<8>();
                for (at, word) in words.iter().enumerate() {
                    let name = u64::from_le_bytes(*word);
                    // Nearly all are quickly seen to be none of them.
                    if first <= name
                        && name <= last
                        && names.contains(&name)
                        && let Some(function) = words.get(at + 1)
                    {
                        functions.push(u64::from_le_bytes(*function));
                    }
                }
            });
        }
        Self(functions)
    }

    /// Whether one of them has this place, which is where a function that it has called returns to.
    pub(super) fn have(&self, place: u64) -> bool {
        self.0
            .iter()
            .any(|start| place.checked_sub(*start).is_some_and(|offset| (1..LENGTH).contains(&offset)))
    }
}

/// Where such names stand.
fn names_in(start: u64, bytes: &[u8]) -> Vec<u64> {
    let begun = BEGINNINGS.iter().flat_map(|beginning| memmem::find_iter(bytes, beginning));
    let whole = begun.filter(|at| NAMES.iter().any(|name| bytes[*at..].starts_with(name)));
    whole.map(|at| start + at as u64 + 1).collect()
}

/// Where the code of Python's library lies.
fn code_of_library(process: i32) -> Option<Range<u64>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let is_library = |file: &str| file.rsplit('/').next().is_some_and(|name| name.starts_with(LIBRARY));
    let mut code =
        maps.lines().filter_map(mapping).filter(|(_, rights, file)| rights.contains('x') && is_library(file));
    code.next().map(|(range, ..)| range)
}

/// The data of the file whose code has a place, and whether it can be changed (proc_pid_maps(5)).
fn data_of(process: i32, place: u64) -> Vec<(Range<u64>, bool)> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let file = maps.lines().filter_map(mapping).find(|(range, ..)| range.contains(&place));
    let Some((_, _, file)) = file.filter(|(_, _, file)| file.starts_with('/')) else { return Vec::new() };
    let of_file =
        maps.lines().filter_map(mapping).filter(|(_, rights, name)| !rights.contains('x') && *name == file);
    of_file.map(|(range, rights, _)| (range, rights.contains('w'))).collect()
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
fn pieces(process: i32, range: &Range<u64>, mut see: impl FnMut(u64, &[u8])) {
    let mut bytes = vec![0; PIECE + OVERLAP];
    let end = range.end.min(range.start.saturating_add(MOST));
    let mut start = range.start;
    while start < end {
        let length = usize::try_from(end - start).map_or(bytes.len(), |left| left.min(bytes.len()));
        if memory::read_exact(process, start, &mut bytes[..length]).is_err() {
            return;
        }
        see(start, &bytes[..length]);
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
        assert_eq!(names_in(0x1000, b"x\0monotonic\0perf_counter\0monotonics\0"), [0x1002, 0x100c]);
        let functions = Functions(vec![0x4000]);
        assert!(functions.have(0x4010) && !functions.have(0x3fff) && !functions.have(0x4100));
    }
}
