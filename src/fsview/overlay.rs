//! Writes that do not reach the host: over each directory that could be changed lies an overlay whose upper
//! layer is in memory, and in the place of each file a copy (Documentation/filesystems/overlayfs.rst).
//!
//! All upper layers are in one file system, gone with the run. It is attached while the view is built, for an
//! overlay takes layers from attached mounts alone before Linux 6.15. That file system needs attributes of
//! users (`userxattr`): tmpfs has them since Linux 6.6.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, futimens, mkdirat};
use nix::sys::time::TimeSpec;

use super::{FsviewError, PendingRoot};
use crate::policy::lossless;
use crate::sys::descriptor::own_path;
use crate::sys::mount::{self, NODEV, NOSUID};
use crate::sys::xattr;

/// What is not written to the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Divert {
    /// Targets of mounts: directories and files of the host.
    #[serde(with = "lossless::paths")]
    pub roots: Vec<PathBuf>,
    /// Those of them that the run only reads: they lack something, or hold it otherwise.
    #[serde(with = "lossless::paths")]
    pub served: Vec<PathBuf>,
}

impl Divert {
    /// Whether what is written at `path` stays in the run, as far as it is the host's.
    #[must_use]
    pub fn covers(&self, path: &Path) -> bool {
        let around = self.roots.iter().filter(|root| path.starts_with(root));
        around.max_by_key(|root| root.components().count()).is_some_and(|root| !self.served.contains(root))
    }
}

/// What holds the writes that do not reach the host.
#[derive(Debug, Default)]
pub struct Diverted {
    /// For each place the upper layer of the directory, or the copy of the file.
    pub layers: Vec<(PathBuf, OwnedFd)>,
    /// For each place that does not exist yet, the directory that will hold it.
    pub holders: Vec<OwnedFd>,
}

/// A directory of the old root that nothing needs any more: see `cover`.
const PLACES: [&str; 3] = ["/sys", "/usr", "/dev"];
/// Most bytes that a run may write where nothing is kept: half of the memory, which is tmpfs' own default.
const SIZE: &std::ffi::CStr = c"50%";

/// What is diverted of the host, opened before anything of it is hidden.
#[derive(Debug)]
pub(super) enum Lower {
    /// A directory, as O_PATH.
    Directory(OwnedFd),
    /// A file, open for reading.
    File(File),
}

impl Lower {
    /// Opens `source`, which is no link.
    pub(super) fn open(source: &Path) -> Result<(Self, FileStat), FsviewError> {
        let refused = |errno| FsviewError::new("open", source, errno);
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = nix::fcntl::open(source, flags, Mode::empty()).map_err(refused)?;
        let status = fstat(&found).map_err(|errno| FsviewError::new("fstat", source, errno))?;
        match SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => Ok((Self::Directory(found), status)),
            SFlag::S_IFREG => {
                let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
                let file = nix::fcntl::open(own_path(found.as_fd()).as_str(), flags, Mode::empty())
                    .map_err(refused)?;
                Ok((Self::File(File::from(file)), status))
            }
            // What is written there is out of our hands.
            _ => Err(refused(Errno::EOPNOTSUPP)),
        }
    }
}

/// The file system of the upper layers.
#[derive(Debug)]
pub(super) struct Uppers {
    root: OwnedFd,
    made: usize,
    /// For each place the upper layer of the directory, or the copy of the file.
    layers: Vec<(PathBuf, OwnedFd)>,
}

impl Uppers {
    /// Makes and attaches it.
    ///
    /// # Errors
    /// The first step that the kernel refused.
    pub(super) fn new() -> Result<Self, FsviewError> {
        let place = PLACES.into_iter().find(|path| Path::new(path).is_dir()).unwrap_or("/etc");
        let options = [(c"mode", c"700"), (c"size", SIZE)];
        let root =
            mount::new_filesystem(c"tmpfs", &options, NOSUID | NODEV).map_err(FsviewError::of(place))?;
        let point = super::tree::open_path(Path::new(place))?;
        mount::attach(root.as_fd(), point.as_fd(), c"")
            .map_err(|error| FsviewError::new("move_mount", place, error))?;
        let uppers = Self { root, made: 0, layers: Vec::new() };
        // Without them a directory that takes the place of another cannot be told from it.
        let probe = CString::new(own_path(uppers.root.as_fd())).unwrap_or_default();
        xattr::set(&probe, c"user.overlay.probe", b"y", 0)
            .map_err(|error| FsviewError::new("setxattr(user.overlay.probe)", "tmpfs", error))?;
        Ok(uppers)
    }

