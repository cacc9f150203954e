//! What a replay writes: put into its first state before the command starts, and copied out afterwards
//! where it is wanted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::RunError;
use crate::fsview::initial::Former;
use crate::fsview::{self, FsSpec, InitialState};
use crate::supervisor::{DivertedRoots, Orders, RecordedMachine, RecordedStatuses};
use crate::trace::StoredBlobs;

/// Where the writes of a run go.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// By the number of the place in the plan: the upper layer of a directory, or the copy of a file.
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
        let served = self.uppers.iter().filter_map(|(at, layer)| {
            let place = divert.roots.get(*at).filter(|place| divert.served.contains(place))?;
            Some((place.as_path(), layer.as_fd()))
        });
        fsview::serve(&files.served, &served.collect::<Vec<_>>(), &files.blobs)?;
        files.initial.restore(root.as_fd(), divert, &files.blobs)?;
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
        let (roots, made) = (roots.collect(), spec.made());
        DivertedRoots { roots, holders: self.holders, orders, statuses, machine, made }
    }
}

impl Kept {
    /// Copies out what was written, each file below the directory at its whole path.
    pub(super) fn copy_out(self) -> Result<(), RunError> {
        for (place, layer) in &self.layers {
            let target = self.directory.join(place.strip_prefix("/").unwrap_or(place));
            let source = PathBuf::from(crate::sys::descriptor::own_path(layer.as_fd()));
            self.copy(&source, &target).map_err(RunError::call("write(--keep)"))?;
        }
        Ok(())
    }

    fn copy(&self, source: &Path, target: &Path) -> io::Result<()> {
        // The first one is a link to the layer itself.
        let metadata = fs::metadata(source)?;
        if metadata.is_dir() {
            for entry in fs::read_dir(source)? {
                let entry = entry?;
                let (from, to) = (entry.path(), target.join(entry.file_name()));
                let kind = entry.file_type()?;
                if kind.is_symlink() {
                    self.if_written(&fs::symlink_metadata(&from)?, &to, |to| {
                        symlink(fs::read_link(&from)?, to)
                    })?;
                } else if kind.is_dir() || kind.is_file() {
                    self.copy(&from, &to)?;
                }
                // A device stands for what was deleted, and the others hold nothing.
            }
            return Ok(());
        }
        self.if_written(&metadata, target, |to| {
            let mut copy = File::create_new(to)?;
            io::copy(&mut File::open(source)?, &mut copy)?;
            copy.set_permissions(metadata.permissions())
        })
    }

    fn if_written(
        &self,
        metadata: &fs::Metadata,
        target: &Path,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        if (metadata.ctime(), metadata.ctime_nsec()) < self.since {
            return Ok(());
        }
        if let Some(above) = target.parent() {
            make_directories(above)?;
        }
        make(target)
    }
}

fn make_directories(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
