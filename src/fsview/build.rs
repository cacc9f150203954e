//! Builds the root of a run from an [`FsSpec`], in the cloned child, before it is entered.

use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag, fstat};

use super::copies::{Copied, Copies};
use super::cover::{ASIDE, Covers};
use super::overlay::{Diverted, Lower, Uppers};
use super::tree::{self, Shape, Tree};
use super::{Door, doors};
use super::{FsSpec, FsviewError, MountKind, MountOp, Pending};
use crate::policy::is_within;
use crate::sys::mount::{self, NODEV, NOSUID, RDONLY};

/// A view that can be entered.
#[derive(Debug)]
pub struct Built {
    /// Its root.
    pub root: OwnedFd,
    /// What is kept for places that may appear.
    pub pending: Pending,
    /// The ways to sockets of the host, in the order asked for.
    pub doors: Vec<Door>,
    /// What holds the writes that do not reach the host.
    pub diverted: Diverted,
    /// Files that are empty still.
    pub unwritten: Vec<Unwritten>,
}

/// A generated file that takes something over from the host: the view can be entered before that is read.
#[derive(Debug)]
pub struct Unwritten {
    path: PathBuf,
    /// Among those of its kind.
    number: usize,
    file: File,
}

impl Unwritten {
    /// Has `contents` write it.
    ///
    /// # Errors
    /// What `contents` says.
    pub fn write(mut self, contents: &mut Contents<'_>) -> Result<(), FsviewError> {
        contents(self.number, &mut self.file).map_err(|error| FsviewError::new("write", self.path, error))
    }
}

/// Writes the content of one of the files that take something over from the host, by its number among
/// them.
pub type Contents<'a> = dyn FnMut(usize, &mut File) -> std::io::Result<()> + 'a;

/// Writes a file.
type Fill<'a> = dyn FnMut(&mut File) -> std::io::Result<()> + 'a;

/// Builds the view; its root is attached over an existing directory of the old root. Changes the
/// working directory. A generated file that takes something over from the host is left unwritten, but for one that
/// lies in the root itself, which is closed in the end: for that `contents` is asked. For each of `sockets`, paths of
/// the host, there is a door.
///
/// A first mount at `/` is the root itself; without one the root is `drafted`, or an empty file system.
///
/// # Errors
/// The first step that the kernel refused.
pub(super) fn build(
    spec: &FsSpec,
    copies: Copies,
    drafted: Option<Builder>,
    contents: &mut Contents<'_>,
    sockets: &[PathBuf],
) -> Result<Built, FsviewError> {
    let mut copies = copies.into_list();
    // Before the new root hides a directory of the old one.
    let mut pending = if spec.divert.is_some() { Pending::none() } else { Pending::keep(&spec.pending)? };
    let whole = spec.is_whole();
    let root = if whole { copies.first_mut().and_then(Option::take) } else { None };
    let mut builder = begin(root, drafted)?;
    builder.uppers = spec.divert.as_ref().map(|_| Uppers::new()).transpose()?;
    builder.stand_ins =
        spec.mounts.iter().filter(|op| op.is_stand_in()).map(|op| op.target.clone()).collect();
    for directory in &spec.directories {
        builder.make_directory(directory)?;
    }
    for (op, copied) in spec.mounts.iter().zip(copies).skip(usize::from(whole)) {
        builder.mount_one(op, copied)?;
    }
    // Again, for those inside a file system that was mounted just now.
    let new = spec.mounts.iter().filter(|op| matches!(op.kind, MountKind::New { .. }) || spec.diverts(op));
    let new = new.map(|op| op.target.as_path()).collect::<Vec<_>>();
    let is_inside = |directory: &&PathBuf| new.iter().any(|target| is_within(directory, target));
    for directory in spec.directories.iter().filter(is_inside) {
        builder.make_directory(directory)?;
    }
    for link in &spec.links {
        builder.make_link(&link.path, &link.target)?;
    }
    let mut taken = 0..;
    for file in &spec.files {
        let number = file.content.bytes().map_or_else(|| taken.next(), |_| None);
        builder.generate(&file.path, number, &mut |to| match (file.content.bytes(), number) {
            (None, Some(number)) => contents(number, to),
            (bytes, _) => to.write_all(bytes.unwrap_or_default()),
        })?;
    }
    let diverted = builder.divert(spec, &mut pending)?;
    builder.hide(spec, &pending)?;
    builder.leave_spare(ASIDE);
    let doors = doors::make(&mut builder.tree, sockets)?;
    if !spec.pending.is_empty() && !whole {
        pending.scratch = Some(builder.scratch()?);
    }
    if !whole {
        mount::set_attributes(builder.tree.root.as_fd(), RDONLY | NOSUID | NODEV, 0, false)
            .map_err(|error| FsviewError::new("mount_setattr", "/", error))?;
    }
    let Builder { tree, unwritten, .. } = builder;
    Ok(Built { root: tree.root, pending, doors, diverted, unwritten })
}

