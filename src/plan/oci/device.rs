//! The view's device nodes, which a document does not list: every OCI runtime makes them by itself
//! (config-linux.md, "Default Devices") and trips over what is mounted there already.

use std::path::{Path, PathBuf};

use super::super::PlanError;
use crate::fsview::{MountKind, MountOp};
use crate::sys::mount::{NOEXEC, NOSUID, RDONLY};

/// Those of the default devices that are nodes of the host.
const DEFAULT: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

fn op(path: &Path) -> MountOp {
    MountOp {
        target: path.to_owned(),
        kind: MountKind::Bind { source: path.to_owned(), recursive: false },
        attributes: NOSUID | NOEXEC | RDONLY,
    }
}

fn is_default(path: &Path) -> bool {
    DEFAULT.iter().any(|known| path == Path::new(known))
}

/// Splits the device nodes at the end of `ops` off.
pub(super) fn split(ops: &[MountOp]) -> (&[MountOp], Vec<PathBuf>) {
    let is_node = |one: &MountOp| is_default(&one.target) && *one == op(&one.target);
    let mounts = ops.iter().rposition(|one| !is_node(one)).map_or(0, |last| last + 1);
    let (mounts, nodes) = ops.split_at(mounts);
    (mounts, nodes.iter().map(|node| node.target.clone()).collect())
}

/// Reads the device nodes back.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<MountOp>, PlanError> {
    match paths.iter().find(|path| !is_default(path)) {
        Some(path) => Err(PlanError::Device { path: path.clone() }),
        None => Ok(paths.iter().map(|path| op(path)).collect()),
    }
}
