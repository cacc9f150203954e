//! What a replay writes: put into its first state before the command starts, and copied out afterwards
//! where it is wanted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::{Whence, lseek};

use super::{RunError, signals};
use crate::fsview::initial::{Content, Former};
use crate::fsview::{self, FsSpec, InitialState};
use crate::supervisor::{DivertedRoots, Orders, RecordedMachine, RecordedStatuses};
use crate::trace::StoredBlobs;

/// So much is copied before a signal is looked for, in bytes.
const PIECE: u64 = 16 << 20;

/// Where the writes of a run go.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// By the number of the place in the plan: the upper layer of a directory, or the copy of a file; before that of a
    /// directory that the run only reads, a mount of it that can be written.
    pub(super) uppers: Vec<(usize, OwnedFd)>,
    /// For each place that does not exist yet, the directory that will hold it.
    pub(super) holders: Vec<OwnedFd>,
}

/// The files of a replay.
#[derive(Debug)]
pub struct ReplayedFiles {
    /// What was there before the recorded run changed it.
    pub initial: InitialState,
    /// What it read, and is not here as it was.
    pub served: BTreeMap<PathBuf, Former>,
    /// The order in which directories listed their names.
    pub orders: Orders,
    /// What was recorded of the statuses of files.
    pub statuses: Arc<RecordedStatuses>,
    /// What was recorded of the machine.
    pub machine: RecordedMachine,
    /// Where the contents are.
    pub blobs: StoredBlobs,
    /// Where what it writes is copied to.
    pub keep: Option<PathBuf>,
}

impl ReplayedFiles {
    /// Files of which nothing but their size is known.
    fn placeholders(&self) -> Vec<PathBuf> {
        let is_unread = |former: &Former| matches!(former, Former::File { content: Content::Unread, .. });
        let all = self.served.iter().chain(&self.initial.states);
        all.filter(|(_, former)| is_unread(former)).map(|(path, _)| path.clone()).collect()
    }
}

/// What is copied out when the run has ended.
#[derive(Debug)]
pub(super) struct Kept {
    directory: PathBuf,
    layers: Vec<(PathBuf, OwnedFd)>,
    since: (i64, i64),
}

impl Layers {
    /// Puts back what was there first, in the view behind `root`; gives what the supervisor is told, and what
    /// is kept. What a run that `keeps` nothing for a replay has made is of no interest.
    pub(super) fn prepare(
        self,
        spec: &FsSpec,
        root: &OwnedFd,
        files: Option<&ReplayedFiles>,
        keeps: bool,
    ) -> Result<(DivertedRoots, Option<Kept>), RunError> {
        let Some(divert) = &spec.divert else {
            let made = if keeps { spec.made() } else { Vec::new() };
            return Ok((DivertedRoots { made, ..DivertedRoots::default() }, None));
        };
        let Some(files) = files else { return Ok((self.roots(spec, None), None)) };
        let (mut served, mut uppers) = (Vec::new(), Vec::new());
        for (at, layer) in &self.uppers {
            let Some(place) = divert.roots.get(*at) else { continue };
            // Of what the run only reads comes first what it is written through.
            let is_first = divert.served.contains(place) && !served.iter().any(|(known, _)| known == place);
            let layers = if is_first { &mut served } else { &mut uppers };
            layers.push((place.as_path(), layer.as_fd()));
        }
        fsview::serve(&files.served, &served, &uppers, &files.blobs)?;
        files.initial.restore(root.as_fd(), divert, &uppers, &files.blobs)?;
        let Some(directory) = &files.keep else { return Ok((self.roots(spec, Some(files)), None)) };
        make_directories(directory).map_err(RunError::call("mkdir(--keep)"))?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(RunError::call("dup"));
        let mut layers = Vec::new();
        for (at, upper) in &self.uppers {
            let place = divert.roots.get(*at).ok_or(RunError::Silent)?;
            if divert.served.contains(place) {
                continue;
            }
            layers.push((place.clone(), copy(upper)?));
        }
        for (holder, place) in self.holders.iter().zip(&spec.pending) {
            layers.push((place.path.parent().unwrap_or_else(|| Path::new("/")).to_owned(), copy(holder)?));
        }
        // What was put back is older.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), i64::from(now.subsec_nanos()));
        Ok((self.roots(spec, Some(files)), Some(Kept { directory: directory.clone(), layers, since })))
    }

    fn roots(self, spec: &FsSpec, files: Option<&ReplayedFiles>) -> DivertedRoots {
        let roots = spec.divert.iter().flat_map(|divert| divert.roots.clone());
        let roots = roots.chain(spec.pending.iter().map(|place| place.path.clone()));
        let (orders, statuses) =
            files.map(|files| (files.orders.clone(), Arc::clone(&files.statuses))).unwrap_or_default();
        let machine = files.map(|files| files.machine.clone());
        let placeholders = files.map(ReplayedFiles::placeholders).unwrap_or_default();
        let (roots, made) = (roots.collect(), spec.made());
        DivertedRoots { roots, holders: self.holders, orders, statuses, machine, made, placeholders }
    }
}

