//! The view as a list of mounts, computed from one merged tree of roots.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::roots::{PRIVATE, Root, exec_reaches, of_every_run};
use super::{HostFacts, PRIVATE_HOME, kernel, later, links, trust};
use crate::command::Command;
use crate::fsview::{FsSpec, GeneratedFile, Link, MountKind, MountOp, PendingRoot};
use crate::policy::{Effect, PathAccess, PathPattern, Policy, RuleBody, is_within, looks};
use crate::supervisor::access::Protected;
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};

/// Device nodes of the view.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Most bytes in each private directory: what there are of them does not exceed the memory.
const PRIVATE_SIZE: &str = "20%";

/// Where devices are.
const DEV: &str = "/dev";
/// The caller's terminal in the view. Its own name is of another devpts: ttyname(3) finds it by its numbers.
const TERMINAL: &str = "/dev/console";

/// Devices that may be opened for reading and writing.
pub(super) fn devices(facts: &HostFacts, enforce: bool) -> Vec<PathBuf> {
    let terminal = facts.terminal.as_ref().filter(|_| enforce).map(|_| TERMINAL);
    let others = ["/dev/pts", "/dev/ptmx", "/dev/stdin"];
    DEVICES.iter().copied().chain(others).chain(terminal).map(PathBuf::from).collect()
}

/// The view as decisions see it.
pub(super) struct View {
    pub(super) private: Vec<PathBuf>,
    pub(super) skeleton: Vec<PathBuf>,
    pub(super) mounts: Vec<MountOp>,
    /// Places that rules name and that do not exist yet.
    pub(super) pending: Vec<PendingRoot>,
    /// Roots that the kernel reads and starts programs from without asking.
    pub(super) direct: Vec<PathBuf>,
    /// Paths as rules spell them: the links on the way to them are shown.
    pub(super) spelled: Vec<PathBuf>,
    /// See [`AccessTable`](crate::supervisor::access::AccessTable).
    pub(super) full_mediation: bool,
}

impl View {
    pub(super) fn new(
        policy: &Policy,
        roots: &[Root],
        facts: &HostFacts,
        protected: &[Protected],
        sockets: &[PathBuf],
        enforce: bool,
    ) -> Self {
        // A rule about such a place means the host's.
        let own = |path: &str| !roots.iter().any(|root| root.path == Path::new(path));
        let mut private: Vec<PathBuf> =
            PRIVATE.iter().copied().filter(|path| own(path)).map(PathBuf::from).collect();
        private.push(PathBuf::from(PRIVATE_HOME));
        let mut mounts = if enforce { merge(roots, &private) } else { vec![bind(Path::new("/"), NOSUID)] };
        mounts.extend(kernel_mounts(enforce));
        let starts = |root: &Root| root.is_system() || exec_reaches(policy, &root.path);
        // Landlock's rights reach into the host's trees below: those must be direct as well.
        let below = |path: &Path| roots.iter().filter(move |root| root.path.starts_with(path)).all(starts);
        let direct_private: Vec<PathBuf> =
            private.iter().filter(|path| exec_reaches(policy, path) && below(path)).cloned().collect();
        if enforce {
            let noexec = |path: &PathBuf| if direct_private.contains(path) { 0 } else { NOEXEC };
            mounts.extend(private.iter().map(|path| tmpfs(path, "1777", noexec(path))));
        }
        outer_first(&mut mounts);
        if enforce {
            mounts.extend(masks(policy, roots, protected, facts));
            mounts.extend(device_nodes(facts));
            // A tree that is bound again, read-only, would show again what was hidden in it before.
            mounts.sort_by_key(|op| matches!(op.kind, MountKind::Mask));
        }
        let mut pending = if enforce { pending(policy, roots) } else { Vec::new() };
        // Directories for sockets inside private ones are the run's own like those.
        let apart = sockets.iter().filter(|path| !private.iter().any(|own| path.starts_with(own)));
        let holders = apart.filter_map(|path| path.parent()).chain([facts.cwd.as_path()]);
        let skeleton = skeleton(&mounts, roots, &pending, holders);
        let spelled = links::named(policy).chain([facts.cwd.clone()]).collect();
        let direct = roots.iter().filter(|root| starts(root)).map(|root| root.path.clone());
        let mut direct: Vec<PathBuf> = direct.collect();
        let known: Vec<PathBuf> = direct.iter().chain(&direct_private).cloned().collect();
        direct.extend(later::around(policy, &mut pending, roots, (&known, &private)));
        let is_direct = |path: &Path| direct.iter().any(|root| is_within(path, root));
        let full_mediation = !enforce
            || policy.full_mediation()
            || is_open(roots, &pending, &direct_private, policy)
            || protected.iter().any(|file| is_direct(&file.path));
        direct.extend(direct_private);
        Self { private, skeleton, mounts, pending, direct, spelled, full_mediation }
    }

