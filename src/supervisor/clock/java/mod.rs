//! Threads of Java: each has a tape of what Java code reads, though the clock of its program goes at real rate.
//!
//! The JVM reads CLOCK_MONOTONIC for itself, in all of its threads, as it happens; these reads see the clock at real
//! rate. What Java code asks for (`System.nanoTime`, `System.currentTimeMillis`, `Instant.now`) is the program's own:
//! the threads of a program ask for it in the order in which they did, each for itself. The image tells them apart by
//! who has called the function of the JVM (`kind_in_java` in `image.c`), and leaves the clock at real rate to Java code
//! that waits for other threads (`methods`).

mod methods;
mod structs;

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;

pub(super) use self::methods::Methods;
use super::{Clock, Lane, Thread};
use crate::sys::tracee;

/// The library that is the JVM.
const JVM: &[u8] = b"/libjvm.so";
/// Bytes of code that a JVM has at least: others have a library of that name that finds the JVM.
const LEAST: u64 = 1 << 20;
/// Bytes of the list of mappings that are looked at.
const MOST_OF_MAPS: u64 = 4 << 20;

impl Clock {
    /// Task `maker` of `process`, whose clock goes at real rate, has made thread `child`, which has not run yet.
    pub(super) fn cloned_at_real_rate(&mut self, (maker, process): (i32, i32), child: i32, strand: String) {
        let start = self.now(maker, process);
        let Some(program) = self.programs.get_mut(&process).filter(|program| program.has_readers) else {
            return;
        };
        if !program.control.threaded {
            // The launcher has loaded the JVM before it makes its first thread.
            let Some(code) = code_of_jvm(process) else {
                // To look each time would be slow where a program has many mappings.
                program.has_readers = false;
                return;
            };
            (program.control.text, program.control.threaded) = (code, true);
            // Killed meanwhile: nobody reads it.
            let _ = program.control.write(maker);
        }
        let own = program.days.as_ref().and_then(|days| days.lane.as_ref());
        // Where all are taken the thread has the clock at real rate alone.
        let Some(lane) = own.and_then(Lane::another) else { return };
        let mut thread = self.thread(process, strand, Some(lane), start);
        thread.made_at = Some(tracee::registers(maker).map_or(0, |registers| registers.fs_base));
        self.readers.insert(child, thread);
    }

    /// A thread that has a tape.
    pub(super) fn thread_mut(&mut self, task: i32) -> Option<&mut Thread> {
        self.threads.get_mut(&task).or_else(|| self.readers.get_mut(&task))
    }
}

/// Where the code of the JVM lies in a process (proc_pid_maps(5)).
fn code_of_jvm(process: i32) -> Option<Range<u64>> {
    let maps = maps_of(process).ok()?;
    maps.split(|byte| *byte == b'\n').find_map(code_in)
}

/// As much of them as a JVM has: a program can have many more.
fn maps_of(process: i32) -> io::Result<Vec<u8>> {
    let mut maps = Vec::new();
    File::open(format!("/proc/{process}/maps"))?.take(MOST_OF_MAPS).read_to_end(&mut maps)?;
    Ok(maps)
}

fn code_in(line: &[u8]) -> Option<Range<u64>> {
    let mut words = line.strip_suffix(JVM)?.split(|byte| *byte == b' ');
    let (start, end) = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
    let is_code = words.next()?.get(2) == Some(&b'x');
    let number = |text| u64::from_str_radix(text, 16).ok();
    let code = number(start)?..number(end)?;
    (is_code && code.end.saturating_sub(code.start) >= LEAST).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::code_in;

    #[test]
    fn the_code_of_the_jvm_is_found() {
        let line = |text: &str| code_in(text.as_bytes());
        let jvm = "7ffff6251000-7ffff6fa4000 r-xp 00251000 fe:00 12   /usr/lib/jvm/lib/server/libjvm.so";
        assert_eq!(line(jvm), Some(0x7fff_f625_1000..0x7fff_f6fa_4000));
        assert_eq!(line(&jvm.replace("r-xp", "r--p")), None);
        assert_eq!(line(&jvm.replace("libjvm.so", "libjvm.so.1")), None);
        assert_eq!(line(&jvm.replace("6fa4000", "6252000")), None);
        assert_eq!(
            ["", "/libjvm.so", "1-2 r-xp /libjvm.so", "2-1 r-xp /libjvm.so"].map(line),
            [None; 4].map(|_: Option<()>| None)
        );
    }
}
