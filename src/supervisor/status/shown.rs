//! In a replay: which recorded status stands for the one that a file has now.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::recorded::{RecordedStatuses, Span};
use super::sample::{Sample, set};
use super::{Moment, PROCESSES};

/// Files that are known at the same time.
const FILES: usize = 1 << 20;

/// A file of the replay, and what the recorded one was like between the same two changes.
#[derive(Debug, Clone, Copy)]
struct Pair {
    recorded: Span,
    /// How the replay's was right after the first change.
    live: Sample,
    /// It was closed after writing since.
    is_settled: bool,
    /// It was opened for reading since: not every file system of a replay notes when it is read.
    is_read: bool,
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    All,
    /// The number of its device alone.
    Device,
    Nothing,
}

/// What stands for the files of a replay.
#[derive(Debug)]
pub(in crate::supervisor) struct Shown {
    recorded: Arc<RecordedStatuses>,
    /// Changes of the file at a path so far.
    changes: HashMap<PathBuf, u32>,
    /// By device and inode, as they are now.
    pairs: HashMap<(u64, u64), Pair>,
    /// The recorded number of a device of the replay's.
    devices: HashMap<u64, u64>,
}

impl Shown {
    pub(super) fn new(recorded: Arc<RecordedStatuses>) -> Self {
        Self { recorded, changes: HashMap::new(), pairs: HashMap::new(), devices: HashMap::new() }
    }

    /// Whether something was recorded of the file at `path`.
    pub(super) fn knows(&self, path: &Path) -> bool {
        self.recorded.has(path)
    }

    /// The file at `path` is so.
    pub(super) fn add(&mut self, path: &Path, moment: Moment, live: Sample) {
        if !self.recorded.has(path) {
            return;
        }
        if moment == Moment::Changed {
            let changes = match self.changes.get_mut(path) {
                Some(changes) => changes,
                None => self.changes.entry(path.to_owned()).or_insert(0),
            };
            *changes = changes.saturating_add(1);
            let changes = *changes;
            self.pair(path, changes, live);
        } else if !self.pairs.contains_key(&live.id()) && !self.changes.contains_key(path) {
            self.pair(path, 0, live);
        }
    }

    /// A file was closed after writing.
    pub(super) fn settled(&mut self, id: (u64, u64)) {
        if let Some(pair) = self.pairs.get_mut(&id) {
            pair.is_settled = true;
        }
    }

    /// A file is opened for reading.
    pub(super) fn read(&mut self, id: (u64, u64)) {
        if let Some(pair) = self.pairs.get_mut(&id) {
            pair.is_read = true;
        }
    }

    fn pair(&mut self, path: &Path, changes: u32, live: Sample) {
        let span = self.recorded.span(path, changes).filter(|span| span.first.kind() == live.kind());
        let Some(recorded) = span else {
            self.pairs.remove(&live.id());
            return;
        };
        if self.pairs.len() >= FILES {
            self.pairs.clear();
        }
        self.devices.entry(live.device).or_insert(recorded.first.device);
        self.pairs.insert(live.id(), Pair { recorded, live, is_settled: false, is_read: false });
    }

    /// The inode number that `directory` gave for what is at `name` in it now. Where something else was mounted
    /// there it is that of what lies below, which the replay's own directory gives too.
    pub(super) fn inode(&self, directory: &Path, name: &OsStr) -> Option<u64> {
        let first = |path: &Path| {
            let changes = self.changes.get(path).copied().unwrap_or(0);
            self.recorded.span(path, changes).map(|span| span.first)
        };
        let file = first(&directory.join(name))?;
        first(directory).is_none_or(|around| around.device == file.device).then_some(file.inode)
    }

    /// Puts the recorded status of the file at `path` in place of its own. `host` looks at the file of the host at
    /// that path, which stands for one that the run did not change.
    pub(super) fn put(
        &mut self,
        path: &Path,
        status: &mut libc::statx,
        host: impl FnOnce() -> Option<Sample>,
    ) -> Known {
        let live = Sample::from(&*status);
        self.add(path, Moment::Seen, live);
        if let Some(pair) = self.pairs.get(&live.id()) {
            let mut sample = pair.stands_for(&live);
            // Each process of the machine is a link of it, also those that are not seen inside.
            if path == Path::new(PROCESSES) {
                sample.links = pair.recorded.first.links;
            }
            put(status, sample);
            return Known::All;
        }
        if let Some(host) = host().filter(|host| is_same(host, &live)) {
            put(status, host);
            return Known::All;
        }
        let Some(device) = self.devices.get(&live.device).copied() else { return Known::Nothing };
        put(status, Sample { device, ..live });
        Known::Device
    }
}

