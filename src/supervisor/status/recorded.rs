//! What a recorded run saw of its files' statuses, read from its trace.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::sample::Sample;

/// The longest part that is read, in bytes.
pub const LONGEST_STATUSES: u64 = 1 << 20;
/// Most samples of a run.
pub(super) const MOST_SAMPLES: usize = 2 << 20;
/// Most bytes of a run's: they are held in memory.
pub(super) const MOST_BYTES: usize = 256 << 20;
/// The longest path: one that the kernel tells (PATH_MAX), and a name in it.
pub(super) const LONGEST_PATH: usize = 4096 + 256;

/// Why something is no part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    /// It is not written as we write it, or says what no kernel says.
    #[error("an entry {} holds what is no status of a file", super::OPERATION)]
    Malformed,
    /// There are more than a run records.
    #[error("its entries {} hold more than a run records", super::OPERATION)]
    TooMany,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Changes of the file at that path before.
    changes: u32,
    /// It was so when the last of them had just happened.
    is_first: bool,
    sample: Sample,
}

/// The statuses of a recorded run.
#[derive(Debug, Default)]
pub struct RecordedStatuses {
    paths: HashMap<PathBuf, Vec<Seen>>,
    count: usize,
    /// Bytes of its parts.
    bytes: usize,
}

/// How a file was between two changes that the supervisor saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Right after the first one.
    pub(super) first: Sample,
    /// Before the second one, where it was another status.
    pub(super) last: Option<Sample>,
}

impl RecordedStatuses {
    /// Adds a part, in the order of the trace.
    ///
    /// # Errors
    /// When it is none that a run records.
    pub fn add(&mut self, text: &[u8]) -> Result<(), StatusError> {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > MOST_BYTES {
            return Err(StatusError::TooMany);
        }
        let text = text.strip_suffix(&[0]).ok_or(StatusError::Malformed)?;
        for line in text.split(|&byte| byte == 0) {
            let (path, seen) = parse(line).ok_or(StatusError::Malformed)?;
            self.count += 1;
            if self.count > MOST_SAMPLES {
                return Err(StatusError::TooMany);
            }
            let all = match self.paths.get_mut(path) {
                Some(all) => all,
                None => self.paths.entry(path.to_owned()).or_default(),
            };
            let former = all.last();
            if former.is_some_and(|former| former.changes > seen.changes) {
                return Err(StatusError::Malformed);
            }
            let born = seen.sample.born.or_else(|| {
                let same = former.filter(|former| former.sample.id() == seen.sample.id());
                same.and_then(|former| former.sample.born)
            });
            all.push(Seen { sample: Sample { born, ..seen.sample }, ..seen });
        }
        Ok(())
    }

    /// The mode, the size and the time (mtime, in nanoseconds) of what was at `path` before the run changed it.
    #[must_use]
    pub fn former(&self, path: &Path) -> Option<(u32, u64, i64)> {
        let first = self.paths.get(path)?.first().filter(|seen| seen.changes == 0)?;
        let Sample { mode, size, modified, .. } = first.sample;
        Some((mode, size, modified))
    }

    /// Whether nothing was recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Whether something was recorded of the file at `path`.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.paths.contains_key(path)
    }

    /// How the file at `path` was after so many changes. What did not differ was not recorded again.
    pub(super) fn span(&self, path: &Path, changes: u32) -> Option<Span> {
        let all = self.paths.get(path)?;
        let end = all.partition_point(|seen| seen.changes <= changes);
        let start = all.partition_point(|seen| seen.changes < changes);
        let (before, within) = (&all[..start], &all[start..end]);
        match within {
            [] => before.last().map(|seen| Span { first: seen.sample, last: None }),
            [first, rest @ ..] if first.is_first || before.is_empty() => {
                Some(Span { first: first.sample, last: rest.last().map(|seen| seen.sample) })
            }
            [.., last] => Some(Span { first: before.last().unwrap_or(last).sample, last: Some(last.sample) }),
        }
    }
}

fn parse(line: &[u8]) -> Option<(&Path, Seen)> {
    const WORDS: usize = 13;
    let path = line.splitn(WORDS + 1, |&byte| byte == b' ').nth(WORDS)?;
    let words = std::str::from_utf8(&line[..line.len() - path.len()]).ok()?;
    let mut words = words.split(' ');
    let is_first = match words.next()? {
        "c" => true,
        "s" => false,
        _ => return None,
    };
    let changes = words.next()?.parse().ok()?;
    let sample = Sample::parse(&mut words)?;
    let path = Path::new(OsStr::from_bytes(path));
    let is_path = path.is_absolute() && path.as_os_str().len() <= LONGEST_PATH;
    is_path.then_some((path, Seen { changes, is_first, sample }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(letter: char, changes: u32, modified: i64, path: &str) -> String {
        format!("{letter} {changes} 100644 2049 5 1 3 8 4096 1 {modified} 3 - {path}\0")
    }

    #[test]
    fn a_span_is_between_two_changes() {
        let mut recorded = RecordedStatuses::default();
        let text = [
            line('s', 0, 10, "/w/a b"),
            line('s', 0, 11, "/w/a b"),
            line('c', 1, 20, "/w/a b"),
            line('s', 3, 30, "/w/a b"),
            line('c', 1, 99, "/w/other"),
        ];
        recorded.add(text.concat().as_bytes()).expect("samples");
        let span = |changes| {
            let span = recorded.span(Path::new("/w/a b"), changes).expect("is known");
            (span.first.modified, span.last.map(|last| last.modified))
        };
        assert_eq!([span(0), span(1), span(2)], [(10, Some(11)), (20, None), (20, None)]);
        assert_eq!([span(3), span(4)], [(20, Some(30)), (30, None)]);
        assert_eq!(recorded.span(Path::new("/w/other"), 0), None);
        assert_eq!(recorded.span(Path::new("/w/none"), 0), None);
    }

    #[test]
    fn what_no_run_records_is_refused() {
        let mut recorded = RecordedStatuses::default();
        let good = line('c', 2, 1, "/w");
        let wrong = [
            String::new(),
            good.trim_end_matches('\0').to_owned(),
            good.replace(" /w", ""),
            good.replace('/', ""),
            good.replace('c', "d"),
            good.replace("c 2", "c -2"),
            good.replace("c 2", "c 4294967296"),
            good.replace(" 5 ", " 5x "),
            format!("{good}\0"),
        ];
        for text in wrong {
            assert_eq!(recorded.add(text.as_bytes()), Err(StatusError::Malformed), "{text}");
        }
        recorded.add(good.as_bytes()).expect("a sample");
        assert_eq!(recorded.add(line('s', 1, 1, "/w").as_bytes()), Err(StatusError::Malformed));
        assert_eq!(recorded.add(b"c 1 \xff\0"), Err(StatusError::Malformed));
    }

    #[test]
    fn what_would_fill_the_memory_is_refused() {
        let mut recorded = RecordedStatuses::default();
        let longer = format!("/{}", "p".repeat(LONGEST_PATH));
        assert_eq!(recorded.add(line('s', 0, 1, &longer).as_bytes()), Err(StatusError::Malformed));
        let part = line('s', 0, 1, &longer[..LONGEST_PATH]).repeat(200);
        let mut parts = 0;
        while recorded.add(part.as_bytes()).is_ok() {
            parts += 1;
        }
        assert_eq!(recorded.add(part.as_bytes()), Err(StatusError::TooMany));
        assert!(parts >= MOST_BYTES / part.len() - 1);
    }
}