/// The root to build in: the copy of a whole one, what is drafted, or a new one.
fn begin(whole: Option<Copied>, drafted: Option<Builder>) -> Result<Builder, FsviewError> {
    // Any directory will do for it that nothing needs any more: it is left behind with the old root. An image of one
    // program has no /tmp; /proc/self leads to descriptors.
    let place = || ["/tmp", "/proc/fs", "/dev"].into_iter().find(|path| Path::new(path).is_dir());
    match (whole, drafted) {
        (Some(Copied::Tree { tree, .. }), _) => Builder::new(tree, false, place().unwrap_or("/etc")),
        // The host's own root: other file systems lie in it, and an overlay shows none of them.
        (Some(Copied::Lower { .. }), _) => Err(FsviewError::new("fsconfig(overlay)", "/", Errno::EOPNOTSUPP)),
        (_, Some(drafted)) => Ok(drafted),
        _ => Builder::empty(place().unwrap_or("/etc")),
    }
}

fn new_root() -> Result<OwnedFd, FsviewError> {
    mount::new_filesystem(c"tmpfs", &[(c"mode", c"755"), (c"size", c"16m")], NOSUID | NODEV)
        .map_err(FsviewError::of("tmpfs"))
}

/// Attaches the new root at `place` in the old one, whose mounts nobody else sees any more.
fn attach_root(root: &OwnedFd, place: &str) -> Result<(), FsviewError> {
    let open = |path: &str| {
        nix::fcntl::open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| FsviewError::new("open", path, errno))
    };
    mount::set_attributes(open("/")?.as_fd(), 0, 0, true)
        .map_err(|error| FsviewError::new("mount_setattr", "/", error))?;
    mount::attach(root.as_fd(), open(place)?.as_fd(), c"")
        .map_err(|error| FsviewError::new("move_mount", place, error))
}

/// The root while it is being built.
#[derive(Debug)]
pub(super) struct Builder {
    tree: Tree,
    /// Made when the first one is needed.
    covers: Option<Covers>,
    /// File systems that wait for the mount that they are made for.
    spare: Vec<(MountOp, OwnedFd)>,
    /// There is one where nothing is written to the host.
    uppers: Option<Uppers>,
    /// Places that are not on this host.
    stand_ins: Vec<PathBuf>,
    /// Overlays that the run only reads: they are closed when everything lies in them.
    closing: Vec<(OwnedFd, PathBuf, u64)>,
    unwritten: Vec<Unwritten>,
}

impl Builder {
    /// Builds in a new file system, attached at `place`.
    pub(super) fn empty(place: &str) -> Result<Self, FsviewError> {
        Self::new(new_root()?, true, place)
    }

    /// Builds in `root`, attached at `place`; `own` says that it is a new file system.
    fn new(root: OwnedFd, own: bool, place: &str) -> Result<Self, FsviewError> {
        attach_root(&root, place)?;
        // The first of many: where openat2(2) is refused, this says so.
        tree::open(root.as_fd(), Path::new("/")).map_err(|errno| FsviewError::new("openat2", "/", errno))?;
        let tree = Tree::new(root, own).map_err(|errno| FsviewError::new("fstat", "/", errno))?;
        let (spare, stand_ins, closing, unwritten) = Default::default();
        Ok(Self { tree, covers: None, spare, uppers: None, stand_ins, closing, unwritten })
    }

    /// Covers come out of a file system at `place`, from now on.
    pub(super) fn cover_from(&mut self, place: &str) -> Result<(), FsviewError> {
        self.covers = Some(Covers::at(place)?);
        Ok(())
    }

    /// Makes a file system for `op`, if there will be one in the view.
    pub(super) fn prepare(&mut self, op: MountOp) -> Result<(), FsviewError> {
        if let MountKind::New { filesystem, options } = &op.kind {
            let made = new_filesystem(filesystem, options, &op)?;
            self.spare.push((op, made));
        }
        Ok(())
    }