    /// Everything that the builder needs.
    pub(super) fn spec(&self, command: &Command, files: Vec<GeneratedFile>) -> FsSpec {
        let mut links: Vec<Link> = command
            .links
            .iter()
            .map(|link| Link { path: link.path.clone(), target: link.target.clone().into_os_string() })
            .collect();
        links.extend(links::standard());
        links.extend(self.spelled.iter().chain(&command.script).flat_map(|path| links::leading_to(path)));
        links.sort_by(|a, b| a.path.cmp(&b.path));
        links.dedup_by(|a, b| a.path == b.path);
        let trees = self.trees();
        links.retain(|link| !covers(&trees, &link.path));
        FsSpec {
            mounts: self.mounts.clone(),
            directories: self.skeleton.clone(),
            files,
            links,
            pending: self.pending.clone(),
            divert: None,
        }
    }

    /// Trees of the host that are mounted.
    fn trees(&self) -> HashSet<&Path> {
        self.mounts
            .iter()
            .filter(|op| matches!(op.kind, MountKind::Bind { .. }) && op.target != Path::new("/"))
            .map(|op| op.target.as_path())
            .collect()
    }

    /// What comes from the host, now or as soon as it is there.
    pub(super) fn shown(&self) -> Vec<PathBuf> {
        let mounts = self.mounts.iter().map(|op| op.target.clone());
        mounts.chain(self.pending.iter().map(|root| root.path.clone())).collect()
    }

    /// What is masked in trees of the system, or shown by a rule below /dev.
    pub(super) fn closed(&self, roots: &[Root]) -> Vec<PathBuf> {
        let masks =
            self.mounts.iter().filter(|op| op.kind == MountKind::Mask && op.target.starts_with(kernel::PROC));
        let granted = granted(roots).chain(self.pending.iter().map(|root| root.path.as_path()));
        let in_dev = granted.filter(|path| path.starts_with(DEV) && !is_device(path));
        masks.map(|op| op.target.as_path()).chain(in_dev).map(Path::to_owned).collect()
    }

    /// What may be read without a record.
    pub(super) fn system(roots: &[Root], fs: &FsSpec) -> Vec<PathBuf> {
        let mut system = vec![PathBuf::from("/proc")];
        // The host's own is what a rule shows, but for the nodes that every view has.
        if granted(roots).any(|path| Path::new(DEV).starts_with(path)) {
            system.extend(DEVICES.iter().map(PathBuf::from));
        } else {
            system.push(PathBuf::from(DEV));
        }
        system.extend(fs.files.iter().map(|file| file.path.clone()));
        // Programs list the directories that SSL_CERT_DIR names.
        let own = fs.files.iter().any(|file| file.path.starts_with(trust::OWN));
        system.extend(own.then(|| PathBuf::from(trust::OWN)));
        system.extend(roots.iter().filter(|root| root.is_system()).map(|root| root.path.clone()));
        system
    }
}

/// What rules show.
fn granted(roots: &[Root]) -> impl Iterator<Item = &Path> {
    roots.iter().filter(|root| !root.is_system()).map(|root| root.path.as_path())
}

