//! What can go wrong with a trace, an operation a variant.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use thiserror::Error;

use super::ustar::Fault;

/// A failure to write, place or read a trace.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The path given for the trace names no file.
    #[error("{} names no file: give the trace a file name", path.display())]
    NoFileName {
        /// The path as given.
        path: PathBuf,
    },
    /// The directory of the trace cannot be opened.
    #[error("cannot open the directory {} for the trace: {}: make it first, or name a file elsewhere with -t", path.display(), Named(source))]
    OpenDirectory {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The directory of the trace cannot be listed or written in.
    #[error("the directory {} of the trace must be readable and writable: {}: name a file elsewhere with -t", path.display(), Named(source))]
    ClosedDirectory {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something that is no trace stands where the trace should go.
    #[error("{} exists and is no trace: name another file with -t, or overwrite it with --force", path.display())]
    NotReplaceable {
        /// What stands there.
        path: PathBuf,
    },
    /// A directory, or what cannot be overwritten at all, stands where the trace should go.
    #[error("{} is {what}: name another file with -t", path.display())]
    Occupied {
        /// What stands there.
        path: PathBuf,
        /// What sort of thing it is.
        what: &'static str,
    },
    /// Another run is writing this trace.
    #[error("another run is writing {}: wait for its end, or name another file with -t", path.display())]
    Busy {
        /// The trace.
        path: PathBuf,
    },
    /// A file or directory of the trace cannot be made.
    #[error("cannot create {}: {}: name a file elsewhere with -t", path.display(), Named(source))]
    Create {
        /// What was to be made.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The trace's file cannot be locked.
    #[error("cannot lock {} (flock): {}: name a file on another file system with -t", path.display(), Named(source))]
    Lock {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// An existing trace cannot be moved out of the way.
    #[error("cannot rename {} to {}: {source}", from.display(), to.display())]
    Rename {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No directory is private enough to keep a trace for the time of the run.
    #[error("no private directory for the trace: {} cannot be made, or is not a directory of this user with mode 0700: set XDG_STATE_HOME to a directory that you may write in", path.display())]
    StateDirectory {
        /// The last directory that was tried.
        path: PathBuf,
    },
    /// The journal of a waiting trace cannot be understood.
    #[error("{} does not say where its trace belongs", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
    },
    /// The directory that a waiting trace belongs to was replaced or removed.
    #[error("{} is no longer the directory that the trace belongs to: the trace stays at {}", path.display(), trace.display())]
    DirectoryReplaced {
        /// The directory.
        path: PathBuf,
        /// Where the trace is.
        trace: PathBuf,
    },
    /// A finished trace cannot be put in place.
    #[error("cannot put the trace in place as {}: {source}; it stays at {}", to.display(), from.display())]
    Place {
        /// Where it is.
        from: PathBuf,
        /// Where it belongs.
        to: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The writer's thread cannot be started.
    #[error(
        "cannot start the writer of the trace (dup, clone): {}; \
         raise the limit of open files (ulimit -n), of processes (ulimit -u) or of memory",
        Named(source)
    )]
    StartWriter {
        /// What the kernel said.
        source: io::Error,
    },
    /// Recording has failed before and does not go on.
    #[error("the trace cannot be written: {reason}")]
    Failed {
        /// The first failure.
        reason: Arc<str>,
    },
    /// One event is longer than a line may be.
    #[error("an entry of {bytes} bytes is longer than {limit}: its body belongs in a blob")]
    EntryTooLong {
        /// Length of the line.
        bytes: u64,
        /// The most that a line may hold.
        limit: u64,
    },
    /// The trace has ended.
    #[error("the trace is sealed: nothing can be recorded after its end")]
    Sealed,
    /// A blob cannot be stored.
    #[error("cannot store a body beside the trace: {}", Named(source))]
    StoreBlob {
        /// What the kernel said.
        source: io::Error,
    },
    /// The trace's last bytes cannot be brought to disk.
    #[error("cannot cut the trace to its length (ftruncate): {}", Named(source))]
    Sync {
        /// What the kernel said.
        source: io::Error,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random bytes: {source}")]
    Randomness {
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no such file.
    #[error("there is no trace {}: name one, or record one by `agentbox run`", path.display())]
    Absent {
        /// The trace.
        path: PathBuf,
    },
    /// Nothing is in it.
    #[error("{} is empty, so it is no trace", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A trace cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The trace.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file begins as a packed trace, and is none.
    #[error("{} is no packed trace: {fault}", path.display())]
    Packed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A file is no trace.
    #[error("{} is no trace", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
    },
}

/// Shows an error with the name of its errno, which is what the manual pages say.
pub(super) struct Named<'a>(pub(super) &'a io::Error);

impl fmt::Display for Named<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.raw_os_error() {
            Some(number) => write!(formatter, "{}", Errno::from_raw(number)),
            None => write!(formatter, "{}", self.0),
        }
    }
}
