//! Verifies a trace: every entry, the chain between them, the seal, and the blobs.

use std::fmt;
use std::fs::File;
use std::path::Path;

use super::blob_check::BlobCheck;
use super::chain::{entry_sha, next_blob_root};
use super::error::TraceError;
use super::layout::ZERO_SHA;
use super::reader::{Line, Reader};
use super::scan::{Fields, Malformed, Scanner, looks_like_a_trace};

/// What the caller knows about the trace from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// Hash of the last entry, in lower-case hex.
    pub head: Option<String>,
}

/// What a trace proves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verification {
    /// Number of whole entries, up to the first bad one.
    pub entries: u64,
    /// Hash of the last of them; 64 zeros when there is none.
    pub head: String,
    /// How the trace ends.
    pub outcome: Outcome,
}

/// How a trace ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Intact and sealed.
    Sealed,
    /// Intact, but nothing says that this is all.
    Unsealed,
    /// Intact up to a last line that was not finished.
    Torn {
        /// Bytes of that line.
        bytes: usize,
    },
    /// Not what was recorded.
    Tampered {
        /// The first bad entry.
        entry: u64,
        /// What is wrong with it.
        reason: Tamper,
    },
}

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
    /// A blob that the entry refers to has another content.
    BlobAltered {
        /// Its name.
        sha256: String,
    },
    /// The last entry is not the expected one.
    OtherHead,
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
            Self::WrongCheckpoint { field } => write!(f, "it tells of another history: {field} differs"),
            Self::AfterSeal => f.write_str("inserted: it follows the seal"),
            Self::BlobMissing { sha256 } => write!(f, "its blob {sha256} is missing"),
            Self::BlobAltered { sha256 } => write!(f, "its blob {sha256} was altered"),
            Self::OtherHead => f.write_str("the trace ends otherwise than expected: its head is another"),
        }
    }
}

/// Verifies the trace at `path` with the blobs beside it.
///
/// An error means that it cannot be read or is no trace at all.
pub fn verify(path: &Path, expected: &Expectation) -> Result<Verification, TraceError> {
    let read = |source| TraceError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(read)?;
    if file.metadata().map_err(read)?.is_dir() {
        return Err(TraceError::NotATrace { path: path.to_owned() });
    }
    let mut reader = Reader::new(file);
    let mut state = State::new(path);
    let outcome = loop {
        let line = match reader.next_line().map_err(read)? {
            None => break state.end(),
            Some(Line::Torn(bytes)) if state.entries == 0 && !looks_like_a_trace(bytes) => {
                return Err(TraceError::NotATrace { path: path.to_owned() });
            }
            Some(Line::Torn(bytes)) if !state.sealed => break Outcome::Torn { bytes: bytes.len() },
            Some(Line::Torn(_)) => break state.tampered(Tamper::AfterSeal),
            Some(Line::TooLong) => break state.tampered(Tamper::TooLong),
            Some(Line::Whole(line)) => line,
        };
        if state.entries == 0 && !looks_like_a_trace(line) {
            return Err(TraceError::NotATrace { path: path.to_owned() });
        }
        if let Err(reason) = state.take(line) {
            break state.tampered(reason);
        }
    };
    Ok(state.conclude(outcome, expected))
}

struct State {
    scanner: Scanner,
    blobs: BlobCheck,
    entries: u64,
    head: String,
    blob_root: String,
    sealed: bool,
}

impl State {
    fn new(path: &Path) -> Self {
        Self {
            scanner: Scanner::default(),
            blobs: BlobCheck::beside(path),
            entries: 0,
            head: ZERO_SHA.to_owned(),
            blob_root: ZERO_SHA.to_owned(),
            sealed: false,
        }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), Tamper> {
        if self.sealed {
            return Err(Tamper::AfterSeal);
        }
        let fields = self.scanner.scan(line).map_err(Tamper::Malformed)?;
        let sha =
            entry_sha(fields.prev.as_bytes(), fields.before_sha.as_bytes(), fields.after_sha.as_bytes());
        if sha != fields.sha {
            return Err(Tamper::Edited);
        }
        match fields.index {
            found if found > self.entries => return Err(Tamper::Deleted { found }),
            found if found < self.entries => return Err(Tamper::OutOfOrder { found }),
            _ if fields.prev != self.head => return Err(Tamper::Unchained),
            _ => {}
        }
        if fields.kind == "meta" && (fields.op == "run.seal" || fields.op == "checkpoint") {
            check_history(&fields, self.entries, &self.head, &self.blob_root)?;
            self.sealed = fields.op == "run.seal";
        }
        for mention in self.scanner.blobs() {
            self.blobs.check(mention)?;
            self.blob_root = next_blob_root(&self.blob_root, &mention.sha256);
        }
        self.head = sha;
        self.entries += 1;
        Ok(())
    }

    fn end(&self) -> Outcome {
        if self.sealed { Outcome::Sealed } else { Outcome::Unsealed }
    }

    fn tampered(&self, reason: Tamper) -> Outcome {
        Outcome::Tampered { entry: self.entries, reason }
    }

    fn conclude(self, mut outcome: Outcome, expected: &Expectation) -> Verification {
        let other_head = expected.head.as_ref().is_some_and(|head| *head != self.head);
        if other_head && !matches!(outcome, Outcome::Tampered { .. }) {
            outcome = Outcome::Tampered { entry: self.entries.saturating_sub(1), reason: Tamper::OtherHead };
        }
        Verification { entries: self.entries, head: self.head, outcome }
    }
}

/// Checks that a checkpoint or seal tells of exactly what comes before it.
fn check_history(fields: &Fields<'_>, entries: u64, head: &str, blob_root: &str) -> Result<(), Tamper> {
    let args: serde_json::Value = serde_json::from_str(fields.args).unwrap_or_default();
    let text = |name| args.get(name).and_then(serde_json::Value::as_str);
    let checks = [
        ("entries", args.get("entries").and_then(serde_json::Value::as_u64) == Some(entries)),
        ("head", text("head") == Some(head)),
        ("blobs", text("blobs") == Some(blob_root)),
    ];
    match checks.into_iter().find(|(_, holds)| !holds) {
        Some((field, _)) => Err(Tamper::WrongCheckpoint { field }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