fn is_device(path: &Path) -> bool {
    DEVICES.iter().any(|device| path == Path::new(device))
}

/// Whether the kernel could be led to open by itself what a rule shows, now or as soon as it is there: programs are
/// started from there, or it lies among the system's files, and is not one of their trees that may be read anyway.
fn is_open(roots: &[Root], pending: &[PendingRoot], private: &[PathBuf], policy: &Policy) -> bool {
    let is_open = |path: &Path, writable: bool| {
        let around = roots.iter().filter(|one| one.is_system() && path.starts_with(&one.path));
        let around: Vec<&Path> = around.map(|one| one.path.as_path()).collect();
        if around.is_empty() { exec_reaches(policy, path) } else { writable || !around.contains(&path) }
    };
    roots.iter().any(|root| !root.is_system() && is_open(&root.path, root.writable))
        || pending.iter().any(|root| {
            is_open(&root.path, false) || private.iter().any(|direct| root.path.starts_with(direct))
        })
}

/// The mounts that nearly every view has, whatever the policy.
pub(super) fn of_every_view(caller: (u32, u32)) -> Vec<MountOp> {
    let private: Vec<PathBuf> = private_ones().map(|op| op.target).collect();
    let mut mounts = merge(&of_every_run(), &private);
    mounts.extend(kernel_mounts(true));
    outer_first(&mut mounts);
    mounts.extend(nodes());
    mounts.extend(kernel::readable(caller).map(|path| mask(&path)));
    mounts
}

/// The file systems of private places, as they are where no rule is about one.
pub(super) fn private_ones() -> impl Iterator<Item = MountOp> {
    PRIVATE.iter().copied().chain([PRIVATE_HOME]).map(|path| tmpfs(Path::new(path), "1777", NOEXEC))
}

fn outer_first(mounts: &mut [MountOp]) {
    // Among paths of one slash the root comes first by itself.
    let depth = |op: &MountOp| op.target.as_os_str().as_bytes().iter().filter(|&&byte| byte == b'/').count();
    mounts.sort_by(|a, b| depth(a).cmp(&depth(b)).then_with(|| a.target.cmp(&b.target)));
}

/// Whether `path` is one of `trees` or in one.
fn covers(trees: &HashSet<&Path>, path: &Path) -> bool {
    path.ancestors().any(|above| trees.contains(above))
}

/// One mount for each root that differs from the mount around it.
fn merge(roots: &[Root], private: &[PathBuf]) -> Vec<MountOp> {
    let mut sorted: Vec<&Root> = roots.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut mounts: Vec<MountOp> = Vec::new();
    let mut places: HashMap<&Path, usize> = HashMap::new();
    for root in sorted {
        let mut attributes = NOSUID | NODEV;
        if !root.writable {
            attributes |= RDONLY;
        }
        if !root.executable {
            attributes |= NOEXEC;
        }
        let around = root.path.ancestors().find_map(|above| mounts.get(*places.get(above)?));
        let hidden = private
            .iter()
            .any(|path| is_within(&root.path, path) && around.is_none_or(|op| is_within(path, &op.target)));
        match around {
            Some(op) if op.target == root.path => {
                // Two reasons for one place: the wider one counts.
                if let Some(op) = places.get(root.path.as_path()).and_then(|at| mounts.get_mut(*at)) {
                    op.attributes &= attributes;
                }
                continue;
            }
            Some(op) if op.attributes == attributes && !hidden => continue,
            _ => {}
        }
        places.insert(&root.path, mounts.len());
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
    vec![proc, pts]
}

/// The terminal, and the nodes that an OCI document does not list, which stand last.
fn device_nodes(facts: &HostFacts) -> impl Iterator<Item = MountOp> {
    let terminal = facts.terminal.iter().map(|path| device(path, TERMINAL));
    terminal.chain(nodes())
}

fn nodes() -> impl Iterator<Item = MountOp> {
    DEVICES.iter().map(|path| device(Path::new(path), path))
}

/// One of the host's own nodes: a user namespace makes none (mknod(2), EPERM).
fn device(source: &Path, target: &str) -> MountOp {
    MountOp {
        target: PathBuf::from(target),
        kind: MountKind::Bind { source: source.to_owned(), recursive: false },
        // A device takes writes through a read-only mount; its mode and owner, which are the
        // host's, do not change.
        attributes: NOSUID | NOEXEC | RDONLY,
    }
}

fn mask(path: &Path) -> MountOp {
    MountOp { target: path.to_owned(), kind: MountKind::Mask, attributes: 0 }
}

/// What a rule or the launcher hides inside a root: closed by a mount besides the guard.
fn masks(policy: &Policy, roots: &[Root], protected: &[Protected], facts: &HostFacts) -> Vec<MountOp> {
    let inside = |path: &Path| roots.iter().any(|root| !root.is_system() && is_within(path, &root.path));
    let shown = |path: &Path| roots.iter().any(|root| is_within(path, &root.path));
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
        protected.iter().filter(|file| shown(&file.path) && file.id.is_some()).map(|file| mask(&file.path)),
    );
    masks.extend(kernel::masked(policy, facts).map(|path| mask(&path)));
    masks.retain(|op| matches!(op.kind, MountKind::Mask) || looks::status_itself(&op.target).is_ok());
    masks
}

