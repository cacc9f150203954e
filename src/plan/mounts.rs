//! The view as a list of mounts, computed from one merged tree of roots.

use std::path::{Path, PathBuf};

use super::links;
use super::roots::{Root, exec_reaches};
use super::{HostFacts, PRIVATE_HOME};
use crate::command::Command;
use crate::fsview::{FsSpec, GeneratedFile, LandlockRule, Link, MountKind, MountOp, PendingRoot, Right};
use crate::policy::{Effect, PathAccess, PathPattern, Policy, RuleBody};
use crate::supervisor::access::Protected;
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

/// Device nodes of the view.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Directories that a run has for itself.
const PRIVATE: &[&str] = &["/tmp", "/run", "/dev/shm", "/var/tmp"];
/// Most bytes in all private directories: half of the memory, as tmpfs(5) has it by default.
const PRIVATE_SIZE: &str = "50%";

/// Devices that may be opened for reading and writing.
pub(super) fn devices() -> Vec<PathBuf> {
    DEVICES.iter().copied().chain(["/dev/pts", "/dev/ptmx"]).map(PathBuf::from).collect()
}

/// The view as decisions see it.
pub(super) struct View {
    pub(super) private: Vec<PathBuf>,
    pub(super) skeleton: Vec<PathBuf>,
    mounts: Vec<MountOp>,
    /// Places that rules name and that do not exist yet.
    pending: Vec<PendingRoot>,
    /// Paths as rules spell them: the links on the way to them are shown.
    spelled: Vec<PathBuf>,
}

impl View {
    pub(super) fn new(
        policy: &Policy,
        roots: &[Root],
        facts: &HostFacts,
        protected: &[Protected],
        enforce: bool,
    ) -> Self {
        // A rule about such a place means the host's.
        let own = |path: &str| !roots.iter().any(|root| root.path == Path::new(path));
        let mut private: Vec<PathBuf> =
            PRIVATE.iter().copied().filter(|path| own(path)).map(PathBuf::from).collect();
        private.push(PathBuf::from(PRIVATE_HOME));
        let mut mounts = if enforce { Vec::new() } else { vec![bind(Path::new("/"), NOSUID)] };
        if enforce {
            mounts.extend(merge(roots, &private));
        }
        mounts.extend(kernel_mounts(enforce));
        if enforce {
            let noexec = |path: &Path| if exec_reaches(policy, path) { 0 } else { NOEXEC };
            mounts.extend(private.iter().map(|path| tmpfs(path, "1777", noexec(path))));
        }
        let depth = |op: &MountOp| op.target.components().count();
        mounts.sort_by(|a, b| depth(a).cmp(&depth(b)).then_with(|| a.target.cmp(&b.target)));
        if enforce {
            mounts.extend(masks(policy, roots, protected));
        }
        let pending = if enforce { pending(policy, roots) } else { Vec::new() };
        let skeleton = skeleton(&mounts, roots, &pending, &facts.cwd);
        let spelled = policy
            .rules
            .iter()
            .filter_map(|rule| match &rule.body {
                RuleBody::Path { pattern, .. } | RuleBody::Runtime { path: pattern } => Some(pattern),
                _ => None,
            })
            .map(|pattern| match pattern {
                PathPattern::Literal { spelled, .. } => spelled.clone(),
                PathPattern::Glob { spelled_base, .. } => spelled_base.clone(),
            })
            .chain(policy.granted_programs().flat_map(|(_, exec)| super::roots::programs(&exec.program)))
            .chain([facts.cwd.clone()])
            .collect();
        Self { private, skeleton, mounts, pending, spelled }
    }

    /// Everything that the builder needs.
    pub(super) fn spec(&self, command: &Command, files: Vec<GeneratedFile>) -> FsSpec {
        let mut links: Vec<Link> = command
            .links
            .iter()
            .map(|link| Link { path: link.path.clone(), target: link.target.clone().into_os_string() })
            .collect();
        links.extend(links::standard());
        links.extend(self.spelled.iter().flat_map(|path| links::leading_to(path)));
        links.sort_by(|a, b| a.path.cmp(&b.path));
        links.dedup_by(|a, b| a.path == b.path);
        links.retain(|link| !self.covers(&link.path));
        FsSpec {
            mounts: self.mounts.clone(),
            directories: self.skeleton.clone(),
            files,
            links,
            pending: self.pending.clone(),
        }
    }

