//! What a process of the run sees of the file system: a root of its own, built from mounts.
//!
//! Order of use: in the cloned child a [`Draft`], before there is a plan, and [`Draft::copies`], while the launcher
//! takes a [`look`] at the same places (with the caller's rights); [`fn@build`] when both saw the same; [`landlock`] as the second
//! layer in the command's process.

mod build;
mod content;
mod copies;
mod cover;
mod doors;
mod draft;
pub mod initial;
mod keystore;
mod landlock;
mod overlay;
mod pending;
mod pivot;
mod served;
mod tree;

pub use build::{Built, Contents, Unwritten};
pub use content::Content;
pub use copies::{Copies, FileKey, look};
pub use doors::Door;
pub use draft::{Draft, build};
pub use initial::InitialState;
pub use landlock::{LandlockRule, Restricted, Right, restrict};
pub use overlay::{Divert, Diverted};
pub use pending::Pending;
pub use pivot::{enter, leave_old_root};
pub use served::serve;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::lossless;
use crate::sys::refused::{Named, Refused};

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum MountKind {
    /// A tree or a file of the host. A symbolic link is recreated as the link that it is.
    Bind {
        /// Where it is on the host.
        #[serde(with = "lossless::path")]
        source: PathBuf,
        /// With everything that is mounted below it.
        recursive: bool,
    },
    /// A new file system of the kernel: its type and its options.
    New {
        /// `tmpfs`, `proc` or `devpts`.
        filesystem: String,
        /// `key=value` pairs; a key alone has an empty value.
        options: Vec<(String, String)>,
    },
    /// Hides what is there: an empty file or directory without any permission.
    Mask,
}

/// One step of building the view.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MountOp {
    /// Absolute path in the view.
    #[serde(with = "lossless::path")]
    pub target: PathBuf,
    /// What goes there.
    pub kind: MountKind,
    /// `MOUNT_ATTR_*` bits, see [`crate::sys::mount`].
    pub attributes: u64,
}

impl MountOp {
    /// Whether a link at its source does.
    fn leads_somewhere(&self) -> bool {
        matches!(&self.kind, MountKind::Bind { source, .. } if source.exists())
    }

    /// Whether something else is there for what is not on this host.
    fn is_stand_in(&self) -> bool {
        matches!(&self.kind, MountKind::Bind { source, .. } if *source != self.target)
    }
}

/// A file of the launcher's own making.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GeneratedFile {
    /// Absolute path in the view.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// Its whole content.
    pub content: Content,
}

/// A symbolic link of the launcher's own making.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Link {
    /// Absolute path in the view.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// What it points at, as stored in the link.
    #[serde(with = "lossless::path")]
    pub target: OsString,
}

/// A place that a rule names and that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PendingRoot {
    /// Where it will be, on the host and in the view.
    #[serde(with = "lossless::path")]
    pub path: PathBuf,
    /// The nearest directory above it that exists.
    #[serde(with = "lossless::path")]
    pub base: PathBuf,
    /// `MOUNT_ATTR_*` bits of its mount.
    pub attributes: u64,
}

/// Everything that the view consists of; carried out in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FsSpec {
    /// Mounts, outer before inner.
    pub mounts: Vec<MountOp>,
    /// Directories that exist in the root itself although nothing is mounted there.
    #[serde(with = "lossless::paths")]
    pub directories: Vec<PathBuf>,
    /// Generated files.
    pub files: Vec<GeneratedFile>,
    /// Links.
    pub links: Vec<Link>,
    /// Places that may appear.
    pub pending: Vec<PendingRoot>,
    /// What is not written to the host, where nothing may be.
    pub divert: Option<Divert>,
}

impl FsSpec {
    /// Whether the host's own root is the view's.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.mounts.first().is_some_and(|op| op.target == Path::new("/"))
    }

    /// What is there of our own making, /proc's files excepted: links, files, and what covers others.
    #[must_use]
    pub fn made(&self) -> Vec<PathBuf> {
        let is_own = |op: &&MountOp| match &op.kind {
            // A link is made anew.
            MountKind::Bind { source, .. } => source.is_symlink(),
            MountKind::New { .. } => true,
            MountKind::Mask => !op.target.starts_with("/proc"),
        };
        let mounts = self.mounts.iter().filter(is_own).map(|op| &op.target);
        let files = self.files.iter().map(|file| &file.path);
        mounts.chain(files).chain(self.links.iter().map(|link| &link.path)).cloned().collect()
    }

    /// Whether what is written at `op` stays in the run.
    fn diverts(&self, op: &MountOp) -> bool {
        self.divert.as_ref().is_some_and(|divert| divert.roots.contains(&op.target))
    }

    /// The content of every generated file that takes something over from the host. Opened by the launcher,
    /// with the rights of the caller: the child has lost its own to files of unmapped users.
    pub fn taken_over(&self) -> impl Iterator<Item = &Content> {
        self.files.iter().map(|file| &file.content).filter(|content| content.bytes().is_none())
    }
}

/// A step that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{call}({}): {}", path.display(), Named(source))]
pub struct FsviewError {
    /// The system call.
    pub call: &'static str,
    /// What it was called for.
    pub path: PathBuf,
    /// Its errno.
    pub source: io::Error,
}

impl FsviewError {
    fn new(call: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self { call, path: path.into(), source: source.into() }
    }

    fn of(path: impl Into<PathBuf>) -> impl FnOnce(Refused) -> Self {
        move |refused| Self::new(refused.call, path, refused.source)
    }
}
