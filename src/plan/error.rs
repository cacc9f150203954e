//! Why a plan cannot be written as a runtime specification, or read from one.

use std::ffi::OsString;
use std::path::PathBuf;

use oci_spec::OciSpecError;

/// Why a plan cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A part of the document cannot be made.
    #[error("the runtime specification cannot be made: {0}")]
    Build(#[from] OciSpecError),
    /// The plan holds what the document does not say.
    #[error(
        "the runtime specification does not say all of the plan: report this with the output of `agentbox spec`"
    )]
    Incomplete,
    /// A word that other runtimes would not read as we mean it.
    #[error("{word:?} is not UTF-8: a runtime specification cannot tell another runtime of it")]
    NotText {
        /// The word.
        word: OsString,
    },
    /// The document is no JSON.
    #[error("the runtime specification: {source}")]
    Json {
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A mask before a mount: the document has room for masks only after all mounts.
    #[error("{} is hidden before {} is mounted; masks come after all mounts", mask.display(), mount.display())]
    MaskOrder {
        /// What is hidden.
        mask: PathBuf,
        /// What is mounted later.
        mount: PathBuf,
    },
    /// A member is missing.
    #[error("the runtime specification has no `{member}`; print it anew with `agentbox spec`")]
    Missing {
        /// Its name.
        member: &'static str,
    },
    /// A member asks for what the launch would not do.
    #[error(
        "`{member}` of the runtime specification asks for what the launch does not do; leave it as it was printed"
    )]
    Unsupported {
        /// Its name.
        member: &'static str,
    },
    /// A mount of a type that the launch does not make.
    #[error("the mount at {} has a type that the launch does not make; it makes bind, tmpfs, proc and devpts", target.display())]
    MountType {
        /// Where it would be.
        target: PathBuf,
    },
    /// A mount with an option that the launch does not know.
    #[error("the mount at {} has the option `{option}`, which the launch does not know", target.display())]
    MountOption {
        /// Where it would be.
        target: PathBuf,
        /// The option.
        option: String,
    },
    /// A device that the launch does not show.
    #[error("the device {} is none that the launch shows", path.display())]
    Device {
        /// Where it would be.
        path: PathBuf,
    },
    /// An annotation that cannot be written or read.
    #[error("the annotation `{name}` of the runtime specification: {source}")]
    Annotation {
        /// Its name.
        name: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// An annotation under our name that means nothing.
    #[error("the annotation `{name}` of the runtime specification means nothing to this version")]
    UnknownAnnotation {
        /// Its name.
        name: String,
    },
}