    fn shows(&self, path: &Path) -> bool {
        self.skeleton.iter().any(|directory| directory == path) || self.covers(path)
    }

    fn covers(&self, path: &Path) -> bool {
        self.mounts.iter().any(|op| {
            matches!(op.kind, MountKind::Bind { .. })
                && path.starts_with(&op.target)
                && op.target != Path::new("/")
        })
    }

    /// What may be read without a record.
    pub(super) fn system(roots: &[Root], fs: &FsSpec) -> Vec<PathBuf> {
        let mut system = vec![PathBuf::from("/proc"), PathBuf::from("/dev")];
        system.extend(fs.files.iter().map(|file| file.path.clone()));
        system.extend(roots.iter().filter(|root| root.is_system()).map(|root| root.path.clone()));
        system
    }

    /// The Landlock rules that say the same as the mounts.
    pub(super) fn landlock(&self) -> Vec<LandlockRule> {
        // Rights add up along a path: what is visible may be read, and that is said once.
        let rule = |path: &str, right| LandlockRule { path: PathBuf::from(path), right };
        let mut rules = vec![rule("/", Right::Read), rule("/dev", Right::Write)];
        for op in &self.mounts {
            let right = match (op.attributes & RDONLY != 0, op.attributes & NOEXEC != 0) {
                (true, true) => continue,
                (true, false) => Right::Execute,
                (false, true) => Right::Write,
                (false, false) => Right::All,
            };
            let said = op.target.starts_with("/dev") || (op.target.starts_with("/etc") && right == Right::Execute);
            if !said && op.kind != MountKind::Mask {
                rules.push(LandlockRule { path: op.target.clone(), right });
            }
        }
        for root in &self.pending {
            // What appears later is judged by the nearest directory above that is there now.
            let base = root.path.ancestors().skip(1).find(|above| self.shows(above));
            let right = if root.attributes & RDONLY == 0 { Right::Write } else { Right::Read };
            rules.extend(base.map(|base| LandlockRule { path: base.to_owned(), right }));
        }
        rules
    }
}

/// One mount for each root that differs from the mount around it.
fn merge(roots: &[Root], private: &[PathBuf]) -> Vec<MountOp> {
    let mut sorted: Vec<&Root> = roots.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut mounts: Vec<MountOp> = Vec::new();
    for root in sorted {
        let mut attributes = NOSUID | NODEV;
        if !root.writable {
            attributes |= RDONLY;
        }
        if !root.executable {
            attributes |= NOEXEC;
        }
        let around = mounts.iter().filter(|op| root.path.starts_with(&op.target)).next_back();
        let hidden = private
            .iter()
            .any(|path| root.path.starts_with(path) && around.is_none_or(|op| path.starts_with(&op.target)));
        match around {
            Some(op) if op.target == root.path => {
                // Two reasons for one place: the wider one counts.
                if let Some(op) = mounts.iter_mut().find(|op| op.target == root.path) {
                    op.attributes &= attributes;
                }
                continue;
            }
            Some(op) if op.attributes == attributes && !hidden => continue,
            _ => {}
        }
        mounts.push(bind(&root.path, attributes));
    }
    mounts
}

fn bind(path: &Path, attributes: u64) -> MountOp {
    MountOp {
        target: path.to_owned(),
        kind: MountKind::Bind { source: path.to_owned(), recursive: true },
        attributes,
    }
}

fn tmpfs(path: &Path, mode: &str, attributes: u64) -> MountOp {
    let options = [("mode", mode), ("size", PRIVATE_SIZE)];
    let options = options.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let kind = MountKind::New { filesystem: "tmpfs".to_owned(), options };
    MountOp { target: path.to_owned(), kind, attributes: NOSUID | NODEV | attributes }
}

