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
/// The library that has the interpreter's code, where its program has not.
const LIBRARY: &str = "libpython";
/// Bytes of such a function.
const LENGTH: u64 = 256;
/// Bytes of the data of an interpreter that are looked through.
const MOST: u64 = 32 << 20;

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
        let data: Vec<_> =
            data_of(process, place).into_iter().filter_map(|range| held(process, range)).collect();
        let words = || {
            data.iter().flat_map(|(_, bytes)| {
                bytes.as_chunks::<8>().0.windows(2).map(|pair| [pair[0], pair[1]].map(u64::from_le_bytes))
            })
        };
        let names: Vec<u64> = data.iter().flat_map(|(start, bytes)| names_in(*start, bytes)).collect();
        Self(words().filter(|[name, _]| names.contains(name)).map(|[_, function]| function).collect())
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
    let found = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0);
    found
        .filter(|(at, _)| NAMES.iter().any(|name| bytes[*at..].starts_with(name)))
        .map(|(at, _)| start + at as u64 + 1)
        .collect()
}

/// Where the code of Python's library lies.
fn code_of_library(process: i32) -> Option<Range<u64>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let is_library = |file: &str| file.rsplit('/').next().is_some_and(|name| name.starts_with(LIBRARY));
    let mut code = maps.lines().filter_map(mapping).filter(|(_, is_code, file)| *is_code && is_library(file));
    code.next().map(|(range, ..)| range)
}

/// The data of the file whose code has a place (proc_pid_maps(5)).
fn data_of(process: i32, place: u64) -> Vec<Range<u64>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let file = maps.lines().filter_map(mapping).find(|(range, ..)| range.contains(&place));
    let Some((_, _, file)) = file.filter(|(_, _, file)| file.starts_with('/')) else { return Vec::new() };
    let of_file = maps.lines().filter_map(mapping).filter(|(_, is_code, name)| !is_code && *name == file);
    of_file.map(|(range, ..)| range).collect()
}

/// Where a mapping lies, whether it is code, and its file.
fn mapping(line: &str) -> Option<(Range<u64>, bool, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.contains('x');
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?..number(end)?, is_code, words.nth(3)?))
}

/// What stands there.
fn held(process: i32, range: Range<u64>) -> Option<(u64, Vec<u8>)> {
    let size = range.end.checked_sub(range.start).filter(|size| *size <= MOST)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    memory::read_exact(process, range.start, &mut bytes).ok()?;
    Some((range.start, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_file_are_its_mappings_that_are_no_code() {
        let line = "006d2000-00945000 r--p 002d2000 fe:00 247706                /usr/bin/python3.11";
        assert_eq!(mapping(line), Some((0x6d_2000..0x94_5000, false, "/usr/bin/python3.11")));
        assert!(mapping(&line.replace("r--p", "r-xp")).is_some_and(|(_, is_code, _)| is_code));
        assert_eq!(mapping("7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 "), None);
    }

    #[test]
    fn functions_are_found_by_their_names() {
        assert_eq!(names_in(0x1000, b"x\0monotonic\0perf_counter\0monotonics\0"), [0x1002, 0x100c]);
        let functions = Functions(vec![0x4000]);
        assert!(functions.have(0x4010) && !functions.have(0x3fff) && !functions.have(0x4100));
    }
}
