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
    files: HashMap<PathBuf, File>,
    /// No more was kept from some time on.
    is_cut: bool,
    sysinfo: Option<[u8; SYSINFO]>,
    bytes: usize,
}

/// What a file said.
#[derive(Debug, Clone, Default)]
struct File {
    /// To each process, in order; `None` where that was not kept.
    by_process: HashMap<String, VecDeque<Option<Vec<u8>>>>,
    /// To whom asks more often than was recorded.
    last: Option<Vec<u8>>,
}

/// What a file says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told<'a> {
    Content(&'a [u8]),
    /// The last that was kept, and the recorded run was told more.
    Last(&'a [u8]),
    NotKept,
    /// Nobody asked.
    Unknown,
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
            self.is_cut = true;
            return;
        }
        let file = self.files.entry(path).or_default();
        file.last = Some(content.clone());
        file.by_process.entry(process.to_owned()).or_default().push_back(Some(content));
    }

    /// Adds that what `process` was told at `path` was not kept; with `is_cut` nothing was from then on.
    pub fn add_missing(&mut self, path: PathBuf, process: &str, is_cut: bool) {
        self.is_cut |= is_cut;
        self.bytes = self.bytes.saturating_add(1);
        if !is_cut && self.bytes <= MOST_BYTES {
            let file = self.files.entry(path).or_default();
            file.by_process.entry(process.to_owned()).or_default().push_back(None);
        }
    }

    /// What the file at `path` says to `process` now.
    pub(super) fn next(&mut self, path: &Path, process: &str) -> Told<'_> {
        let none = if self.is_cut { Told::NotKept } else { Told::Unknown };
        let Some(file) = self.files.get_mut(path) else { return none };
        let next = file.by_process.get_mut(process).and_then(VecDeque::pop_front);
        let has_next = next.is_some();
        match next {
            Some(None) => return Told::NotKept,
            Some(content) => file.last = content,
            None => {}
        }
        match &file.last {
            Some(content) if has_next || !self.is_cut => Told::Content(content),
            Some(content) => Told::Last(content),
            None => Told::NotKept,
        }
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
        let mut next = |process| match recorded.next(Path::new("/proc/loadavg"), process) {
            Told::Content(content) => content.to_vec(),
            _ => b"-".to_vec(),
        };
        let heard: Vec<_> = ["0", "0", "0.0", "0.0", "0"].into_iter().map(&mut next).collect();
        assert_eq!(heard.concat(), b"13222");
        assert_eq!(recorded.next(Path::new("/proc/meminfo"), "0"), Told::Unknown);
    }

    #[test]
    fn what_was_not_kept_is_known() {
        let (path, mut recorded) = (Path::new("/proc/stat"), RecordedMachine::default());
        recorded.add_missing(path.into(), "0", false);
        recorded.add(path.into(), "0", b"1".into());
        assert_eq!(recorded.next(path, "0"), Told::NotKept);
        assert_eq!(recorded.next(path, "0"), Told::Content(b"1"));
        assert_eq!(recorded.next(path, "0"), Told::Content(b"1"));
        recorded.add_missing("/proc/swaps".into(), "0", true);
        assert_eq!(recorded.next(path, "0"), Told::Last(b"1"));
        assert_eq!(recorded.next(Path::new("/proc/vmstat"), "0"), Told::NotKept);
    }
}