    /// An overlay over `lower`.
    ///
    /// # Errors
    /// The first step that the kernel refused; `target` names what it was for.
    pub(super) fn over(
        &mut self,
        lower: &OwnedFd,
        target: &Path,
        attributes: u64,
    ) -> Result<OwnedFd, FsviewError> {
        let upper = self.directory(target)?;
        let work = self.directory(target)?;
        let status = fstat(lower).map_err(|errno| FsviewError::new("fstat", target, errno))?;
        // What is seen of the directory itself is the upper one's.
        set_status(&File::from(upper.try_clone().map_err(|e| FsviewError::new("dup", target, e))?), &status)
            .map_err(|errno| FsviewError::new("fchmod", target, errno))?;
        let path = |file: &OwnedFd| CString::new(own_path(file.as_fd())).unwrap_or_default();
        let (lower, over, work) = (path(lower), path(&upper), path(&work));
        let options = [
            (c"userxattr", c""),
            // Files that were not changed keep the inode numbers of the host: see `supervisor::identity`.
            (c"xino", c"off"),
            (c"lowerdir", &*lower),
            (c"upperdir", &*over),
            (c"workdir", &*work),
        ];
        let made = mount::new_filesystem(c"overlay", &options, attributes)
            .map_err(|refused| FsviewError::new(overlay_call(refused.call), target, refused.source))?;
        self.layers.push((target.to_owned(), upper));
        Ok(made)
    }

    /// A mount of a copy of `file`.
    ///
    /// # Errors
    /// As [`Uppers::over`].
    pub(super) fn copy(
        &mut self,
        file: &mut File,
        target: &Path,
        attributes: u64,
    ) -> Result<OwnedFd, FsviewError> {
        let failed = |call: &'static str| move |error: std::io::Error| FsviewError::new(call, target, error);
        let status = fstat(&*file).map_err(|errno| FsviewError::new("fstat", target, errno))?;
        let name = self.name();
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let made = openat(&self.root, name.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR);
        let mut made = File::from(made.map_err(|errno| FsviewError::new("open", target, errno))?);
        std::io::copy(file, &mut made).map_err(failed("write"))?;
        set_status(&made, &status).map_err(|errno| FsviewError::new("fchmod", target, errno))?;
        let tree = mount::clone_tree(self.root.as_fd(), &name, false).map_err(failed("open_tree"))?;
        mount::set_attributes(tree.as_fd(), attributes, 0, false).map_err(failed("mount_setattr"))?;
        self.layers.push((target.to_owned(), made.into()));
        Ok(tree)
    }

    /// In the place of the directory of the host that would hold a place that does not exist yet: an empty
    /// one, as a mount and opened.
    ///
    /// # Errors
    /// As [`Uppers::over`].
    pub(super) fn holder(&mut self, place: &PendingRoot) -> Result<(OwnedFd, OwnedFd), FsviewError> {
        let failed =
            |call: &'static str| move |error: std::io::Error| FsviewError::new(call, &place.path, error);
        let name = self.name();
        mkdirat(&self.root, name.as_c_str(), Mode::S_IRWXU)
            .map_err(|errno| FsviewError::new("mkdir", &place.path, errno))?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = openat(&self.root, name.as_c_str(), flags, Mode::empty())
            .map_err(|errno| FsviewError::new("open", &place.path, errno))?;
        let tree = mount::clone_tree(self.root.as_fd(), &name, false).map_err(failed("open_tree"))?;
        mount::set_attributes(tree.as_fd(), place.attributes, 0, false).map_err(failed("mount_setattr"))?;
        Ok((tree, directory))
    }

    /// Makes the overlay at `target` read-only for the run: it is attached as `tree`. Its first layer is then a mount of
    /// it that can be written, which is given back too; its second is the upper one.
    ///
    /// # Errors
    /// As [`Uppers::over`].
    pub(super) fn close(
        &mut self,
        tree: &OwnedFd,
        target: &Path,
        attributes: u64,
    ) -> Result<OwnedFd, FsviewError> {
        let failed = |call: &'static str| move |error: std::io::Error| FsviewError::new(call, target, error);
        let writable = mount::clone_tree(tree.as_fd(), c"", false).map_err(failed("open_tree"))?;
        mount::set_attributes(tree.as_fd(), attributes, 0, false).map_err(failed("mount_setattr"))?;
        if let Some((_, layer)) = self.layers.iter_mut().find(|(place, _)| place == target) {
            let upper = std::mem::replace(layer, writable.try_clone().map_err(failed("dup"))?);
            self.layers.push((target.to_owned(), upper));
        }
        Ok(writable)
    }

    /// The upper layers: what was changed below each place.
    pub(super) fn into_layers(self) -> Vec<(PathBuf, OwnedFd)> {
        self.layers
    }

    fn name(&mut self) -> CString {
        self.made += 1;
        CString::new(self.made.to_string()).unwrap_or_default()
    }

    fn directory(&mut self, target: &Path) -> Result<OwnedFd, FsviewError> {
        let name = self.name();
        mkdirat(&self.root, name.as_c_str(), Mode::S_IRWXU)
            .map_err(|errno| FsviewError::new("mkdir", target, errno))?;
        openat(&self.root, name.as_c_str(), OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| FsviewError::new("open", target, errno))
    }
}

fn set_status(file: &File, status: &FileStat) -> nix::Result<()> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    file.set_permissions(std::fs::Permissions::from_mode(status.st_mode & 0o7777)).map_err(errno)?;
    let times = [
        TimeSpec::new(status.st_atime, status.st_atime_nsec),
        TimeSpec::new(status.st_mtime, status.st_mtime_nsec),
    ];
    futimens(file, &times[0], &times[1])
}

/// So that it is known what was refused.
fn overlay_call(call: &'static str) -> &'static str {
    match call {
        "fsopen" => "fsopen(overlay)",
        "fsconfig" => "fsconfig(overlay)",
        _ => "fsmount(overlay)",
    }
}