/// /proc of the run's own pid namespace, read-only: nobody writes /proc/PID/mem. And /dev.
fn kernel_mounts(enforce: bool) -> Vec<MountOp> {
    let proc = MountOp {
        target: PathBuf::from("/proc"),
        kind: MountKind::New { filesystem: "proc".to_owned(), options: Vec::new() },
        attributes: NOSUID | NODEV | NOEXEC | RDONLY,
    };
    if !enforce {
        return vec![proc];
    }
    let options = [("ptmxmode", "0666"), ("mode", "620")];
    let options = options.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let pts = MountOp {
        target: PathBuf::from("/dev/pts"),
        kind: MountKind::New { filesystem: "devpts".to_owned(), options },
        attributes: NOSUID | NOEXEC,
    };
    let nodes = DEVICES.iter().map(|path| MountOp {
        target: PathBuf::from(path),
        kind: MountKind::Bind { source: PathBuf::from(path), recursive: false },
        attributes: NOSUID | NOEXEC,
    });
    [proc, pts].into_iter().chain(nodes).collect()
}

/// What a rule or the launcher hides inside a root: closed by a mount besides the guard.
fn masks(policy: &Policy, roots: &[Root], protected: &[Protected]) -> Vec<MountOp> {
    let inside = |path: &Path| roots.iter().any(|root| path.starts_with(&root.path) && !root.is_system());
    let mask = |path: &Path| MountOp { target: path.to_owned(), kind: MountKind::Mask, attributes: 0 };
    let mut masks: Vec<MountOp> = Vec::new();
    for (_, access, path) in policy.denied_literals() {
        if !inside(path) {
            continue;
        }
        match access {
            PathAccess::Read => masks.push(mask(path)),
            PathAccess::Write => masks.push(bind(path, NOSUID | NODEV | RDONLY | NOEXEC)),
        }
    }
    masks.extend(
        protected.iter().filter(|file| inside(&file.path) && file.id.is_some()).map(|file| mask(&file.path)),
    );
    masks.retain(|op| matches!(op.kind, MountKind::Mask) || op.target.symlink_metadata().is_ok());
    masks
}

/// Literal rules whose place is absent and not inside a root that covers it anyway.
fn pending(policy: &Policy, roots: &[Root]) -> Vec<PendingRoot> {
    let mut pending: Vec<PendingRoot> = Vec::new();
    for rule in policy.rules.iter().filter(|rule| rule.effect == Effect::Grant) {
        let RuleBody::Path { pattern: PathPattern::Literal { resolved, .. }, .. } = &rule.body else {
            continue;
        };
        if resolved.symlink_metadata().is_ok() || pending.iter().any(|known| known.path == *resolved) {
            continue;
        }
        let writable = policy.decide_path(PathAccess::Write, resolved).is_allow();
        let shown = roots.iter().any(|root| resolved.starts_with(&root.path) && root.writable == writable);
        let Some(base) = resolved.ancestors().skip(1).find(|above| above.is_dir()) else { continue };
        if shown {
            continue;
        }
        let access = if writable { NOEXEC } else { RDONLY };
        let attributes = NOSUID | NODEV | access;
        pending.push(PendingRoot { path: resolved.clone(), base: base.to_owned(), attributes });
    }
    pending
}

/// Directories that exist only to hold mounts, and the working directory.
fn skeleton(mounts: &[MountOp], roots: &[Root], pending: &[PendingRoot], cwd: &Path) -> Vec<PathBuf> {
    let root_around = |path: &Path| roots.iter().any(|root| path.starts_with(&root.path));
    let mut directories: Vec<PathBuf> = mounts
        .iter()
        .flat_map(|op| op.target.ancestors().skip(1))
        .chain(pending.iter().flat_map(|root| root.base.ancestors()))
        .chain(cwd.ancestors())
        .filter(|path| *path != Path::new("/") && !root_around(path))
        .map(Path::to_owned)
        .collect();
    directories.sort();
    directories.dedup();
    directories
}