impl Kept {
    /// Copies out what was written, each file below the directory at its whole path: all of it or nothing. `former`
    /// signals were blocked before.
    pub(super) fn copy_out(self, former: SigSet) -> Result<(), RunError> {
        let mut copy = Copy { since: self.since, former, made: Vec::new() };
        let copied = self.layers.iter().try_for_each(|(place, layer)| {
            let target = self.directory.join(place.strip_prefix("/").unwrap_or(place));
            copy.tree(Path::new(&crate::sys::descriptor::own_path(layer.as_fd())), &target)
        });
        if copied.is_err() {
            copy.undo();
        }
        copied
    }
}

/// A copy under way.
struct Copy {
    since: (i64, i64),
    former: SigSet,
    /// Files and directories, outer ones first.
    made: Vec<PathBuf>,
}

fn failed(source: io::Error) -> RunError {
    RunError::call("write(--keep)")(source)
}

impl Copy {
    fn tree(&mut self, source: &Path, target: &Path) -> Result<(), RunError> {
        // The first one is a link to the layer itself.
        let metadata = fs::metadata(source).map_err(failed)?;
        if !metadata.is_dir() {
            return self.file(source, &metadata, target);
        }
        permit(source, &metadata, 0o500)?;
        for entry in fs::read_dir(source).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (from, to) = (entry.path(), target.join(entry.file_name()));
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_symlink() {
                if self.makes(&fs::symlink_metadata(&from).map_err(failed)?, &to)? {
                    symlink(fs::read_link(&from).map_err(failed)?, &to).map_err(failed)?;
                    self.made.push(to);
                }
            } else if kind.is_dir() || kind.is_file() {
                self.tree(&from, &to)?;
            }
            // A device stands for what was deleted, and the others hold nothing.
        }
        Ok(())
    }

    fn file(&mut self, source: &Path, metadata: &fs::Metadata, target: &Path) -> Result<(), RunError> {
        if !self.makes(metadata, target)? {
            return Ok(());
        }
        let mut copy = File::create_new(target).map_err(failed)?;
        self.made.push(target.to_owned());
        permit(source, metadata, 0o400)?;
        self.content(&mut File::open(source).map_err(failed)?, metadata.len(), &mut copy)?;
        copy.set_permissions(metadata.permissions()).map_err(failed)
    }

    /// Holes stay holes (lseek(2)).
    fn content(&self, from: &mut File, size: u64, to: &mut File) -> Result<(), RunError> {
        to.set_len(size).map_err(failed)?;
        let next = |from: &File, at: u64, whence| {
            let at = i64::try_from(at).map_err(|_| Errno::EOVERFLOW)?;
            lseek(from, at, whence).map(i64::cast_unsigned)
        };
        let mut end = 0;
        loop {
            let mut at = match next(from, end, Whence::SeekData) {
                Err(Errno::ENXIO) => return Ok(()),
                at => at.map_err(|errno| failed(errno.into()))?,
            };
            end = next(from, at, Whence::SeekHole).map_err(|errno| failed(errno.into()))?;
            while at < end {
                if let Some(signal) = signals::ending(self.former) {
                    return Err(RunError::NotKept(signal));
                }
                from.seek(SeekFrom::Start(at)).and_then(|_| to.seek(SeekFrom::Start(at))).map_err(failed)?;
                match io::copy(&mut from.take(PIECE.min(end - at)), to).map_err(failed)? {
                    0 => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
                    count => at += count,
                }
            }
        }
    }

    /// Whether what is so was written; then its directory is made.
    fn makes(&mut self, metadata: &fs::Metadata, target: &Path) -> Result<bool, RunError> {
        if (metadata.ctime(), metadata.ctime_nsec()) < self.since {
            return Ok(false);
        }
        let missing: Vec<_> = target.ancestors().skip(1).take_while(|above| !above.exists()).collect();
        for above in missing.into_iter().rev() {
            make_directories(above).map_err(failed)?;
            self.made.push(above.to_owned());
        }
        Ok(true)
    }

    /// What cannot be removed is somebody else's by now.
    fn undo(&self) {
        for path in self.made.iter().rev() {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
}

/// Lets us read what its mode forbids to: it is in a layer that is gone afterwards.
fn permit(source: &Path, metadata: &fs::Metadata, access: u32) -> Result<(), RunError> {
    let mode = metadata.permissions().mode();
    if mode & access == access {
        return Ok(());
    }
    fs::set_permissions(source, fs::Permissions::from_mode(mode | access)).map_err(failed)
}

fn make_directories(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
