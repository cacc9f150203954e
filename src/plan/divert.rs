//! Plans that nothing is written to the host: for a run that only repeats what was done before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::LaunchPlan;
use crate::fsview::initial::Former;
use crate::fsview::{Divert, FsSpec, MountKind, MountOp, PendingRoot};
use crate::policy::{PathAccess, looks};
use crate::supervisor::access::{Area, Decision};
use crate::sys::mount::RDONLY;
use crate::sys::mountinfo;

impl LaunchPlan {
    /// Diverts every write. What is `absent` there now was made by the run that is repeated: a place that a
    /// rule names is then one that does not exist yet, and what it only reads shows nothing there. The `served` files, which rules grant, are put into the
    /// view beforehand: what they are in is diverted as well, where the run only reads it. Places of `made` that are not on this host are
    /// empty at first.
    pub fn divert(&mut self, absent: &[PathBuf], served: &BTreeMap<PathBuf, Former>, made: &Made) {
        self.fs.divert_writes(absent);
        self.fs.divert_served(&served.keys().cloned().collect::<Vec<_>>());
        self.fs.divert_missing(made);
        self.fs.divert_around(absent);
    }

    /// Whether a rule lets the run read `path`. Whoever made a trace says nothing of what is in the system.
    #[must_use]
    pub fn is_granted(&self, path: &Path) -> bool {
        matches!(self.access.decide(PathAccess::Read, path, None), Decision::Allow(Area::Rule(_)))
    }
}

/// What was there when the run that is repeated began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// Files.
    pub files: BTreeSet<PathBuf>,
    /// Directories.
    pub directories: BTreeSet<PathBuf>,
    /// An empty file and an empty directory that stand for those that are not here.
    pub blanks: (PathBuf, PathBuf),
}

impl Made {
    /// All of it.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        self.files.iter().chain(&self.directories).cloned().collect()
    }

    /// What stands for `place`, if that was there.
    fn blank(&self, place: &Path) -> Option<&PathBuf> {
        let (file, directory) = &self.blanks;
        let is_directory = |known: &PathBuf| known.starts_with(place);
        if self.files.contains(place) {
            Some(file)
        } else {
            self.files.iter().chain(&self.directories).any(is_directory).then_some(directory)
        }
    }
}

impl FsSpec {
    fn divert_writes(&mut self, absent: &[PathBuf]) {
        let is_bind = |kind: &MountKind| matches!(kind, MountKind::Bind { .. });
        let is_absent = |target: &PathBuf| absent.iter().any(|path| target.starts_with(path));
        for op in self.mounts.extract_if(.., |op| is_bind(&op.kind) && is_absent(&op.target)) {
            let Some(base) = op.target.parent().map(PathBuf::from) else { continue };
            let root = PendingRoot { path: op.target, base, attributes: op.attributes };
            if !self.pending.iter().any(|known| known.path == root.path) {
                self.pending.push(root);
            }
        }
        let writable = self.mounts.iter().filter(|op| is_bind(&op.kind) && op.attributes & RDONLY == 0);
        let roots = writable.map(|op| op.target.clone()).collect();
        self.divert = Some(Divert { roots, served: Vec::new() });
    }

    fn divert_missing(&mut self, made: &Made) {
        let mut missing = Vec::new();
        for op in &mut self.mounts {
            let MountKind::Bind { source, .. } = &mut op.kind else { continue };
            let is_here = looks::status_itself(source).is_ok();
            let Some(blank) = made.blank(&op.target).filter(|_| !is_here) else { continue };
            source.clone_from(blank);
            missing.push(op.target.clone());
        }
        // It is attached in what is around it, which must not be the host's.
        let above = missing.iter().filter_map(|place| place.parent()).map(Path::to_owned).collect::<Vec<_>>();
        self.divert_served(&missing);
        self.divert_served(&above);
    }

    /// What the run only reads around places that are `absent` at first. Where other file systems are mounted in
    /// it, which an overlay does not show, it stays the host's.
    fn divert_around(&mut self, absent: &[PathBuf]) {
        let points = mountinfo::points();
        let above = absent.iter().filter_map(|path| path.parent()).collect::<BTreeSet<_>>();
        let can_lie_over = |path: &&Path| {
            let around = self.around(path).map(|op| &op.target);
            around.is_some_and(|root| !points.iter().any(|point| point != root && point.starts_with(root)))
        };
        let above = above.into_iter().filter(can_lie_over).map(Path::to_owned).collect::<Vec<_>>();
        self.divert_served(&above);
        let Some(divert) = &self.divert else { return };
        let is_diverted = |path: &Path| divert.roots.iter().any(|root| path.starts_with(root));
        let is_hidden =
            |op: &MountOp| is_diverted(&op.target) && absent.iter().any(|path| op.target.starts_with(path));
        // Nothing is there to be covered.
        self.mounts.retain(|op| op.kind != MountKind::Mask || !is_hidden(op));
    }

