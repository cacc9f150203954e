//! What can be wrong with an entry of a trace.

use std::fmt;
use std::path::PathBuf;

use super::scan::Malformed;

/// What is wrong with an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tamper {
    /// The line is no entry.
    Malformed(Malformed),
    /// The line is longer than any entry may be.
    TooLong,
    /// The hash of the entry is not that of its text.
    Edited,
    /// Entries before this one are missing: it has another number than its place.
    Deleted {
        /// The number that it has.
        found: u64,
    },
    /// The entry has a number that came before: reordered, repeated or inserted.
    OutOfOrder {
        /// The number that it has.
        found: u64,
    },
    /// The entry follows another one than the one before it: that one was replaced, or this one was inserted.
    Unchained,
    /// A checkpoint or the seal tells of another history.
    WrongCheckpoint {
        /// The field that differs.
        field: &'static str,
    },
    /// Something follows the seal.
    AfterSeal,
    /// A blob that the entry refers to is not there.
    BlobMissing {
        /// Its name.
        sha256: String,
    },
    /// There is no place in which a blob that the entry refers to could be.
    BlobsMissing {
        /// Where they were looked for.
        directory: PathBuf,
    },
    /// A blob that the entry refers to has another content.
    BlobAltered {
        /// Its name.
        sha256: String,
    },
    /// A body that stands in the entry has another digest than the one beside it.
    TextAltered {
        /// What the entry says.
        sha256: String,
    },
    /// The last entry is not the expected one.
    OtherHead,
    /// The entry was not examined: a thread of the verifier ended early.
    NotExamined,
}

impl fmt::Display for Tamper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => write!(f, "the line is no entry: {reason}"),
            Self::TooLong => f.write_str("the line is longer than any entry may be"),
            Self::Edited => f.write_str("edited: its hash is not that of its text"),
            Self::Deleted { found } => write!(f, "deleted: entry {found} stands in its place"),
            Self::OutOfOrder { found } => {
                write!(f, "reordered or inserted: entry {found} stands in its place")
            }
            Self::Unchained => f.write_str("it does not follow the entry before it: replaced or inserted"),
            Self::WrongCheckpoint { field } => {
                write!(f, "it tells of another history: {field} differs")
            }
            Self::AfterSeal => f.write_str("inserted: it follows the seal"),
            Self::BlobMissing { sha256 } => write!(f, "its blob {sha256} is missing"),
            Self::BlobsMissing { directory } => write!(
                f,
                "there is no directory {}, in which its blobs would be: a trace is moved together with it, or packed \
                 (agentbox pack)",
                directory.display()
            ),
            Self::BlobAltered { sha256 } => write!(f, "its blob {sha256} was altered"),
            Self::TextAltered { sha256 } => write!(f, "its body does not have the digest {sha256}"),
            Self::NotExamined => f.write_str("it was not examined: the verifier ran out of resources"),
            Self::OtherHead => f.write_str("the trace ends otherwise than expected: its head is another"),
        }
    }
}