    /// Leaves what nothing was mounted for at `place` of the old root: to close a mount that is attached nowhere costs
    /// a grace period.
    pub(super) fn leave_spare(&mut self, place: &str) {
        let Ok(point) = tree::open_path(Path::new(place)) else { return };
        for (_, made) in self.spare.drain(..) {
            // Where it cannot be attached it is closed.
            let _ = mount::attach(made.as_fd(), point.as_fd(), c"");
        }
    }

    /// A new file system for `op`, perhaps one that was made before.
    fn new_filesystem(&mut self, op: &MountOp) -> Result<OwnedFd, FsviewError> {
        let MountKind::New { filesystem, options } = &op.kind else {
            return Err(FsviewError::new("fsopen", &op.target, Errno::EINVAL));
        };
        match self.spare.iter().position(|(spare, _)| spare == op) {
            Some(at) => Ok(self.spare.swap_remove(at).1),
            None => new_filesystem(filesystem, options, op),
        }
    }

    /// The root's file system through a second mount, which stays writable.
    fn scratch(&self) -> Result<OwnedFd, FsviewError> {
        let tree = mount::clone_tree(self.tree.root.as_fd(), c"", false)
            .map_err(|error| FsviewError::new("open_tree", "/", error))?;
        mount::set_attributes(tree.as_fd(), NOSUID | NODEV, 0, false)
            .map_err(|error| FsviewError::new("mount_setattr", "/", error))?;
        Ok(tree)
    }

    /// Before Linux 6.15 open_tree(2) copies from attached mounts alone (EINVAL): then what is kept for places
    /// that may appear is attached where a mount of the run's own covers it. No path leads there, and nobody
    /// inside can take the cover away.
    fn hide(&mut self, spec: &FsSpec, pending: &Pending) -> Result<(), FsviewError> {
        if pending.is_empty() || pending.can_copy() {
            return Ok(());
        }
        let is_own =
            |op: &&MountOp| matches!(&op.kind, MountKind::New { filesystem, .. } if filesystem == "tmpfs");
        let place = spec.mounts.iter().rev().find(is_own).map(|op| op.target.clone());
        let place = place.ok_or_else(|| FsviewError::new("open_tree", "/", Errno::EINVAL))?;
        let own = tree::open(self.tree.root.as_fd(), &place)
            .map_err(|errno| FsviewError::new("openat2", &place, errno))?;
        let cover = mount::clone_tree(own.as_fd(), c"", true)
            .map_err(|error| FsviewError::new("open_tree", &place, error))?;
        for tree in pending.trees() {
            self.attach(&place, Shape::Directory, tree)?;
        }
        self.attach(&place, Shape::Directory, &cover)
    }

    fn make_directory(&mut self, path: &Path) -> Result<(), FsviewError> {
        match self.tree.make_directory(path) {
            // A tree of the host without that directory: it stays absent there too.
            Ok(()) | Err(Errno::EROFS) => Ok(()),
            Err(errno) => Err(FsviewError::new("mkdir", path, errno)),
        }
    }

    pub(super) fn mount_one(&mut self, op: &MountOp, copied: Option<Copied>) -> Result<(), FsviewError> {
        match &op.kind {
            _ if matches!(copied, Some(Copied::Drafted { .. })) => Ok(()),
            MountKind::Bind { .. } => match copied {
                Some(Copied::Link { target, .. }) => self.make_link(&op.target, &target),
                Some(Copied::Tree { tree, shape, .. }) => self.attach(&op.target, shape, &tree),
                Some(Copied::Lower { lower, .. }) => self.put_over(op, lower),
                _ => Err(FsviewError::new("open_tree", &op.target, Errno::EBADF)),
            },
            MountKind::New { filesystem, .. } => {
                let made = self.new_filesystem(op)?;
                if filesystem == "tmpfs" {
                    self.tree.add_own(&made).map_err(|errno| FsviewError::new("fstat", &op.target, errno))?;
                }
                self.attach(&op.target, Shape::Directory, &made)
            }
            MountKind::Mask => self.mask(op),
        }
    }

    /// Attaches what stands for a directory or file of the host.
    fn put_over(&mut self, op: &MountOp, lower: Lower) -> Result<(), FsviewError> {
        let refused = || FsviewError::new("fsopen(overlay)", &op.target, Errno::EBADF);
        let uppers = self.uppers.as_mut().ok_or_else(refused)?;
        let (shape, tree) = match lower {
            Lower::Directory(lower) => {
                (Shape::Directory, uppers.over(&lower, &op.target, op.attributes & !RDONLY)?)
            }
            Lower::File(mut file) => (Shape::File, uppers.copy(&mut file, &op.target, op.attributes)?),
        };
        self.attach(&op.target, shape, &tree)?;
        if shape == Shape::Directory {
            if self.stand_ins.iter().any(|place| place.starts_with(&op.target)) {
                // Mount points are made in it.
                self.tree.add_own(&tree).map_err(|errno| FsviewError::new("fstat", &op.target, errno))?;
            }
            if op.attributes & RDONLY != 0 {
                self.closing.push((tree, op.target.clone(), op.attributes));
            }
        }
        Ok(())
    }