impl Pair {
    /// What the recorded file was when the replay's is `live`.
    fn stands_for(&self, live: &Sample) -> Sample {
        let content = |sample: &Sample| (sample.modified, sample.changed, sample.size);
        let Span { first, last } = self.recorded;
        let last = last.unwrap_or(first);
        let has_moved = self.is_settled || content(live) != content(&self.live);
        let was_read = self.is_read || live.accessed != self.live.accessed;
        let sample = if has_moved { last } else { first };
        let is_directory = live.kind() == libc::S_IFDIR;
        let links = i64::from(live.links) - i64::from(self.live.links) + i64::from(first.links);
        Sample {
            accessed: if was_read { last.accessed } else { first.accessed },
            links: u32::try_from(links).unwrap_or(live.links),
            size: if is_directory { sample.size } else { live.size },
            blocks: if is_directory || sample.size == live.size { sample.blocks } else { live.blocks },
            mode: live.mode,
            born: first.born.or(live.born),
            ..sample
        }
    }
}

/// Whether the host's file is the one that is seen, which has another device, and as a directory another inode.
fn is_same(host: &Sample, live: &Sample) -> bool {
    let what = |sample: &Sample| (sample.mode, sample.modified);
    what(host) == what(live)
        && (live.kind() == libc::S_IFDIR || (host.inode, host.size) == (live.inode, live.size))
}

fn put(status: &mut libc::statx, sample: Sample) {
    (status.stx_dev_major, status.stx_dev_minor) = (libc::major(sample.device), libc::minor(sample.device));
    (status.stx_ino, status.stx_nlink) = (sample.inode, sample.links);
    (status.stx_size, status.stx_blocks, status.stx_blksize) =
        (sample.size, sample.blocks, sample.block_size);
    set(&mut status.stx_atime, sample.accessed);
    set(&mut status.stx_mtime, sample.modified);
    set(&mut status.stx_ctime, sample.changed);
    if let (Some(born), true) = (sample.born, status.stx_mask & libc::STATX_BTIME != 0) {
        set(&mut status.stx_btime, born);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(inode: u64, modified: i64, size: u64) -> Sample {
        let (device, links, blocks, block_size) = (7, 1, 8, 4096);
        let (accessed, changed) = (modified, modified);
        let mode = libc::S_IFREG | 0o644;
        Sample {
            mode,
            device,
            inode,
            links,
            size,
            blocks,
            block_size,
            accessed,
            modified,
            changed,
            born: None,
        }
    }

    #[test]
    fn a_file_shows_the_recorded_times_of_the_same_change() {
        let mut recorded = RecordedStatuses::default();
        let mut text = Vec::new();
        for (head, modified) in [("c 1 ", 100), ("s 1 ", 150), ("c 2 ", 200)] {
            text.extend(head.bytes());
            sample(42, modified, 3).write(&mut text);
            text.extend(b" /w/f\0");
        }
        recorded.add(&text).expect("samples");
        let mut shown = Shown::new(Arc::new(recorded));
        let path = Path::new("/w/f");
        let times = |shown: &Shown, live: Sample| {
            let pair = shown.pairs.get(&live.id()).expect("is known");
            let sample = pair.stands_for(&live);
            (sample.inode, sample.modified)
        };
        shown.add(path, Moment::Changed, sample(5, 1000, 0));
        assert_eq!(times(&shown, sample(5, 1000, 0)), (42, 100));
        // In the same tick of the clock, but larger.
        assert_eq!(times(&shown, sample(5, 1000, 3)), (42, 150));
        assert_eq!(times(&shown, sample(5, 1001, 0)), (42, 150));
        shown.settled((7, 5));
        assert_eq!(times(&shown, sample(5, 1000, 0)), (42, 150));
        shown.add(path, Moment::Changed, sample(5, 1000, 3));
        assert_eq!(times(&shown, sample(5, 1000, 3)), (42, 200));
        // Another kind of file is none of those.
        let mut directory = sample(6, 1000, 3);
        directory.mode = libc::S_IFDIR | 0o755;
        shown.add(path, Moment::Changed, directory);
        assert!(!shown.pairs.contains_key(&directory.id()));
    }
}
