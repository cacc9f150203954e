//! What a recorded run was told of its machine, read from its trace.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use super::{SYSINFO_NAME, info_of};
use crate::sys::system::SYSINFO;

/// The longest content, in bytes.
pub const LONGEST: u64 = 256 << 10;
/// Most bytes of a run's: they are held in memory.
const MOST_BYTES: usize = 64 << 20;

/// What it was told.
#[derive(Debug, Clone, Default)]
pub struct RecordedMachine {
    files: HashMap<PathBuf, Told>,
    sysinfo: Option<[u8; SYSINFO]>,
    bytes: usize,
}

/// What a file said.
#[derive(Debug, Clone, Default)]
struct Told {
    /// To each process, in order.
    by_process: HashMap<String, VecDeque<Vec<u8>>>,
    /// To whom asks more often than was recorded.
    last: Vec<u8>,
}

impl RecordedMachine {
    /// Adds what the file at `path` said to `process`; entries come in their order. What is more than a run can
    /// hold is left out.
    pub fn add(&mut self, path: PathBuf, process: &str, content: Vec<u8>) {
        if path.as_os_str() == SYSINFO_NAME {
            self.sysinfo = std::str::from_utf8(&content).ok().and_then(info_of);
            return;
        }
        self.bytes = self.bytes.saturating_add(content.len());
        if self.bytes > MOST_BYTES {
            return;
        }
        let told = self.files.entry(path).or_default();
        told.last.clone_from(&content);
        told.by_process.entry(process.to_owned()).or_default().push_back(content);
    }

    /// What the file at `path` says to `process` now.
    pub(super) fn next(&mut self, path: &Path, process: &str) -> Option<&[u8]> {
        let told = self.files.get_mut(path)?;
        if let Some(next) = told.by_process.get_mut(process).and_then(VecDeque::pop_front) {
            told.last = next;
        }
        Some(&told.last)
    }

    /// What sysinfo(2) said.
    pub(super) fn sysinfo(&self) -> Option<[u8; SYSINFO]> {
        self.sysinfo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_hears_what_it_heard() {
        let mut recorded = RecordedMachine::default();
        for (process, content) in [("0", "1"), ("0.0", "2"), ("0", "3")] {
            recorded.add("/proc/loadavg".into(), process, content.into());
        }
        let mut next = |process| recorded.next(Path::new("/proc/loadavg"), process).map(<[u8]>::to_vec);
        let heard: Vec<_> = ["0", "0", "0.0", "0.0", "0"].into_iter().filter_map(&mut next).collect();
        assert_eq!(heard.concat(), b"13222");
        assert!(recorded.next(Path::new("/proc/meminfo"), "0").is_none());
    }
}
