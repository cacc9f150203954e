//! Why a run is stopped before its command has ended.

use std::io;

use nix::errno::Errno;

use crate::sys::refused::{Named, Refused, remedy};
use crate::trace::TraceError;

/// Why a run is stopped: what happens cannot be recorded or judged any more.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The trace cannot be written.
    #[error("{0}; the run was stopped")]
    Trace(#[from] TraceError),
    /// A written file cannot be watched.
    #[error(
        "written files cannot be watched: {0}; raise fs.inotify.max_user_instances and max_user_watches; the run \
         was stopped"
    )]
    Watch(#[source] Refused),
    /// What must hold before the command begins does not.
    #[error("{0}; nothing was run")]
    Meanwhile(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No descriptor is left.
    #[error("no descriptor is left: {}; raise the limit of open files (ulimit -Hn); the run was stopped", Named(.0))]
    Descriptor(#[source] io::Error),
    /// The root of the run is out of reach.
    #[error("the root of the run cannot be reached: {0}; the run was stopped")]
    View(#[source] Errno),
    /// The notification descriptor failed.
    #[error(
        "system calls of the run cannot be judged: {call}: {}: {}; the run was stopped",
        Named(source), remedy(source).unwrap_or("allow it in the host's seccomp profile")
    )]
    Receive {
        /// The call that failed.
        call: &'static str,
        /// Its errno.
        source: io::Error,
    },
}