/// Literal rules whose place is absent and not inside a root that covers it anyway.
fn pending(policy: &Policy, roots: &[Root]) -> Vec<PendingRoot> {
    let mut pending: Vec<PendingRoot> = Vec::new();
    let mut known: HashSet<&Path> = HashSet::new();
    for rule in policy.rules.iter().filter(|rule| rule.effect == Effect::Grant) {
        let RuleBody::Path { pattern: PathPattern::Literal { resolved, .. }, .. } = &rule.body else {
            continue;
        };
        if looks::status_itself(resolved).is_ok() || !known.insert(resolved) {
            continue;
        }
        let writable = policy.decide_path(PathAccess::Write, resolved).is_allow();
        let shown = roots.iter().any(|root| is_within(resolved, &root.path) && root.writable == writable);
        let Some(base) = resolved.ancestors().skip(1).find(|above| looks::is_dir(above)) else { continue };
        if shown {
            continue;
        }
        let noexec = if exec_reaches(policy, resolved) { 0 } else { NOEXEC };
        let access = if writable { noexec } else { RDONLY };
        let attributes = NOSUID | NODEV | access;
        pending.push(PendingRoot { path: resolved.clone(), base: base.to_owned(), attributes });
    }
    // What lies in another one is there as soon as that is.
    let around: Vec<_> = pending.iter().map(|root| (root.path.clone(), root.attributes)).collect();
    let is_inside = |root: &PendingRoot| {
        let holds = |(path, attributes): &(PathBuf, u64)| {
            *path != root.path && root.path.starts_with(path) && *attributes == root.attributes
        };
        around.iter().any(holds)
    };
    pending.retain(|root| !is_inside(root));
    pending
}

/// Directories that exist only to hold mounts and sockets, and the working directory.
fn skeleton<'a>(
    mounts: &'a [MountOp],
    roots: &[Root],
    pending: &'a [PendingRoot],
    holders: impl Iterator<Item = &'a Path>,
) -> Vec<PathBuf> {
    let roots: HashSet<&Path> = roots.iter().map(|root| root.path.as_path()).collect();
    let root_around = |path: &Path| path.ancestors().any(|above| roots.contains(above));
    let mut directories: Vec<PathBuf> = mounts
        .iter()
        .flat_map(|op| op.target.ancestors().skip(1))
        .chain(pending.iter().flat_map(|root| root.base.ancestors()))
        .chain(holders.flat_map(Path::ancestors))
        .filter(|path| *path != Path::new("/") && !root_around(path))
        .map(Path::to_owned)
        .collect();
    directories.sort();
    directories.dedup();
    directories
}
