//! Why a trace is not run again.

use std::io;
use std::path::{Path, PathBuf};

use crate::trace::{Tamper, TraceError};

/// Why a trace is not run again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It is no trace, or cannot be read.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// It is not what was recorded.
    #[error("TAMPERED — {path} at entry {entry}: {reason}: nothing was run", path = .path.display())]
    Tampered {
        /// The trace.
        path: PathBuf,
        /// The first bad entry.
        entry: u64,
        /// What is wrong with it.
        reason: Tamper,
    },
    /// It was not recorded for it.
    #[error("{path} cannot be replayed: {reason}", path = .path.display())]
    NotReplayable {
        /// The trace.
        path: PathBuf,
        /// Why not, and what would help.
        reason: String,
    },
    /// An entry or a blob that was there is not there any more.
    #[error("{path}: {source}: the trace changed while it was read", path = .path.display())]
    Read {
        /// The trace.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

impl ReplayError {
    /// Why a body of the trace at `path` cannot be used.
    #[must_use]
    pub fn body(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            // No run records such a one.
            io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge => {
                Self::NotReplayable { path, reason: source.to_string() }
            }
            _ => Self::Read { path, source },
        }
    }
}
