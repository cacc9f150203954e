//! While a run is recorded: the statuses of the files that it deals with go into the trace.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::recorded::{LONGEST_PATH, LONGEST_STATUSES, MOST_BYTES, MOST_SAMPLES};
use super::sample::Sample;
use super::{ALL, Moment, OPERATION};
use crate::sys::status;
use crate::trace::{Event, Kind, Recorder, TraceError};

/// Bytes that are held before they are put into the trace.
const PART: usize = 64 << 10;
/// Paths that are known at the same time: memory is bounded.
const PATHS: usize = 1 << 20;
/// Files that are held to be looked at once more.
const UNSEEN: usize = 256;

/// Stands for a path: millions of them would take much memory.
type Key = [u64; 2];

#[derive(Debug)]
struct Known {
    /// Changes of the file at that path that we saw.
    changes: u32,
    /// Stands for the last sample.
    last: Option<u64>,
    /// The file that was there then.
    id: (u64, u64),
}

/// What is not in the trace yet, and what is.
#[derive(Debug, Default)]
pub(in crate::supervisor) struct Kept {
    known: HashMap<Key, Known>,
    names: [RandomState; 2],
    text: Vec<u8>,
    /// Of the whole run.
    samples: usize,
    bytes: usize,
    /// Files that were opened, and may have changed since (O_PATH).
    unseen: HashMap<PathBuf, OwnedFd>,
    is_full: bool,
}

impl Kept {
    fn key(&self, path: &Path) -> Key {
        let bytes = path.as_os_str().as_bytes();
        [self.names[0].hash_one(bytes), self.names[1].hash_one(bytes)]
    }

    /// The file at `path` is so; `look` tells when it was made, where `sample` does not.
    pub(super) fn add(
        &mut self,
        path: &Path,
        moment: Moment,
        sample: Sample,
        look: impl FnOnce() -> Option<i64>,
    ) {
        if self.is_full || path.as_os_str().len() > LONGEST_PATH {
            return;
        }
        let key = self.key(path);
        // Its birth is none of that.
        let status = self.names[0].hash_one(sample);
        let room = self.known.len() < PATHS;
        let known =
            self.known.entry(key).or_insert_with(|| Known { changes: 0, last: None, id: sample.id() });
        if moment == Moment::Changed {
            known.changes = known.changes.saturating_add(1);
        }
        if known.last == Some(status) {
            return;
        }
        (known.last, known.id) = (Some(status), sample.id());
        let letter = if moment == Moment::Changed { 'c' } else { 's' };
        let before = self.text.len();
        // A Vec takes everything.
        let _ = write!(self.text, "{letter} {} ", known.changes);
        Sample { born: sample.born.or_else(look), ..sample }.write(&mut self.text);
        self.text.push(b' ');
        self.text.extend_from_slice(path.as_os_str().as_bytes());
        // No path has one.
        self.text.push(0);
        self.samples += 1;
        self.bytes += self.text.len() - before;
        // The next one may be as long as any.
        let is_long = self.bytes + 2 * LONGEST_PATH > MOST_BYTES;
        self.is_full = !room || is_long || self.samples >= MOST_SAMPLES;
    }

    /// A name of `directory`, where nothing was noted of its file before. Whether it is a link.
    pub(in crate::supervisor) fn note_name(
        &mut self,
        path: &Path,
        directory: BorrowedFd<'_>,
        name: &OsStr,
    ) -> bool {
        let Ok(status) = status::at(directory, name.as_bytes(), ALL) else { return false };
        let (path, sample) = (path.join(name), Sample::from(&status));
        if !self.known.contains_key(&self.key(&path)) {
            self.add(&path, Moment::Seen, sample, || None);
        }
        sample.kind() == libc::S_IFLNK
    }

    /// The file at `path` was opened: what happens to it from now on is not seen. `file` is an O_PATH twin.
    pub(super) fn opened(&mut self, path: &Path, file: OwnedFd) {
        self.unseen.insert(path.to_owned(), file);
        if self.unseen.len() >= UNSEEN {
            self.look_again();
        }
    }

    /// What was at `from` is at `to` now, or nowhere: nothing that was removed is held.
    pub(super) fn moved(&mut self, from: &Path, to: Option<&Path>) {
        if let (Some(file), Some(to)) = (self.unseen.remove(from), to) {
            self.unseen.insert(to.to_owned(), file);
        }
    }

    /// Looks once more at what was opened.
    fn look_again(&mut self) {
        for (path, file) in std::mem::take(&mut self.unseen) {
            let Ok(status) = status::of(file.as_fd(), 0, ALL) else { continue };
            let sample = Sample::from(&status);
            // Another one may have its name.
            if self.known.get(&self.key(&path)).is_some_and(|known| known.id == sample.id()) {
                self.add(&path, Moment::Seen, sample, || None);
            }
        }
    }

    /// Puts what is there into the trace, if it is enough, or the last of it.
    pub(super) fn flush(&mut self, recorder: &Recorder, last: bool) -> Result<(), TraceError> {
        if last {
            self.look_again();
        }
        while !self.text.is_empty() && (self.text.len() >= PART || last || self.is_full) {
            let part = self.part();
            let count = part.iter().filter(|&&byte| byte == 0).count();
            let event = Event::new(Kind::Meta, OPERATION).arg("count", count);
            let event = event.arg("samples", recorder.keep(&part)?.private());
            let is_cut = self.is_full && self.text.is_empty();
            recorder.record(if is_cut { event.arg("cut", true) } else { event })?;
        }
        Ok(())
    }

    /// The first samples of what is there, as many as a reader takes at once.
    fn part(&mut self) -> Vec<u8> {
        let longest = usize::try_from(LONGEST_STATUSES).unwrap_or(usize::MAX);
        let ends = self.text.get(..longest).and_then(|start| start.iter().rposition(|&byte| byte == 0));
        let rest = ends.map(|end| self.text.split_off(end + 1)).unwrap_or_default();
        std::mem::replace(&mut self.text, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::RecordedStatuses;

    #[test]
    fn parts_end_where_samples_do() {
        let mut kept = Kept::default();
        let directory = tempfile::tempdir().expect("a directory");
        let mut sample = Sample::from(&nix::sys::stat::lstat(directory.path()).expect("is there"));
        let deep = "/d".repeat(2000);
        for inode in 0..600 {
            sample.inode = inode;
            kept.add(Path::new(&deep), Moment::Changed, sample, || None);
            kept.add(Path::new(&deep), Moment::Seen, sample, || None);
        }
        let (mut recorded, mut parts) = (RecordedStatuses::default(), 0);
        while !kept.text.is_empty() {
            let part = kept.part();
            assert!(part.len() as u64 <= LONGEST_STATUSES);
            recorded.add(&part).expect("samples");
            parts += 1;
        }
        assert_eq!(parts, 3);
        let span = recorded.span(Path::new(&deep), 600).expect("is known");
        assert_eq!((span.first.inode, span.last), (599, None));
    }
}