    /// What holds the writes that are diverted, those at places that do not exist yet among them.
    fn divert(&mut self, spec: &FsSpec, pending: &mut Pending) -> Result<Diverted, FsviewError> {
        let Some(mut uppers) = self.uppers.take() else { return Ok(Diverted::default()) };
        for (tree, target, attributes) in self.closing.drain(..) {
            let writable = uppers.close(&tree, &target, attributes)?;
            pending.overlays.push((target, writable));
        }
        let mut holders = Vec::new();
        for root in &spec.pending {
            let (tree, directory) = uppers.holder(root)?;
            pending.hold(root, tree);
            holders.push(directory);
        }
        Ok(Diverted { layers: uppers.into_layers(), holders })
    }

    fn covers(&mut self) -> Result<&mut Covers, FsviewError> {
        let covers = match self.covers.take() {
            Some(covers) => covers,
            None => Covers::new()?,
        };
        Ok(self.covers.insert(covers))
    }

    fn attach(&mut self, target: &Path, shape: Shape, tree: &OwnedFd) -> Result<(), FsviewError> {
        self.tree.attach(target, shape, tree).map_err(|errno| FsviewError::new("move_mount", target, errno))
    }

    /// Covers what is at `op.target` by an empty file or directory; what is absent stays absent.
    fn mask(&mut self, op: &MountOp) -> Result<(), FsviewError> {
        let point = match tree::open(self.tree.root.as_fd(), &op.target) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            other => other.map_err(|errno| FsviewError::new("openat2", &op.target, errno))?,
        };
        let status = fstat(&point).map_err(|errno| FsviewError::new("fstat", &op.target, errno))?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        if kind == SFlag::S_IFLNK {
            return Ok(());
        }
        let shape = if kind == SFlag::S_IFDIR { Shape::Directory } else { Shape::File };
        let tree = self.covers()?.blank(shape, &op.target)?;
        self.attach(&op.target, shape, &tree)
    }

    fn make_link(&mut self, path: &Path, target: &std::ffi::OsStr) -> Result<(), FsviewError> {
        match self.tree.link(path, target) {
            Ok(()) | Err(Errno::EEXIST | Errno::EROFS) => Ok(()),
            Err(errno) => Err(FsviewError::new("symlink", path, errno)),
        }
    }

    /// Writes a generated file, over whatever a mounted tree has at that name: there one of a `number` is
    /// written later.
    fn generate(
        &mut self,
        path: &Path,
        number: Option<usize>,
        fill: &mut Fill<'_>,
    ) -> Result<(), FsviewError> {
        let failed = |error| FsviewError::new("write", path, error);
        match self.tree.create(path, 0o644) {
            Ok(mut file) => return fill(&mut file).map_err(failed),
            Err(Errno::EEXIST | Errno::EROFS) => {}
            Err(errno) => return Err(FsviewError::new("open", path, errno)),
        }
        if matches!(tree::open(self.tree.root.as_fd(), path), Err(Errno::ENOENT)) {
            // A tree of the host without that file: programs do without it as on the host.
            return Ok(());
        }
        let (mut file, tree) = self.covers()?.file(path)?;
        match number {
            Some(number) => self.unwritten.push(Unwritten { path: path.to_owned(), number, file }),
            None => fill(&mut file).map_err(failed)?,
        }
        self.attach(path, Shape::File, &tree)
    }
}

fn new_filesystem(
    filesystem: &str,
    options: &[(String, String)],
    op: &MountOp,
) -> Result<OwnedFd, FsviewError> {
    let text =
        |text: &str| CString::new(text).map_err(|_| FsviewError::new("fsconfig", &op.target, Errno::EINVAL));
    let kind = text(filesystem)?;
    let pairs: Vec<(CString, CString)> = options
        .iter()
        .map(|(key, value)| Ok((text(key)?, text(value)?)))
        .collect::<Result<_, FsviewError>>()?;
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_c_str(), value.as_c_str())).collect();
    mount::new_filesystem(&kind, &pairs, op.attributes).map_err(FsviewError::of(filesystem))
}