    /// The mount that `path` is in.
    fn around(&self, path: &Path) -> Option<&MountOp> {
        let around = self.mounts.iter().filter(|op| path.starts_with(&op.target));
        around.max_by_key(|op| op.target.components().count())
    }

    fn divert_served(&mut self, served: &[PathBuf]) {
        let Some(divert) = &mut self.divert else { return };
        for path in served {
            let around = self.mounts.iter().filter(|op| path.starts_with(&op.target));
            let Some(op) = around.max_by_key(|op| op.target.components().count()) else { continue };
            if matches!(op.kind, MountKind::Bind { .. }) && !divert.roots.contains(&op.target) {
                divert.roots.push(op.target.clone());
                divert.served.push(op.target.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(path: &str, attributes: u64) -> MountOp {
        let kind = MountKind::Bind { source: PathBuf::from(path), recursive: true };
        MountOp { target: PathBuf::from(path), kind, attributes }
    }

    #[test]
    fn what_may_be_written_is_diverted_and_nothing_else() {
        let tmp = MountOp {
            target: PathBuf::from("/tmp"),
            kind: MountKind::New { filesystem: "tmpfs".to_owned(), options: Vec::new() },
            attributes: 0,
        };
        let mounts = vec![bind("/usr", RDONLY), bind("/w", 0), bind("/w/docs", RDONLY), tmp];
        let mut spec = FsSpec { mounts: mounts.clone(), ..FsSpec::default() };
        spec.divert_writes(&[]);
        assert_eq!(spec.divert.map(|divert| divert.roots), Some(vec![PathBuf::from("/w")]));
        assert_eq!(spec.mounts, mounts);
    }

    #[test]
    fn what_is_missing_is_empty_at_first() {
        let missing = ["/nowhere/r", "/nowhere/w", "/nowhere/f", "/nowhere/other"];
        let mounts = missing.map(|path| bind(path, if path == "/nowhere/w" { 0 } else { RDONLY })).to_vec();
        let mut spec = FsSpec { mounts, ..FsSpec::default() };
        let made = Made {
            files: ["/nowhere/r/a", "/nowhere/f"].map(PathBuf::from).into(),
            directories: [PathBuf::from("/nowhere/w")].into(),
            blanks: ("/file".into(), "/directory".into()),
        };
        spec.divert_writes(&[]);
        spec.divert_missing(&made);
        let source = |op: &MountOp| match &op.kind {
            MountKind::Bind { source, .. } => source.display().to_string(),
            _ => String::new(),
        };
        let sources: Vec<_> = spec.mounts.iter().map(source).collect();
        assert_eq!(sources, ["/directory", "/directory", "/file", "/nowhere/other"]);
        let divert = spec.divert.expect("is there");
        assert_eq!(divert.served, ["/nowhere/r", "/nowhere/f"].map(PathBuf::from));
    }

    #[test]
    fn what_holds_a_served_file_is_diverted_too() {
        let mounts = vec![bind("/r", RDONLY), bind("/w", 0), bind("/r/in", RDONLY), bind("/w/f", RDONLY)];
        let mut spec = FsSpec { mounts, ..FsSpec::default() };
        spec.divert_writes(&[]);
        spec.divert_served(&["/r/in/a", "/r/in/b/c", "/w/x", "/w/f", "/elsewhere"].map(PathBuf::from));
        let divert = spec.divert.expect("is there");
        assert_eq!(divert.served, ["/r/in", "/w/f"].map(PathBuf::from));
        let covered = ["/r/in/a", "/r/x", "/w/x", "/w/f"].map(|path| divert.covers(path.as_ref()));
        assert_eq!(covered, [false, false, true, false]);
    }

    #[test]
    fn what_lies_around_an_absent_place_is_diverted_too() {
        let mask = MountOp { target: "/r/x".into(), kind: MountKind::Mask, attributes: 0 };
        let mut spec = FsSpec { mounts: vec![bind("/r", RDONLY), mask], ..FsSpec::default() };
        spec.divert_writes(&[]);
        spec.divert_around(&["/r/x", "/elsewhere/x"].map(PathBuf::from));
        assert_eq!(spec.mounts, [bind("/r", RDONLY)]);
        assert_eq!(spec.divert.map(|divert| divert.served), Some(vec![PathBuf::from("/r")]));
    }

    #[test]
    fn a_place_that_was_absent_may_appear_again() {
        let mut spec = FsSpec { mounts: vec![bind("/w/out", 0), bind("/w/in", 0)], ..FsSpec::default() };
        spec.divert_writes(&[PathBuf::from("/w/out"), PathBuf::from("/w/in/made")]);
        assert_eq!(spec.mounts, [bind("/w/in", 0)]);
        let [pending] = &*spec.pending else { panic!("{:?}", spec.pending) };
        assert_eq!((&*pending.path, &*pending.base), ("/w/out".as_ref(), "/w".as_ref()));
    }
}
